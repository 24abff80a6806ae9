"""What the measurements of decoding say: one function per figure.

All of them take measurements of one domain and one concurrency.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from dspark.engine import StepStats
from dspark.evaluation.decode import Measurement


@dataclass(frozen=True, kw_only=True)
class Spread:
    """A figure over repeats: its median and its range."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Spread of at least one value."""
        return cls(median=median(values), low=min(values), high=max(values))


@dataclass(frozen=True, kw_only=True)
class Shares:
    """Where the time of decode steps goes; the four parts sum to 1.

    Attributes:
        draft: proposing, and feeding the drafter.
        forward: the target forward.
        sample: from logits to accepted tokens.
        host: everything else.
        overhead: all but the model forwards.
        step_seconds: mean duration of a step.
        steps: how many steps this is over.
    """

    draft: float
    forward: float
    sample: float
    host: float
    overhead: float
    step_seconds: float
    steps: int


def throughput(measured: Sequence[Measurement], arm: str) -> Spread:
    """Tokens per second over whole requests, prefill included; one value per repeat."""
    return Spread.of(_rates(measured, arm))


def ratio(measured: Sequence[Measurement], arm: str, base: str) -> Spread:
    """Throughput of an arm over that of another, compared repeat by repeat."""
    pairs = zip(_rates(measured, arm), _rates(measured, base), strict=True)
    return Spread.of([rate / other for rate, other in pairs])


def tau(measured: Sequence[Measurement], arm: str) -> float | None:
    """Tokens committed per round, corrections and bonus tokens included; None outside the engine."""
    runs = [entry.run for entry in measured if entry.arm == arm]
    rounds = sum(run.rounds for run in runs)
    return sum(run.round_tokens for run in runs) / rounds if rounds else None


def round_cost(measured: Sequence[Measurement], arm: str, base: str, block_size: int) -> float | None:
    """Median duration of a round that verifies whole blocks, over that of a plain step with as many answers.

    None where one of the two never happened.
    """
    width = measured[0].concurrency
    full = _durations(measured, arm, lambda step: step.verify_lens == (block_size,) * width)
    plain = _durations(measured, base, lambda step: step.verify_lens == (0,) * width)
    return median(full) / median(plain) if full and plain else None


def shares(measured: Sequence[Measurement], arm: str, *, drafts_with_a_model: bool) -> Shares | None:
    """Shares of decode steps with all answers in progress; None outside the engine.

    Args:
        measured: the measurements.
        arm: whose steps.
        drafts_with_a_model: whether draft time is a model forward; otherwise it counts as overhead.
    """
    width = measured[0].concurrency
    steps = [step for step in _decode_steps(measured, arm) if len(step.verify_lens) == width]
    return step_shares(steps, drafts_with_a_model=drafts_with_a_model)


def step_shares(steps: Sequence[StepStats], *, drafts_with_a_model: bool) -> Shares | None:
    """Shares of the time of some steps; None if there are none. Arguments as for :func:`shares`."""
    total = sum(step.seconds for step in steps)
    if not total:
        return None
    draft = sum(step.draft_seconds for step in steps) / total
    sample = sum(step.sample_seconds for step in steps) / total
    host = sum(step.host_seconds for step in steps) / total
    return Shares(
        draft=draft,
        forward=sum(step.forward_seconds for step in steps) / total,
        sample=sample,
        host=host,
        overhead=sample + host + (0.0 if drafts_with_a_model else draft),
        step_seconds=total / len(steps),
        steps=len(steps),
    )


def same_texts(measured: Sequence[Measurement], arm: str, base: str) -> tuple[int, int]:
    """How many texts of an arm are those of another, token by token, and how many there are."""
    expected = {(entry.repeat, entry.group): entry.run.token_ids for entry in measured if entry.arm == base}
    pairs = [
        pair
        for entry in measured
        if entry.arm == arm
        for pair in zip(entry.run.token_ids, expected[entry.repeat, entry.group], strict=True)
    ]
    return sum(got == other for got, other in pairs), len(pairs)


def _rates(measured: Sequence[Measurement], arm: str) -> list[float]:
    """Tokens per second of every repeat, in order."""
    repeats = sorted({entry.repeat for entry in measured})
    runs = [[entry.run for entry in measured if entry.arm == arm and entry.repeat == repeat] for repeat in repeats]
    return [sum(run.tokens for run in part) / sum(run.seconds for run in part) for part in runs]


def _decode_steps(measured: Sequence[Measurement], arm: str) -> list[StepStats]:
    """Steps without prompt rows."""
    return [step for entry in measured if entry.arm == arm for step in entry.run.steps if not step.prefill_rows]


def _durations(measured: Sequence[Measurement], arm: str, wanted: Callable[[StepStats], bool]) -> list[float]:
    return [step.seconds for step in _decode_steps(measured, arm) if wanted(step)]
