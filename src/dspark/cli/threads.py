"""Binding compute threads before torch starts."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import dspark


def bind_threads() -> None:
    """Set what OpenMP reads when torch is loaded; nothing to do where torch is loaded already.

    The settings are the target room's, in a file that imports nothing heavy. It is loaded by its place, as importing
    it by name would run the room's own start-up first, and that imports torch.
    """
    if "torch" in sys.modules:
        return
    place = Path(dspark.__file__).parent / "target" / "threads.py"
    spec = spec_from_file_location("dspark_thread_settings", place)
    assert spec is not None
    assert spec.loader is not None
    settings = module_from_spec(spec)
    spec.loader.exec_module(settings)
    settings.prepare_threads()
