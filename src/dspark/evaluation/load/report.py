"""A load test as a report, and its JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from dspark.evaluation.arms import Arm
from dspark.evaluation.files import as_json
from dspark.evaluation.load.bars import Bar, Captured, bars_of, captured
from dspark.evaluation.load.figures import ArmFacts, LoadFigures, Row
from dspark.evaluation.load.plan import LoadPlan
from dspark.evaluation.load.run import Segment
from dspark.evaluation.load.texts import Parting
from dspark.evaluation.load.trends import Trend, trends_of
from dspark.evaluation.lossless import margin_at
from dspark.evaluation.machine import Machine, this_machine
from dspark.evaluation.margins import TokenDifference

SCHEMA = "dspark-bench-serve/1"
"""Name of the form of ``report.json``."""

MOST_MARGINS = 20
"""So many different partings are looked at with the target; each takes two short answers."""


@dataclass(frozen=True, kw_only=True)
class Difference(TokenDifference):
    """A place where a text left that of plain decoding.

    Attributes:
        arms: where it was seen.
    """

    arms: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class LoadReport:
    """Everything a reader needs to believe or repeat the figures.

    Attributes:
        target, dtype, machine: what ran where.
        plan: what was asked for.
        complete: whether all of it was measured.
        capacity: requests per second by which open loops are scaled.
        arms, rows, bars, trends, captured: the result.
        texts: texts compared with plain decoding.
        differences: where they left it.
        notes: what a reader should know besides.
        made_at: when.
    """

    target: str
    dtype: str
    machine: Machine
    plan: LoadPlan
    complete: bool
    capacity: float
    arms: tuple[ArmFacts, ...]
    rows: tuple[Row, ...]
    bars: tuple[Bar, ...]
    trends: tuple[Trend, ...]
    captured: tuple[Captured, ...]
    texts: int
    differences: tuple[Difference, ...]
    notes: tuple[str, ...]
    made_at: str

    def to_json(self) -> str:
        """The whole report."""
        content = {"schema": SCHEMA, **asdict(self)}
        content["bars"] = [{**asdict(bar), "verdict": bar.verdict} for bar in self.bars]
        content["trends"] = [{**asdict(trend), "holds": trend.holds} for trend in self.trends]
        return as_json(content)


def make_load_report(
    segments: Sequence[Segment],
    arms: Sequence[ArmFacts],
    plan: LoadPlan,
    plain: Arm,
    *,
    capacity: float,
    complete: bool,
    notes: Sequence[str] = (),
) -> LoadReport:
    """Turn segments into figures, and look at every difference with the target.

    Args:
        segments: of each load and repeat either all arms or none; at least one group.
        arms: what was compared.
        plan: sizes.
        plain: plain decoding on the target.
        capacity: see :class:`LoadReport`.
        complete: whether the plan was measured to its end.
        notes: what a reader should know besides.
    """
    figures = LoadFigures(segments, arms, plan)
    rows = figures.rows()
    return LoadReport(
        target=plain.loaded.name,
        dtype=str(plain.loaded.target.dtype).removeprefix("torch."),
        machine=this_machine(),
        plan=plan,
        complete=complete,
        capacity=capacity,
        arms=tuple(arms),
        rows=rows,
        bars=bars_of(figures),
        trends=trends_of(rows, arms),
        captured=captured(figures),
        texts=sum(segment.texts.texts for segment in segments),
        differences=differences(segments, plain),
        notes=tuple(notes),
        made_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def differences(segments: Sequence[Segment], plain: Arm) -> tuple[Difference, ...]:
    """Every place where texts left plain decoding, once, with the logit margin of the first :data:`MOST_MARGINS`."""
    seen: dict[Parting, dict[str, None]] = {}
    for segment in segments:
        for parting in segment.texts.partings:
            seen.setdefault(parting, {})[segment.arm] = None
    return tuple(
        Difference(
            arms=tuple(names),
            position=parting.position,
            expected=parting.expected,
            got=parting.got,
            margin=_margin(parting, plain) if number < MOST_MARGINS else None,
        )
        for number, (parting, names) in enumerate(seen.items())
    )


def _margin(parting: Parting, plain: Arm) -> float | None:
    return margin_at(plain, parting.context, parting.expected, parting.got)
