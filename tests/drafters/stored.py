"""What the checkpoint tests of every drafter do: edit files, damage them, fill the disk."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file
from torch import Tensor

from dspark.core import InputError


def edit_tensors(folder: Path, change: Callable[[dict[str, Tensor]], Any]) -> None:
    """Change the stored tensors in place."""
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


def edit_config(folder: Path, **changes: Any) -> None:
    """Change keys of the stored configuration."""
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def refused(load: Callable[[Path], object], folder: Path) -> str:
    """The one line with which a folder is refused."""
    with pytest.raises(InputError) as caught:
        load(folder)
    message = str(caught.value)
    assert "\n" not in message
    return message


def check_absent_and_damaged_files(folder: Path, refusal: Callable[[Path], str]) -> None:
    """Every way a folder can be broken is told apart; the folder is broken afterwards."""
    assert "config.json" in refusal(folder.parent / "nowhere")
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    assert "model.safetensors is damaged" in refusal(folder)
    weights.unlink()
    assert "lacks model.safetensors" in refusal(folder)
    (folder / "config.json").write_text("[1]")
    assert "JSON object" in refusal(folder)
    (folder / "config.json").write_text("{")
    assert "valid JSON" in refusal(folder)


def check_full_disk(folder: Path, save: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk while writing: one error, the checkpoint of before, nothing left over."""
    before = {file.name: file.read_bytes() for file in folder.iterdir()}

    def full(*_args: object, **_kwargs: object) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr("dspark.drafters.checkpoint_files.save_file", full)
    with pytest.raises(InputError, match="No space left"):
        save()
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before
