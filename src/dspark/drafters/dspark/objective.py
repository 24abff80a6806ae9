"""One teacher-forced pass of DSpark or DFlash over a training batch: losses and acceptance estimates."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.profiler import record_function

from dspark.drafters.dspark.experts import RoutingLog
from dspark.drafters.dspark.model import DSparkModel
from dspark.drafters.dspark.training_batch import DraftTrainingBatch
from dspark.drafters.losses import (
    FrozenTarget,
    LossSums,
    LossWeights,
    SlotTerms,
    Teacher,
    confidence_loss,
    slot_weights,
    vocabulary_loss,
)


class DSparkObjective(nn.Module):
    """A drafter together with its losses; ``forward`` is one pass, so that wrappers for many processes fit."""

    def __init__(self, model: DSparkModel, target: FrozenTarget, factors: LossWeights) -> None:
        super().__init__()
        self.model = model
        self.target, self.factors = target, factors

    def forward(self, batch: DraftTrainingBatch) -> LossSums:
        """Run the drafter with true previous tokens and sum up every loss term."""
        return training_pass(self.model, batch, self.target, self.factors)


def slot_states(
    model: DSparkModel, batch: DraftTrainingBatch, target: FrozenTarget, routing: RoutingLog | None = None
) -> Tensor:
    """Final hidden states of all blocks of the batch, [N, A, G, D]; expert layers note their choices."""
    with record_function("context"):
        features = batch.features.to(target.embedding.dtype) * target.feature_scale
        context = model.context(features)
        packed = model.context_keys_values(context, batch.positions)
        padded = [(keys[batch.gather], values[batch.gather]) for keys, values in packed]
    with record_function("backbone"):
        embedded = target.embedding[model.block_ids(batch.tokens[..., 0], batch.mask.shape[-1])]
        return model.blocks(embedded, batch.anchors, padded, batch.key_positions, routing)


def training_pass(
    model: DSparkModel, batch: DraftTrainingBatch, target: FrozenTarget, factors: LossWeights
) -> LossSums:
    """Run the drafter with true previous tokens and compute every loss term."""
    routing = None if model.config.num_experts is None else RoutingLog()
    hidden = slot_states(model, batch, target, routing)[batch.mask]  # [n, D]
    with record_function("heads and loss"):
        return _losses(model, batch, target, factors, hidden, routing)


def _losses(
    model: DSparkModel,
    batch: DraftTrainingBatch,
    target: FrozenTarget,
    factors: LossWeights,
    hidden: Tensor,
    routing: RoutingLog | None,
) -> LossSums:
    """Heads and losses of the slots that count, hidden [n, D]."""
    weights = slot_weights(batch.mask, factors.decay)[batch.mask]
    embedded, code = _sequential(model, batch, hidden)
    teacher = Teacher(
        hidden=batch.teacher_hidden.to(hidden.dtype),
        labels=target.to_draft[batch.tokens[..., 1:][batch.mask]],
        log_z=None if target.full_vocabulary else batch.log_z,
        rows=batch.teacher_rows[batch.mask],
    )
    head = model.markov_head
    w2 = None if head is None else head.markov_w2.weight
    loss, slots = vocabulary_loss(
        hidden, code, target.head, w2, teacher, weights, factors, softcap=target.logit_softcap
    )
    terms = {name: (weights * getattr(slots, name)).sum() for name in ("ce", "kl", "tv")}
    if model.confidence_head is not None:
        confidence = confidence_loss(model.confidence_head(hidden, embedded), slots.accept, weights)
        loss = loss + factors.confidence * confidence
        terms["confidence"] = confidence.detach()
    if routing is not None:  # one number per pass, weighted like its slots
        balance = routing.balance(batch.mask) * weights.sum()
        loss = loss + factors.balance * balance
        terms["balance"] = balance.detach()
    return _sums(loss, weights, terms, slots, batch.mask)


def _sums(loss: Tensor, weights: Tensor, terms: dict[str, Tensor], slots: SlotTerms, mask: Tensor) -> LossSums:
    """Slot values as a grid of blocks."""
    grids = (torch.zeros(mask.shape, device=mask.device).masked_scatter_(mask, t) for t in (slots.accept, slots.hit))
    accept, hit = (grid.flatten(0, 1) for grid in grids)
    return LossSums(loss=loss, weight=weights.sum(), terms=terms, accept=accept, hit=hit, mask=mask.flatten(0, 1))


def _sequential(model: DSparkModel, batch: DraftTrainingBatch, hidden: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """Embeddings of the true previous tokens [n, r] and the codes [n, r] of the slots that count."""
    if model.markov_head is None:
        return None, None
    embedded = model.markov_head.embed(batch.tokens[..., :-1]).to(hidden.dtype)  # [N, A, G, r]
    grid = hidden.new_zeros(*batch.mask.shape, hidden.shape[-1])
    grid[batch.mask] = hidden
    return embedded[batch.mask], model.markov_head.codes(embedded, grid)[batch.mask]
