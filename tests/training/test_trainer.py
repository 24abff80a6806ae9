"""The loop on a tiny random target: it learns, resumes bit for bit, and refuses what does not fit."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from dspark.core import InputError
from dspark.data.feature_store import FeatureStore, FeatureStoreWriter
from dspark.drafters.dspark import DSparkConfig
from dspark.drafters.dspark.checkpoint import load_checkpoint
from dspark.drafters.losses import LossWeights
from dspark.training.batches import BatchBuilder
from dspark.training.export import export_drafter
from dspark.training.optim import OptimConfig, lr_factor
from dspark.training.state import save_state
from dspark.training.trainer import TrainConfig, Trainer

V, D, TAPS = 29, 16, (0, 2)


def drafter_config(**changes: int) -> DSparkConfig:
    shape = {"hidden_size": D, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    shape |= {"num_key_value_heads": 2, "head_dim": 8, "vocab_size": V, "block_size": 3, "mask_token_id": 1}
    return DSparkConfig(**{**shape, "markov_rank": 4, **changes}, target_layer_ids=TAPS, num_target_layers=4)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> FeatureStore:
    """Sequences that count upwards from a random start, with features that tell where they are."""
    folder = tmp_path_factory.mktemp("store")
    torch.manual_seed(0)
    writer = FeatureStoreWriter(folder, target="tiny", hidden_size=D, tap_layers=TAPS)
    codes, heads = torch.randn(V, len(TAPS) * D), embedding_and_head()[1]
    for index in range(24):
        length = 12 + index % 5
        ids = [(index * 7 + step) % (V - 1) + 1 for step in range(length)]
        hidden = 4 * heads[torch.tensor([*ids[1:], 1])]
        mask = [0] * 4 + [1] * (length - 4)
        log_z = torch.logsumexp(hidden.bfloat16().float() @ heads.T, -1)
        writer.append(ids, mask, float(index % 2), codes[ids], hidden, log_z)
    writer.close()
    return FeatureStore([folder])


def embedding_and_head() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(V, D, generator=generator), torch.randn(V, D, generator=generator)


def run_config(**changes: object) -> TrainConfig:
    optim = OptimConfig(lr=1e-2, warmup=5, steps=240, decay_share=0.3)
    loss = LossWeights(ce=0.1, kl=1.0, tv=0.5)
    base = TrainConfig(drafter=drafter_config(), loss=loss, optim=optim, sequences_per_step=4, anchors_per_sequence=4)
    base = dataclasses.replace(base, validation_sequences=6, validate_every=120, save_every=10, bf16=False)
    return dataclasses.replace(base, **changes)


def trainer(store: FeatureStore, folder: Path, config: TrainConfig) -> Trainer:
    return Trainer(config, store, *embedding_and_head(), folder)


def test_it_learns_and_exports(store: FeatureStore, tmp_path: Path) -> None:
    run = trainer(store, tmp_path, run_config())
    before = run.validate()
    after = run.run()
    assert before.greedy.tau < 1.5
    assert after.greedy.tau > 3.0
    log = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [entry["step"] for entry in log] == [120, 240]
    assert load_checkpoint(tmp_path / "best").config == run.config.drafter
    export_drafter(tmp_path / "last", run.model, run.scale, run.vocabulary)
    exported = load_checkpoint(tmp_path / "last")
    scaled = run.model.fc.weight.detach() * run.scale
    assert torch.allclose(exported.model.fc.weight.float(), scaled, rtol=1e-2)


@pytest.mark.pitfall(42)
@pytest.mark.parametrize("muon_lr", [None, 1e-2])
def test_resume_after_a_kill_is_bit_equal(store: FeatureStore, tmp_path: Path, muon_lr: float | None) -> None:
    optim = OptimConfig(lr=1e-2, muon_lr=muon_lr, warmup=5, steps=30)
    config = run_config(optim=optim, validate_every=30)
    whole = trainer(store, tmp_path / "whole", config)
    whole.run()
    killed = trainer(store, tmp_path / "killed", config)
    killed_at = RuntimeError("killed")

    def dies_at_17(step: np.ndarray) -> object:
        if killed.step == 17:
            raise killed_at
        return original(step)

    original = killed._step
    killed._step = dies_at_17  # type: ignore[method-assign, assignment]
    with pytest.raises(RuntimeError, match="killed"):
        killed.run()
    resumed = trainer(store, tmp_path / "killed", config)
    assert resumed.step == 10
    resumed.run()
    for name, weight in whole.model.state_dict().items():
        assert torch.equal(weight, resumed.model.state_dict()[name]), name


def test_reduced_vocabulary_keeps_the_most_frequent_tokens(store: FeatureStore, tmp_path: Path) -> None:
    run = trainer(store, tmp_path, run_config(drafter=drafter_config(draft_vocab_size=20)))
    counts = torch.bincount(store.ids[store.mask], minlength=V) + 0.3 * torch.bincount(store.ids, minlength=V)
    left_out = sorted(set(range(V)) - set(run.vocabulary.tolist()))
    assert counts[left_out].max() <= counts[run.vocabulary].min()
    assert run.target.to_draft[left_out].eq(-1).all()
    run.run()
    assert torch.equal(load_checkpoint(tmp_path / "best").draft_to_target, run.vocabulary)


def test_batches_are_the_sequences(store: FeatureStore) -> None:
    builder = BatchBuilder(store, block_size=3, anchors_per_sequence=4)
    chosen = np.array([3, 11])
    batch = builder.build(chosen, np.random.default_rng(0))
    for row, sequence in enumerate(chosen):
        start, length = store.offsets[sequence], int(store.lengths[sequence])
        ids, mask = store.ids[start : start + length], store.mask[start : start + length]
        keys = batch.key_positions[row] < length
        assert int(keys.sum()) == length
        packed = batch.features[batch.gather[row][keys]]
        assert torch.equal(packed, store.features(np.arange(start, start + length)))
        for anchor, tokens, counts, rows in zip(
            batch.anchors[row].tolist(), batch.tokens[row], batch.mask[row], batch.teacher_rows[row], strict=True
        ):
            size = int(counts.sum())
            assert torch.equal(tokens[: size + 1], ids[anchor : anchor + size + 1])
            assert mask[anchor : anchor + size + 1].all()
            assert torch.equal(
                batch.teacher_hidden[rows[:size]], store.hidden(np.arange(start + anchor, start + anchor + size))
            )
        assert len(set(batch.anchors[row].tolist())) == 4


def test_schedules() -> None:
    cosine = OptimConfig(warmup=10, steps=110)
    assert lr_factor(0, cosine) == pytest.approx(0.1)
    assert lr_factor(60, cosine) == pytest.approx(0.5)
    trapezoid = OptimConfig(warmup=10, steps=100, decay_share=0.5)
    assert lr_factor(50, trapezoid) == 1.0
    assert lr_factor(75, trapezoid) == pytest.approx(0.5)


def test_what_does_not_fit_is_refused(store: FeatureStore, tmp_path: Path) -> None:
    other = dataclasses.replace(drafter_config(), target_layer_ids=(0, 1))
    with pytest.raises(InputError, match="taps"):
        trainer(store, tmp_path, run_config(drafter=other))
    run = trainer(store, tmp_path, run_config(sequences_per_step=40))
    with pytest.raises(InputError, match="synthesise more"):
        run.run()
    small = trainer(store, tmp_path / "small", run_config(optim=OptimConfig(steps=1)))
    small.run()
    with pytest.raises(InputError, match="another configuration"):
        trainer(store, tmp_path / "small", run_config(drafter=drafter_config(num_hidden_layers=2)))


@pytest.mark.parametrize("content", [b"", b"garbage\n", b"PK\x03\x04 half an archive"])
def test_a_damaged_state_is_refused(store: FeatureStore, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "state.pt").write_bytes(content)
    with pytest.raises(InputError, match="damaged or no state of a run"):
        trainer(store, tmp_path, run_config())


def test_a_state_that_cannot_be_written(store: FeatureStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = trainer(store, tmp_path, run_config())
    save_state(tmp_path, run.model, run.optimizers, 1, 0.0)
    before = (tmp_path / "state.pt").read_bytes()

    def full(state: object, path: Path) -> None:
        path.write_bytes(b"half")
        raise RuntimeError("basic_ios::clear: iostream error")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(InputError, match=r"cannot be written .* is the disk full"):
        save_state(tmp_path, run.model, run.optimizers, 2, 0.0)
    assert (tmp_path / "state.pt").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["state.pt"]


def test_a_run_that_is_done_has_its_drafter(
    store: FeatureStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever cuts off the last validation, the same command makes up for it."""
    config = run_config(optim=OptimConfig(lr=1e-2, warmup=1, steps=4))
    cut = trainer(store, tmp_path, config)
    with monkeypatch.context() as patch:
        patch.setattr(cut, "validate", lambda: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            cut.run()
    trainer(store, tmp_path, config).run()
    assert (tmp_path / "best" / "model.safetensors").is_file()
