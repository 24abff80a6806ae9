"""The file ``sts.json`` beside a drafter checkpoint: the form that SGLang reads too (method, section 5)."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from dspark.calibration.temperature_scaling import Calibration
from dspark.core import InputError
from dspark.core.whole_file import write_whole

ARTEFACT_FILE = "sts.json"
HEAD_KEY = "confidence_head"
"""Optional field: fingerprint of the confidence head that the temperatures were fitted for."""

OFFSETS_KEY = "with_offsets"
"""Optional field: another calibration, with temperatures, offsets and ece_after of its own, which we use instead."""

_WEIGHTS, _HEAD = "model.safetensors", "confidence_head."
_FIELDS = ("temperatures", "dataset", "num_samples", "ece_before", "ece_after")


@dataclass(frozen=True, kw_only=True)
class StsArtefact:
    """Temperatures and where they come from.

    Attributes:
        temperatures: [G] one per position of the block.
        dataset: what they were fitted on, in words.
        num_samples: rounds they were fitted on.
        ece_before: [G] ECE of survival with the drafter's own confidences.
        ece_after: [G] the same with calibrated ones.
        extra: other fields of the file, kept as they are.
    """

    temperatures: tuple[float, ...]
    dataset: str
    num_samples: int
    ece_before: tuple[float, ...]
    ece_after: tuple[float, ...]
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def calibration(self) -> Calibration:
        """What is applied: the form with offsets if the file has it, else the temperatures."""
        better = self.extra.get(OFFSETS_KEY)
        if better is None:
            return Calibration(temperatures=self.temperatures)
        return Calibration(temperatures=tuple(better["temperatures"]), offsets=tuple(better["offsets"]))

    @property
    def ece_applied(self) -> tuple[float, ...]:
        """[G] ECE of survival with what is applied."""
        better = self.extra.get(OFFSETS_KEY)
        return self.ece_after if better is None else tuple(better["ece_after"])

    def to_json(self) -> str:
        """The file's text."""
        fields = {name: getattr(self, name) for name in _FIELDS}
        return json.dumps(fields | dict(self.extra), indent=2, allow_nan=False) + "\n"


def parse_artefact(text: str, place: str | Path = ARTEFACT_FILE) -> StsArtefact:
    """Read the file's text, strictly; fields that are not ours are kept in ``extra``.

    Args:
        text: JSON.
        place: what messages call it.

    Raises:
        InputError: the first thing that is wrong: no JSON, a missing field, another type, length or range.
    """
    try:
        raw = json.loads(text, parse_constant=_reject)
    except ValueError as error:
        raise InputError(f"{place} is not valid JSON: {error}") from None
    if not isinstance(raw, dict):
        raise InputError(f"{place} must hold a JSON object, got {type(raw).__name__}")
    missing = [name for name in _FIELDS if name not in raw]
    if missing:
        raise InputError(f"{place} lacks {missing[0]!r}; a calibration has {', '.join(_FIELDS)}")
    temperatures = _numbers(raw, "temperatures", place)
    if not temperatures or min(temperatures) <= 0:
        raise InputError(f"{place}: temperatures must be positive, one per position, got {raw['temperatures']}")
    _check_offsets(raw.get(OFFSETS_KEY), len(temperatures), place)
    return StsArtefact(
        temperatures=temperatures,
        dataset=_text(raw["dataset"], place),
        num_samples=_count(raw["num_samples"], place),
        ece_before=_errors(raw, "ece_before", len(temperatures), place),
        ece_after=_errors(raw, "ece_after", len(temperatures), place),
        extra={name: value for name, value in raw.items() if name not in _FIELDS},
    )


def read_artefact(file: str | Path) -> StsArtefact:
    """Read a file; see :func:`parse_artefact`.

    Raises:
        InputError: it cannot be read, or is not of this form.
    """
    try:
        text = Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"cannot read the calibration {file}: {reason}; `dspark calibrate` makes one") from None
    return parse_artefact(text, file)


def save_artefact(file: str | Path, artefact: StsArtefact) -> None:
    """Write or replace a file, as a whole or not at all.

    Raises:
        InputError: it cannot be written.
    """
    path = Path(file)
    try:
        write_whole(path, artefact.to_json())
    except OSError as error:
        raise InputError(f"cannot write the calibration {path}: {error.strerror or error}") from None


def head_fingerprint(checkpoint: str | Path) -> str | None:
    """What tells the confidence head of a checkpoint from others; the same in every dtype that holds it exactly.

    Args:
        checkpoint: directory of a drafter.

    Returns:
        SHA-256 of the head's weights as float32, the first 16 digits; None without a confidence head.

    Raises:
        InputError: the weights cannot be read.
    """
    file = Path(checkpoint) / _WEIGHTS
    digest = hashlib.sha256()
    try:
        with safe_open(file, framework="pt") as weights:
            names = sorted(name for name in weights.keys() if name.startswith(_HEAD))  # noqa: SIM118 - not a dict
            for name in names:
                digest.update(name.encode() + weights.get_tensor(name).to(torch.float32).numpy().tobytes())
    except (OSError, SafetensorError) as error:
        raise InputError(f"cannot read the drafter's weights {file}: {error}") from None
    return digest.hexdigest()[:16] if names else None


def check_artefact(artefact: StsArtefact, place: str | Path, block_size: int, fingerprint: str | None) -> None:
    """See that a calibration was made for a drafter.

    Args:
        artefact: the calibration.
        place: what messages call it.
        block_size: of the drafter.
        fingerprint: of its confidence head; None if that is not known.

    Raises:
        InputError: it is for blocks of another size, or says that it was fitted for another confidence head.
    """
    if len(artefact.temperatures) != block_size:
        raise InputError(
            f"{place} calibrates blocks of {len(artefact.temperatures)} tokens, this drafter proposes {block_size}; "
            "run `dspark calibrate` for it, or use --calibration off"
        )
    fitted_for = artefact.extra.get(HEAD_KEY)
    if fingerprint is not None and fitted_for not in (None, fingerprint):
        raise InputError(
            f"{place} was fitted for another drafter (confidence head {fitted_for}, this one has {fingerprint}); "
            "run `dspark calibrate` again, or use --calibration off"
        )


def _reject(word: str) -> float:
    raise ValueError(f"{word} is no number")


def _numbers(raw: Mapping[str, Any], name: str, place: str | Path) -> tuple[float, ...]:
    values = raw[name]
    if not isinstance(values, list):
        raise InputError(f"{place}: {name} must be a list of numbers, got {type(values).__name__}")
    for value in values:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < math.inf:
            raise InputError(f"{place}: {name} must be a list of finite numbers, got {value!r} in it")
    try:
        return tuple(float(value) for value in values)
    except OverflowError:
        raise InputError(f"{place}: {name} has a number that is too large") from None


def _errors(raw: Mapping[str, Any], name: str, size: int, place: str | Path) -> tuple[float, ...]:
    values = _numbers(raw, name, place)
    if len(values) != size:
        raise InputError(f"{place}: {name} has {len(values)} entries, temperatures has {size}")
    if not all(0 <= value <= 1 for value in values):
        raise InputError(f"{place}: {name} must be in [0, 1], got {list(values)}")
    return values


def _check_offsets(better: object, size: int, place: str | Path) -> None:
    """Raise InputError unless the optional calibration with offsets is whole."""
    if better is None:
        return
    where = f"{place}, {OFFSETS_KEY}"
    names = ("temperatures", "offsets", "ece_after")
    if not isinstance(better, dict) or any(name not in better for name in names):
        raise InputError(f"{where} must have {', '.join(names)}")
    temperatures, offsets = (_numbers(better, name, where) for name in names[:2])
    if (len(temperatures), len(offsets)) != (size, size) or min(temperatures) <= 0:
        raise InputError(f"{where} must have {size} positive temperatures and {size} offsets")
    _errors(better, "ece_after", size, where)


def _text(value: object, place: str | Path) -> str:
    if not isinstance(value, str):
        raise InputError(f"{place}: dataset must be a text, got {value!r}")
    return value


def _count(value: object, place: str | Path) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InputError(f"{place}: num_samples must be an integer >= 1, got {value!r}")
    return value
