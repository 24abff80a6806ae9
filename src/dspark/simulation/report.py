"""A sweep as JSON and as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from dspark.evaluation.files import as_json
from dspark.evaluation.load.figures import ORACLE
from dspark.evaluation.load.latency import LatencyTarget, Percentiles
from dspark.evaluation.tables import cell, markdown_table
from dspark.simulation.sweep import PLAIN, SimulatedRow, frontier_gain, matched_gain

SCHEMA = "dspark.simulation/1"

_SPEED = (
    "policy",
    "tokens/s",
    "per user",
    "over plain",
    "of oracle's gain",
    "verify length",
    "rows/token",
    "accepted",
    "step ms",
)
_WAITING = ("policy", "first token p50", "p95", "p99", "token ms p50", "p95", "p99", "gap ms p50", "p99", "in time")
_FRONTIER = ("one user gets at least", "tokens/s over fixed:1")
_LOADED = 0.05
"""Where the base is further below its best throughput, its speed no longer depends on the load."""
_MATCHED = ("tokens/s of all users", "one user's speed over fixed:1")


@dataclass(frozen=True, kw_only=True)
class SimulationReport:
    """What was simulated, and what came of it.

    Attributes:
        settings: name and value of everything that decides about the result, as users wrote it.
        target: latencies that attainment is measured against.
        rows: one per load and policy.
    """

    settings: tuple[tuple[str, str], ...]
    target: LatencyTarget
    rows: tuple[SimulatedRow, ...]

    def to_json(self) -> str:
        """The whole of it."""
        rows = [asdict(row) | {"course": _course(row)} for row in self.rows]
        fields = {"schema": SCHEMA, "settings": dict(self.settings), "target": asdict(self.target), "rows": rows}
        return as_json(fields)

    def to_markdown(self) -> str:
        """For people."""
        lines = [
            "# Simulated serving",
            "",
            "Nothing of this was measured; docs/simulator.md says what is left out.",
            "",
        ]
        lines += [f"- {name}: {value}" for name, value in self.settings]
        for load in dict.fromkeys(row.load for row in self.rows):
            rows = [row for row in self.rows if row.load == load]
            lines += ["", f"## {load}", "", markdown_table(_SPEED, [_speed(row) for row in rows])]
            lines += ["", markdown_table(_WAITING, [_waiting(row) for row in rows])]
        return "\n".join([*lines, *self._gains()]) + "\n"

    def _gains(self) -> Iterator[str]:
        """What every policy that decides by itself gains over a one-token block, along the frontier."""
        closed = [row for row in self.rows if row.users is not None]
        base = [row for row in closed if row.policy == "fixed:1"]
        least = _LOADED * max((row.figures.tokens_per_second for row in base), default=0.0)
        base = [row for row in base if row.figures.tokens_per_second >= least]
        for policy in dict.fromkeys(row.policy for row in closed):
            if not base or policy in (PLAIN, ORACLE) or policy.startswith("fixed"):
                continue
            speeds = [row.figures.user_tokens_per_second for row in base]
            reached = [(f"{speed:.0f}", frontier_gain(closed, policy, "fixed:1", speed)) for speed in speeds if speed]
            totals = [row.figures.tokens_per_second for row in base]
            matched = [(f"{total:.0f}", matched_gain(closed, policy, "fixed:1", total)) for total in totals]
            for head, gains in ((_FRONTIER, reached), (_MATCHED, matched)):
                known = [(place, f"{gain:.2f}") for place, gain in dict(gains).items() if gain is not None]
                if known:
                    yield from ("", f"## {policy}: {head[1]}", "", markdown_table(head, known))


def _course(row: SimulatedRow) -> dict[str, list[float]] | None:
    return None if row.course is None else {name: values.tolist() for name, values in vars(row.course).items()}


def _speed(row: SimulatedRow) -> Sequence[str]:
    figures = row.figures
    return (
        row.policy,
        cell(figures.tokens_per_second, ".1f"),
        cell(figures.user_tokens_per_second, ".1f"),
        cell(row.over_plain, ".3f"),
        cell(row.oracle_share, ".0%"),
        cell(figures.verify_len, ".2f"),
        cell(figures.rows_per_token, ".2f"),
        cell(figures.accepted_share, ".0%"),
        cell(_ms(figures.step_seconds), ".1f"),
    )


def _waiting(row: SimulatedRow) -> Sequence[str]:
    figures = row.figures
    first, token, gap = (_spread(entry) for entry in (figures.first_token, figures.token, figures.output_gap))
    return (
        row.policy,
        *(cell(seconds, ".2f") for seconds in first),
        *(cell(_ms(seconds), ".1f") for seconds in token),
        *(cell(_ms(seconds), ".1f") for seconds in (gap[0], gap[2])),
        cell(figures.attainment, ".0%"),
    )


def _spread(percentiles: Percentiles | None) -> tuple[float | None, float | None, float | None]:
    return (None, None, None) if percentiles is None else (percentiles.p50, percentiles.p95, percentiles.p99)


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else 1e3 * seconds
