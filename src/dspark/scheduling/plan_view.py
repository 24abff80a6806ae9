"""All that a policy may look at when it plans a step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class PlanView:
    """One step seen by a verify policy: numbers about drafted blocks, never the drafted tokens themselves.

    Legend: R requests that decode in this step, G slots of the longest block.

    Attributes:
        proposed: [R] drafted tokens of each request, 0 .. G.
        confidence: [R, G] float32 probability that slot j's token is accepted given that all before it were; None
            without a confidence head. Entry j depends on tokens before slot j only, so whether slot j is verified may
            depend on entries 0 .. j of its own request and on no later one (method, section 6: non-anticipation).
            Entries past ``proposed[r]`` are meaningless.
        num_prefill_rows: rows of the step that belong to no block: prefill chunks.
    """

    proposed: tuple[int, ...]
    confidence: Tensor | None = None
    num_prefill_rows: int = 0

    def __post_init__(self) -> None:
        if self.confidence is not None:
            expected = (len(self.proposed), max(self.proposed, default=0))
            rows, slots = self.confidence.shape
            assert rows == expected[0], f"confidence has {rows} rows for {expected[0]} requests"
            assert slots >= expected[1], f"confidence has {slots} slots for a block of {expected[1]}"

    def confidence_array(self) -> NDArray[np.float32]:
        """The confidences in host memory, [R, G]: a view on CPU, one copy from a device."""
        assert self.confidence is not None, "a policy that needs confidence was let through without one"
        array: NDArray[np.float32] = self.confidence.detach().cpu().numpy()
        return array

    def step_batch(self, plan: Sequence[int]) -> int:
        """Target rows B of the step: anchor and verified drafts of each request, and prefill."""
        return len(plan) + sum(plan) + self.num_prefill_rows
