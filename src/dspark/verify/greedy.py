"""The greedy rule: accept while the draft is what the target would have written."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from dspark.core import Verdict

_HALF = (torch.bfloat16, torch.float16)


def best_tokens(logits: Tensor) -> np.ndarray:
    """Most likely token of each row, the smallest id among equals: [N, V] -> [N] int64 on the host.

    On a CPU, 16-bit floats are compared by their bits as integers, which keeps the order of positive ones and reverses
    that of negative ones, and is what the processor does fast (64 rows of 49152: 0.07 ms, the float operator 19 ms).
    """
    if logits.is_cuda:
        return np.asarray(logits.argmax(-1).cpu())
    if logits.dtype not in _HALF:
        return np.asarray(logits.numpy().argmax(-1))
    bits = logits.view(torch.int16).numpy()
    best: np.ndarray = bits.argmax(-1)
    below = np.flatnonzero(bits[np.arange(len(best)), best] < 0)
    if below.size:
        best[below] = bits[below].argmin(-1)
    return best


def best_in_place(logits: Tensor) -> Tensor:
    """The same, [N] int64 where the logits are: on a device nothing is fetched and nothing waited for."""
    return logits.argmax(-1) if logits.is_cuda else torch.from_numpy(best_tokens(logits))


def greedy_verdict(best: Sequence[int], draft: Sequence[int]) -> Verdict:
    """Judge one block by the target's choices.

    Args:
        best: l + 1 most likely tokens, of the anchor row and each draft row.
        draft: l drafted tokens.
    """
    accepted = 0
    while accepted < len(draft) and draft[accepted] == best[accepted]:
        accepted += 1
    return Verdict(accepted=accepted, next_token=int(best[accepted]))
