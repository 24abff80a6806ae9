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

    On a CPU, positive 16-bit floats are compared as integers, which keeps their order and is what the processor does
    fast (64 rows of 49152: 0.07 ms, against 19 ms for the float operator).
    """
    if logits.is_cuda:
        return np.asarray(logits.argmax(-1).cpu())
    if logits.dtype not in _HALF:
        return np.asarray(logits.numpy().argmax(-1))
    bits = logits.view(torch.int16).numpy()
    best: np.ndarray = bits.argmax(-1)
    unsure = np.flatnonzero(bits[np.arange(len(best)), best] <= 0)
    if unsure.size:
        best[unsure] = logits[torch.from_numpy(unsure)].float().numpy().argmax(-1)
    return best


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
