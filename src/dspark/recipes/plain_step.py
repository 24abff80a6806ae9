"""A training step as one would write it first: float32, all logits at once, gradients by autograd. For comparison."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from dspark.drafters.dspark import DSparkModel
from dspark.drafters.dspark.objective import slot_states
from dspark.drafters.dspark.training_batch import DraftTrainingBatch
from dspark.drafters.losses import FrozenTarget, LossWeights, slot_weights


@dataclass(frozen=True, kw_only=True)
class PlainTarget:
    """The target's matrices in float32.

    Attributes:
        frozen: what the drafter borrows.
        head: [V, D] the whole LM head.
        vocabulary: [Vd] the draft vocabulary.
    """

    frozen: FrozenTarget
    head: Tensor
    vocabulary: Tensor


def plain_loss(model: DSparkModel, batch: DraftTrainingBatch, target: PlainTarget, factors: LossWeights) -> Tensor:
    """Weighted mean loss of a batch of a drafter without experts; scalar with gradient."""
    hidden = slot_states(model, batch, target.frozen)  # [N, A, G, D]
    logits = hidden @ target.frozen.head.T
    embedded = None
    if model.markov_head is not None:
        embedded = model.markov_head.embed(batch.tokens[..., :-1])
        logits = logits + model.markov_head.codes(embedded, hidden) @ model.markov_head.markov_w2.weight.T
    log_draft = torch.log_softmax(logits, dim=-1)
    with torch.no_grad():
        teacher = batch.teacher_hidden.float()[batch.teacher_rows] @ target.head.T
        probs = torch.softmax(teacher, dim=-1)[..., target.vocabulary]
    labels = target.frozen.to_draft[batch.tokens[..., 1:]]
    ce = -log_draft.gather(-1, labels.clamp_min(0)[..., None])[..., 0] * (labels >= 0)
    kl = -(probs * log_draft).sum(dim=-1)
    tv = (log_draft.exp() - probs).abs().sum(dim=-1) + (1 - probs.sum(dim=-1)).clamp_min(0)
    loss = factors.ce * ce + factors.kl * kl + factors.tv * tv
    if model.confidence_head is not None:
        judged = model.confidence_head(hidden, embedded)
        rates = (1 - tv.detach() / 2).clamp(0, 1)
        loss = loss + factors.confidence * F.binary_cross_entropy_with_logits(judged, rates, reduction="none")
    weights = slot_weights(batch.mask, factors.decay)
    mean: Tensor = (loss * weights).sum() / weights.sum()
    return mean
