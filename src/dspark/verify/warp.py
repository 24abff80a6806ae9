"""From logits to the probabilities a token is drawn from: temperature, top_k, top_p, min_p, in this order."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from dspark.verify.filters import filter_probs_
from dspark.verify.row_sampling import RowSampling

_SHIFT_BELOW = 1e-2
"""Temperatures under this divide shifted logits, so that no quotient overflows."""


def warp(logits: Tensor, rows: RowSampling) -> Tensor:
    """Probabilities of each row after temperature and filters.

    Tokens are ranked by probability, equal ones by id (smaller first), so filters are deterministic: ``top_k`` keeps
    exactly k tokens, ``top_p`` the shortest prefix of that ranking whose share of what ``top_k`` kept reaches
    ``top_p``, and ``min_p`` all tokens at least ``min_p`` times as likely as the most likely one.

    Works for target rows and for rows over a reduced draft vocabulary alike. Greedy rows come out at temperature 1;
    nobody draws from them.

    Args:
        logits: [N, V] any float type; not changed.
        rows: options of the N rows.

    Returns:
        [N, V] float32 (float64 for float64 logits). Dropped tokens are exactly zero; the most likely one never is.
    """
    assert logits.shape[0] == len(rows)
    probs = torch.softmax(_scaled(logits, rows.temperature), -1)
    filter_probs_(probs, rows)
    return probs


def _scaled(logits: Tensor, temperature: np.ndarray | None) -> Tensor:
    """A fresh tensor of logits / temperature in the compute type."""
    dtype = logits.dtype if logits.dtype == torch.float64 else torch.float32
    scaled = logits.to(dtype, copy=True)
    if temperature is None:
        return scaled
    if temperature.min() < _SHIFT_BELOW:
        scaled -= scaled.amax(-1, keepdim=True)
    return scaled.div_(torch.from_numpy(temperature).to(scaled)[:, None])
