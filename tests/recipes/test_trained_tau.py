"""A drafter trained here is as good in the engine as its training says."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dspark import LLM, SamplingParams
from dspark.data.conversation import Conversation
from dspark.data.corpus import Corpus
from dspark.evaluation import engine_tau, make_arm
from dspark.recipes import find_recipe, override
from dspark.recipes.tau_agreement import tau_agreement
from dspark.recipes.training_run import borrow
from dspark.target import LoadedTarget
from dspark.training.online_source import OnlineSource
from dspark.training.trainer import Trainer

PROMPTS = [np.random.default_rng(number).integers(8, 264, size=12).tolist() for number in range(40)]
LENGTH = 40


@pytest.fixture(scope="module")
def trainer(loaded: LoadedTarget, tmp_path_factory: pytest.TempPathFactory) -> Trainer:
    """A drafter that learnt most of the target's greedy answers to a few prompts by heart."""
    llm, params = LLM(loaded, drafter="none"), SamplingParams(temperature=0.0, max_tokens=LENGTH)
    answers = [list(output.outputs[0].token_ids) for output in llm.generate(PROMPTS, params, progress=False)]
    corpus = Corpus.of(
        Conversation(ids=prompt + answer, mask=[0] * 12 + [1] * len(answer), domain="", temperature=0.0, complete=False)
        for prompt, answer in zip(PROMPTS, answers, strict=True)
    )
    words = "optim.steps=150 optim.lr=4e-3 optim.muon_lr=none optim.warmup=10 sequences_per_step=8 seed=1"
    sizes = "anchors_per_sequence=12 validation_sequences=12 validate_every=150 save_every=150"
    config = override(find_recipe("tiny").training, [*words.split(), *sizes.split(), "drafter.draft_vocab_size=none"])
    folder = tmp_path_factory.mktemp("trained")
    source = OnlineSource(loaded, corpus, config.drafter.target_layer_ids)
    made = Trainer(config, source, borrow(loaded.target), folder, device=torch.device("cpu"))
    made.run()
    return made


@pytest.mark.pitfall(38)
def test_validation_is_what_the_engine_does(loaded: LoadedTarget, trainer: Trainer) -> None:
    """tau of the trainer's own validation on prompts it has held back, beside that of the engine on the same ones."""
    prompts = [PROMPTS[index] for index in trainer.held_back]
    counted = engine_tau(make_arm(loaded, str(trainer.folder / "best")), prompts, max_tokens=LENGTH).tau.value
    assert counted > 1.2
    assert trainer.validate().greedy.tau == pytest.approx(counted, rel=0.05)


@pytest.mark.pitfall(38)
def test_sampled_rounds_are_foretold(loaded: LoadedTarget, trainer: Trainer) -> None:
    found = tau_agreement(loaded, trainer.folder / "best", PROMPTS, temperature=1.0, max_tokens=LENGTH)
    assert found.engine.tau.value > 1.1
    assert found.at_rounds == pytest.approx(found.engine.tau.value, rel=0.05)
