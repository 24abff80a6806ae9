"""The engine: continuous batching of speculative and plain decoding, and the Python API on top of it."""

from dspark.engine.choice import shipped_drafter
from dspark.engine.core import EngineCore
from dspark.engine.llm import LLM
from dspark.engine.options import EngineOptions
from dspark.engine.outputs import (
    CompletionOutput,
    CompletionStats,
    RequestOutput,
    RoundStats,
    RoundTrace,
    StepOutput,
    StepStats,
)
from dspark.engine.scheduling_state import OperatingPoint, SchedulingState

__all__ = [
    "LLM",
    "CompletionOutput",
    "CompletionStats",
    "EngineCore",
    "EngineOptions",
    "OperatingPoint",
    "RequestOutput",
    "RoundStats",
    "RoundTrace",
    "SchedulingState",
    "StepOutput",
    "StepStats",
    "shipped_drafter",
]
