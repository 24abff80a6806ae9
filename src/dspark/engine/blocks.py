"""Drafted blocks as the host sees them, fetched from the device in one go."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from dspark.core import Proposal


@dataclass(frozen=True, kw_only=True)
class Blocks:
    """The blocks of R sequences that drafted. G slots of the longest block.

    Attributes:
        proposal: from the drafter, on its device.
        tokens: R lists of G token ids; those past ``proposal.lengths`` are meaningless.
        confidence: [R, G] as the drafter states it, 0 where that is no number; None without a confidence head.
        trusted: the same after calibration, which is what the policy sees.
    """

    proposal: Proposal
    tokens: list[list[int]]
    confidence: NDArray[np.float64] | None = None
    trusted: NDArray[np.float64] | None = None

    @property
    def lengths(self) -> tuple[int, ...]:
        """Proposed tokens of each."""
        return self.proposal.lengths


NO_BLOCKS = Blocks(proposal=Proposal(tokens=torch.empty(0, 0, dtype=torch.int64), lengths=()), tokens=[])
"""When nobody drafts."""


def fetch(proposal: Proposal) -> tuple[NDArray[np.int64], NDArray[np.float64] | None]:
    """Token ids and confidences [R, G] in host memory, one copy from a device (and one wait).

    A confidence that is no number is none: it becomes 0.
    """
    tokens, confidence = proposal.tokens, proposal.confidence
    if confidence is None:
        return tokens.cpu().numpy(), None
    if tokens.device.type == "cpu":
        return tokens.numpy(), np.nan_to_num(confidence.detach().double().numpy(), nan=0.0)
    both = torch.stack((tokens.double(), confidence.double())).cpu().numpy()  # token ids are exact in float64
    return both[0].astype(np.int64), np.nan_to_num(both[1], nan=0.0)
