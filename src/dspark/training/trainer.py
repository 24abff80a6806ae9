"""The training loop: one process, one feature store, exact resume."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dspark.core import InputError
from dspark.data.feature_store import FeatureStore
from dspark.drafters.dspark import DSparkConfig
from dspark.drafters.dspark.objective import training_pass
from dspark.drafters.losses import LossSums, LossWeights
from dspark.training.batches import BatchBuilder, shuffled_epochs
from dspark.training.export import export_drafter
from dspark.training.metrics import Acceptance, acceptance
from dspark.training.optim import OptimConfig, build_optimizers, clip_gradients, lr_factor, set_lr
from dspark.training.prepare import choose_draft_vocabulary, feature_scale, frozen_target, initialise
from dspark.training.state import STATE_FILE, load_state, save_state


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """One training run.

    Attributes:
        drafter: shape of the drafter.
        loss: loss terms.
        optim: optimiser and schedule (``optim.steps`` is the length of the run).
        sequences_per_step, anchors_per_sequence: batch shape; many sequences with few anchors each learn fastest.
        validation_sequences: held back from training, taken from the front of the store.
        validate_every, save_every: steps between validations and between saved states.
        bf16: compute in bfloat16 over float32 master weights.
        seed: initial weights, order of sequences and anchors.
    """

    drafter: DSparkConfig
    loss: LossWeights = field(default_factory=LossWeights)
    optim: OptimConfig = field(default_factory=OptimConfig)
    sequences_per_step: int = 16
    anchors_per_sequence: int = 16
    validation_sequences: int = 48
    validate_every: int = 200
    save_every: int = 200
    bf16: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        for name in (
            "sequences_per_step",
            "anchors_per_sequence",
            "validation_sequences",
            "validate_every",
            "save_every",
        ):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be >= 1, got {getattr(self, name)}")


@dataclass(frozen=True, kw_only=True)
class Validation:
    """Simulated acceptance on held-back sequences: sampled (T = 1) over all, greedy over those written greedily."""

    sampled: Acceptance
    greedy: Acceptance


class Trainer:
    """Trains one drafter from a feature store into a folder."""

    def __init__(
        self,
        config: TrainConfig,
        store: FeatureStore,
        embedding: torch.Tensor,
        head: torch.Tensor,
        folder: Path,
        *,
        initial: dict[str, torch.Tensor] | None = None,
    ) -> None:
        """Prepare a run, or take up the one that ``folder`` holds.

        Args:
            config: the run.
            store: target features.
            embedding, head: [V, D] of the target.
            folder: state, log and exported checkpoint go here.
            initial: float32 weights to start from instead of fresh ones (names of DSparkModel).
        """
        self.config, self.store, self.folder = config, store, folder
        _check_store(config.drafter, store)
        self.vocabulary = choose_draft_vocabulary(store, config.drafter.vocab_size, config.drafter.draft_vocab_size)
        self.scale = feature_scale(store)
        dtype = torch.bfloat16 if config.bf16 else torch.float32
        self.target = frozen_target(embedding, head, self.vocabulary, self.scale, dtype)
        self.model = initialise(config.drafter, config.seed)
        if initial is not None:
            self.model.load_state_dict(initial)
        self.optimizers = build_optimizers(self.model, config.optim)
        self.step, self.best_tau = 0, 0.0
        folder.mkdir(parents=True, exist_ok=True)
        if (folder / STATE_FILE).exists():
            self.step, self.best_tau = load_state(folder, self.model, self.optimizers)
        self.builder = BatchBuilder(
            store, block_size=config.drafter.block_size, anchors_per_sequence=config.anchors_per_sequence
        )
        usable = self.builder.usable(np.arange(store.manifest.sequences))
        self.held_back = usable[: config.validation_sequences]
        self.training = usable[config.validation_sequences :]

    def run(
        self,
        report: Callable[[dict[str, Any]], None] = lambda entry: None,
        tick: Callable[[int], None] = lambda step: None,
    ) -> Validation:
        """Train to the end of the schedule.

        Args:
            report: gets every log entry.
            tick: gets the number of finished steps after each one.

        Returns:
            the last validation.
        """
        config, started, first = self.config, time.perf_counter(), self.step
        batches = shuffled_epochs(self.training, config.sequences_per_step, config.seed, self.step)
        while self.step < config.optim.steps:
            result, norm = self._step(next(batches))
            self.step += 1
            tick(self.step)
            last = self.step == config.optim.steps
            if last or self.step % config.validate_every == 0:
                validation = self.validate()
                seconds = (time.perf_counter() - started) / (self.step - first)
                self._log(result, norm, validation, seconds, report)
                self._keep_if_best(validation)
            if last or self.step % config.save_every == 0:  # after the export: a run that is done has its drafter
                save_state(self.folder, self.model, self.optimizers, self.step, self.best_tau)
        return self.validate()

    def _step(self, sequences: np.ndarray) -> tuple[LossSums, float]:
        """One optimiser step; all randomness depends on (seed, step) alone."""
        batch = self.builder.build(sequences, np.random.default_rng((self.config.seed, 2, self.step)))
        set_lr(self.optimizers, lr_factor(self.step, self.config.optim))
        with self._precision():
            result = training_pass(self.model, batch, self.target, self.config.loss)
        (result.loss / result.weight).backward()
        norm = clip_gradients(self.model, self.config.optim.clip)
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        return result, norm

    @torch.no_grad()
    def validate(self) -> Validation:
        """Estimate acceptance on the held-back sequences; the same anchors every time."""
        sampled: list[torch.Tensor] = []
        greedy: list[torch.Tensor] = []
        masks: list[torch.Tensor] = []
        cold: list[torch.Tensor] = []
        for start in range(0, len(self.held_back), self.config.sequences_per_step):
            sequences = self.held_back[start : start + self.config.sequences_per_step]
            batch = self.builder.build(sequences, np.random.default_rng((self.config.seed, 3, start)))
            with self._precision():
                result = training_pass(self.model, batch, self.target, self.config.loss)
            sampled.append(result.accept)
            greedy.append(result.hit)
            masks.append(result.mask)
            is_cold = torch.from_numpy(self.store.temperatures[sequences] == 0)
            cold.append(is_cold.repeat_interleave(batch.mask.shape[1]))
        mask, rows = torch.cat(masks), torch.cat(cold)
        return Validation(
            sampled=acceptance(torch.cat(sampled), mask), greedy=acceptance(torch.cat(greedy)[rows], mask[rows])
        )

    def _precision(self) -> torch.autocast:
        return torch.autocast("cpu", torch.bfloat16, enabled=self.config.bf16)

    def _log(
        self,
        result: LossSums,
        norm: float,
        validation: Validation,
        seconds: float,
        report: Callable[[dict[str, Any]], None],
    ) -> None:
        """Append one line to ``log.jsonl`` and hand it to the caller."""
        sums = {"loss": result.loss.detach(), **result.terms}
        losses = {name: float(value / result.weight) for name, value in sums.items()}
        entry: dict[str, Any] = {
            "step": self.step,
            **losses,
            "gradient_norm": norm,
            "seconds_per_step": round(seconds, 3),
        }
        entry |= {"sampled": asdict(validation.sampled), "greedy": asdict(validation.greedy)}
        with (self.folder / "log.jsonl").open("a") as file:
            file.write(json.dumps(entry) + "\n")
        report(entry)

    def _keep_if_best(self, validation: Validation) -> None:
        """Export the checkpoint when greedy tau has improved."""
        if validation.greedy.tau > self.best_tau:
            self.best_tau = validation.greedy.tau
            export_drafter(self.folder / "best", self.model, self.scale, self.vocabulary)


def _check_store(drafter: DSparkConfig, store: FeatureStore) -> None:
    """Raise InputError if the features are not those the drafter reads."""
    got = (store.manifest.hidden_size, tuple(store.manifest.tap_layers))
    expected = (drafter.hidden_size, drafter.target_layer_ids)
    if got != expected:
        raise InputError(f"feature store holds (hidden size, taps) {got}, the drafter reads {expected}; write it again")
