"""A training run from stores on disk and a loaded target."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from dspark.data.feature_store import FeatureStore
from dspark.target import LoadedTarget
from dspark.training.trainer import TrainConfig, Trainer


class TrainingRun:
    """A run that is new, or taken up where it stopped."""

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer

    def finish(self, *, report: Callable[[str], None], progress: Callable[[int, str], None]) -> str:
        """Train to the end of the schedule; returns the last line about it.

        Args:
            report: gets one line per validation.
            progress: gets the number of finished steps.

        Raises:
            KeyboardInterrupt: after Ctrl-C; says where the run goes on.
        """
        tau = ""

        def tell(entry: dict[str, Any]) -> None:
            nonlocal tau
            report(describe(entry))
            tau = f"tau {entry['greedy']['tau']:.2f}"

        progress(self._trainer.step, tau)
        try:
            last = self._trainer.run(tell, lambda step: progress(step, tau))
        except KeyboardInterrupt:
            every = self._trainer.config.save_every
            raise KeyboardInterrupt(
                f"interrupted at step {self._trainer.step}; the same command goes on from the state in "
                f"{self._trainer.folder}, which is saved every {every} steps"
            ) from None
        best = self._trainer.folder / "best"
        return f"done: tau {last.sampled.tau:.3f} sampled, {last.greedy.tau:.3f} greedy; the best drafter is in {best}"


def open_run(config: TrainConfig, stores: Sequence[Path], loaded: LoadedTarget, folder: Path) -> TrainingRun:
    """Prepare a run.

    Args:
        config: the run.
        stores: feature stores of the target.
        loaded: the target, in float32.
        folder: state, log and best checkpoint.

    Raises:
        InputError: stores, target and drafter do not fit together, or ``folder`` holds another run.
    """
    target = loaded.target
    trainer = Trainer(config, FeatureStore(stores), target.embed_weight(), target.lm_head_weight(), folder)
    return TrainingRun(trainer)


def describe(entry: dict[str, Any]) -> str:
    """One log entry in words."""
    parts = ", ".join(f"{name} {entry[name]:.3f}" for name in ("loss", "ce", "kl", "tv", "confidence"))
    taus = ", ".join(f"{entry[kind]['tau']:.3f} {kind}" for kind in ("sampled", "greedy"))
    return f"step {entry['step']}: {parts}; tau {taus}; {entry['seconds_per_step']:.2f} s a step"
