"""Eagle3 through the trainer that trains the parallel drafters: same data, same anchors, same loop."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dspark.core import CommittedRows, DraftBatch, InputError
from dspark.drafters import load_drafter
from dspark.drafters.eagle3 import Eagle3Config, Eagle3Drafter, load_checkpoint
from dspark.drafters.eagle3.objective import EAGLE3_LOSS, step_weights
from dspark.training.config import TrainConfig
from dspark.training.dspark_trainee import DSparkTrainee
from dspark.training.eagle3_trainee import Eagle3Trainee
from dspark.training.kinds import make_trainee
from dspark.training.optim import OptimConfig
from dspark.training.run_log import read_log
from dspark.training.trainee import Setting

from .counting import TAPS, CountingSource, D, V, borrowed, drafter_config, run_config, trainer


def eagle_config(**changes: Any) -> Eagle3Config:
    shape: dict[str, Any] = {"hidden_size": D, "intermediate_size": 32, "num_attention_heads": 2, "head_dim": 8}
    shape |= {"num_key_value_heads": 2, "vocab_size": V, "ttt_length": 3, "target_layer_ids": TAPS}
    return Eagle3Config(**{**shape, "num_target_layers": 4, **changes})


def eagle_run(**changes: Any) -> TrainConfig:
    return run_config(**{"drafter": eagle_config(), "loss": EAGLE3_LOSS, **changes})


def setting(source: CountingSource, **changes: Any) -> Setting:
    parts: dict[str, Any] = {"device": torch.device("cpu"), "dtype": torch.float32, "seed": 0, "loss": EAGLE3_LOSS}
    return Setting(source=source, borrowed=borrowed(), **{**parts, **changes})


def test_it_learns_and_exports(tmp_path: Path) -> None:
    run = trainer(tmp_path, eagle_run(optim=OptimConfig(lr=1e-2, warmup=5, steps=120, decay_share=0.3)))
    before = run.validate()
    outcome = run.run()
    assert before.sampled.tau < 1.5
    assert outcome.validation.sampled.tau > 2.5
    assert load_checkpoint(tmp_path / "best").config == run.config.drafter
    run.export(tmp_path / "last")
    scaled = run.trainee.module.model.fc.weight.detach() * run.trainee.extras()["feature_scale"]
    assert torch.allclose(load_checkpoint(tmp_path / "last").model.fc.weight.float(), scaled, rtol=1e-2)


@pytest.mark.pitfall(42)
def test_resume_is_bit_equal(tmp_path: Path) -> None:
    config = eagle_run(optim=OptimConfig(lr=1e-2, warmup=5, steps=24), validate_every=24, micro_batches=2, ema=0.9)
    trainer(tmp_path / "whole", config).run()

    def dies_at_17(step: int, entry: dict[str, Any]) -> None:
        if step == 17:
            raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        trainer(tmp_path / "killed", config).run(tick=dies_at_17)
    trainer(tmp_path / "killed", config).run()
    curves = [[entry["loss"] for entry in read_log(tmp_path / name)] for name in ("whole", "killed")]
    assert curves[0] == curves[1]


def test_going_on_from_a_checkpoint(tmp_path: Path) -> None:
    """The exported weights come back, feature scale taken out again; another shape is refused."""
    config = eagle_run(optim=OptimConfig(lr=1e-2, warmup=5, steps=8))
    config = dataclasses.replace(config, drafter=eagle_config(draft_vocab_size=20))
    first = trainer(tmp_path / "first", config)
    first.run()
    first.export(tmp_path / "export")
    second = trainer(tmp_path / "second", config, init_from=tmp_path / "export")
    theirs = dict(second.trainee.module.named_parameters())
    for name, weight in first.trainee.module.named_parameters():
        torch.testing.assert_close(theirs[name], weight, atol=1e-2, rtol=1e-2)
    assert torch.equal(first.trainee.extras()["vocabulary"], second.trainee.extras()["vocabulary"])
    other = dataclasses.replace(config, drafter=eagle_config(draft_vocab_size=20, ttt_length=2))
    with pytest.raises(InputError, match=r"ttt_length 3, the run's drafter 2; set drafter\.ttt_length"):
        trainer(tmp_path / "third", other, init_from=tmp_path / "export")


def test_same_blocks_as_a_parallel_drafter() -> None:
    """Rows stand before the anchors that DSpark draws with the same key, and are judged where its slots count."""
    source = CountingSource()
    eagle, parallel = make_trainee(eagle_config(), setting(source)), make_trainee(drafter_config(), setting(source))
    assert isinstance(eagle, Eagle3Trainee)
    assert isinstance(parallel, DSparkTrainee)
    sequences = np.array([3, 5, 0, 11])
    ours, theirs = eagle.draw(sequences, (7, 2, 1), 4), parallel.draw(sequences, (7, 2, 1), 4)
    started = theirs.mask[..., 0]
    assert np.array_equal(ours.rows[started], theirs.anchors[started] - 1)
    assert np.array_equal(ours.judged, theirs.mask)
    assert np.array_equal(eagle.usable(np.arange(24)), parallel.usable(np.arange(24)))
    ours_batch, their_batch = eagle.batch(ours), parallel.batch(theirs)
    judged = ours_batch.judged
    assert torch.equal(ours_batch.labels[judged], their_batch.tokens[..., 1:][judged])
    for one, other in ((ours_batch.teacher_hidden, their_batch.teacher_hidden), (ours_batch.log_z, their_batch.log_z)):
        assert torch.equal(one[ours_batch.teacher_rows[judged]], other[their_batch.teacher_rows[judged]])
    assert eagle.weight(ours) == pytest.approx(float(step_weights(ours_batch.taught, 0.8).sum()))
    sums = eagle.module(ours_batch)
    assert float(sums.weight) == pytest.approx(eagle.weight(ours))
    assert torch.equal(sums.mask, torch.from_numpy(theirs.mask).flatten(0, 1))


def test_micro_batches_add_up() -> None:
    """Loss and weight of sequences together are the sums of those alone: nothing leaks, padding counts nothing."""
    trainee = make_trainee(eagle_config(), setting(CountingSource()))
    sequences = np.array([4, 1, 8])
    together = trainee.module(trainee.batch(trainee.draw(sequences, (1, 2), 5)))
    alone = [trainee.module(trainee.batch(trainee.draw(sequences[i : i + 1], (1, 2), 5))) for i in range(3)]
    assert float(sum(sums.loss for sums in alone).detach()) == pytest.approx(float(together.loss.detach()), rel=1e-5)
    assert torch.equal(torch.cat([sums.mask for sums in alone]), together.mask)
    torch.testing.assert_close(torch.cat([sums.accept for sums in alone]), together.accept, atol=1e-5, rtol=0)


def test_an_answer_from_the_first_token_on() -> None:
    """Position 0 has no row before it; a text without any other anchor is of no use."""

    class Bare(CountingSource):
        def __init__(self) -> None:
            super().__init__(3)
            mask = self.corpus.mask.copy()
            mask[:] = False
            mask[:2] = True
            mask[self.corpus.offsets[1] : self.corpus.offsets[1] + 3] = True
            self.corpus = dataclasses.replace(self.corpus, mask=mask)

    trainee = make_trainee(eagle_config(), setting(Bare()))
    assert trainee.usable(np.arange(3)).tolist() == [1]
    draw = trainee.draw(np.array([1]), (0, 0), 4)
    assert draw.judged.sum(axis=(1, 2)).tolist() == [1]
    assert draw.rows[draw.judged.any(axis=-1)].tolist() == [0]


class Lender:
    """The target's matrices for a drafter that is served."""

    dtype, device = torch.float32, torch.device("cpu")
    vocab_size, hidden_size, num_layers, max_positions, logit_softcap = V, D, 4, 64, None

    def __init__(self) -> None:
        self.facts = self

    def embed(self, ids: torch.Tensor) -> torch.Tensor:
        return borrowed().embedding[ids]

    def embed_weight(self) -> torch.Tensor:
        return borrowed().embedding

    def lm_head_weight(self) -> torch.Tensor:
        return borrowed().head

    def lm_head(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden @ borrowed().head.T


@pytest.mark.pitfall(38)
@pytest.mark.parametrize("vocabulary", [None, 24])
def test_acceptance_in_training_is_that_of_serving(tmp_path: Path, vocabulary: int | None) -> None:
    """The exported drafter, served over pages and fed the true text, hits and overlaps where training says it does."""
    config = eagle_run(
        optim=OptimConfig(lr=1e-2, warmup=5, steps=40), drafter=eagle_config(draft_vocab_size=vocabulary)
    )
    run = trainer(tmp_path, config)
    run.run()
    run.export(tmp_path / "export")
    source, sequence = CountingSource(), np.array([2])
    trainee = make_trainee(config.drafter, setting(source, init_from=tmp_path / "export"))
    draw = trainee.draw(sequence, (5, 5), 6)
    batch = trainee.batch(draw)
    with torch.no_grad():
        sums = trainee.module(batch)
    drafter = load_drafter(tmp_path / "export", Lender())
    assert isinstance(drafter, Eagle3Drafter)
    text = torch.from_numpy(source.corpus.ids_of(2)).long()
    features = source.fetch(sequence, np.zeros(1, np.int64)).features
    ids = torch.arange(V) if vocabulary is None else trainee.extras()["vocabulary"]
    for row, mask, hit, accept in zip(draw.rows[0].tolist(), sums.mask, sums.hit, sums.accept, strict=True):
        if not mask[0]:
            continue
        logits = served_logits(drafter, text, features[: row + 1], ids)[mask]
        labels = text[row + 2 :][: len(logits)]
        teacher = torch.softmax(4 * borrowed().head[labels] @ borrowed().head.T, -1)
        law = torch.zeros(len(logits), V).index_copy_(1, ids, torch.softmax(logits, -1))
        assert torch.equal((ids[logits.argmax(-1)] == labels).float(), hit[mask])
        torch.testing.assert_close(torch.minimum(law, teacher).sum(-1), accept[mask], atol=1e-4, rtol=0)
    assert float(sums.hit[sums.mask].mean()) > 0.2


def served_logits(
    drafter: Eagle3Drafter, text: torch.Tensor, features: torch.Tensor, ids: torch.Tensor
) -> torch.Tensor:
    """Logits [G, Vd] after a text whose features are given but for the last token; drafts are the true tokens."""
    anchor, page = len(features), 4
    places = torch.arange(anchor)
    drafter.allocate(8, page)
    drafter.observe(
        CommittedRows(
            features=features,
            positions=places,
            kv_slots=places,
            token_ids=text[:anchor],
            previous_slots=(places - 1).clamp_min(0),
        )
    )
    seen: list[torch.Tensor] = []

    def forced(slot: int, logits: torch.Tensor) -> tuple[torch.Tensor, None]:
        seen.append(logits[0].clone())
        wanted = text[anchor + 1 + slot] if anchor + 1 + slot < len(text) else ids[0]
        entry = (ids == wanted).nonzero()
        return entry[0] if len(entry) else torch.zeros(1, dtype=torch.int64), None

    drafter.propose(
        DraftBatch(
            anchors=text[anchor : anchor + 1],
            anchor_positions=(anchor,),
            page_table=torch.arange(8)[None],
            page_size=page,
            histories=[()],
            max_lens=(drafter.block_size,),
            sampler=forced,
        )
    )
    return torch.stack(seen)
