"""Training-time test: the drafter runs on its own output for some steps, every step is taught by the target.

Keys of step 0 are those of all rows of a sequence, queries only those of a few, so that a pass costs what a pass of a
parallel drafter with as many anchors costs. With all rows it is the reference's loss (Li et al. 2025).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dspark.drafters.eagle3.model import Eagle3Model
from dspark.drafters.eagle3.training_batch import Eagle3TrainingBatch
from dspark.drafters.losses import FrozenTarget, LossSums, LossWeights, Teacher, vocabulary_loss

EAGLE3_LOSS = LossWeights(ce=0.0, kl=1.0, tv=0.0, confidence=0.0)
"""The method's own loss, soft cross-entropy; its weights by step come from the drafter's configuration."""


class Eagle3Objective(nn.Module):
    """A drafter together with its losses; ``forward`` is one pass, so that wrappers for many processes fit."""

    def __init__(self, model: Eagle3Model, target: FrozenTarget, factors: LossWeights = EAGLE3_LOSS) -> None:
        super().__init__()
        self.model = model
        self.target, self.factors = target, factors

    def forward(self, batch: Eagle3TrainingBatch) -> LossSums:
        """Unroll the rows of the batch and sum up every loss term."""
        return training_pass(self.model, batch, self.target, self.factors)


def step_weights(taught: Tensor, decay: float) -> Tensor:
    """Weights of steps: [.., G] bool -> float32, decay ** k where the step counts and 0 elsewhere."""
    steps = torch.arange(taught.shape[-1], device=taught.device, dtype=torch.float32)
    return taught * torch.pow(torch.tensor(decay, device=taught.device), steps)


def step_states(model: Eagle3Model, batch: Eagle3TrainingBatch, target: FrozenTarget) -> Tensor:
    """Hidden states (after the last norm) of all steps of all rows of the batch, [N, A, G, D]."""
    fused = model.fuse(batch.features.to(target.embedding.dtype) * target.feature_scale)
    packed = model.context(fused, target.embedding[batch.following], batch.positions)
    keys, values = (part[batch.gather] for part in packed)
    embedded = target.embedding[batch.read]
    outputs = model.unroll(fused[batch.packed_rows], embedded, batch.rows, (keys, values), batch.key_positions)
    hidden: Tensor = model.norm(torch.stack(outputs, dim=2))
    return hidden


def training_pass(
    model: Eagle3Model, batch: Eagle3TrainingBatch, target: FrozenTarget, factors: LossWeights
) -> LossSums:
    """Run the drafter over the true text and compute every loss term; acceptance is that of the judged steps."""
    chosen = batch.taught | batch.judged
    hidden = step_states(model, batch, target)[chosen]  # [n, D]
    weights = step_weights(batch.taught, model.config.step_loss_decay)[chosen]
    labels = batch.labels[chosen]
    teacher = Teacher(
        hidden=batch.teacher_hidden.to(hidden.dtype),
        labels=torch.where(labels < 0, -1, target.to_draft[labels.clamp_min(0)]),
        log_z=None if target.full_vocabulary else batch.log_z,
        rows=batch.teacher_rows[chosen],
    )
    loss, steps = vocabulary_loss(
        hidden, None, target.head, None, teacher, weights, factors, softcap=target.logit_softcap
    )
    grids = (
        torch.zeros(chosen.shape, device=chosen.device).masked_scatter_(chosen, t) for t in (steps.accept, steps.hit)
    )
    accept, hit = ((grid * batch.judged).flatten(0, 1) for grid in grids)
    return LossSums(
        loss=loss,
        weight=weights.sum(),
        terms={name: (weights * getattr(steps, name)).sum() for name in ("ce", "kl", "tv")},
        accept=accept,
        hit=hit,
        mask=batch.judged.flatten(0, 1),
    )
