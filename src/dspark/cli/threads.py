"""Binding compute threads before torch starts."""

from __future__ import annotations

import sys

from dspark.target.threads import prepare_threads


def bind_threads() -> None:
    """Set what OpenMP reads when torch is loaded; nothing to do where torch is loaded already."""
    if "torch" not in sys.modules:
        prepare_threads()
