"""An audit in words."""

from __future__ import annotations

from collections.abc import Iterator

from dspark.evaluation.lossless import Audit, AuditPart, Difference
from dspark.evaluation.margins import NEAR_TIE
from dspark.evaluation.tables import markdown_table

_HEAD = ("drafter", "batch", "prompts", "identical", "texts", "tokens")


def part_lines(part: AuditPart) -> Iterator[str]:
    """One line about a part of an audit, and one about each of its differences."""
    count = part.count
    yield (
        f"{count.domain}, {count.arm}, batch {count.batch_size}: {count.identical} of {count.texts} texts identical, "
        f"{count.tokens} tokens"
    )
    for entry in part.differences:
        yield describe(entry)


def summary_lines(audit: Audit) -> Iterator[str]:
    """The counts as a table, and the sum of it all."""
    rows = [(c.arm, str(c.batch_size), c.domain, str(c.identical), str(c.texts), str(c.tokens)) for c in audit.counts]
    yield markdown_table(_HEAD, rows)
    texts, ties = sum(count.texts for count in audit.counts), len(audit.differences) - len(audit.faults)
    yield (
        f"{texts} texts: {texts - len(audit.differences)} identical to plain decoding, {ties} differ at a near tie "
        f"(margin below {NEAR_TIE:g}), {len(audit.faults)} differ otherwise"
    )


def describe(entry: Difference) -> str:
    """One difference in words."""
    tokens = " and ".join("the end" if token is None else f"token {token}" for token in (entry.expected, entry.got))
    margin = "no margin, as one text ended" if entry.margin is None else f"margin {entry.margin:.2e}"
    return (
        f"{entry.arm}, batch {entry.batch_size}, {entry.domain} prompt {entry.prompt + 1}: differs at position "
        f"{entry.position}, {tokens} (plain and drafted), {margin}{' (near tie)' if entry.is_near_tie else ''}"
    )
