"""A training run in numbers."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from dspark.core import InputError
from dspark.drafters.losses import LossWeights
from dspark.drafters.stored_drafter import StoredConfig
from dspark.training.optim import OptimConfig


class DrafterConfig(StoredConfig, Protocol):
    """What the configurations of all kinds of drafters have; each is a frozen dataclass."""

    @property
    def target_layer_ids(self) -> tuple[int, ...]: ...  # noqa: D102

    @property
    def num_target_layers(self) -> int: ...  # noqa: D102


class Parallel(StrEnum):
    """How several processes share a run: every one holds everything (DDP), or a part of the weights (FSDP2)."""

    DDP = "ddp"
    FSDP2 = "fsdp2"


@dataclass(frozen=True, kw_only=True)
class LossPhase(LossWeights):
    """Loss weights for a part of the run, and what its batches look like.

    Attributes:
        share: of all steps.
        block_size: slots of a block; None for as many as the drafter proposes. Short blocks leave time for more
            anchors, and the first slots are the ones that matter while a drafter is young.
        anchors_per_sequence: None for that of the run.
    """

    share: float
    block_size: int | None = None
    anchors_per_sequence: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.share < 1:
            raise InputError(f"the share of a phase must be between 0 and 1, got {self.share}")
        for name in ("block_size", "anchors_per_sequence"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f"the {name} of a phase must be >= 1 or none, got {value}")


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """One training run.

    Attributes:
        drafter: kind and shape of the drafter.
        loss: loss weights, those of the last phase where there are phases.
        phases: what comes before, in order, each for a share of the steps.
        optim: optimiser and schedule (``optim.steps`` is the length of the run).
        sequences_per_step, anchors_per_sequence: the global batch of a step, over all processes; many sequences with
            few anchors each learn fastest.
        micro_batches: parts in which every process goes through its share of a step; more take less memory.
        validation_sequences: held back from training.
        validation_anchors: of each of them, the first so many in a row: the text as the engine would walk through it.
        validate_every, save_every: steps between validations and between saved states.
        patience: validations without a better tau after which the run ends; None never ends it early.
        ema: decay of an exponential moving average of the weights, which is then validated and exported; None without.
        trained: beginnings of the names of the weights that are trained (``confidence_head``, ``layers.1``); all for
            none. The rest stays as it is.
        bf16: compute in bfloat16 over float32 master weights.
        parallel: how several processes share the run, when there are several.
        tensorboard: also write event files for TensorBoard.
        seed: initial weights, order of sequences and anchors.
    """

    drafter: DrafterConfig
    loss: LossWeights = field(default_factory=LossWeights)
    phases: tuple[LossPhase, ...] = ()
    optim: OptimConfig = field(default_factory=OptimConfig)
    sequences_per_step: int = 16
    anchors_per_sequence: int = 16
    micro_batches: int = 1
    validation_sequences: int = 48
    validation_anchors: int = 64
    validate_every: int = 200
    save_every: int = 200
    patience: int | None = None
    ema: float | None = None
    trained: tuple[str, ...] = ()
    bf16: bool = True
    parallel: Parallel = Parallel.DDP
    tensorboard: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        sizes = ("sequences_per_step", "anchors_per_sequence", "micro_batches", "validation_sequences")
        for name in (*sizes, "validation_anchors", "validate_every", "save_every"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be >= 1, got {getattr(self, name)}")
        if self.patience is not None and self.patience < 1:
            raise InputError(f"patience must be >= 1 or none, got {self.patience}")
        if self.ema is not None and not 0 < self.ema < 1:
            raise InputError(f"ema must be between 0 and 1, or none, got {self.ema}")
        if sum(phase.share for phase in self.phases) >= 1:
            raise InputError("the shares of the phases must add up to less than 1; the rest is for the last one")

    def phase_at(self, step: int) -> LossPhase | None:
        """The phase of a 0-based step; None when all phases are over."""
        end = 0.0
        for phase in self.phases:
            end += phase.share * self.optim.steps
            if step < end:
                return phase
        return None

    def loss_at(self, step: int) -> LossWeights:
        """Loss weights of a 0-based step."""
        return self.phase_at(step) or self.loss

    def blocks_at(self, step: int) -> tuple[int, int | None]:
        """Anchors per sequence and slots per block (None: the drafter's) of a 0-based step."""
        phase = self.phase_at(step)
        if phase is None:
            return self.anchors_per_sequence, None
        return phase.anchors_per_sequence or self.anchors_per_sequence, phase.block_size

    def to_json(self) -> dict[str, Any]:
        """All fields as JSON values."""
        whole: dict[str, Any] = json.loads(json.dumps({**_plain(self), "drafter": self.drafter.to_dict()}))
        return whole

    def identity(self) -> dict[str, Any]:
        """What must not change when a run is taken up again: its drafter, and which numbers it draws."""
        names = ("drafter", "seed", "sequences_per_step", "anchors_per_sequence", "validation_sequences", "ema")
        whole = self.to_json()
        return {name: whole[name] for name in names}


def _plain(config: TrainConfig) -> dict[str, Any]:
    """Fields without the drafter's."""
    simple: dict[str, Any] = asdict(config)  # type: ignore[call-overload]
    return simple
