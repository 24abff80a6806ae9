"""The largest values of long rows, fast."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

_CHUNK = 64
"""Values per chunk of the two-level search."""


def largest(values: Tensor, count: int) -> Tensor:
    """The ``count`` largest values of each row, descending: [N, V] -> [N, min(count, V)]."""
    width = values.shape[1]
    if values.is_cuda:
        return values.topk(min(count, width)).values
    if count * _CHUNK * 2 <= width:
        return _from_best_chunks(values, count)
    ranked = values.numpy()
    if count < width:
        ranked = np.partition(ranked, width - count, axis=1)[:, width - count :]
    return torch.from_numpy(np.sort(ranked, axis=1)).flip(1)


def _from_best_chunks(values: Tensor, count: int) -> Tensor:
    """The largest values lie in the ``count`` chunks with the largest maxima, so most of a row is read only once."""
    whole = values.shape[1] - values.shape[1] % _CHUNK
    chunks = values[:, :whole].unflatten(1, (-1, _CHUNK))
    best = chunks.amax(-1).topk(count, sorted=False).indices
    pool = chunks.gather(1, best[:, :, None].expand(-1, -1, _CHUNK)).flatten(1)
    return torch.cat([pool, values[:, whole:]], 1).topk(count).values
