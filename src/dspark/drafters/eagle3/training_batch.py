"""A training batch: a few rows from each of many sequences, unrolled step by step over the true text.

Row i reads token i + 1 + k at step k and predicts token i + 2 + k. It drafts what a block after the anchor i + 1 would.
Legend: N sequences of the batch, T their tokens together, S longest of them, A rows per sequence, G steps, U positions
whose next-token distribution some step is taught by.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np
import torch
from torch import Tensor

PAST_END = 0
"""Token that stands for what a row reads past the end of its text."""


@dataclass(frozen=True, kw_only=True)
class Eagle3TrainingBatch:
    """Everything one pass needs.

    Attributes:
        features: [T, m * D] target features of the sequences' tokens.
        following: [T] int64 the token after each one.
        positions: [T] int64 position of each token in its sequence.
        gather: [N, S] int64 rows of the packed arrays for each padded key; padding points at row 0.
        key_positions: [N, S] int64; in padding larger than any position.
        rows: [N, A] int64 positions i of the rows (dummies where a sequence has fewer candidates).
        packed_rows: [N, A] int64 the same as rows of the packed arrays.
        read: [N, A, G] int64 the token each step reads.
        labels: [N, A, G] int64 the token each step predicts, -1 past the end of the text.
        teacher_hidden: [U, D] last hidden states of the target, each position once.
        log_z: [U] float32 log softmax denominators there.
        teacher_rows: [N, A, G] int64 row of the two above that predicts the step's token, at position i + 1 + k.
        taught: [N, A, G] bool steps that the loss counts.
        judged: [N, A, G] bool steps whose acceptance counts.
    """

    features: Tensor
    following: Tensor
    positions: Tensor
    gather: Tensor
    key_positions: Tensor
    rows: Tensor
    packed_rows: Tensor
    read: Tensor
    labels: Tensor
    teacher_hidden: Tensor
    log_z: Tensor
    teacher_rows: Tensor
    taught: Tensor
    judged: Tensor

    def to(self, device: torch.device) -> Eagle3TrainingBatch:
        """The same batch on a device."""
        return replace(self, **{field.name: getattr(self, field.name).to(device) for field in fields(self)})


def steps_that_count(mask: np.ndarray, rows: np.ndarray, steps: int) -> np.ndarray:
    """Steps that the loss counts: token i + k is inside the loss mask [t] and not the last; [A] -> [A, G] bool."""
    places = rows[:, None] + np.arange(steps)
    return (places < len(mask) - 1) & mask[np.minimum(places, len(mask) - 1)]


def shifted(ids: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """The token after each one of packed sequences: ids [T] and lengths [N] -> [T] int64, PAST_END after the last."""
    following = np.roll(ids.astype(np.int64), -1)
    following[np.cumsum(lengths) - 1] = PAST_END
    return following


def tokens_ahead(ids: np.ndarray, lengths: np.ndarray, rows: np.ndarray, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """What rows read and what they predict.

    Args:
        ids: [T] token ids of packed sequences.
        lengths: [N] their lengths.
        rows: [N, A] positions.
        steps: G.

    Returns:
        tokens read [N, A, G] int64, PAST_END past the end; tokens predicted [N, A, G] int64, -1 past the end.
    """
    firsts, ends = np.cumsum(lengths) - lengths, lengths[:, None, None]
    ahead = rows[..., None] + 1 + np.arange(steps + 1)  # [N, A, G + 1]
    tokens = ids[firsts[:, None, None] + np.minimum(ahead, ends - 1)].astype(np.int64)
    inside = ahead < ends
    return np.where(inside, tokens, PAST_END)[..., :-1], np.where(inside, tokens, -1)[..., 1:]
