"""Who drafts in a step, and how much: the choice that maximises tokens per second, drafting paid for.

It rests on how often each request's drafts were accepted in earlier steps, never on what is about to be drafted.
Plain decoding is always among the choices.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from dspark.scheduling.cost_model import StepCosts
from dspark.scheduling.step_view import Floats, Ints, StepView

_LEVELS = 512
"""Expected survivals are told apart to this fineness, which saves sorting them; those below one level never pay."""


@dataclass(frozen=True, kw_only=True)
class DraftChoice:
    """A choice and what it is expected to bring. R requests.

    Attributes:
        lengths: [R] drafts of each request; all 0 is plain decoding.
        planned: [R] how many of them should be verified if nothing more becomes known about them.
        throughput: expected tokens per second.
        plain: expected tokens per second of plain decoding.
        seconds: expected of the step.
    """

    lengths: Ints
    planned: Ints
    throughput: float
    plain: float
    seconds: float


def choose_drafts(
    expected: Floats, view: StepView, costs: StepCosts, verify: Floats, *, blocks: Iterable[int], margin: float = 0.0
) -> DraftChoice:
    """Maximise tokens / (drafting + verifying) over who drafts and the length of the blocks.

    For every block length: all candidate drafts by falling expected survival, the best number of them on
    the whole curve, then the best number of requests among those that have any, by what they bring. Blocks have one
    length for all, since a drafter works as long as its longest block.

    Args:
        expected: [R, G] survival of each request's drafts.
        view: the step.
        costs: of drafting.
        verify: [base rows + R * G + 1 at least] seconds of a step with so many target rows.
        blocks: lengths to try, see :func:`blocks_to_try`; each at most G.
        margin: plain decoding is left only for a gain above this share.
    """
    nobody = np.zeros(view.num_requests, np.int64)
    plain_seconds = float(verify[view.base_rows])
    plain = view.num_requests / plain_seconds
    best = DraftChoice(lengths=nobody, planned=nobody, throughput=plain, plain=plain, seconds=plain_seconds)
    least = plain * (1 + margin)
    for block in blocks:
        limits = np.minimum(view.limits, block)
        values = np.where(np.arange(block) < limits[:, None], expected[:, :block], 0.0)
        found = _choose(values, limits, view, costs.draft_curve(view.num_requests, block), verify, plain)
        if found is not None and found.throughput > max(best.throughput, least):
            best = found
    return best


def blocks_to_try(measured: tuple[int, ...], longest: int) -> list[int]:
    """Block lengths whose price is known, up to the longest one, which is always among them."""
    if longest == 0:
        return []
    if len(measured) < 2:
        return [longest]
    return sorted({min(block, longest) for block in measured if block > 0} | {longest})


def _choose(
    values: Floats, limits: Ints, view: StepView, draft: Floats, verify: Floats, plain: float
) -> DraftChoice | None:
    """The best choice for one block length; None if no draft is worth its rows."""
    base, tokens = view.base_rows, view.num_requests
    levels = (values * _LEVELS).astype(np.int64)
    levels_of = levels.ravel()
    counts = np.cumsum(np.bincount(levels_of, minlength=_LEVELS + 1)[:0:-1])  # of drafts at or above a level
    gains = np.cumsum(np.bincount(levels_of, values.ravel(), minlength=_LEVELS + 1)[:0:-1])
    rows = verify[base + counts]
    for drafting in (int((limits > 0).sum()), 1):
        rates = (tokens + gains) / (draft[drafting] + rows)
        best = int(np.argmax(rates))
        if rates[best] > plain:
            break
    else:
        return None
    taken = levels >= _LEVELS - best
    gain, planned = np.where(taken, values, 0.0).sum(axis=1), taken.sum(axis=1)
    order = np.argsort(-gain, kind="stable")
    numbers = np.arange(1, len(order) + 1)
    seconds = draft[numbers] + verify[base + np.cumsum(planned[order])]
    rates = np.where(gain[order] > 0, (tokens + np.cumsum(gain[order])) / seconds, 0.0)
    last = int(np.argmax(rates))
    chosen = np.zeros(len(order), bool)
    chosen[order[: last + 1]] = True
    return DraftChoice(
        lengths=np.where(chosen, limits, 0),
        planned=np.where(chosen, planned, 0),
        throughput=float(rates[last]),
        plain=plain,
        seconds=float(seconds[last]),
    )
