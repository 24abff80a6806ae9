"""One segment as numbers that can be added up."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from dspark.evaluation.load.latency import LatencyTarget
from dspark.evaluation.load.trace import Output, RequestTrace, Trace


@dataclass(frozen=True, kw_only=True)
class Sample:
    """A segment.

    Attributes:
        tokens: written while it was watched.
        seconds: for how long it was.
        stay_seconds: time that all users together spent with the engine, waiting included.
        rounds: answers continued, summed over steps; each has one target row for its anchor.
        verified: target rows for drafts.
        accepted: drafts that were kept.
        first_token: seconds from arrival to the first token, of every request whose first token was seen.
        gaps: seconds from one output of a user to the next, and the tokens of that one.
        judged, attained: requests held against the latencies, and those within all of them.
    """

    tokens: int
    seconds: float
    stay_seconds: float
    rounds: int
    verified: int
    accepted: int
    first_token: tuple[float, ...]
    gaps: tuple[tuple[float, int], ...]
    judged: int
    attained: int

    @property
    def later_tokens(self) -> int:
        """Tokens after the first of each answer, which rounds have written."""
        return sum(count for _, count in self.gaps)

    @property
    def later_seconds(self) -> float:
        """Time that all users together waited for these."""
        return sum(gap for gap, _ in self.gaps)


def sample_of(trace: Trace, goal: LatencyTarget) -> Sample:
    """The numbers of a segment.

    Args:
        trace: what happened.
        goal: what attainment is measured against.
    """
    inside = [[output for output in request.outputs if _inside(output, trace)] for request in trace.requests]
    later = [list(_later(request, trace)) for request in trace.requests]
    waits = [_first_wait(request, trace) for request in trace.requests]
    steps = [step.stats for step in trace.steps if trace.start < step.at <= trace.end]
    rounds = sum(len(stats.verify_lens) for stats in steps)
    verified = sum(sum(stats.verify_lens) for stats in steps)
    seconds = trace.end - trace.start
    verdicts = [_attains(wait, gaps, goal) for wait, gaps in zip(waits, later, strict=True)]
    return Sample(
        tokens=sum(len(output.token_ids) for outputs in inside for output in outputs),
        seconds=seconds,
        stay_seconds=sum(map(_stay, trace.requests)) if trace.users is None else seconds * trace.users,
        rounds=rounds,
        verified=verified,
        accepted=sum(output.drafted for outputs in inside for output in outputs),
        first_token=tuple(wait for wait in waits if wait is not None),
        gaps=tuple(entry for gaps in later for entry in gaps),
        judged=sum(verdict is not None for verdict in verdicts),
        attained=sum(verdict is True for verdict in verdicts),
    )


def _inside(output: Output, trace: Trace) -> bool:
    return trace.start < output.at <= trace.end


def _later(request: RequestTrace, trace: Trace) -> Iterator[tuple[float, int]]:
    """Gap before each output but the first, and its tokens."""
    for before, output in pairwise(request.outputs):
        if _inside(output, trace):
            yield output.at - before.at, len(output.token_ids)


def _first_wait(request: RequestTrace, trace: Trace) -> float | None:
    """Time to the first token, if the request arrived while the segment was watched and got one."""
    if request.arrived < trace.start or not request.outputs:
        return None
    return request.outputs[0].at - request.arrived


def _stay(request: RequestTrace) -> float:
    assert request.ended is not None, "an open loop answers everything"
    return request.ended - request.arrived


def _attains(wait: float | None, gaps: list[tuple[float, int]], goal: LatencyTarget) -> bool | None:
    """Whether all that was seen of a request is within the latencies; None if nothing was seen."""
    kept = [] if wait is None else [wait <= goal.first_token]
    if gaps:
        kept.append(sum(gap for gap, _ in gaps) <= goal.token * sum(count for _, count in gaps))
    return all(kept) if kept else None
