"""Phases with blocks of their own, and runs that train a part of the weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from dspark.core import InputError
from dspark.training.config import LossPhase
from dspark.training.optim import OptimConfig

from .counting import CountingSource, drafter_config, run_config, trainer
from .test_batches import trainee


def test_a_short_block_is_a_block_of_a_shorter_drafter() -> None:
    source = CountingSource()
    long, sequences = trainee(source), np.array([2, 5])
    draw = long.draw(sequences, (0, 1), 4, 2)
    batch = long.batch(draw)
    assert draw.mask.shape == (2, 4, 2)
    assert batch.tokens.shape == (2, 4, 3)
    assert np.array_equal(draw.anchors, long.draw(sequences, (0, 1), 4).anchors)
    short = trainee(source, drafter_config(block_size=2))
    short.module.model.load_state_dict(long.module.model.state_dict())
    ours, theirs = long.module(batch), short.module(short.batch(short.draw(sequences, (0, 1), 4)))
    assert torch.equal(ours.loss, theirs.loss)
    assert torch.equal(ours.accept, theirs.accept)


def test_phases_have_their_own_batches() -> None:
    phases = (LossPhase(share=0.5, block_size=2, anchors_per_sequence=9, kl=1.0), LossPhase(share=0.25))
    config = run_config(phases=phases, optim=OptimConfig(steps=8, warmup=1), anchors_per_sequence=4)
    assert [config.blocks_at(step) for step in (0, 3, 4, 5, 6, 7)] == [(9, 2)] * 2 + [(4, None)] * 4
    assert [config.loss_at(step).kl for step in (0, 4, 7)] == [1.0, 0.0, config.loss.kl]
    with pytest.raises(InputError, match="block_size of a phase must be >= 1 or none, got 0"):
        LossPhase(share=0.5, block_size=0)


def test_a_run_with_short_blocks_first(tmp_path: Path) -> None:
    phases = (LossPhase(share=0.5, block_size=2, anchors_per_sequence=8),)
    run = trainer(tmp_path, run_config(phases=phases, optim=OptimConfig(lr=1e-2, steps=120, warmup=5)))
    outcome = run.run()
    assert outcome.validation.sampled.tau > 2.0
    assert len(outcome.validation.sampled.conditional) == run.config.drafter.to_dict()["block_size"]


def test_a_part_is_trained_and_the_rest_stays(tmp_path: Path) -> None:
    config = run_config(trained=("confidence_head",), optim=OptimConfig(lr=1e-2, muon_lr=1e-2, steps=4, warmup=1))
    run = trainer(tmp_path, config)
    before = {name: weight.detach().clone() for name, weight in run.trainee.module.named_parameters()}
    run.run()
    moved = {n for n, w in run.trainee.module.named_parameters() if not torch.equal(w.detach(), before[n])}
    assert moved == {"model.confidence_head.proj.weight", "model.confidence_head.proj.bias"}
    again = trainer(tmp_path, config)
    assert again.progress.step == 4
    assert again.progress.best_step == 4  # the latest: tau cannot change


def test_what_is_not_there_cannot_be_trained(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no weights begin with confidnce; there are fc, hidden_norm"):
        trainer(tmp_path, run_config(trained=("confidnce",)))
