"""An audit in words."""

from __future__ import annotations

from collections.abc import Iterator

from dspark.evaluation.lossless import NEAR_TIE, Audit, Difference
from dspark.evaluation.tables import markdown_table

_HEAD = ("drafter", "batch", "prompts", "identical", "texts", "tokens")


def audit_lines(audit: Audit) -> Iterator[str]:
    """The counts as a table, every difference, and the sum of it all."""
    rows = [(c.arm, str(c.batch_size), c.domain, str(c.identical), str(c.texts), str(c.tokens)) for c in audit.counts]
    yield markdown_table(_HEAD, rows)
    for entry in audit.differences:
        yield describe(entry)
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
