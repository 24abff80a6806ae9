"""From training weights to a checkpoint that engines load."""

from __future__ import annotations

import copy
from pathlib import Path

import torch
from torch import Tensor

from dspark.drafters.dspark import DSparkModel
from dspark.drafters.dspark.checkpoint import DSparkCheckpoint, save_checkpoint


def export_drafter(folder: Path, model: DSparkModel, scale: Tensor, vocabulary: Tensor) -> None:
    """Write the drafter in bfloat16, without embedding and LM head (they are the target's).

    Args:
        folder: checkpoint directory.
        model: training weights, float32.
        scale: [m * D] feature scaling of the training, folded into ``fc.weight`` here.
        vocabulary: [Vd] int64 draft vocabulary; written only if it is a reduced one.
    """
    folded = copy.deepcopy(model)
    with torch.no_grad():
        folded.fc.weight.mul_(scale)
    reduced = model.config.draft_vocab_size is not None
    save_checkpoint(folder, DSparkCheckpoint(model=folded, draft_to_target=vocabulary if reduced else None))
