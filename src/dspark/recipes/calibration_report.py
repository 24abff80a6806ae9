"""A calibration as JSON, as a page of tables, and as a picture of reliability diagrams."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dspark.calibration import NUM_BINS, PositionReliability, ReliabilityBins, StsArtefact
from dspark.core import InputError
from dspark.core.whole_file import write_whole
from dspark.evaluation.files import as_json
from dspark.evaluation.panels import Sheet, can_plot
from dspark.evaluation.tables import cell, markdown_table
from dspark.recipes.calibration import Calibrated, CalibrationPlan, Recording

_BIASED = 0.03
"""Difference of mean predicted and observed survival from which an offset is worth it."""

REPORT_STEM = "calibration"
"""Name of the report's files without their endings."""

_SURVIVAL = ("position", "temperature", "rounds", "survived", "predicted", "calibrated", "ECE before", "after",
             "by chance", "Brier before", "after", "AUROC before", "after")  # fmt: skip
_CONDITIONAL = ("position", "reached", "accepted", "predicted", "calibrated", "ECE before", "after", "by chance",
                "Brier before", "after", "AUROC")  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class CalibrationReport:
    """All there is to say.

    Attributes:
        target, drafter: names.
        plan: how rounds were recorded.
        prompts, answers: how many.
        tau: tokens committed per recorded round.
        found: the calibration.
        artefact: what was saved.
    """

    target: str
    drafter: str
    plan: CalibrationPlan
    prompts: int
    answers: int
    tau: float
    found: Calibrated
    artefact: StsArtefact

    @classmethod
    def of(
        cls, recording: Recording, found: Calibrated, artefact: StsArtefact, *, drafter: str, plan: CalibrationPlan
    ) -> CalibrationReport:
        """Put together what was recorded and found."""
        return cls(
            target=str(artefact.extra["target"]),
            drafter=drafter,
            plan=plan,
            prompts=len(recording.rounds),
            answers=recording.answers,
            tau=recording.tau,
            found=found,
            artefact=artefact,
        )

    def verdict(self) -> str:
        """One sentence about the held-out half."""
        before, after = self.found.before.mean_ece, self.found.after.mean_ece
        noise = float(np.mean([position.noise for position in self.found.after.survival]))
        worse = ", ".join(str(k + 1) for k in self.found.worse)
        where = f"worse at position {worse}" if worse else "no worse at any position"
        return (
            f"held-out error of survival: {before:.2%} before, {after:.2%} after, on average over "
            f"{len(self.found.after.survival)} positions ({where}; exact probabilities would show {noise:.2%} by "
            "chance)"
        )

    def advice(self) -> str | None:
        """What to do if temperatures alone leave an error that an offset would take away; None if they do not."""
        after = self.found.after
        off = [abs(position.predicted - position.observed) for position in after.survival]
        if self.plan.offsets or max(off) < _BIASED:
            return None
        return (
            f"the drafter is wrong on average, by {max(off):.1%} at position {off.index(max(off)) + 1} even after "
            "calibration; temperatures cannot shift it, --offsets does"
        )

    def to_json(self) -> str:
        """Every figure; what has no value is null."""
        found = self.found
        content = {
            "target": self.target,
            "drafter": self.drafter,
            "plan": asdict(self.plan),
            "prompts": self.prompts,
            "answers": self.answers,
            "tau": self.tau,
            "rounds": {"fit": found.fit_rounds, "held_out": found.held_out_rounds},
            "fit_counts": found.fit.counts,
            "fit_ece_curve": found.fit.ece_curve.tolist(),
            "worse_positions": [k + 1 for k in found.worse],
            "mean_ece": {
                "before": found.before.mean_ece,
                "temperatures_alone": found.scaled.mean_ece,
                "after": found.after.mean_ece,
            },
            "before": asdict(found.before),
            "temperatures_alone": asdict(found.scaled),
            "after": asdict(found.after),
            "artefact": json.loads(self.artefact.to_json()),
        }
        return as_json(content)

    def to_markdown(self) -> str:
        """Tables and what they mean."""
        return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        found, plan = self.found, self.plan
        temperatures = ", ".join(f"{t:g}" for t in plan.temperatures)
        yield f"# Calibration of {self.drafter} for {self.target}"
        yield ""
        yield (
            f"{self.answers} answers to {self.prompts} prompts ({self.artefact.dataset}) at T = {temperatures}, at "
            f"most {plan.max_tokens} tokens each, whole blocks verified, {self.tau:.2f} tokens a round. Temperatures "
            f"are fitted on {found.fit_rounds} rounds; all figures below are of {found.held_out_rounds} rounds of "
            "other prompts."
        )
        yield ""
        for sentence in filter(None, (self.verdict(), self.advice(), self._both_forms())):
            yield sentence[0].upper() + sentence[1:] + "."
            yield ""
        yield "## Survival: the chance that all drafts up to a position are accepted"
        yield ""
        yield markdown_table(_SURVIVAL, self._survival_rows())
        yield ""
        yield "## Conditional: the chance that a draft is accepted where all before it were"
        yield ""
        yield markdown_table(_CONDITIONAL, self._conditional_rows())
        yield ""
        yield (
            f"ECE: mean distance of predicted and observed shares over {NUM_BINS} equal bins. `by chance`: the ECE "
            "that exact probabilities would show in so many rounds. A drafted stop token ends what is known of a "
            "block, so late positions have fewer rounds. Temperatures keep the order at a position, so the "
            "conditional AUROC does not change."
        )

    def _both_forms(self) -> str | None:
        if self.found.shifted is None:
            return None
        return (
            "`after` is with offsets, which dspark uses; the temperatures alone, which other engines read from the "
            f"same file, leave {self.found.scaled.mean_ece:.2%}"
        )

    def _form(self, k: int) -> str:
        """Temperature, and offset if there are any, of position k."""
        used = self.found.used
        return f"{used.temperatures[k]:.2f}" + ("" if used.offsets is None else f" {used.offsets[k]:+.2f}")

    def _survival_rows(self) -> list[tuple[str, ...]]:
        both = zip(self.found.before.survival, self.found.after.survival, strict=True)
        rows: list[tuple[str, ...]] = [
            (str(k + 1), self._form(k), str(b.count), _share(b.observed),
             _share(b.predicted), _share(a.predicted), _share(b.ece), _share(a.ece), _share(a.noise),
             cell(b.brier, ".3f"), cell(a.brier, ".3f"), cell(b.auroc, ".3f"), cell(a.auroc, ".3f"))
            for k, (b, a) in enumerate(both)
        ]  # fmt: skip
        before, after = self.found.before, self.found.after
        rows.append(("mean", *("",) * 5, _share(before.mean_ece), _share(after.mean_ece), *("",) * 5))
        return rows

    def _conditional_rows(self) -> list[tuple[str, ...]]:
        both = zip(self.found.before.conditional, self.found.after.conditional, strict=True)
        return [
            (str(k + 1), str(b.count), _share(b.observed), _share(b.predicted), _share(a.predicted), _share(b.ece),
             _share(a.ece), _share(a.noise), cell(b.brier, ".3f"), cell(a.brier, ".3f"), cell(b.auroc, ".3f"))
            for k, (b, a) in enumerate(both)
        ]  # fmt: skip


def write_report(report: CalibrationReport, folder: Path) -> tuple[Path, ...]:
    """Write ``calibration.json``, ``.md`` and, if matplotlib is there, ``.png``; returns what was written.

    Raises:
        InputError: the folder cannot be written to.
    """
    files = [folder / f"{REPORT_STEM}.{ending}" for ending in ("json", "md", "png")]
    try:
        write_whole(files[0], report.to_json())
        write_whole(files[1], report.to_markdown())
        if not can_plot():
            return tuple(files[:2])
        plot_calibration(report, files[2])
    except OSError as error:
        raise InputError(f"cannot write the report to {folder}: {error.strerror or error}") from None
    return tuple(files)


def plot_calibration(report: CalibrationReport, path: Path) -> None:
    """Reliability diagrams of survival and of conditional confidence, one column per position."""
    found = report.found
    kinds = (("survival", found.before.survival, found.after.survival),
             ("conditional", found.before.conditional, found.after.conditional))  # fmt: skip
    sheet = Sheet(len(kinds), len(found.before.survival), (2.3, 2.3))
    for row, (kind, before, after) in enumerate(kinds):
        for column, (old, new) in enumerate(zip(before, after, strict=True)):
            _draw(sheet.panel(row, column, f"{kind} {column + 1}"), old, new)
    sheet.label_rows("observed")
    sheet.label_columns("predicted")
    sheet.save(path, f"{report.drafter} for {report.target}, held-out rounds")


def _draw(panel: Any, before: PositionReliability, after: PositionReliability) -> None:
    panel.plot((0, 1), (0, 1), color="0.8", linewidth=1)
    for label, colour, found in (("before", "tab:red", before), ("after", "tab:green", after)):
        _points(panel, label, colour, found.bins)
    panel.set_xlim(0, 1)
    panel.set_ylim(0, 1)


def _points(panel: Any, label: str, colour: str, bins: ReliabilityBins) -> None:
    """Observed over predicted; the larger a point, the more rounds are in it."""
    there = [place for place, count in enumerate(bins.count) if count]
    sizes = [4 + 60 * bins.count[place] / max(bins.total, 1) for place in there]
    columns: Sequence[list[float]] = [[values[p] for p in there] for values in (bins.predicted, bins.observed)]
    panel.scatter(*columns, s=sizes, color=colour, alpha=0.7, label=label, linewidths=0)


def _share(value: float) -> str:
    return "" if math.isnan(value) else f"{100 * value:.2f} %"
