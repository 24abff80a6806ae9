"""Trying again whether drafting pays, at a bounded price.

Every step earns a small share of its own time. A request that has not drafted for a while is probed, with a short block
that is verified whole, when what has been earned covers the seconds by which the step gets longer. Tokens that a probe
then really brings are paid back at the present rate, so a request whose probes succeed is probed again at once, until
its estimate has caught up and the ordinary choice takes over. What all probes together lose is never more than the
earned share of the time (as far as the costs are right).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dspark.scheduling.step_view import Floats, Ints, StepOutcome, StepView

_NEVER = -(1 << 40)


@dataclass(frozen=True, kw_only=True)
class ExplorationOptions:
    """How much is tried.

    Attributes:
        share: of the time that probes may lose; 0 never probes.
        block: drafts of a probe.
        gap: steps between two probes of a request that fail.
        saved: most probes that can be saved up for.
    """

    share: float = 0.005
    block: int = 3
    gap: int = 8
    saved: float = 2.0


class Explorer:
    """Decides when a request that does not draft tries it again.

    Args:
        num_slots: slots of the requests.
        options: how much.
    """

    def __init__(self, num_slots: int, options: ExplorationOptions | None = None) -> None:
        self.options = options or ExplorationOptions()
        self.credit = 0.0
        self._last = np.full(num_slots, _NEVER, np.int64)
        self._probes: dict[int, tuple[int, int, float]] = {}  # step -> slot, generation, seconds that a token is worth

    def clear(self, slots: Ints) -> None:
        """Make slots those of fresh requests."""
        self._last[slots] = _NEVER

    def candidate(self, view: StepView, lengths: Ints) -> int | None:
        """The request that has waited longest, if any may be probed."""
        self._last[view.slots[lengths > 0]] = view.step
        since = view.step - self._last[view.slots]
        waiting = np.nonzero((lengths == 0) & (view.limits > 0) & (since >= self.options.gap))[0]
        if not len(waiting) or self.options.share <= 0:
            return None
        return int(waiting[np.argmax(since[waiting])])

    def block(self, view: StepView, request: int) -> int:
        """Drafts of a probe of that request."""
        return min(self.options.block, int(view.limits[request]))

    def earn(self, seconds: float, price: float) -> None:
        """Put aside a share of a step's time, up to the price of a few probes."""
        self.credit = min(self.credit + self.options.share * seconds, max(self.options.saved * price, self.credit))

    def try_now(self, view: StepView, request: int, price: float, token_seconds: float) -> bool:
        """Pay for a probe if what was earned covers it."""
        if price > self.credit:
            return False
        self.credit -= price
        self._last[view.slots[request]] = view.step
        self._probes[view.step] = int(view.slots[request]), int(view.generations[request]), token_seconds
        return True

    def settle(self, outcome: StepOutcome) -> None:
        """Pay back what a probe brought; one that was not in vain may be repeated at once."""
        for old in [step for step in self._probes if step < outcome.step]:
            del self._probes[old]
        probe = self._probes.pop(outcome.step, None)
        if probe is None:
            return
        slot, generation, token_seconds = probe
        here = np.nonzero((outcome.slots == slot) & (outcome.generations == generation))[0]
        if len(here) and outcome.accepted[here[0]] > 0:
            self.credit += float(outcome.accepted[here[0]]) * token_seconds
            self._last[slot] = _NEVER


def probe_price(draft: Floats, verify: Floats, rows: int, block: int) -> float:
    """Seconds that a step takes longer for a probe.

    Args:
        draft: [2] seconds of drafting without and with it.
        verify: seconds of steps with so many target rows.
        rows: target rows of the step without it.
        block: its drafts.
    """
    return max(float(draft[1] - draft[0] + verify[rows + block] - verify[rows]), 0.0)
