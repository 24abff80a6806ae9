"""Choosing the calibration of a drafter's confidences."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dspark.calibration import (
    ARTEFACT_FILE,
    Calibration,
    StsArtefact,
    check_artefact,
    from_sglang_temperatures,
    head_fingerprint,
    is_bare,
    read_artefact,
)
from dspark.core import InputError
from dspark.drafters import Drafter

CALIBRATION_NAMES = ("auto", "off")
"""Calibrations that users name; anything else is a file, or a directory that holds one."""

UNCALIBRATED = "the drafter's confidence is uncalibrated (dspark calibrate makes it a probability)"


@dataclass(frozen=True, kw_only=True)
class ChosenCalibration:
    """A calibration and what is said about it.

    Attributes:
        calibration: what is applied; None leaves confidences as they are.
        artefact: where it comes from; None for one that was handed over, or for none.
        notes: one sentence, or none for a drafter that gives no confidence.
    """

    calibration: Calibration | None = None
    artefact: StsArtefact | None = None
    notes: tuple[str, ...] = ()


def check_calibration(spec: str | Path | Calibration) -> None:
    """See, before anything is loaded, whether a calibration that was named by a path is there.

    Raises:
        InputError: it is not, or ``spec`` is something else.
    """
    if isinstance(spec, Calibration) or spec in CALIBRATION_NAMES:
        return
    if not isinstance(spec, (str, Path)) or not _file(spec).is_file():
        raise InputError(
            f"there is no calibration {str(spec)!r}; expected 'auto', 'off', or a file such as {ARTEFACT_FILE}"
        )


def choose_calibration(spec: str | Path | Calibration, drafter: Drafter) -> ChosenCalibration:
    """Find the calibration of a drafter.

    Args:
        spec: ``auto`` (the ``sts.json`` beside the drafter's checkpoint, if there is one), ``off``, a file, a directory
            that holds one, or a ready calibration.
        drafter: whose confidences it is for.

    Raises:
        InputError: the file is damaged or was made for another drafter, or this one gives no confidence to calibrate.
    """
    named = spec in CALIBRATION_NAMES
    if not drafter.has_confidence:
        if not named:
            raise InputError(f"drafter {drafter.name!r} gives no confidence, there is nothing to calibrate")
        return ChosenCalibration()
    if isinstance(spec, Calibration):
        return _as_given(spec, drafter)
    folder: Path | None = getattr(drafter, "folder", None)  # drafters that were made by hand come from nowhere
    beside = None if folder is None else folder / ARTEFACT_FILE
    if spec == "off":
        return ChosenCalibration(notes=("the drafter's confidence is used as it is: calibration is off",))
    file = beside if spec == "auto" else _file(spec)
    if file is None or (spec == "auto" and not file.exists()):
        return ChosenCalibration(notes=(UNCALIBRATED,))
    if spec != "auto" and is_bare(file):
        return _as_given(from_sglang_temperatures(file.read_text("utf-8"), file), drafter)
    artefact = read_artefact(file)
    check_artefact(artefact, file, drafter.block_size, None if folder is None else head_fingerprint(folder))
    return ChosenCalibration(
        calibration=artefact.calibration, artefact=artefact, notes=(f"{_describe(artefact)}, from {file}",)
    )


def _file(spec: str | Path) -> Path:
    path = Path(spec)
    return path / ARTEFACT_FILE if path.is_dir() else path


def _as_given(calibration: Calibration, drafter: Drafter) -> ChosenCalibration:
    if calibration.block_size != drafter.block_size:
        raise InputError(
            f"the calibration is for blocks of {calibration.block_size} tokens, drafter {drafter.name!r} proposes "
            f"{drafter.block_size}"
        )
    return ChosenCalibration(calibration=calibration, notes=("confidence is calibrated, as given",))


def _describe(artefact: StsArtefact) -> str:
    before, after = (100 * sum(errors) / len(errors) for errors in (artefact.ece_before, artefact.ece_applied))
    return (
        f"confidence is calibrated on {artefact.num_samples} rounds of {artefact.dataset} "
        f"(error {before:.1f} % before, {after:.1f} % after)"
    )
