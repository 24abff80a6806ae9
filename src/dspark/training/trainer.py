"""The training loop, for every kind of drafter and any number of processes, with exact resume."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dspark.core import InputError
from dspark.training.anchors import Epochs, hold_back
from dspark.training.config import TrainConfig
from dspark.training.ema import MovingAverage
from dspark.training.interrupts import Interrupts
from dspark.training.kinds import make_trainee
from dspark.training.optim import build_optimizers, clip_gradients, set_lr, train_only
from dspark.training.provenance import describe_run, write_provenance
from dspark.training.ranks import Ranks
from dspark.training.replica import gathered, make_replica
from dspark.training.run_log import RunLog
from dspark.training.source import FeatureSource
from dspark.training.state import (
    Progress,
    SavedState,
    gather_moments,
    progress_values,
    read_state,
    restore,
    write_state,
)
from dspark.training.step import StepResult, take_step
from dspark.training.trainee import Borrowed, Setting
from dspark.training.validation import Validation, Validator, validation_parts


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a run ended.

    Attributes:
        validation: the last one.
        progress: steps and best tau.
        stopped_early: whether tau had not improved for long enough.
    """

    validation: Validation
    progress: Progress
    stopped_early: bool


class Trainer:
    """Trains one drafter into a folder: state, log, and the best checkpoint in ``best``."""

    def __init__(
        self,
        config: TrainConfig,
        source: FeatureSource,
        borrowed: Borrowed,
        folder: Path,
        *,
        device: torch.device,
        ranks: Ranks | None = None,
        init_from: Path | None = None,
    ) -> None:
        """Prepare a run, or take up the one that ``folder`` holds.

        Args:
            config: the run.
            source: conversations and target features.
            borrowed: the target's matrices.
            folder: where everything goes.
            device: where to compute.
            ranks: the processes that share the run.
            init_from: a checkpoint that a new run starts from.

        Raises:
            InputError: something does not fit together, or ``folder`` holds another run.
        """
        self.config, self.folder, self.ranks = config, folder, ranks or Ranks()
        self._identity = {**config.identity(), "data": source.corpus.fingerprint()}
        saved = read_state(folder, self._identity)
        dtype = torch.bfloat16 if config.bf16 else torch.float32
        self.progress = Progress(**saved.progress) if saved else Progress()
        setting = Setting(
            source=source,
            borrowed=borrowed,
            device=device,
            dtype=dtype,
            seed=config.seed,
            loss=config.loss_at(self.progress.step),
            extras=saved.extras if saved else None,
            init_from=None if saved else init_from,
        )
        self.trainee = make_trainee(config.drafter, setting)
        train_only(self.trainee.module, config.trained)
        self.replica = make_replica(self.trainee.module, self.ranks, config.parallel, device=device, bf16=config.bf16)
        self.optimizers = build_optimizers(self.trainee.module, self.trainee.muon_prefixes, config.optim)
        self.average = None if config.ema is None else MovingAverage(self.trainee.module, config.ema)
        self._device, self._started_from = device, _digest(init_from)
        self._plan_data(source)
        if saved is not None:
            self._restore(saved)
        self._about = describe_run(config, source, started_from=self._started_from)

    def _plan_data(self, source: FeatureSource) -> None:
        config, corpus = self.config, source.corpus
        parts = self.ranks.world * config.micro_batches
        if config.sequences_per_step < parts:
            raise InputError(
                f"sequences_per_step must be >= processes x micro_batches = {parts}, got {config.sequences_per_step}"
            )
        usable = self.trainee.usable(np.arange(corpus.sequences))
        self.held_back, training = hold_back(corpus, usable, config.validation_sequences)
        self._epochs = Epochs(training, config.sequences_per_step, config.seed)
        self._validator = Validator(
            self.trainee,
            self.replica,
            self.ranks,
            corpus,
            parts=validation_parts(corpus, self.held_back, max(1, config.sequences_per_step // parts)),
            anchors_per_sequence=config.validation_anchors,
        )

    def run(
        self,
        report: Callable[[dict[str, Any]], None] = lambda entry: None,
        tick: Callable[[int, dict[str, Any]], None] = lambda step, entry: None,
    ) -> Outcome:
        """Train to the end of the schedule, or until tau has not improved for ``patience`` validations.

        Args:
            report: gets the log entries of validations (in the first process).
            tick: gets the number of finished steps and the log entry after each one.

        Raises:
            KeyboardInterrupt: after Ctrl-C or SIGTERM; the state was saved after the step that was under way.
        """
        if self.ranks.first:
            self.folder.mkdir(parents=True, exist_ok=True)
        self.ranks.wait()
        log = None
        if self.ranks.first:
            log = RunLog(self.folder, finished_steps=self.progress.step, tensorboard=self.config.tensorboard)
        try:
            with Interrupts() as interrupts:
                validation = self._loop(interrupts, log, report, tick)
        finally:
            if log is not None:
                log.close()
        validation = validation or self.validate()
        return Outcome(validation=validation, progress=self.progress, stopped_early=self._out_of_patience())

    def _loop(
        self,
        interrupts: Interrupts,
        log: RunLog | None,
        report: Callable[[dict[str, Any]], None],
        tick: Callable[[int, dict[str, Any]], None],
    ) -> Validation | None:
        """All remaining steps; returns the validation after the last one."""
        config, progress, validation = self.config, self.progress, None
        while progress.step < config.optim.steps and not self._out_of_patience():
            started = time.perf_counter()
            result = self._step(interrupts)
            if result is None:
                self.save()
                raise KeyboardInterrupt
            progress.step += 1
            validation, entry = None, {"step": progress.step, **result.to_json()}
            entry["seconds"] = round(time.perf_counter() - started, 3)
            last = progress.step == config.optim.steps
            if last or progress.step % config.validate_every == 0:
                validation = self.validate()
                entry |= {"sampled": asdict(validation.sampled), "greedy": asdict(validation.greedy)}
                self._keep_if_best(validation)
            if log is not None:
                log.add(entry)
                tick(progress.step, entry)
                if validation is not None:
                    report(entry)
            if last or progress.step % config.save_every == 0:  # after the export: a run that is done has its drafter
                self.save()
        return validation

    def _step(self, interrupts: Interrupts) -> StepResult | None:
        """One optimiser step, or None if some process was told to stop; randomness depends on (seed, step) alone."""
        config, step = self.config, self.progress.step
        self.trainee.set_loss(config.loss_at(step))
        parts = np.array_split(self._epochs.at(step), self.ranks.world * config.micro_batches)
        mine = parts[self.ranks.rank :: self.ranks.world]
        draws = [self.trainee.draw(part, (config.seed, 2, step), *config.blocks_at(step)) for part in mine]
        weight = sum(self.trainee.weight(draw) for draw in draws)
        weight, stop = self.ranks.sums([weight, float(interrupts.caught)], self._device)
        if stop:
            return None
        set_lr(self.optimizers, step, config.optim)
        result = take_step(self.trainee, self.replica, self.ranks, draws, weight, self._device)
        result.gradient_norm = clip_gradients(self.trainee.module, config.optim.clip)
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        if self.average is not None:
            self.average.follow(step)
        return result

    def validate(self) -> Validation:
        """Estimate acceptance on the held-back sequences, with the averaged weights if there are such."""
        if self.average is None:
            return self._validator.run()
        with self.average.in_place():
            return self._validator.run()

    def save(self) -> None:
        """Write the state; all processes must call it."""
        module = self.trainee.module
        weights = {name: gathered(parameter) for name, parameter in module.named_parameters()}
        moments = gather_moments(module, self.optimizers)
        average = {} if self.average is None else {n: gathered(v) for n, v in self.average.weights().items()}
        if self.ranks.first:
            self.folder.mkdir(parents=True, exist_ok=True)
            state = SavedState(
                identity={**self._identity, "started_from": self._started_from},
                weights=weights,
                moments=moments,
                average=average,
                extras=dict(self.trainee.extras()),
                progress=progress_values(self.progress),
            )
            write_state(self.folder, state)
        self.ranks.wait()

    def export(self, folder: Path, validation: Validation | None = None) -> None:
        """Write a checkpoint of the weights (the averaged ones if there are such); all processes must call it."""
        source = dict(self.trainee.module.named_parameters()) if self.average is None else self.average.weights()
        weights = {name: gathered(value) for name, value in source.items()}
        if self.ranks.first:
            self.trainee.export(folder, weights)
            outcome: dict[str, Any] = {"step": self.progress.step, "processes": self.ranks.world}
            if validation is not None:
                outcome |= {"sampled": asdict(validation.sampled), "greedy": asdict(validation.greedy)}
            write_provenance(folder, self._about, outcome)
        self.ranks.wait()

    def _restore(self, saved: SavedState) -> None:
        restore(self.trainee.module, self.optimizers, saved)
        if self.average is not None:
            self.average.restore(saved.average)
        self._started_from = saved.identity["started_from"]

    def _keep_if_best(self, validation: Validation) -> None:
        """Export the checkpoint when tau has improved; as good is enough where only a part of the weights moves."""
        progress = self.progress
        progress.stale = 0 if validation.tau > progress.best_tau else progress.stale + 1
        if progress.stale == 0 or (self.config.trained and validation.tau == progress.best_tau):
            progress.best_tau, progress.best_step = validation.tau, progress.step
            self.export(self.folder / "best", validation)

    def _out_of_patience(self) -> bool:
        return self.config.patience is not None and self.progress.stale >= self.config.patience


def _digest(checkpoint: Path | None) -> str | None:
    """SHA-256 of a checkpoint's weights."""
    file = None if checkpoint is None else checkpoint / "model.safetensors"
    return None if file is None or not file.is_file() else hashlib.sha256(file.read_bytes()).hexdigest()
