"""A decode benchmark as rows of figures, and its forms on disk."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from dspark.evaluation.arms import PLAIN, Arm
from dspark.evaluation.decode import AnyArm, DecodePlan, Measurement
from dspark.evaluation.decode_figures import Shares, Spread, ratio, round_cost, same_texts, shares, tau, throughput
from dspark.evaluation.machine import Machine
from dspark.evaluation.tables import cell, markdown_table
from dspark.scheduling import policy_name
from dspark.target import LoadedTarget


@dataclass(frozen=True, kw_only=True)
class Row:
    """Figures of one arm in one domain at one concurrency.

    Attributes:
        domain, concurrency, arm: what was measured.
        tokens_per_second: over whole requests, prefill included.
        over_plain: throughput over that of plain decoding.
        tau: tokens committed per round; None outside the engine.
        round_over_plain: cost of a round that verifies a whole block over a plain step; None if there were none.
        same_as_plain: texts equal to those of plain decoding, and how many there are.
        shares: where the time of decode steps goes; None outside the engine.
    """

    domain: str
    concurrency: int
    arm: str
    tokens_per_second: Spread
    over_plain: Spread
    tau: float | None
    round_over_plain: float | None
    same_as_plain: tuple[int, int]
    shares: Shares | None


@dataclass(frozen=True, kw_only=True)
class DecodeReport:
    """Everything a reader needs to believe or repeat the figures."""

    target: str
    dtype: str
    machine: Machine
    plan: DecodePlan
    arms: tuple[str, ...]
    made_at: str
    rows: tuple[Row, ...]

    def to_json(self) -> str:
        """The whole report."""
        return json.dumps(asdict(self), indent=2) + "\n"

    def to_markdown(self) -> str:
        """The report for people."""
        return _markdown(self)


def make_report(
    measured: Sequence[Measurement], arms: Sequence[AnyArm], loaded: LoadedTarget, plan: DecodePlan, machine: Machine
) -> DecodeReport:
    """Turn measurements into figures; one arm must be called ``plain``."""
    cases = dict.fromkeys((entry.concurrency, entry.domain) for entry in measured)
    rows = [
        _row([m for m in measured if (m.concurrency, m.domain) == case], arm)
        for case in sorted(cases, key=lambda case: case[0])
        for arm in arms
    ]
    return DecodeReport(
        target=loaded.name,
        dtype=str(loaded.target.dtype).removeprefix("torch."),
        machine=machine,
        plan=plan,
        arms=tuple(describe_arm(arm) for arm in arms),
        made_at=datetime.now(UTC).isoformat(timespec="seconds"),
        rows=tuple(rows),
    )


def describe_arm(arm: AnyArm) -> str:
    """One arm in words."""
    if not isinstance(arm, Arm):
        return f"{arm.name}: its own generate()"
    policy = policy_name(arm.policy)
    block = arm.drafter.block_size
    return f"{arm.name}: " + (f"drafter {arm.drafter.name}, {block} tokens a block, {policy}" if block else "no drafts")


def _row(measured: Sequence[Measurement], arm: AnyArm) -> Row:
    ours = isinstance(arm, Arm)
    block = arm.drafter.block_size if isinstance(arm, Arm) else 0
    model = isinstance(arm, Arm) and arm.drafts_with_a_model
    return Row(
        domain=measured[0].domain,
        concurrency=measured[0].concurrency,
        arm=arm.name,
        tokens_per_second=throughput(measured, arm.name),
        over_plain=ratio(measured, arm.name, PLAIN),
        tau=tau(measured, arm.name),
        round_over_plain=round_cost(measured, arm.name, PLAIN, block) if block else None,
        same_as_plain=same_texts(measured, arm.name, PLAIN),
        shares=shares(measured, arm.name, drafts_with_a_model=model) if ours else None,
    )


_SPEED = ("domain", "arm", "tokens/s", "range", "over plain", "range", "tau", "round / plain step", "same text")
_TIME = ("domain", "arm", "step ms", "draft", "forward", "sample", "host", "overhead")


def speed_cells(row: Row) -> tuple[str, ...]:
    """Cells of the speed table."""
    speed, over = row.tokens_per_second, row.over_plain
    same, texts = row.same_as_plain
    return (
        row.domain,
        row.arm,
        f"{speed.median:.1f}",
        f"{speed.low:.1f} .. {speed.high:.1f}",
        f"{over.median:.2f}",
        f"{over.low:.2f} .. {over.high:.2f}",
        cell(row.tau, ".2f"),
        cell(row.round_over_plain, ".2f"),
        f"{same}/{texts}",
    )


def time_cells(row: Row) -> tuple[str, ...]:
    """Cells of the table of shares."""
    part = row.shares
    if part is None:
        return (row.domain, row.arm, *("",) * 6)
    percents = (part.draft, part.forward, part.sample, part.host, part.overhead)
    return (row.domain, row.arm, f"{part.step_seconds * 1e3:.1f}", *(f"{share:.1%}" for share in percents))


def count_of(number: int, what: str) -> str:
    """A number and what it counts, in the plural where that is due."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def _markdown(report: DecodeReport) -> str:
    machine = report.machine
    head = [
        f"# Decoding speed of {report.target}",
        "",
        f"{report.made_at}, {report.dtype}, greedy, at most {report.plan.max_tokens} tokens an answer, "
        f"{count_of(report.plan.repeats, 'repeat')}. {machine.processor}, {count_of(machine.threads, 'thread')}"
        f"{' bound to cores' if machine.bound else ''}, torch {machine.torch}.",
        "",
        "All arms answered the same prompts in turn, within one process. tokens/s counts whole requests, prefill "
        "included; it and `over plain` are medians over the repeats, with their range. `round / plain step`: a round "
        "that verifies a whole block over a step of plain decoding. `overhead`: all of a step but the model forwards.",
        "",
        *(f"- {arm}" for arm in report.arms),
    ]
    for width in sorted({row.concurrency for row in report.rows}):
        rows = [row for row in report.rows if row.concurrency == width]
        head += ["", f"## {width} at a time", "", markdown_table(_SPEED, [speed_cells(row) for row in rows])]
        head += ["", markdown_table(_TIME, [time_cells(row) for row in rows if row.shares is not None])]
    return "\n".join(head) + "\n"
