"""Speed and memory of one training step, in turns with a plain one over the same batch."""

from __future__ import annotations

import copy
import gc
import os
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile, record_function

from dspark.core import InputError
from dspark.data.conversation import Conversation
from dspark.data.corpus import Corpus
from dspark.drafters.dspark import DSparkConfig
from dspark.evaluation import Machine, this_machine
from dspark.recipes.plain_step import PlainTarget, plain_loss
from dspark.recipes.training_run import borrow
from dspark.target import LoadedTarget
from dspark.training.capture import Capture
from dspark.training.config import TrainConfig
from dspark.training.dspark_trainee import DSparkTrainee
from dspark.training.memory_scale import MemoryScale
from dspark.training.online_source import OnlineSource
from dspark.training.optim import build_optimizers, clip_gradients, set_lr
from dspark.training.prepare import frozen_target
from dspark.training.ranks import Ranks
from dspark.training.replica import make_replica
from dspark.training.trainee import Setting

PARTS = ("features", "teacher", "context", "backbone", "heads and loss", "backward", "optimiser")
"""Parts of a step: running the target, its softmax denominators, and what is done with them."""


@dataclass(frozen=True, kw_only=True)
class StepPlan:
    """The batch and how often it is taken.

    Attributes:
        sequences, length: of the batch, in tokens.
        anchors: blocks per sequence.
        repeats: turns of either kind.
    """

    sequences: int = 2
    length: int = 512
    anchors: int = 96
    repeats: int = 5

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if value < 1:
                raise InputError(f"{name} must be >= 1, got {value}")
        if self.anchors + 1 > self.length:
            raise InputError(f"a sequence of {self.length} tokens has no {self.anchors} anchors")


@dataclass(frozen=True, kw_only=True)
class StepReport:
    """What was measured.

    Attributes:
        plan, target, drafter, optimiser: what, on what.
        seconds, plain_seconds: of every turn, from the target's hidden states to moved weights; the softmax
            denominators of the target, which a plain step computes with its logits, are part of both.
        features_seconds: running the target for the batch, the same for both.
        shares: of a step with its features, by part.
        peak_bytes, plain_peak_bytes: most memory that a step has in use beside weights and batch.
        gradient_difference: norm of the difference of the two gradients, relative to the plain one.
        machine: where.
    """

    plan: StepPlan
    target: str
    drafter: Mapping[str, Any]
    optimiser: str
    seconds: tuple[float, ...]
    plain_seconds: tuple[float, ...]
    features_seconds: float
    shares: Mapping[str, float]
    peak_bytes: int
    plain_peak_bytes: int
    gradient_difference: float
    machine: Machine

    @property
    def ratios(self) -> tuple[float, ...]:
        """How many times faster than the plain step of the same turn."""
        return tuple(plain / own for own, plain in zip(self.seconds, self.plain_seconds, strict=True))

    def to_json(self) -> dict[str, Any]:
        """Everything as JSON values."""
        return {**asdict(self), "ratios": list(self.ratios)}

    def to_text(self) -> str:
        """A few lines in plain text."""
        plan, own, plain = self.plan, self.seconds, self.plain_seconds
        times = self.plain_peak_bytes / self.peak_bytes
        peaks = f"{self.peak_bytes / 1e6:,.0f} MB, plain {self.plain_peak_bytes / 1e6:,.0f} MB ({times:.1f} x)"
        return "\n".join(
            [
                f"one step of {plan.sequences} x {plan.length} tokens, {plan.anchors} anchors each, blocks of "
                f"{self.drafter['block_size']}, {self.target}, draft vocabulary "
                f"{self.drafter.get('draft_vocab_size') or self.drafter['vocab_size']}, {self.optimiser}",
                f"  from features to moved weights  {_spread(own, ' s')}",
                f"  the same by plain PyTorch       {_spread(plain, ' s')}",
                f"  times faster                    {_spread(self.ratios, ' x')}",
                f"  with features                   {statistics.median(own) + self.features_seconds:.3f} s",
                "  share by part                   " + ", ".join(f"{n} {s:.0%}" for n, s in self.shares.items()),
                f"  peak memory                     {peaks}",
                f"  gradients differ by             {self.gradient_difference:.2%} of their norm",
                f"  on                              {self.machine.processor}, {self.machine.threads} threads",
                "",
            ]
        )


class StepBench:
    """Two trainees with the same weights and one batch."""

    def __init__(self, loaded: LoadedTarget, config: TrainConfig, plan: StepPlan) -> None:
        """Set everything up.

        Raises:
            InputError: a drafter without a plain counterpart here, or one that does not fit the target.
        """
        drafter = config.drafter
        if not isinstance(drafter, DSparkConfig) or drafter.num_experts is not None:
            raise InputError("the step of DSpark and DFlash drafters without experts can be measured, no other")
        self._loaded, self._config, self._plan, target = loaded, config, plan, loaded.target
        corpus = _random_corpus(plan, target.facts.vocab_size, config.seed)
        source = OnlineSource(loaded, corpus, drafter.target_layer_ids)
        borrowed = borrow(target)
        setting = Setting(
            source=source,
            borrowed=borrowed,
            device=target.device,
            dtype=torch.bfloat16 if config.bf16 else torch.float32,
            seed=config.seed,
            loss=config.loss,
        )
        self._capture = Capture(target, drafter.target_layer_ids)
        self._texts = [corpus.ids_of(index) for index in range(plan.sequences)]
        trainee = DSparkTrainee(drafter, setting)
        draw = trainee.draw(np.arange(plan.sequences), (config.seed,), plan.anchors)
        self._batch, self._weight = trainee.batch(draw), trainee.weight(draw)
        self._module, self._plain = trainee.module, copy.deepcopy(trainee.module.model)
        self._replica = make_replica(self._module, Ranks(), config.parallel, device=target.device, bf16=config.bf16)
        kept = trainee.extras()
        self._plain_target = PlainTarget(
            frozen=frozen_target(
                borrowed, kept["vocabulary"], kept["feature_scale"], dtype=torch.float32, device=target.device
            ),
            head=borrowed.head.detach().float(),
            vocabulary=kept["vocabulary"].to(target.device),
        )
        self._optimizers = build_optimizers(self._module.model, ("layers.", "fc."), config.optim)
        self._plain_optimizers = build_optimizers(self._plain, ("layers.", "fc."), config.optim)

    def run(self, progress: Callable[[int, str], None] = lambda done, note: None) -> StepReport:
        """Measure; the two kinds take turns."""
        difference = self._gradient_difference()
        peaks = self._peak(self._learn), self._peak(self._learn_plainly)
        own, plain = [], []
        for turn in range(self._plan.repeats + 1):
            times = self._timed(self._step), self._timed(self._plain_step)
            if turn:  # the first one warms up
                own.append(times[0])
                plain.append(times[1])
            progress(turn, "")
        features = statistics.median(self._timed(self._features) for _ in range(self._plan.repeats))
        assert isinstance(self._config.drafter, DSparkConfig)
        return StepReport(
            plan=self._plan,
            target=self._loaded.name,
            drafter=self._config.drafter.to_dict(),
            optimiser=" and ".join(type(optimizer).__name__ for optimizer in self._optimizers),
            seconds=tuple(own),
            plain_seconds=tuple(plain),
            features_seconds=features,
            shares=self._shares(),
            peak_bytes=peaks[0],
            plain_peak_bytes=peaks[1],
            gradient_difference=difference,
            machine=this_machine(),
        )

    def _features(self) -> None:
        self._capture.run(self._texts)

    def _step(self) -> None:
        with record_function("teacher"):
            self._capture.log_denominators(self._batch.teacher_hidden)
        self._learn()
        with record_function("optimiser"):
            self._move(self._module.model, self._optimizers)

    def _learn(self) -> None:
        self._replica.learn(self._batch, 1 / self._weight, last=True)

    def _plain_step(self) -> None:
        self._learn_plainly()
        self._move(self._plain, self._plain_optimizers)

    def _learn_plainly(self) -> None:
        plain_loss(self._plain, self._batch, self._plain_target, self._config.loss).backward()

    def _move(self, model: torch.nn.Module, optimizers: list[torch.optim.Optimizer]) -> None:
        clip_gradients(model, self._config.optim.clip)
        set_lr(optimizers, 0, self._config.optim)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    def _gradient_difference(self) -> float:
        self._learn()
        self._learn_plainly()
        own, plain = (_flat_gradient(model) for model in (self._module.model, self._plain))
        return float((own - plain).norm() / plain.norm())

    def _peak(self, learn: Callable[[], None]) -> int:
        for model in (self._module.model, self._plain):
            model.zero_grad(set_to_none=True)
        gc.collect()
        device = self._loaded.target.device
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
            before = torch.cuda.memory_allocated(device)
            learn()
            return torch.cuda.max_memory_allocated(device) - before
        with MemoryScale() as scale:
            learn()
        return scale.peak

    def _timed(self, action: Callable[[], None]) -> float:
        self._finish()
        started = time.perf_counter()
        action()
        self._finish()
        return time.perf_counter() - started

    def _finish(self) -> None:
        if self._loaded.target.device.type == "cuda":
            torch.cuda.synchronize()

    def _shares(self) -> dict[str, float]:
        """Share of each part, as seen from the processor's side."""
        os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # the profiler tells stderr about itself otherwise
        with profile(activities=[ProfilerActivity.CPU]) as seen:
            with record_function("features"):
                self._features()
                self._finish()
            with record_function("whole step"):
                self._step()
                self._finish()
        times = {event.key: event.cpu_time_total for event in seen.key_averages()}
        whole = times["features"] + times["whole step"]
        shares = {name: times.get(name, 0.0) / whole for name in PARTS}
        return {**shares, "rest": 1 - sum(shares.values())}


def _random_corpus(plan: StepPlan, vocab_size: int, seed: int) -> Corpus:
    """Sequences of random tokens, all of them answers; what they say does not matter for speed."""
    tokens = np.random.default_rng(seed).integers(vocab_size, size=(plan.sequences, plan.length))
    mask = [1] * plan.length
    return Corpus.of(
        Conversation(ids=ids, mask=mask, domain="", temperature=1.0, complete=True) for ids in tokens.tolist()
    )


def _flat_gradient(model: torch.nn.Module) -> Tensor:
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


def _spread(values: tuple[float, ...], unit: str) -> str:
    """Median and range."""
    return f"{statistics.median(values):.3f}{unit} ({min(values):.3f} to {max(values):.3f})"
