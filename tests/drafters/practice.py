"""Training a drafter for a tiny target with nothing but the public pieces: capture, batch, pass, step."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from dspark.drafters.dspark import DSparkConfig, DSparkModel, HeadType
from dspark.drafters.dspark.objective import DSparkObjective
from dspark.drafters.dspark.target_side import embedding_rows
from dspark.drafters.dspark.training_batch import DraftTrainingBatch
from dspark.drafters.losses import FrozenTarget, LossSums
from dspark.target import PackedTarget, pack_model

from ..target.families import tiny_model
from ..target.traces import Text, run

TAPS = (0, 2)


@dataclass(frozen=True, kw_only=True)
class Captured:
    """Texts of equal length and what the target says about them: [N, S] ids, [N, S, ..] the rest."""

    ids: Tensor
    features: Tensor
    last_hidden: Tensor
    logits: Tensor


@lru_cache(maxsize=8)
def family_target(family: str) -> PackedTarget:
    return pack_model(tiny_model(family), page_size=4)


def config_for(target: PackedTarget, **changes: Any) -> DSparkConfig:
    facts = target.facts
    sizes: dict[str, Any] = {
        "hidden_size": facts.hidden_size,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 12,
        "vocab_size": facts.vocab_size,
        "block_size": 5,
        "mask_token_id": 2,
        "target_layer_ids": TAPS,
        "num_target_layers": facts.num_layers,
        "head_type": HeadType.VANILLA,
        "markov_rank": 8,
    }
    return DSparkConfig(**(sizes | changes))


def capture(target: PackedTarget, ids: Tensor) -> Captured:
    """Run texts [N, S] through the target, each on pages of its own."""
    count, length = ids.shape
    pages = -(-length // target.page_size)
    target.set_taps(TAPS)
    target.allocate(count * pages)
    texts = [Text(ids=row.tolist(), pages=list(range(i * pages, (i + 1) * pages))) for i, row in enumerate(ids)]
    output = run(target, [(text, length) for text in texts])
    shape = (count, length, -1)
    assert output.features is not None
    assert output.last_hidden is not None
    return Captured(
        ids=ids,
        features=output.features.view(shape),
        last_hidden=output.last_hidden.view(shape),
        logits=output.logits.view(shape),
    )


def batch_of(seen: Captured, anchors: Tensor, block: int) -> DraftTrainingBatch:
    """Blocks at the anchors [N, A] of every text; slots past a text's end do not count."""
    count, length = seen.ids.shape
    spans = anchors[..., None] + torch.arange(block + 1)
    inside, rows = spans < length, torch.arange(count)[:, None, None]
    spans = spans.clamp(max=length - 1)
    return DraftTrainingBatch(
        features=seen.features.flatten(0, 1),
        positions=torch.arange(length).repeat(count),
        gather=torch.arange(count * length).view(count, length),
        key_positions=torch.arange(length).expand(count, length),
        anchors=anchors,
        tokens=seen.ids[rows, spans],
        teacher_hidden=seen.last_hidden.flatten(0, 1),
        log_z=torch.logsumexp(seen.logits.float(), -1).flatten(),
        teacher_rows=rows * length + spans[..., :-1],
        mask=inside[..., 1:],
    )


def frozen(target: PackedTarget, config: DSparkConfig, vocabulary: Tensor | None = None) -> FrozenTarget:
    """What the drafter borrows, with plain features."""
    size = target.facts.vocab_size
    words = torch.arange(size) if vocabulary is None else vocabulary
    to_draft = torch.full((size,), -1)
    to_draft[words] = torch.arange(len(words))
    return FrozenTarget(
        embedding=embedding_rows(target),
        head=target.lm_head_weight()[words],
        to_draft=to_draft,
        feature_scale=torch.ones(len(config.target_layer_ids) * config.hidden_size),
        full_vocabulary=vocabulary is None,
        logit_softcap=target.facts.logit_softcap,
    )


def train(
    objective: DSparkObjective, seen: Captured, steps: int, *, lr: float = 3e-3, first: int = 0
) -> list[LossSums]:
    """Adam steps on random anchors from position ``first`` on; the sums of every step."""
    optimizer = torch.optim.Adam(objective.parameters(), lr=lr)
    generator, history = torch.Generator().manual_seed(0), []
    for _ in range(steps):
        anchors = torch.randint(first, seen.ids.shape[1] - 2, (len(seen.ids), 6), generator=generator)
        sums = objective(batch_of(seen, anchors, objective.model.config.block_size))
        optimizer.zero_grad()
        (sums.loss / sums.weight).backward()
        optimizer.step()
        history.append(sums)
    return history


def mean_loss(history: list[LossSums]) -> float:
    return float(sum(sums.loss.detach() / sums.weight for sums in history) / len(history))


def fresh(config: DSparkConfig, seed: int = 0) -> DSparkModel:
    """Small random weights, as a training begins with."""
    torch.manual_seed(seed)
    model = DSparkModel(config)
    for weight in model.parameters():
        if weight.ndim == 2:
            torch.nn.init.normal_(weight, std=0.05)
    torch.nn.init.normal_(model.fc.weight, std=model.fc.in_features**-0.5)
    return model
