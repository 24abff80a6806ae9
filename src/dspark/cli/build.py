"""Building an engine from options, with a spinner, as importing and loading take a few seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dspark.cli.options import given
from dspark.cli.screen import note, waiting

if TYPE_CHECKING:
    from dspark.core import SamplingParams
    from dspark.engine import LLM
    from dspark.target import LoadedTarget


def open_llm(**options: Any) -> LLM:
    """An LLM from those options that are not None; remarks about choices go to the terminal."""
    with waiting("Loading the model ...") as say:
        from dspark import LLM

        llm = LLM(**given(**options), on_profile=lambda done, point: say(f"Measuring what steps cost: {point} ..."))
    note(llm.notes)
    return llm


def open_target(target: str | None, dtype: str | None, device: str | None) -> LoadedTarget:
    """A target by itself."""
    with waiting("Loading the model ..."):
        from dspark.target import DEFAULT_TARGET, load_target

        return load_target(target or DEFAULT_TARGET, **given(dtype=dtype, device=device))


def sampling(**options: Any) -> SamplingParams:
    """Sampling options from those that are not None, checked before anything is loaded."""
    with waiting("Starting ..."):
        from dspark import SamplingParams

        return SamplingParams(**given(**options))
