"""One drafter for every family: what is trained is what is served, embedding scale and soft-cap included."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from dspark.drafters import DSparkDrafter, load_drafter
from dspark.drafters.dspark import DSparkCheckpoint, HeadType, save_checkpoint
from dspark.drafters.dspark.objective import DSparkObjective, slot_states
from dspark.drafters.dspark.target_side import embedding_rows
from dspark.drafters.losses import LossWeights, Teacher, vocabulary_loss

from ..engine.tiny import completions, engine, greedy
from .practice import batch_of, capture, config_for, family_target, fresh, frozen, mean_loss, train
from .standin import PagedUser, RecordingSampler, random_model

FAMILIES = ["llama", "qwen2", "qwen3", "gemma2", "gemma3_text"]
WORDS = torch.arange(1, 97, 2)


@pytest.mark.parametrize("reduced", [False, True], ids=["all words", "some words"])
@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_training_form_gives_the_logits_that_are_served(family: str, reduced: bool) -> None:
    """Blocks of a text in a training batch, and the same blocks drafted over pages."""
    target = family_target(family)
    config = config_for(target, draft_vocab_size=len(WORDS) if reduced else None, sliding_window=9)
    model, words = random_model(config), WORDS if reduced else None
    seen = capture(target, torch.randint(3, 97, (1, 24), generator=torch.Generator().manual_seed(1)))
    anchors, borrowed = torch.tensor([[0, 5, 18]]), frozen(target, config, words)
    user = PagedUser(DSparkDrafter(model, target, draft_to_target=words))
    batch = batch_of(seen, anchors, config.block_size)
    hidden = slot_states(model, batch, borrowed)[0]
    for row, anchor in enumerate(anchors[0].tolist()):
        user.commit(str(anchor), seen.features[0, :anchor])
        sampler = RecordingSampler()
        proposal = user.propose([str(anchor)], [int(seen.ids[0, anchor])], [anchor], sampler)
        before = torch.cat([seen.ids[0, anchor : anchor + 1], proposal.tokens[0, :-1]])
        base = hidden[row] @ borrowed.head.T
        cap = borrowed.logit_softcap
        base = base if cap is None else cap * torch.tanh(base / cap)
        served = torch.stack(sampler.logits)[:, 0]
        bias = model.markov_head.markov_w2(model.markov_head.embed(before))
        torch.testing.assert_close(served, base + bias, atol=5e-5, rtol=0)


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_loss_speaks_of_the_served_distributions(family: str) -> None:
    """A slot's acceptance in the loss is the overlap of what the drafter serves and what the target serves."""
    target = family_target(family)
    config = config_for(target, head_type=HeadType.NONE, markov_rank=0, enable_confidence_head=False)
    model, borrowed = random_model(config), frozen(target, config)
    seen = capture(target, torch.randint(3, 97, (2, 16), generator=torch.Generator().manual_seed(2)))
    batch = batch_of(seen, torch.tensor([[2, 7], [0, 9]]), config.block_size)
    hidden = slot_states(model, batch, borrowed)[batch.mask]
    rows = batch.teacher_rows[batch.mask]
    served, truth = target.lm_head(hidden).softmax(-1), seen.logits.flatten(0, 1)[rows].softmax(-1)
    teacher = Teacher(batch.teacher_hidden, torch.zeros(len(rows), dtype=torch.int64), None, rows)
    _, terms = vocabulary_loss(
        hidden, None, borrowed.head, None, teacher, torch.ones(len(rows)), LossWeights(), softcap=borrowed.logit_softcap
    )
    torch.testing.assert_close(terms.accept, torch.minimum(served, truth).sum(-1), atol=1e-5, rtol=0)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_short_training_helps_and_the_result_is_served(family: str, tmp_path: Path) -> None:
    """Train, write, load, serve: the loss falls, drafts get accepted, greedy text stays that of plain decoding."""
    target = family_target(family)
    config = config_for(target, sliding_window=9)
    prompts = torch.randint(3, 97, (8, 6), generator=torch.Generator().manual_seed(3)).tolist()
    plain = [done.token_ids for done in completions(engine(target, seed=0), prompts, greedy(24, ignore_eos=True))]
    seen = capture(target, torch.tensor([[*prompt, *text] for prompt, text in zip(prompts, plain, strict=True)]))
    objective = DSparkObjective(fresh(config), frozen(target, config), LossWeights(ce=1.0))
    history = train(objective, seen, 40)
    assert mean_loss(history[-5:]) < 0.8 * mean_loss(history[:5])
    save_checkpoint(tmp_path, DSparkCheckpoint(model=objective.model), dtype=torch.float32)
    served = completions(engine(target, load_drafter(tmp_path, target)), prompts, greedy(24, ignore_eos=True))
    assert [done.token_ids for done in served] == plain
    assert sum(done.stats.accepted for done in served) > 30


def test_gemma_inputs_are_scaled_and_others_are_lent_as_they_are() -> None:
    gemma, llama = family_target("gemma3_text"), family_target("llama")
    scale = torch.tensor(gemma.facts.hidden_size**0.5)
    torch.testing.assert_close(embedding_rows(gemma), gemma.embed_weight() * scale)
    assert embedding_rows(llama).data_ptr() == llama.embed_weight().data_ptr()
    assert family_target("gemma2").facts.logit_softcap == 3.0
