"""Counting what became of the drafts of one answer."""

from __future__ import annotations

from dataclasses import dataclass, field

from dspark.engine.outputs import RoundTrace


def _add(counts: list[int], length: int) -> None:
    """Count positions ``0 .. length - 1``, growing the list as needed."""
    counts.extend([0] * (length - len(counts)))
    for position in range(length):
        counts[position] += 1


@dataclass(slots=True, eq=False)
class Tally:
    """Totals over the rounds of one answer; the meaning of the counts is that of CompletionStats."""

    rounds: int = 0
    drafted: int = 0
    committed: int = 0
    verified_at: list[int] = field(default_factory=list)
    reached_at: list[int] = field(default_factory=list)
    accepted_at: list[int] = field(default_factory=list)
    traces: list[RoundTrace] = field(default_factory=list)

    def add(self, *, drafted: int, verified: int, accepted: int, committed: int) -> None:
        """Count one round."""
        self.rounds += 1
        self.drafted += drafted
        self.committed += committed
        _add(self.verified_at, verified)
        _add(self.reached_at, min(verified, accepted + 1))
        _add(self.accepted_at, accepted)

    def padded(self, counts: list[int]) -> tuple[int, ...]:
        """Counts per position, all three of the same length."""
        return tuple(counts + [0] * (len(self.verified_at) - len(counts)))
