"""Profiles on disk, one file per identity."""

from __future__ import annotations

from pathlib import Path

from dspark.core import InputError
from dspark.core.cache_folder import cache_dir
from dspark.core.whole_file import write_whole
from dspark.scheduling.cost_model import CostModel
from dspark.scheduling.profile_identity import ProfileIdentity


def profile_file(identity: ProfileIdentity, folder: Path | None = None) -> Path:
    """Where the profile of an identity is kept.

    Args:
        identity: what is measured.
        folder: another place than ``profiles`` in the cache folder.
    """
    return (folder or cache_dir() / "profiles") / f"{identity.digest()}.json"


def find_profile(identity: ProfileIdentity, folder: Path | None = None) -> CostModel | None:
    """The valid profile of an identity; None if there is none, or it is damaged or of an older form."""
    file = profile_file(identity, folder)
    try:
        model = CostModel.from_json(file.read_text(encoding="utf-8"), file)
    except (OSError, InputError):
        return None
    return model if model.identity.to_dict() == identity.to_dict() else None


def keep_profile(model: CostModel, folder: Path | None = None) -> Path:
    """Write a profile, whole or not at all; returns its file."""
    file = profile_file(model.identity, folder)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, model.to_json())
    return file


def read_profile(file: str | Path) -> CostModel:
    """Read a profile that the user names.

    Raises:
        InputError: it cannot be read, or is none.
    """
    try:
        text = Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read the profile {file}: {error}") from None
    return CostModel.from_json(text, file)
