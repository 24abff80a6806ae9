"""A comparison of the simulator with the real engine, as JSON and as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from dspark.evaluation.files import as_json
from dspark.evaluation.tables import markdown_table
from dspark.simulation.validation import Compared

SCHEMA = "dspark.simulator-check/1"

_HEAD = (
    "policy",
    "tokens/s",
    "simulated",
    "error",
    "profile off by",
    "error but for that",
    "steps",
    "simulated",
    "verify length",
    "simulated",
)


@dataclass(frozen=True, kw_only=True)
class ValidationReport:
    """What was compared.

    Attributes:
        settings: name and value of what decides about the result.
        rows: one per concurrency and policy.
    """

    settings: tuple[tuple[str, str], ...]
    rows: tuple[Compared, ...]

    @property
    def worst(self) -> Compared:
        """The largest error."""
        return max(self.rows, key=lambda row: abs(row.error))

    def to_json(self) -> str:
        """The whole of it."""
        rows = [asdict(row) | {"error": row.error, "error_without_drift": row.error_without_drift} for row in self.rows]
        return as_json({"schema": SCHEMA, "settings": dict(self.settings), "rows": rows})

    def to_markdown(self) -> str:
        """For people."""
        lines = ["# The simulator against the engine", "", *(f"- {name}: {value}" for name, value in self.settings)]
        lines += ["", "`profile off by`: what the steps took over what the profile says of these very steps."]
        for width in dict.fromkeys(row.concurrency for row in self.rows):
            cells = [_cells(row) for row in self.rows if row.concurrency == width]
            lines += ["", f"## {width} at a time", "", markdown_table(_HEAD, cells)]
        return "\n".join(lines) + "\n"


def _cells(row: Compared) -> Sequence[str]:
    return (
        row.policy,
        f"{row.tokens / row.seconds:.1f}",
        f"{row.tokens / row.simulated_seconds:.1f}",
        f"{row.error:+.1%}",
        f"{row.cost_ratio - 1:+.1%}",
        f"{row.error_without_drift:+.1%}",
        str(row.steps),
        str(row.simulated_steps),
        f"{row.verify_len:.2f}",
        f"{row.simulated_verify_len:.2f}",
    )
