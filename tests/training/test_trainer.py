"""The loop on a tiny random target: it learns, resumes bit for bit, and refuses what does not fit."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dspark.core import InputError
from dspark.drafters.dspark.checkpoint import load_checkpoint, save_checkpoint
from dspark.drafters.losses import LossWeights
from dspark.training.config import LossPhase, TrainConfig
from dspark.training.interrupts import Interrupts
from dspark.training.optim import OptimConfig, lr_factor
from dspark.training.run_log import read_log
from dspark.training.trainer import Trainer

from .counting import CountingSource, V, borrowed, drafter_config, run_config, trainer


def short(steps: int, **changes: Any) -> TrainConfig:
    return run_config(**{"optim": OptimConfig(lr=1e-2, warmup=5, steps=steps), "validate_every": 10, **changes})


def curve(folder: Path) -> list[float]:
    return [entry["loss"] for entry in read_log(folder)]


def same_weights(one: Trainer, other: Trainer, tolerance: float = 0.0) -> None:
    theirs = dict(other.trainee.module.named_parameters())
    for name, weight in one.trainee.module.named_parameters():
        assert float((weight - theirs[name]).detach().abs().max()) <= tolerance, name


def test_it_learns_and_exports(tmp_path: Path) -> None:
    run = trainer(tmp_path, run_config())
    before = run.validate()
    reported: list[int] = []
    outcome = run.run(report=lambda entry: reported.append(entry["step"]))
    assert before.greedy.tau < 1.5
    assert outcome.validation.sampled.tau > 3.0
    assert reported == [120, 240]
    log = read_log(tmp_path)
    assert [entry["step"] for entry in log] == list(range(1, 241))
    assert [entry["step"] for entry in log if "greedy" in entry] == [120, 240]
    assert log[-1]["loss"] < log[0]["loss"] / 2
    assert log[-1]["train_tau"] > 3.0
    assert load_checkpoint(tmp_path / "best").config == run.config.drafter
    run.export(tmp_path / "last")
    scaled = run.trainee.module.model.fc.weight.detach() * run.trainee.extras()["feature_scale"]
    assert torch.allclose(load_checkpoint(tmp_path / "last").model.fc.weight.float(), scaled, rtol=1e-2)


@pytest.mark.pitfall(42)
@pytest.mark.parametrize("changes", [{}, {"ema": 0.9, "micro_batches": 2}, {"optim": "muon"}])
def test_resume_is_bit_equal(tmp_path: Path, changes: dict[str, Any]) -> None:
    config = short(30, validate_every=30)
    muon = changes.get("optim") == "muon"
    changes = {"optim": dataclasses.replace(config.optim, muon_lr=1e-2)} if muon else changes
    config = dataclasses.replace(config, **changes)
    whole = trainer(tmp_path / "whole", config)
    whole.run()
    killed = trainer(tmp_path / "killed", config)

    def dies_at_17(step: int, entry: dict[str, Any]) -> None:
        if step == 17:
            raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        killed.run(tick=dies_at_17)
    resumed = trainer(tmp_path / "killed", config)
    assert resumed.progress.step == 10
    resumed.run()
    assert curve(tmp_path / "killed") == curve(tmp_path / "whole")
    same_weights(whole, resumed)
    assert (tmp_path / "killed/best/model.safetensors").read_bytes() == (
        tmp_path / "whole/best/model.safetensors"
    ).read_bytes()


def test_an_interrupted_run_is_saved_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = trainer(tmp_path / "whole", short(12, save_every=100))
    whole.run()
    run = trainer(tmp_path / "cut", short(12, save_every=100))
    caught: list[Interrupts] = []
    monkeypatch.setattr("dspark.training.trainer.Interrupts", lambda: caught.append(Interrupts()) or caught[0])

    def ctrl_c(step: int, entry: dict[str, Any]) -> None:
        caught[0].caught = step == 7

    with pytest.raises(KeyboardInterrupt):
        run.run(tick=ctrl_c)
    monkeypatch.undo()
    again = trainer(tmp_path / "cut", short(12, save_every=100))
    assert again.progress.step == 7
    again.run()
    same_weights(whole, again)


def test_micro_batches_change_nothing(tmp_path: Path) -> None:
    """Normalised over the global batch: sequences of different weight must not count the same."""
    one = trainer(tmp_path / "one", short(8))
    four = trainer(tmp_path / "four", short(8, micro_batches=4))
    one.run()
    four.run()
    assert curve(tmp_path / "four") == pytest.approx(curve(tmp_path / "one"), abs=1e-6)
    same_weights(one, four, 1e-5)


def test_moving_average_is_what_is_validated_and_exported(tmp_path: Path) -> None:
    steady = OptimConfig(lr=1e-2, warmup=1, steps=20, decay_share=0.0)
    run = trainer(tmp_path, short(20, optim=steady, ema=0.999, validate_every=20))
    expected = {name: p.detach().clone() for name, p in run.trainee.module.named_parameters()}

    def follow(step: int, entry: dict[str, Any]) -> None:
        share = 1 - min(0.999, step / (9 + step))
        for name, parameter in run.trainee.module.named_parameters():
            expected[name].lerp_(parameter.detach(), share)

    run.run(tick=follow)
    exported = load_checkpoint(tmp_path / "best").model.state_dict()
    for name, value in expected.items():
        plain = name.removeprefix("model.")
        if plain != "fc.weight":
            assert torch.allclose(exported[plain].float(), value, rtol=1e-2, atol=1e-4), name
    assert not torch.allclose(exported["norm.weight"].float(), run.trainee.module.model.norm.weight, rtol=1e-2)


def test_early_stop(tmp_path: Path) -> None:
    frozen = OptimConfig(lr=0.0, warmup=0, steps=100)
    run = trainer(tmp_path, run_config(optim=frozen, validate_every=2, patience=3))
    outcome = run.run()
    assert outcome.stopped_early
    assert (outcome.progress.step, outcome.progress.best_step) == (8, 2)
    again = trainer(tmp_path, run_config(optim=frozen, validate_every=2, patience=3))
    again.run()
    assert again.progress.step == 8


def test_phases_of_the_loss(tmp_path: Path) -> None:
    first = LossPhase(share=0.25, ce=0.1, kl=1.0, tv=0.5)
    config = short(8, phases=(first,), loss=LossWeights(ce=0.2, kl=0.7, tv=1.0))
    assert [config.loss_at(step) is first for step in range(4)] == [True, True, False, False]
    run = trainer(tmp_path, config)
    seen: list[float] = []
    run.run(tick=lambda step, entry: seen.append(run.trainee.module.factors.tv))
    assert seen == [0.5] * 2 + [1.0] * 6
    entry = read_log(tmp_path)[-1]
    terms = 0.2 * entry["ce"] + 0.7 * entry["kl"] + entry["tv"] + entry["confidence"]
    assert entry["loss"] == pytest.approx(terms, rel=1e-5)
    with pytest.raises(InputError, match="less than 1"):
        short(8, phases=(dataclasses.replace(first, share=0.6),) * 2)


def test_going_on_from_a_checkpoint(tmp_path: Path) -> None:
    """The drafter of an earlier run is taken over with its vocabulary; its scale is that of the new data."""
    config = short(60, drafter=drafter_config(draft_vocab_size=20), validate_every=60)
    first = trainer(tmp_path / "first", config)
    first.run()
    best = tmp_path / "first" / "best"
    second = trainer(tmp_path / "second", config, init_from=best)
    taus = [run.validate().sampled.tau for run in (first, second)]
    assert taus[1] == pytest.approx(taus[0], rel=0.02)
    assert torch.equal(second.trainee.extras()["vocabulary"], first.trainee.extras()["vocabulary"])
    second.export(tmp_path / "copy")
    copied, original = (load_checkpoint(folder).model.state_dict() for folder in (tmp_path / "copy", best))
    assert all(torch.allclose(copied[name].float(), original[name].float(), rtol=1e-2) for name in original)
    second.run()
    provenance = json.loads((tmp_path / "second/best/provenance.json").read_text())
    assert len(provenance["started_from"]) == 64
    resumed = trainer(tmp_path / "second", config)
    assert resumed._about["started_from"] == provenance["started_from"]
    with pytest.raises(InputError, match="block_size 3, the run's drafter 5"):
        trainer(tmp_path / "third", short(8, drafter=drafter_config(block_size=5)), init_from=best)


def test_a_checkpoint_with_matrices_of_its_own(tmp_path: Path) -> None:
    first = trainer(tmp_path, short(4))
    first.run()
    start, target = load_checkpoint(tmp_path / "best"), borrowed()
    for matrix, fits in ((target.head, True), (target.head.flip(0), False)):
        save_checkpoint(tmp_path / "own", dataclasses.replace(start, lm_head=matrix, embed=3 * target.embedding))
        if fits:
            trainer(tmp_path / "next", short(4), init_from=tmp_path / "own")
        else:
            with pytest.raises(InputError, match="has an own LM head, not the target's"):
                trainer(tmp_path / "next", short(4), init_from=tmp_path / "own")


def test_provenance(tmp_path: Path) -> None:
    run = trainer(tmp_path, short(4))
    run.run()
    text = (tmp_path / "best/provenance.json").read_text()
    assert str(tmp_path) not in text
    facts = json.loads(text)
    assert facts["config"]["optim"]["steps"] == 4
    assert facts["data"] == facts["data"] | {"sequences": 24, "target": "tiny"}
    assert facts["data"]["sha256"] == CountingSource().corpus.fingerprint()
    assert facts["versions"]["torch"] == torch.__version__
    assert facts["checkpoint"]["step"] == 4


def test_reduced_vocabulary_keeps_the_most_frequent_tokens(tmp_path: Path) -> None:
    run = trainer(tmp_path, short(10, drafter=drafter_config(draft_vocab_size=20)))
    corpus, kept = CountingSource().corpus, run.trainee.extras()["vocabulary"]
    counts = np.bincount(corpus.ids[corpus.mask], minlength=V) + 0.3 * np.bincount(corpus.ids, minlength=V)
    left_out = sorted(set(range(V)) - set(kept.tolist()))
    assert counts[left_out].max() <= counts[kept].min()
    assert run.trainee.module.target.to_draft[left_out].eq(-1).all()
    run.run()
    assert torch.equal(load_checkpoint(tmp_path / "best").draft_to_target, kept)


def test_schedules() -> None:
    cosine = OptimConfig(warmup=10, steps=110)
    assert lr_factor(0, cosine) == pytest.approx(0.1)
    assert lr_factor(60, cosine) == pytest.approx(0.5)
    trapezoid = OptimConfig(warmup=10, steps=100, decay_share=0.5)
    assert lr_factor(50, trapezoid) == 1.0
    assert lr_factor(75, trapezoid) == pytest.approx(0.5)


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the drafter reads"):
        trainer(tmp_path, run_config(drafter=drafter_config(target_layer_ids=(0, 1))))
    with pytest.raises(InputError, match="the target has 29"):
        trainer(tmp_path, run_config(drafter=drafter_config(vocab_size=30)))
    with pytest.raises(InputError, match="synthesise more"):
        trainer(tmp_path, run_config(sequences_per_step=40))
    with pytest.raises(InputError, match="micro_batches = 8"):
        trainer(tmp_path, run_config(micro_batches=8))
    small = trainer(tmp_path / "small", short(1))
    small.run()
    for changes, said in (({"drafter": drafter_config(num_hidden_layers=2)}, "drafter"), ({"seed": 1}, "seed")):
        with pytest.raises(InputError, match=f"its {said} is different"):
            trainer(tmp_path / "small", short(1, **changes))


def test_a_loss_that_is_no_number_ends_the_run(tmp_path: Path) -> None:
    run = trainer(tmp_path, short(20, save_every=1))
    with torch.no_grad():
        run.trainee.module.model.fc.weight.fill_(float("nan"))
    with pytest.raises(InputError, match=r"the loss is nan; lower optim\.lr"):
        run.run()
    assert not (tmp_path / "state.pt").exists()


def test_a_run_that_is_done_has_its_drafter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever cuts off the last validation, the same command makes up for it."""
    cut = trainer(tmp_path, short(4))
    with monkeypatch.context() as patch:
        patch.setattr(cut, "validate", lambda: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            cut.run()
    trainer(tmp_path, short(4)).run()
    assert (tmp_path / "best" / "model.safetensors").is_file()
