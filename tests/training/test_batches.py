"""What a batch holds is what the sequences say."""

from __future__ import annotations

import numpy as np
import torch

from dspark.drafters.dspark import DSparkConfig
from dspark.drafters.losses import LossWeights
from dspark.training.anchors import Epochs, hold_back
from dspark.training.dspark_trainee import DSparkTrainee
from dspark.training.trainee import Setting

from .counting import CountingSource, borrowed, drafter_config


def trainee(source: CountingSource, config: DSparkConfig | None = None) -> DSparkTrainee:
    setting = Setting(
        source=source,
        borrowed=borrowed(),
        device=torch.device("cpu"),
        dtype=torch.float32,
        seed=0,
        loss=LossWeights(),
    )
    return DSparkTrainee(config or drafter_config(), setting)


def test_batches_are_the_sequences() -> None:
    source = CountingSource()
    learner, corpus, chosen = trainee(source), source.corpus, np.array([3, 11])
    draw = learner.draw(chosen, (0, 2, 5), 4)
    batch = learner.batch(draw)
    whole = source.fetch(chosen, np.arange(int(corpus.lengths[chosen].sum())))
    first = 0
    for row, sequence in enumerate(chosen.tolist()):
        length = int(corpus.lengths[sequence])
        ids, mask = torch.from_numpy(corpus.ids_of(sequence)).long(), corpus.mask_of(sequence)
        keys = batch.key_positions[row] < length
        assert int(keys.sum()) == length
        assert torch.equal(batch.features[batch.gather[row][keys]], whole.features[first : first + length])
        for anchor, tokens, counts, rows in zip(
            batch.anchors[row].tolist(), batch.tokens[row], batch.mask[row], batch.teacher_rows[row], strict=True
        ):
            size = int(counts.sum())
            assert torch.equal(tokens[: size + 1], ids[anchor : anchor + size + 1])
            assert mask[anchor : anchor + size + 1].all()
            at = slice(first + anchor, first + anchor + size)
            assert torch.equal(batch.teacher_hidden[rows[:size]], whole.hidden[at])
            assert torch.equal(batch.log_z[rows[:size]], whole.log_z[at])
        assert len(set(batch.anchors[row].tolist())) == 4
        first += length
    assert len(batch.teacher_hidden) == len(batch.teacher_rows[batch.mask].unique())


def test_the_weight_is_known_before_the_pass() -> None:
    learner = trainee(CountingSource())
    draw = learner.draw(np.array([1, 2, 9]), (0,), 6)
    sums = learner.module(learner.batch(draw))
    assert abs(float(sums.weight) - learner.weight(draw)) < 1e-5


def test_anchors_do_not_depend_on_the_company() -> None:
    learner = trainee(CountingSource())
    together, alone = learner.draw(np.array([3, 4, 5]), (0, 2, 7), 4), learner.draw(np.array([5]), (0, 2, 7), 4)
    assert np.array_equal(together.anchors[2], alone.anchors[0])
    assert not np.array_equal(alone.anchors, learner.draw(np.array([5]), (0, 2, 8), 4).anchors)


def test_epochs_show_every_sequence_once() -> None:
    epochs = Epochs(np.arange(12), 4, seed=3)
    assert sorted(np.concatenate([epochs.at(step) for step in range(3)]).tolist()) == list(range(12))
    again = Epochs(np.arange(12), 4, seed=3)
    assert np.array_equal(again.at(7), epochs.at(7))


def test_held_back_by_content() -> None:
    corpus = CountingSource().corpus
    held, rest = hold_back(corpus, np.arange(24), 6)
    assert sorted([*held, *rest]) == list(range(24))
    order = np.arange(24)[::-1].copy()
    turned, _ = hold_back(corpus.select(order), np.arange(24), 6)
    assert {corpus.ids_of(i).tobytes() for i in held} == {corpus.ids_of(23 - i).tobytes() for i in turned}
