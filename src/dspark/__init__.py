"""Exact speculative decoding with a semi-autoregressive drafter and confidence-scheduled verification."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dspark.core import SamplingParams
    from dspark.engine import LLM, RequestOutput

__all__ = ["LLM", "RequestOutput", "SamplingParams"]

_HOME = {"LLM": "dspark.engine", "RequestOutput": "dspark.engine", "SamplingParams": "dspark.core"}


def __getattr__(name: str) -> object:
    """Import a public name when it is first used (PEP 562): ``import dspark`` itself loads no heavy library."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted((*globals(), *__all__))
