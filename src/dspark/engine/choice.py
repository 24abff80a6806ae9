"""Choosing the drafter a user names."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from dspark.core import InputError
from dspark.drafters import Drafter, NgramDrafter, NullDrafter, load_drafter
from dspark.target import PackedTarget

DRAFTER_NAMES = ("auto", "none", "ngram")
"""Drafters that users name; anything else is a checkpoint directory."""


def shipped_drafter(target_name: str) -> Path | None:
    """Directory of the drafter that comes with the package for a target; None if there is none."""
    if not target_name or Path(target_name).name != target_name:
        return None
    place = Path(str(files("dspark.drafters"))) / "shipped" / target_name
    return place if (place / "config.json").is_file() else None


def check_drafter(spec: str | Path | Drafter) -> None:
    """See, before anything is loaded, whether a drafter that was named by a path is there.

    Raises:
        InputError: it is not.
    """
    if isinstance(spec, (str, Path)) and spec not in DRAFTER_NAMES and not Path(spec).exists():
        raise InputError(
            f"there is no drafter {str(spec)!r}; expected 'auto', 'none', 'ngram', or a checkpoint directory"
        )


def choose_drafter(spec: str | Path | Drafter, target: PackedTarget, target_name: str) -> tuple[Drafter, str]:
    """Make the drafter.

    Args:
        spec: ``auto`` (the one shipped for the target, else plain decoding), ``none``, ``ngram``, a checkpoint
            directory, or a ready drafter.
        target: the model.
        target_name: its short name.

    Returns:
        The drafter, and one sentence about the choice.

    Raises:
        InputError: ``spec`` is none of these, or the checkpoint does not fit the target.
    """
    if not isinstance(spec, (str, Path)):
        if isinstance(spec, type) or not hasattr(spec, "propose"):
            raise InputError(f"drafter must be 'auto', 'none', 'ngram', a path, or a drafter, got {spec!r}")
        return spec, f"drafter {spec.name!r}, as given"
    if spec == "auto":
        return _automatic(target, target_name)
    if spec == "none":
        return NullDrafter(), "plain decoding, as asked for"
    if spec == "ngram":
        return NgramDrafter(), "drafts are looked up in the text so far (n-gram)"
    check_drafter(spec)
    return load_drafter(spec, target), f"drafter from {spec}"


def _automatic(target: PackedTarget, target_name: str) -> tuple[Drafter, str]:
    place = shipped_drafter(target_name)
    if place is None:
        return NullDrafter(), f"no drafter is shipped for target {target_name!r}: plain decoding"
    return load_drafter(place, target), f"drafter shipped with dspark for {target_name}"
