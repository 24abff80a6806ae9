"""What became of drafts: counts over recorded rounds, and the figures made of them.

Whether a draft would have been accepted is known only where the target looked at it with everything before it accepted.
A block that was cut, by a policy, by the length limit or by the end of the text, says nothing about the positions after
the cut: they are censored, not rejected.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from dspark.engine import RoundTrace


@dataclass(frozen=True, kw_only=True)
class AcceptanceCounts:
    """Counts over rounds; G is the block size.

    Attributes:
        rounds: target steps that continued an answer, those without drafts included.
        drafted: tokens proposed.
        verified: proposed tokens that the target looked at.
        accepted: verified tokens that were kept.
        committed: tokens added to answers, corrections and bonus tokens included.
        reached_at: [G] how often position k was verified with all earlier ones accepted.
        accepted_at: [G] how often it was accepted.
    """

    rounds: int
    drafted: int
    verified: int
    accepted: int
    committed: int
    reached_at: tuple[int, ...]
    accepted_at: tuple[int, ...]

    @property
    def tau(self) -> float:
        """Mean tokens committed per round; 1 where there were no rounds."""
        return self.committed / self.rounds if self.rounds else 1.0

    @property
    def acceptance_rate(self) -> float | None:
        """Share of the verified drafts that were accepted; None if none was verified."""
        return self.accepted / self.verified if self.verified else None

    @property
    def conditional(self) -> tuple[float | None, ...]:
        """[G] P(k accepted | 1 .. k-1 accepted); None for positions that were never reached."""
        pairs = zip(self.accepted_at, self.reached_at, strict=True)
        return tuple(hits / tries if tries else None for hits, tries in pairs)

    @property
    def survival(self) -> tuple[float | None, ...]:
        """[G] P(1 .. k all accepted), the running product of ``conditional``.

        The product treats cut blocks as censored; where no block was cut it is the plain share of blocks whose first k
        drafts survived. None from a position on that no block reached for any reason but rejection.
        """
        return tuple(accumulate(self.conditional, _and_then))

    @property
    def tau_full_blocks(self) -> float:
        """Tokens per round if every block were verified to its end: 1 + the sum of ``survival``, as far as known."""
        return 1.0 + sum(share for share in self.survival if share is not None)


def _and_then(before: float | None, chance: float | None) -> float | None:
    if before is None or before == 0.0:
        return before
    return None if chance is None else before * chance


def count_rounds(traces: Iterable[RoundTrace], block_size: int) -> AcceptanceCounts:
    """Count recorded rounds.

    Args:
        traces: the rounds, of any number of answers.
        block_size: G, at least as long as every block.
    """
    rounds = list(traces)
    verified = np.array([trace.verified for trace in rounds], np.int64)
    accepted = np.array([trace.accepted for trace in rounds], np.int64)
    reached = np.minimum(verified, accepted + 1)
    return AcceptanceCounts(
        rounds=len(rounds),
        drafted=sum(len(trace.drafted) for trace in rounds),
        verified=int(verified.sum()),
        accepted=int(accepted.sum()),
        committed=sum(len(trace.committed) for trace in rounds),
        reached_at=_at_least(reached, block_size),
        accepted_at=_at_least(accepted, block_size),
    )


def _at_least(lengths: np.ndarray, block_size: int) -> tuple[int, ...]:
    """[G] how many lengths go past position k."""
    assert lengths.max(initial=0) <= block_size, "a block is longer than the block size"
    return tuple(int((lengths > position).sum()) for position in range(block_size))


def flat(rounds_by_prompt: Iterable[Sequence[RoundTrace]]) -> list[RoundTrace]:
    """The rounds of several answers, one after the other."""
    return [trace for rounds in rounds_by_prompt for trace in rounds]
