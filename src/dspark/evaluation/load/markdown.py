"""A load test for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dspark.evaluation.bootstrap import Estimate
from dspark.evaluation.decode_report import count_of
from dspark.evaluation.load.bars import Bar
from dspark.evaluation.load.figures import Row
from dspark.evaluation.load.latency import Percentiles
from dspark.evaluation.load.report import LoadReport
from dspark.evaluation.tables import cell, markdown_table

_SPEED = (
    "arm",
    "tokens/s",
    "per user",
    "over plain",
    "interval",
    "of oracle's gain",
    "verify length",
    "rows/token",
    "accepted",
)
_WAITING = ("arm", "first token p50", "p95", "token ms p50", "p95", "p99", "gap ms p50", "p99", "in time")


def load_markdown(report: LoadReport) -> str:
    """The report as Markdown; docs/benchmarks.md says how to read it."""
    lines = [*_head(report), *_answers(report), *_trends(report), *_texts(report)]
    for point in dict.fromkeys(row.point for row in report.rows):
        rows = [row for row in report.rows if row.point == point]
        lines += ["", f"## {point.name}", "", markdown_table(_SPEED, [_speed(row) for row in rows])]
        lines += ["", markdown_table(_WAITING, [_waiting(row) for row in rows])]
    return "\n".join(lines) + "\n"


def _head(report: LoadReport) -> Iterator[str]:
    machine, plan, goal = report.machine, report.plan, report.plan.goal
    yield f"# Serving under load: {report.target}"
    yield ""
    yield (
        f"{report.made_at}, {report.dtype}, greedy, at most {plan.max_tokens} tokens an answer. {machine.processor}, "
        f"{count_of(machine.threads, 'thread')}{' bound to cores' if machine.bound else ''}, torch {machine.torch}."
    )
    yield ""
    yield (
        f"Measured: {plan.seconds:g} s per closed loop and arm in {count_of(plan.repeats, 'segment')}, "
        f"{plan.open_seconds:g} s of arrivals per segment of an open loop ({report.capacity:.2f} requests/s are what "
        f"plain decoding can serve with {count_of(plan.concurrency[-1], 'user')}). All arms answered the same requests "
        "in the same order, in turn. Intervals (95 %) resample segments; arms are compared segment by segment."
    )
    if not report.complete:
        yield ""
        yield "**Interrupted**: the figures are those of the loads and repeats that all arms had finished."
    yield ""
    yield (
        f"`over plain` compares tokens per second that a user spends with the engine, waiting included. `in time`: "
        f"requests with the first token within {goal.first_token:g} s and {goal.token * 1e3:g} ms for each further one."
    )
    for note in report.notes:
        yield ""
        yield f"- {note}"


def _answers(report: LoadReport) -> Iterator[str]:
    """Worst places first, then all of them."""
    if report.bars:
        yield from ("", "## Does it pay?", "")
        cases = dict.fromkeys((bar.claim, bar.drafter) for bar in report.bars)
        worst = [min(_of(report.bars, *case), key=lambda bar: bar.ratio.value / bar.goal) for case in cases]
        head = ("claim", "drafter", "goal", "reached", "worst", "interval", "where", "against")
        yield markdown_table(head, [_worst(bar, _of(report.bars, bar.claim, bar.drafter)) for bar in worst])
        yield from ("", "Everywhere:", "")
        head = ("claim", "drafter", "where", "against", "ratio", "interval", "goal", "reached")
        yield markdown_table(head, [_bar(bar) for bar in report.bars])
    if report.captured:
        yield from ("", "Share of the oracle's gain over plain decoding (aim: 0.85):", "")
        found = [(e.drafter, e.place, f"{e.share.value:.2f}", _interval(e.share)) for e in report.captured]
        yield markdown_table(("drafter", "where", "share", "interval"), found)


def _of(bars: Sequence[Bar], claim: str, drafter: str) -> list[Bar]:
    return [bar for bar in bars if (bar.claim, bar.drafter) == (claim, drafter)]


def _worst(bar: Bar, all_of_it: Sequence[Bar]) -> tuple[str, ...]:
    reached = sum(entry.ratio.value >= entry.goal for entry in all_of_it)
    counts = f"{reached} of {len(all_of_it)}"
    figures = (f"{bar.goal:.2f}", counts, f"{bar.ratio.value:.3f}", _interval(bar.ratio))
    return (bar.claim, bar.drafter, *figures, bar.place, bar.against)


def _bar(bar: Bar) -> tuple[str, ...]:
    figures = (f"{bar.ratio.value:.3f}", _interval(bar.ratio), f"{bar.goal:.2f}", bar.verdict)
    return (bar.claim, bar.drafter, bar.place, bar.against, *figures)


def _trends(report: LoadReport) -> Iterator[str]:
    if report.trends:
        yield from ("", "## Does it follow the load?", "")
    for trend in report.trends:
        points = ", ".join(f"{value:.2f} (x{users})" for users, value in zip(trend.users, trend.values, strict=True))
        way = f"{'falls' if trend.falls else 'rises'} with load: {'yes' if trend.holds else 'no'}"
        yield f"- {trend.drafter}, {trend.traffic}, {trend.figure} {way}: {points}"


def _texts(report: LoadReport) -> Iterator[str]:
    yield from ("", "## Are the texts the same?", "")
    differing = sum(row.differing for row in report.rows)
    yield f"{report.texts - differing} of {report.texts} texts are those of plain decoding, token by token."
    for entry in report.differences:
        margin = "one text had ended" if entry.margin is None else f"logit margin {entry.margin:.2g}"
        tie = ", a near tie" if entry.is_near_tie else ""
        yield f"- token {entry.position}: {entry.got} for {entry.expected}, {margin}{tie} ({', '.join(entry.arms)})"


def _speed(row: Row) -> tuple[str, ...]:
    over = row.over_plain
    return (
        row.arm,
        f"{row.tokens_per_second.value:.1f}",
        cell(row.user_tokens_per_second.value, ".2f"),
        f"{over.value:.3f}",
        _interval(over),
        "" if row.oracle_share is None else f"{row.oracle_share.value:.2f}",
        f"{row.verify_len:.2f}",
        cell(row.rows_per_token, ".2f"),
        cell(row.accepted_share, ".2f"),
    )


def _waiting(row: Row) -> tuple[str, ...]:
    first, token, gap = row.first_token, row.token, row.output_gap
    seconds = ("", "") if first is None else (f"{first.p50:.2f}", f"{first.p95:.2f}")
    tokens, gaps = _milliseconds(token), _milliseconds(gap)
    return (row.arm, *seconds, *tokens, gaps[0], gaps[2], cell(row.attainment, ".0%"))


def _milliseconds(found: Percentiles | None) -> tuple[str, str, str]:
    if found is None:
        return "", "", ""
    return f"{found.p50 * 1e3:.0f}", f"{found.p95 * 1e3:.0f}", f"{found.p99 * 1e3:.0f}"


def _interval(estimate: Estimate) -> str:
    if estimate.low is None or estimate.high is None:
        return ""
    return f"{estimate.low:.3f} .. {estimate.high:.3f}"
