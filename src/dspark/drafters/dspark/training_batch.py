"""A training batch: a few anchors from each of many sequences, packed without padding (DSpark paper section 3).

Legend: N sequences of the batch, T their tokens together, S longest of them, A anchors per sequence, G slots, U
positions whose next-token distribution some slot is taught by.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np
import torch
from torch import Tensor

FAR = 1 << 30
"""Position given to padding keys: never before any anchor."""


@dataclass(frozen=True, kw_only=True)
class DraftTrainingBatch:
    """Everything one pass needs.

    Attributes:
        features: [T, m * D] target features of the sequences' tokens.
        positions: [T] int64 position of each token in its sequence.
        gather: [N, S] int64 rows of the packed arrays for each padded key; padding points at row 0.
        key_positions: [N, S] int64, FAR where padded.
        anchors: [N, A] int64 anchor positions (dummies where a sequence has fewer candidates).
        tokens: [N, A, G + 1] int64 anchor token and the G tokens after it.
        teacher_hidden: [U, D] last hidden states of the target, each position once.
        log_z: [U] float32 log softmax denominators there.
        teacher_rows: [N, A, G] int64 row of the two above that predicts the slot's token, at position anchor + j.
        mask: [N, A, G] bool slots that count.
    """

    features: Tensor
    positions: Tensor
    gather: Tensor
    key_positions: Tensor
    anchors: Tensor
    tokens: Tensor
    teacher_hidden: Tensor
    log_z: Tensor
    teacher_rows: Tensor
    mask: Tensor

    def to(self, device: torch.device) -> DraftTrainingBatch:
        """The same batch on a device."""
        return replace(self, **{field.name: getattr(self, field.name).to(device) for field in fields(self)})


def padding(lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Gather rows and key positions [N, S] that lay packed sequences out as a padded grid."""
    columns = np.arange(lengths.max())[None, :]
    inside = columns < lengths[:, None]
    first = (np.cumsum(lengths) - lengths)[:, None]
    return np.where(inside, first + columns, 0), np.where(inside, columns, FAR)
