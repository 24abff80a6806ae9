"""What a recipe holds."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from dspark.core import InputError
from dspark.data.synthesis import SynthesisConfig
from dspark.training.config import TrainConfig
from dspark.training.cost import TargetSizes


@dataclass(frozen=True, kw_only=True)
class WritingPlan:
    """How conversations are written.

    Attributes:
        synthesis: what is written.
        top_k: the likeliest tokens that are sampled from, in user turns and answers.
        chunk: conversations written together and appended at a time.
        requests_at_a_time: answers in progress at a time.
    """

    synthesis: SynthesisConfig = field(default_factory=SynthesisConfig)
    top_k: int = 50
    chunk: int = 128
    requests_at_a_time: int = 64

    def __post_init__(self) -> None:
        for name in ("top_k", "chunk", "requests_at_a_time"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be >= 1, got {getattr(self, name)}")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """From a target to a trained drafter.

    Attributes:
        writing: the conversations.
        training: the drafter and its training.
        target: the target it is made for, where that is too large to be at hand; estimates go by it.
    """

    writing: WritingPlan = field(default_factory=WritingPlan)
    training: TrainConfig
    target: TargetSizes | None = None


def with_seed(plan: WritingPlan, seed: int | None) -> WritingPlan:
    """The plan with another seed; as it is for None."""
    return plan if seed is None else replace(plan, synthesis=replace(plan.synthesis, seed=seed))
