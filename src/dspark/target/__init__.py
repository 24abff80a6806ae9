"""The target room: a Hugging Face causal LM, loaded, run over packed batches with paged keys and values, and tapped."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dspark.target.facts import TargetFacts
    from dspark.target.loading import LoadedTarget, load_target
    from dspark.target.packed import PackedTarget, TargetOutput
    from dspark.target.packing import pack_model
    from dspark.target.sources import DEFAULT_TARGET

__all__ = [
    "DEFAULT_TARGET",
    "LoadedTarget",
    "PackedTarget",
    "TargetFacts",
    "TargetOutput",
    "load_target",
    "pack_model",
]

_HOME = {
    "DEFAULT_TARGET": "sources",
    "LoadedTarget": "loading",
    "PackedTarget": "packed",
    "TargetFacts": "facts",
    "TargetOutput": "packed",
    "load_target": "loading",
    "pack_model": "packing",
}


def __getattr__(name: str) -> object:
    """Import a public name when it is first used: ``dspark.target.threads`` must run before torch is loaded."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted((*globals(), *__all__))
