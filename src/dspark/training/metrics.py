"""Acceptance estimates from teacher-forced slot terms."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Acceptance:
    """How many tokens a round would commit, estimated without running the engine.

    Attributes:
        tau: mean over blocks of 1 + sum_j prod_{i<=j} a_i.
        conditional: acceptance at each slot, given that all earlier ones were accepted.
        blocks: number of blocks behind the means.
    """

    tau: float
    conditional: tuple[float, ...]
    blocks: int


def acceptance(rates: Tensor, mask: Tensor, weights: Tensor | None = None) -> Acceptance:
    """Estimate acceptance.

    Args:
        rates: [b, G] acceptance probability of each slot: 1 - L1/2 for sampling, 0 or 1 (draft argmax equals the
            target's token) for greedy decoding.
        mask: [b, G] bool contiguous prefix of slots that count; blocks without any are left out.
        weights: [b] how much each block counts, as of ``round_starts``; all the same for None.

    Returns:
        the estimate; slots that do not count contribute nothing.
    """
    counted = mask[:, 0]
    rates, mask = (rates * mask)[counted].double(), mask[counted]
    shares = torch.ones(len(rates), dtype=torch.float64) if weights is None else weights[counted].double()
    survival = torch.cumprod(rates, dim=1)
    before = torch.cat([torch.ones_like(survival[:, :1]), survival[:, :-1]], dim=1) * mask
    conditional = (shares @ survival) / (shares @ before).clamp_min(1e-12)
    tau = 1 + (shares @ survival).sum() / shares.sum() if len(survival) else torch.tensor(1.0)
    return Acceptance(tau=float(tau), conditional=tuple(conditional.tolist()), blocks=len(survival))


def round_starts(rates: Tensor, mask: Tensor, positions: np.ndarray) -> Tensor:
    """Probability that a round of the engine starts at each anchor of a text.

    The engine does not meet anchors evenly: it starts a round behind every rejection, so hard places more often. A
    round begins at the first token of an answer; the next one as many tokens later as the first one commits.

    Args:
        rates, mask: [A, G] as for ``acceptance``, of the anchors of one sequence.
        positions: [A] int64 positions of the anchors, increasing; where they do not follow on each other, a new answer
            begins.

    Returns:
        [A] float64.
    """
    survival = torch.cumprod((rates * mask).double(), dim=1).numpy()
    edges = np.ones((len(survival), 1))
    advance = np.hstack([edges, survival]) - np.hstack([survival, 0 * edges])  # [A, G + 1]: commit 1 .. G + 1 tokens
    firsts = np.flatnonzero(np.diff(positions, prepend=-2) != 1)
    starts = np.zeros(len(positions))
    starts[firsts] = 1.0
    ends = np.append(firsts[1:], len(positions))
    for first, end in zip(firsts, ends, strict=True):
        for at in range(first, end):
            after = starts[at + 1 : min(end, at + 1 + advance.shape[1])]
            after += starts[at] * advance[at, : len(after)]
    return torch.from_numpy(starts)
