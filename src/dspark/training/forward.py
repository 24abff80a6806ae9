"""One teacher-forced pass of a drafter over a training batch: losses and acceptance estimates."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from dspark.drafters.dspark import DSparkModel
from dspark.training.batches import DraftTrainingBatch
from dspark.training.objective import LossWeights, SlotTerms, Teacher, confidence_loss, slot_weights, vocabulary_loss


@dataclass(frozen=True, kw_only=True)
class FrozenTarget:
    """What a drafter borrows from its target, in the compute dtype.

    Attributes:
        embedding: [V, D].
        head: [Vd, D] rows of the LM head of the draft vocabulary's tokens.
        to_draft: [V] int64 entry of each target token in the draft vocabulary, -1 where it has none.
        feature_scale: [m * D] factor applied to raw features; folded into ``fc.weight`` on export.
        full_vocabulary: whether the draft vocabulary is the target's.
    """

    embedding: Tensor
    head: Tensor
    to_draft: Tensor
    feature_scale: Tensor
    full_vocabulary: bool


@dataclass(frozen=True, kw_only=True)
class PassResult:
    """Losses of one pass (weighted means over the batch) and the slot terms behind them.

    Attributes:
        loss: scalar with gradients.
        ce, kl, tv, confidence: scalars without.
        mask: [N, A, G] bool slots that count; ``terms`` holds their terms in that order.
    """

    loss: Tensor
    ce: Tensor
    kl: Tensor
    tv: Tensor
    confidence: Tensor
    mask: Tensor
    terms: SlotTerms


def slot_states(model: DSparkModel, batch: DraftTrainingBatch, target: FrozenTarget) -> Tensor:
    """Final hidden states of all blocks of the batch, [N, A, G, D]."""
    features = batch.features.to(target.embedding.dtype) * target.feature_scale
    context = model.context(features)
    packed = model.context_keys_values(context, batch.positions)
    padded = [(keys[batch.gather], values[batch.gather]) for keys, values in packed]
    embedded = target.embedding[model.block_ids(batch.tokens[..., 0])]
    return model.blocks(embedded, batch.anchors, padded, batch.key_positions)


def training_pass(
    model: DSparkModel, batch: DraftTrainingBatch, target: FrozenTarget, factors: LossWeights
) -> PassResult:
    """Run the drafter with true previous tokens and compute every loss term."""
    hidden = slot_states(model, batch, target)[batch.mask]  # [n, D]
    weights = slot_weights(batch.mask, factors.decay)
    weights = (weights / weights.sum())[batch.mask]
    embedded, code = _sequential(model, batch, hidden)
    teacher = Teacher(
        hidden=batch.teacher_hidden[batch.mask].to(hidden.dtype),
        labels=target.to_draft[batch.tokens[..., 1:][batch.mask]],
        log_z=None if target.full_vocabulary else batch.log_z[batch.mask],
    )
    head = model.markov_head
    w2 = None if head is None else head.markov_w2.weight
    loss, terms = vocabulary_loss(hidden, code, target.head, w2, teacher, weights, factors)
    confidence = torch.zeros(())
    if model.confidence_head is not None:
        confidence = confidence_loss(model.confidence_head(hidden, embedded), terms.accept, weights)
        loss = loss + factors.confidence * confidence
    ce, kl, tv = ((weights * term).sum() for term in terms[:3])
    return PassResult(loss=loss, ce=ce, kl=kl, tv=tv, confidence=confidence.detach(), mask=batch.mask, terms=terms)


def _sequential(model: DSparkModel, batch: DraftTrainingBatch, hidden: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """Embeddings of the true previous tokens [n, r] and the codes [n, r] of the slots that count."""
    if model.markov_head is None:
        return None, None
    embedded = model.markov_head.embed(batch.tokens[..., :-1]).to(hidden.dtype)  # [N, A, G, r]
    grid = hidden.new_zeros(*batch.mask.shape, hidden.shape[-1])
    grid[batch.mask] = hidden
    return embedded[batch.mask], model.markov_head.codes(embedded, grid)[batch.mask]
