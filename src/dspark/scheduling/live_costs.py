"""Costs that follow the machine: a profile, corrected by the steps that really ran."""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dspark.scheduling.cost_model import CostKind, CostModel, with_free_start
from dspark.scheduling.time_table import TimeTable


@dataclass(frozen=True, kw_only=True)
class RefinementOptions:
    """How fast and how far costs follow.

    Corrections are factors, kept as logarithms. A step moves them by a share of its error, and an error counts for no
    more than ``clip``: one hiccup moves the drift by ``clip * drift_rate``, whatever its size.

    Attributes:
        drift_rate: share of the error by which the common factor moves.
        width_rate: share by which the factors of the two measured widths beside the step's own move.
        clip: largest error that counts, as a logarithm.
        max_drift: bound of the common factor, either way.
        max_width: bound of a width's own factor, either way.
        notice: factor from which :meth:`LiveCosts.notice` speaks up.
        least_steps: steps before it does.
    """

    drift_rate: float = 0.05
    width_rate: float = 0.05
    clip: float = 0.3
    max_drift: float = 8.0
    max_width: float = 2.0
    notice: float = 1.25
    least_steps: int = 20


@dataclass(slots=True, eq=False, kw_only=True)
class _Correction:
    """Factors of one table, as logarithms."""

    table: TimeTable
    drift: float = 0.0
    steps: int = 0
    own: NDArray[np.float64] = field(init=False)

    def __post_init__(self) -> None:
        self.own = np.zeros(len(self.table.widths))

    def nodes(self, depth: float) -> NDArray[np.float64]:
        return self.table.nodes(depth) * np.exp(self.drift + self.own)

    def learn(self, width: int, depth: float, seconds: float, options: RefinementOptions) -> None:
        low, share = _place(self.table.widths, width)
        high = min(low + 1, len(self.own) - 1)
        base, extra = self.table.at(width, depth), (1 - share) * self.own[low] + share * self.own[high]
        error = math.log(seconds / float(base)) - self.drift - float(extra)
        error = min(max(error, -options.clip), options.clip)
        limit, own_limit = math.log(options.max_drift), math.log(options.max_width)
        self.drift = min(max(self.drift + options.drift_rate * error, -limit), limit)
        for node, weight in ((low, 1 - share), (high, share)):
            moved = self.own[node] + options.width_rate * weight * error
            self.own[node] = min(max(moved, -own_limit), own_limit)
        self.steps += 1


class LiveCosts:
    """A profile that learns (bounded, robust, resettable); plans like the profile itself until it has seen steps.

    Args:
        model: the profile.
        options: how fast and how far.
        enabled: False only ever gives what was measured.
    """

    def __init__(self, model: CostModel, options: RefinementOptions | None = None, *, enabled: bool = True) -> None:
        self.model, self.options, self.enabled = model, options or RefinementOptions(), enabled
        self.reset()

    def reset(self) -> None:
        """Forget everything since the profile."""
        self._corrections: dict[str, _Correction] = {"verify": _Correction(table=self.model.verify)}
        if self.model.draft is not None:
            self._corrections["draft"] = _Correction(table=self.model.draft)

    def verify_curve(self, max_rows: int, context: float) -> NDArray[np.float64]:
        """See :class:`StepCosts`."""
        verify = self._corrections["verify"]
        return verify.table.between(verify.nodes(context), np.arange(max_rows + 1))

    def draft_curve(self, max_requests: int, block: int) -> NDArray[np.float64]:
        """See :class:`StepCosts`."""
        draft = self._corrections.get("draft")
        if draft is None or block == 0:
            return np.zeros(max_requests + 1)
        return with_free_start(draft.table.between(draft.nodes(block), np.arange(max_requests + 1)))

    def draft_blocks(self) -> tuple[int, ...]:
        """See :class:`StepCosts`."""
        return self.model.draft_blocks()

    def observe(self, kind: CostKind, width: int, depth: float, seconds: float) -> None:
        """Learn from a step that really ran; times that are no positive number are left out.

        Args:
            kind: ``verify`` or ``draft``.
            width: rows of the step, or requests that drafted.
            depth: mean keys per row, or block length.
            seconds: of the step without drafting, or of drafting.
        """
        correction = self._corrections.get(kind)
        if self.enabled and correction is not None and width > 0 and seconds > 0 and math.isfinite(seconds):
            correction.learn(width, depth, seconds, self.options)

    def drift(self, kind: CostKind = "verify") -> float:
        """Factor by which everything takes longer than when it was profiled."""
        correction = self._corrections.get(kind)
        return 1.0 if correction is None else math.exp(correction.drift)

    def width_factors(self, kind: CostKind = "verify") -> dict[int, float]:
        """Further factor of every measured width."""
        correction = self._corrections.get(kind)
        if correction is None:
            return {}
        return dict(zip(correction.table.widths, np.exp(correction.own).tolist(), strict=True))

    def notice(self) -> str | None:
        """A sentence if the machine is not what it was when it was profiled."""
        verify, drift = self._corrections["verify"], self.drift()
        if verify.steps < self.options.least_steps or 1 / self.options.notice < drift < self.options.notice:
            return None
        word = "slower" if drift > 1 else "faster"
        return (
            f"steps take {drift:.2f} times as long as when the machine was profiled: it has become {word}, or is "
            "shared with other work; the plan follows, a new profile would be more exact"
        )


def _place(widths: tuple[int, ...], width: int) -> tuple[int, float]:
    """The measured width at or below, and how far from it to the next one, 0 .. 1."""
    low = max(bisect_right(widths, width) - 1, 0)
    if low == len(widths) - 1 or width < widths[0]:
        return low, 0.0
    return low, (width - widths[low]) / (widths[low + 1] - widths[low])
