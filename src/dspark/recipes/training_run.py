"""A training run from conversations or stores on disk and a loaded target."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dspark.core import InputError
from dspark.data.corpus import Corpus
from dspark.drafters.dspark.target_side import embedding_rows
from dspark.recipes.training_curve import draw_curve
from dspark.target import LoadedTarget, PackedTarget
from dspark.training.config import TrainConfig
from dspark.training.online_source import OnlineSource
from dspark.training.ranks import Ranks
from dspark.training.source import FeatureSource
from dspark.training.store_source import StoreSource
from dspark.training.trainee import Borrowed
from dspark.training.trainer import Trainer


@dataclass(frozen=True, kw_only=True)
class TrainingData:
    """What is learnt from: conversations that the target is run over while training, or stores of its features.

    Attributes:
        files: files of conversations.
        stores: feature stores.
    """

    files: tuple[Path, ...] = ()
    stores: tuple[Path, ...] = ()

    def __post_init__(self) -> None:
        if bool(self.files) == bool(self.stores):
            raise InputError("give either files of conversations (--data) or feature stores (--store)")

    def open(self, loaded: LoadedTarget, tap_layers: tuple[int, ...]) -> FeatureSource:
        """The source of features.

        Raises:
            InputError: files that cannot be read, or features of another target.
        """
        if self.files:
            return OnlineSource(loaded, Corpus.read(self.files), tap_layers)
        stored = StoreSource(self.stores)
        if stored.corpus.sequences and stored.spec.tap_layers == tap_layers:
            stored.check_target(loaded.target)
        return stored


class TrainingRun:
    """A run that is new, or taken up where it stopped."""

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer

    def finish(self, *, report: Callable[[str], None], progress: Callable[[int, str], None]) -> str:
        """Train to the end of the schedule; returns the last line about it.

        Args:
            report: gets one line per validation.
            progress: gets the number of finished steps, and loss and tau in words.

        Raises:
            KeyboardInterrupt: after Ctrl-C; says where the run goes on.
        """
        tau = ""

        def tell(entry: dict[str, Any]) -> None:
            nonlocal tau
            report(describe(entry))
            tau = f", tau {entry['sampled']['tau']:.2f} sampled, {entry['greedy']['tau']:.2f} greedy"

        progress(self._trainer.progress.step, "")
        try:
            outcome = self._trainer.run(tell, lambda step, entry: progress(step, f"loss {entry['loss']:.3f}{tau}"))
        except KeyboardInterrupt:
            if self._trainer.ranks.first:
                draw_curve(self._trainer.folder)
            raise KeyboardInterrupt(
                f"interrupted at step {self._trainer.progress.step}; the same command goes on from the state in "
                f"{self._trainer.folder}"
            ) from None
        if self._trainer.ranks.first:
            draw_curve(self._trainer.folder)
        last, how = outcome.validation, outcome.progress
        early = f" early, as tau did not improve any more after step {how.best_step}" if outcome.stopped_early else ""
        return (
            f"done{early}: tau {last.sampled.tau:.3f} sampled, {last.greedy.tau:.3f} greedy; the best drafter "
            f"(tau {how.best_tau:.3f}, step {how.best_step}) is in {self._trainer.folder / 'best'}"
        )


def open_run(
    config: TrainConfig,
    data: TrainingData,
    loaded: LoadedTarget,
    folder: Path,
    *,
    ranks: Ranks | None = None,
    init_from: Path | None = None,
) -> TrainingRun:
    """Prepare a run.

    Args:
        config: the run.
        data: what is learnt from.
        loaded: the target.
        folder: state, log and best checkpoint.
        ranks: the processes that share the run.
        init_from: a checkpoint that a new run starts from.

    Raises:
        InputError: data, target and drafter do not fit together, or ``folder`` holds another run.
    """
    target = loaded.target
    source = data.open(loaded, config.drafter.target_layer_ids)
    return TrainingRun(
        Trainer(config, source, borrow(target), folder, device=target.device, ranks=ranks, init_from=init_from)
    )


def borrow(target: PackedTarget) -> Borrowed:
    """What drafters borrow from a target."""
    return Borrowed(
        embedding=embedding_rows(target), head=target.lm_head_weight(), logit_softcap=target.facts.logit_softcap
    )


def describe(entry: dict[str, Any]) -> str:
    """One log entry in words."""
    terms = [name for name in ("loss", "ce", "kl", "tv", "confidence") if name in entry]
    parts = ", ".join(f"{name} {entry[name]:.3f}" for name in terms)
    taus = ", ".join(f"{entry[kind]['tau']:.3f} {kind}" for kind in ("sampled", "greedy"))
    return f"step {entry['step']}: {parts}; tau {taus}; {entry['seconds']:.2f} s a step"
