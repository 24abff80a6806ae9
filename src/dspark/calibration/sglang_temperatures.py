"""SGLang's form of a temperature file, both ways.

As in ``python/sglang/srt/speculative/dspark_components/dspark_sts.py`` of sgl-project/sglang (seen at commit 9e16e2d,
2026): ``temperatures``, and optionally ``dataset``, ``num_samples``, ``ece_before``, ``ece_after``. Our own
``sts.json`` has all five and is read there as it is; a file without the optional ones is read here.
"""

from __future__ import annotations

import json
from pathlib import Path

from dspark.calibration.temperature_scaling import Calibration
from dspark.core import InputError


def from_sglang_temperatures(text: str, place: str | Path = "the temperature file") -> Calibration:
    """Read temperatures, whatever else the file says or leaves out.

    Args:
        text: JSON.
        place: what messages call it.

    Raises:
        InputError: it holds no positive temperatures.
    """
    try:
        raw = json.loads(text)
        return Calibration(temperatures=tuple(float(value) for value in raw["temperatures"]))
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{place} holds no temperatures as SGLang reads them: {error}") from None


def is_bare(file: Path) -> bool:
    """Whether a file holds temperatures without what our own artefact says of their making."""
    try:
        raw = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(raw, dict) and "temperatures" in raw and "ece_before" not in raw


def to_sglang_temperatures(calibration: Calibration, *, dataset: str = "", num_samples: int = 0) -> str:
    """Write temperatures.

    Raises:
        InputError: the calibration has offsets, which SGLang knows nothing of.
    """
    if calibration.offsets is not None and any(calibration.offsets):
        raise InputError("SGLang reads temperatures only; this calibration has offsets, fit one without")
    fields = {"temperatures": list(calibration.temperatures), "dataset": dataset, "num_samples": num_samples}
    return json.dumps(fields)
