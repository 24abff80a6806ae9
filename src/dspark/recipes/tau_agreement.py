"""What training foretells about a drafter beside what the engine makes of it, on the same texts.

A drafter that looks good in training and bad when served has been trained on other inputs than it is served with:
features of another layer or shifted by a row, positions counted differently, a scale that was not folded in. The two
taus lie close together or something of that kind is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from dspark.data.conversation import Conversation
from dspark.data.corpus import Corpus
from dspark.drafters.dspark import load_checkpoint
from dspark.drafters.losses import LossWeights
from dspark.evaluation import EngineTau, Walk, engine_tau, make_arm
from dspark.evaluation.runs import Ids
from dspark.recipes.training_run import borrow
from dspark.target import LoadedTarget
from dspark.training.dspark_trainee import AnchorDraw, DSparkTrainee
from dspark.training.metrics import Acceptance, acceptance
from dspark.training.online_source import OnlineSource
from dspark.training.trainee import Setting

_SEQUENCES = 4
_DRAWN = 64


@dataclass(frozen=True, kw_only=True)
class TauAgreement:
    """Tokens per round, counted and foretold.

    Attributes:
        engine: counted by the engine.
        at_rounds: foretold for the very rounds of the engine, on the text that it wrote; greedily this is the same
            number but for rounding, sampled it is an expectation.
        at_random: foretold for anchors drawn as validation in training draws them, uniformly from the answers. The
            engine meets hard places more often than that, as it starts a round behind every rejection.
    """

    engine: EngineTau
    at_rounds: float
    at_random: Acceptance


def tau_agreement(
    loaded: LoadedTarget,
    checkpoint: Path,
    prompts: Sequence[Ids],
    *,
    temperature: float = 0.0,
    max_tokens: int = 128,
    concurrency: int = 8,
    seed: int = 0,
) -> TauAgreement:
    """Let the engine answer prompts, then simulate a DSpark or DFlash drafter along its answers.

    Args:
        loaded: the target.
        checkpoint: directory of the drafter.
        prompts: token ids.
        temperature: 0 compares greedy decoding, 1 sampling; training foretells nothing about others.
        max_tokens: length limit of every answer.
        concurrency: answers in progress at a time.
        seed: of the samples and of the drawn anchors.

    Raises:
        InputError: the drafter does not fit the target, or a prompt or option is out of range.
    """
    assert temperature in (0.0, 1.0), "simulated acceptance knows the temperatures 0 and 1"
    arm = make_arm(loaded, str(checkpoint))
    counted = engine_tau(
        arm, prompts, temperature=temperature, max_tokens=max_tokens, concurrency=concurrency, seed=seed
    )
    walks = [walk for walk in counted.walks if walk.anchors]
    trainee = _trainee(loaded, checkpoint, walks, temperature)
    groups = [np.arange(len(walks))[start : start + _SEQUENCES] for start in range(0, len(walks), _SEQUENCES)]
    greedy, block_size = temperature == 0.0, arm.drafter.block_size
    rounds = [_rates(trainee, _rounds(walks, group, block_size), greedy) for group in groups]
    drawn = [_rates(trainee, trainee.draw(group, (seed, 3), _DRAWN), greedy) for group in groups]
    return TauAgreement(
        engine=counted,
        at_rounds=_tau(list(_real_rounds(walks, groups, rounds))),
        at_random=acceptance(
            torch.cat([rates.flatten(0, 1) for rates, _ in drawn]), torch.cat([mask.flatten(0, 1) for _, mask in drawn])
        ),
    )


def _trainee(loaded: LoadedTarget, checkpoint: Path, walks: Sequence[Walk], temperature: float) -> DSparkTrainee:
    """The checkpoint as training would continue it, over the answers."""
    config = load_checkpoint(checkpoint).config
    corpus = Corpus.of(
        Conversation(
            ids=list(walk.token_ids),
            mask=[0] * walk.num_prompt + [1] * (len(walk.token_ids) - walk.num_prompt),
            domain="",
            temperature=temperature,
            complete=True,
        )
        for walk in walks
    )
    target = loaded.target
    setting = Setting(
        source=OnlineSource(loaded, corpus, config.target_layer_ids),
        borrowed=borrow(target),
        device=target.device,
        dtype=target.dtype,
        seed=0,
        loss=LossWeights(),
        init_from=checkpoint,
    )
    trainee = DSparkTrainee(config, setting)
    trainee.module.to(target.dtype)  # as it is served
    return trainee


def _rounds(walks: Sequence[Walk], group: np.ndarray, block_size: int) -> AnchorDraw:
    """The engine's anchors. Slots count up to the last token but one, which leaves room for the bonus."""
    chosen = [walks[index] for index in group]
    longest = max(len(walk.anchors) for walk in chosen)
    anchors = np.zeros((len(chosen), longest), np.int64)
    mask = np.zeros((len(chosen), longest, block_size), bool)
    for row, walk in enumerate(chosen):
        own = np.array(walk.anchors)
        anchors[row, : len(own)] = own
        mask[row, : len(own)] = own[:, None] + np.arange(block_size) < len(walk.token_ids) - 2
    return AnchorDraw(sequences=group, anchors=anchors, mask=mask)


@torch.no_grad()
def _rates(trainee: DSparkTrainee, draw: AnchorDraw, greedy: bool) -> tuple[Tensor, Tensor]:
    """Acceptance of every slot [N, A, G] on the CPU, and which count."""
    mask = torch.from_numpy(draw.mask)
    if not draw.mask.any():
        return torch.zeros(mask.shape), mask
    sums = trainee.module(trainee.batch(draw))
    rates = sums.hit if greedy else sums.accept
    return rates.float().cpu().view(mask.shape), mask


def _real_rounds(
    walks: Sequence[Walk], groups: Sequence[np.ndarray], rounds: Sequence[tuple[Tensor, Tensor]]
) -> Iterator[Tensor]:
    """Rates [rounds, G] of each answer, 0 where a slot does not count; those of dummy anchors left out."""
    for group, (rates, mask) in zip(groups, rounds, strict=True):
        for row, index in enumerate(group):
            count = len(walks[index].anchors)
            yield (rates * mask)[row, :count]


def _tau(rates: Sequence[Tensor]) -> float:
    """Mean of 1 + the sum of running products; rounds without slots that count commit one token."""
    survival = torch.cat(list(rates)).double().cumprod(dim=1)
    return 1.0 + float(survival.sum(1).mean())
