"""An evaluation as a page of tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dspark.evaluation.bootstrap import LEVEL, Estimate
from dspark.evaluation.confidence_quality import TrustByPosition
from dspark.evaluation.decode_report import count_of
from dspark.evaluation.eval_figures import EvalRow, Summary
from dspark.evaluation.eval_report import ArmFacts, EvalReport
from dspark.evaluation.tables import cell, markdown_table
from dspark.evaluation.threshold_sweep import SweepPoint

_ROWS = (
    "prompts", "drafter", "tau", f"{LEVEL:.0%}", "accepted", "tokens/s", "over plain", "draft", "verify", "rest",
)  # fmt: skip
_TRUST = ("drafter", "T", "confidences", "of", "ECE", "by chance", "mean ECE", "worst ECE", "Brier", "AUROC")
_SWEEP = ("drafter", "T", "threshold", "accepted", "verified a round", "tau")


def eval_markdown(report: EvalReport) -> str:
    """The whole page."""
    return "\n".join(_lines(report)) + "\n"


def _lines(report: EvalReport) -> Iterator[str]:
    yield from _head(report)
    for temperature in report.plan.temperatures:
        rows = [row for row in report.rows if row.temperature == temperature]
        if rows:
            yield from _at(report, temperature, rows)
    yield from _confidence(report.summaries)
    yield from _sweeps(report)


def _head(report: EvalReport) -> Iterator[str]:
    plan, machine = report.plan, report.machine
    prompts = ", ".join(f"{count} of {domain}" for domain, count in report.prompts.items())
    yield f"# Drafters for {report.target}"
    yield ""
    yield (
        f"{report.made_at}, {report.dtype}, {prompts}, at most {plan.max_tokens} tokens an answer, "
        f"{count_of(plan.concurrency, 'answer')} at a time, seed {plan.seed}. {machine.processor}, "
        f"{count_of(machine.threads, 'thread')}, torch {machine.torch}."
    )
    if not report.complete:
        yield ""
        yield "**Interrupted**: these are the figures of the prompts that every drafter had answered by then."
    yield ""
    yield (
        "All drafters answered the same prompts in turn, within one process. `tau`: tokens committed per round, bonus "
        f"and correction included, with the interval ({LEVEL:.0%}) that other prompts of the kind would move it in; "
        "`accepted`: accepted over verified drafts; tokens/s counts whole requests, prefill included; draft, verify "
        "and rest share the time of steps without prompt rows. docs/reading-the-plots.md explains all of it."
    )
    yield ""
    yield from (f"- {_describe(arm)}" for arm in report.arms)


def _describe(arm: ArmFacts) -> str:
    if not arm.block_size:
        return f"{arm.name}: no drafts"
    trust = "confidences" if arm.temperatures is None else "calibrated confidences"
    return f"{arm.name}: {arm.kind}, {count_of(arm.block_size, 'token')} a block, {arm.policy}" + (
        f", {trust}" if arm.has_confidence else ""
    )


def _at(report: EvalReport, temperature: float, rows: Sequence[EvalRow]) -> Iterator[str]:
    yield from ("", f"## Temperature {temperature:g}", "", markdown_table(_ROWS, [_row(row) for row in rows]))
    summaries = [entry for entry in report.summaries if entry.temperature == temperature]
    head = ("drafter", "tau", f"{LEVEL:.0%}", f"tau / {report.baseline}", f"{LEVEL:.0%}", "tokens/s", "over plain")
    yield from ("", "Unweighted mean over the prompt sets:", "", markdown_table(head, [_mean(s) for s in summaries]))
    drafting = [row for row in rows if row.conditional]
    if drafting:
        yield from ("", "Conditional acceptance by position:", "", _positions(drafting, "conditional"))
        yield from ("", "Survival of the prefix by position:", "", _positions(drafting, "survival"))


def _row(row: EvalRow) -> tuple[str, ...]:
    time = row.time
    shares = ("", "", "") if time is None else (f"{time.draft:.1%}", f"{time.verify:.1%}", f"{time.rest:.1%}")
    return (
        row.domain,
        row.arm,
        f"{row.tau.value:.2f}",
        interval(row.tau),
        cell(row.acceptance_rate, ".1%"),
        f"{row.tokens_per_second:.1f}",
        cell(row.over_plain, ".2f"),
        *shares,
    )


def _mean(entry: Summary) -> tuple[str, ...]:
    over = entry.over_baseline
    return (
        entry.arm,
        f"{entry.tau.value:.2f}",
        interval(entry.tau),
        "" if over is None else f"{over.value:.2f}",
        "" if over is None else interval(over),
        f"{entry.tokens_per_second:.1f}",
        cell(entry.over_plain, ".2f"),
    )


def interval(estimate: Estimate) -> str:
    """An interval in words; nothing where there is none."""
    if estimate.low is None or estimate.high is None:
        return ""
    return f"{estimate.low:.2f} .. {estimate.high:.2f}"


def _positions(rows: Sequence[EvalRow], name: str) -> str:
    size = max(len(row.conditional) for row in rows)
    head = ("prompts", "drafter", *(str(position) for position in range(1, size + 1)))
    cells = [(row.domain, row.arm, *(cell(share, ".3f") for share in getattr(row, name))) for row in rows]
    return markdown_table(head, [(*row, *("",) * (len(head) - len(row))) for row in cells])


def _confidence(summaries: Sequence[Summary]) -> Iterator[str]:
    cells = [
        (entry.arm, f"{entry.temperature:g}", kind, what, *_trust(getattr(quality, what)))
        for entry in summaries
        if entry.confidence is not None
        for kind, quality in (("raw", entry.confidence.raw), ("calibrated", entry.confidence.calibrated))
        if quality is not None
        for what in ("conditional", "survival")
    ]
    if cells:
        yield from ("", "## Confidence", "")
        yield (
            "`conditional`: each slot's confidence against its acceptance, where all before it were accepted; "
            "`survival`: running products against the acceptance of whole prefixes. `by chance`: the ECE that exact "
            "probabilities would show with as many entries; mean and worst are over the positions."
        )
        yield from ("", markdown_table(_TRUST, cells))


def _trust(found: TrustByPosition) -> tuple[str, ...]:
    overall = found.overall
    shares = (overall.ece, overall.noise, found.mean_ece, found.worst_ece)
    return (*(cell(share, ".1%") for share in shares), cell(overall.brier, ".3f"), cell(overall.auroc, ".3f"))


def _sweeps(report: EvalReport) -> Iterator[str]:
    cells = [
        (entry.arm, f"{entry.temperature:g}", *_point(point)) for entry in report.summaries for point in entry.sweep
    ]
    if cells:
        yield from ("", "## Thresholds", "")
        yield (
            "Computed from the recorded rounds with whole blocks verified: what each round would have done if only "
            "the drafts before the first one below the threshold had been verified. That is exact for these rounds; a "
            "run with the threshold would start its rounds at other places, so these are figures per round, not of "
            "such a run."
        )
        yield from ("", markdown_table(_SWEEP, cells))
    if report.live:
        live = [
            (entry.arm, entry.domain, f"{entry.temperature:g}", *_point(point), f"{point.tokens_per_second or 0:.1f}")
            for entry in report.live
            for point in entry.points
        ]
        head = ("drafter", "prompts", *_SWEEP[1:], "tokens/s")
        yield from ("", "Run by the engine with the policy `threshold`:", "", markdown_table(head, live))


def _point(point: SweepPoint) -> tuple[str, ...]:
    rate = cell(point.acceptance_rate, ".1%")
    return (f"{point.threshold:g}", rate, f"{point.verify_len:.2f}", f"{point.tau:.2f}")
