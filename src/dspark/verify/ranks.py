"""The largest values of long rows, fast."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

_CHUNKS = (64, 8)
"""Values per chunk of the search, coarse to fine."""


def largest(values: Tensor, count: int) -> Tensor:
    """The ``count`` largest values of each row, descending: [N, V] -> [N, min(count, V)]."""
    for chunk in () if values.is_cuda else _CHUNKS:
        if count * chunk * 2 <= values.shape[1]:
            values = _best_chunks(values, count, chunk)
    width = values.shape[1]
    if values.is_cuda or count * 4 <= width:
        return values.topk(min(count, width)).values
    ranked = values.numpy()
    if count < width:
        ranked = np.partition(ranked, width - count, axis=1)[:, width - count :]
    return torch.from_numpy(np.sort(ranked, axis=1)).flip(1)


def _best_chunks(values: Tensor, count: int, size: int) -> Tensor:
    """A shorter row with the same ``count`` largest values: they lie in the chunks with the largest maxima."""
    rows, width = values.shape
    whole = width - width % size
    chunks = values[:, :whole].reshape(rows, -1, size)
    best = chunks.amax(-1).topk(count, sorted=False).indices
    first = torch.arange(rows)[:, None] * chunks.shape[1]
    pool = chunks.reshape(-1, size).index_select(0, (best + first).flatten()).view(rows, -1)
    return pool if whole == width else torch.cat([pool, values[:, whole:]], 1)
