"""Hidden states computed beside the trainer and read from a store: the same numbers, whoever else uses the target."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from dspark.core import InputError
from dspark.data.conversation import Conversation
from dspark.data.corpus import Corpus
from dspark.data.feature_store import FeatureCoding, FeatureStoreWriter
from dspark.target import LoadedTarget, PackedTarget, load_target, pack_model
from dspark.training.capture import Capture
from dspark.training.features import write_features
from dspark.training.online_source import OnlineSource
from dspark.training.source import FeatureSource, Fetched
from dspark.training.store_source import StoreSource

from ..evaluation.tiny_pair import save_tiny_target
from ..target.families import CONFIGS, tiny_model

TAPS = (2, -1, 0)
SEQUENCES = np.array([5, 0, 3, 11, 1])


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> LoadedTarget:
    return load_target(str(save_tiny_target(tmp_path_factory.mktemp("t") / "tiny-target")), dtype="float32")


def random_corpus(vocabulary: int, count: int = 12, longest: int = 70) -> Corpus:
    rng = np.random.default_rng(5)
    lengths = rng.integers(1, longest, count)
    return Corpus.of(
        Conversation(
            ids=rng.integers(0, vocabulary, length).tolist(),
            mask=[1] * int(length),
            domain="chat",
            temperature=1.0,
            complete=True,
        )
        for length in lengths
    )


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return random_corpus(264)


@pytest.fixture(scope="module")
def online(loaded: LoadedTarget, corpus: Corpus) -> OnlineSource:
    return OnlineSource(loaded, corpus, TAPS)


def stored(loaded: LoadedTarget, corpus: Corpus, folder: Path, coding: FeatureCoding = FeatureCoding.BF16) -> Path:
    writer = FeatureStoreWriter(
        folder, target=loaded.name, hidden_size=32, tap_layers=TAPS, coding=coding, tokens_per_shard=100
    )
    write_features(loaded.target, corpus, writer, rows_per_forward=64)
    return folder


@pytest.fixture(scope="module")
def store(loaded: LoadedTarget, corpus: Corpus, tmp_path_factory: pytest.TempPathFactory) -> StoreSource:
    return StoreSource([stored(loaded, corpus, tmp_path_factory.mktemp("stores") / "bf16")])


def some_rows(corpus: Corpus, sequences: np.ndarray) -> np.ndarray:
    return np.arange(0, int(corpus.lengths[sequences].sum()), 3)


def fetch(source: FeatureSource, sequences: np.ndarray = SEQUENCES) -> Fetched:
    return source.fetch(sequences, some_rows(source.corpus, sequences))


def assert_close(got: Fetched, expected: Fetched, tolerance: float) -> None:
    for name in ("features", "hidden", "log_z"):
        one, other = getattr(got, name).float(), getattr(expected, name).float()
        assert one.shape == other.shape
        assert (one - other).norm() <= tolerance * other.norm(), name


def alone(model: PreTrainedModel, ids: np.ndarray, taps: tuple[int, ...]) -> tuple[Tensor, Tensor, Tensor]:
    """What transformers computes for one text by itself, with hooks of its own."""
    seen: dict[int, Tensor] = {}
    layers = model.base_model.layers
    handles = [layers[0].register_forward_pre_hook(lambda _m, args: seen.__setitem__(-1, args[0][0]))]
    for index, layer in enumerate(layers):
        keep = lambda _m, _a, out, i=index: seen.__setitem__(i, (out[0] if isinstance(out, tuple) else out)[0])  # noqa: E731
        handles.append(layer.register_forward_hook(keep))
    with torch.no_grad():
        inputs = torch.from_numpy(ids.astype(np.int64))[None]
        logits = model(input_ids=inputs, use_cache=False).logits[0]
        hidden = model.base_model(input_ids=inputs, use_cache=False).last_hidden_state[0]
    for handle in handles:
        handle.remove()
    return torch.cat([seen[tap] for tap in taps], -1), hidden, torch.logsumexp(logits.float(), -1)


@pytest.mark.pitfall(40)
@pytest.mark.parametrize("family", CONFIGS)
@pytest.mark.parametrize("batch", [1, 8])
def test_captured_states_are_those_of_each_text_alone(family: str, batch: int) -> None:
    """Ragged, several pages, windows shorter than the texts; against transformers, one text at a time."""
    corpus = random_corpus(97, count=batch, longest=40)
    texts = [corpus.ids_of(index) for index in range(batch)]
    model = tiny_model(family)
    expected = [torch.cat(part) for part in zip(*(alone(model, text, TAPS) for text in texts), strict=True)]
    target = pack_model(model, page_size=8)
    capture = Capture(target, TAPS)
    features, hidden = capture.run(texts)
    got = (features, hidden, capture.log_denominators(hidden))
    for one, other in zip(got, expected, strict=True):
        torch.testing.assert_close(one, other, atol=2e-5, rtol=2e-5)


@pytest.mark.pitfall(40)
def test_a_batch_of_eight_is_eight_of_one(online: OnlineSource) -> None:
    sequences = np.arange(8)
    together = fetch(online, sequences)
    bounds = np.cumsum([0, *online.corpus.lengths[sequences]])
    rows = some_rows(online.corpus, sequences)
    parts = [
        online.fetch(sequences[i : i + 1], rows[(rows >= bounds[i]) & (rows < bounds[i + 1])] - bounds[i])
        for i in range(8)
    ]
    joined = {name: torch.cat([getattr(part, name) for part in parts]) for name in ("features", "hidden", "log_z")}
    assert_close(together, Fetched(**joined), 1e-5)


def test_every_sequence_begins_at_position_zero(
    loaded: LoadedTarget, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rotary embeddings would hide a shift until positions run out."""
    seen: list[Tensor] = []
    forward = PackedTarget.forward
    monkeypatch.setattr(
        PackedTarget, "forward", lambda self, batch, **how: seen.append(batch.positions) or forward(self, batch, **how)
    )
    Capture(loaded.target, TAPS).run([corpus.ids_of(index) for index in range(3)])
    assert seen[0].tolist() == [place for length in corpus.lengths[:3] for place in range(length)]


@pytest.mark.pitfall(41)
def test_online_equals_the_store(online: OnlineSource, store: StoreSource) -> None:
    """Nothing is lost by a store but what bfloat16 rounds away."""
    assert (online.spec, online.corpus.fingerprint()) == (store.spec, store.corpus.fingerprint())
    computed, read = fetch(online), fetch(store)
    assert read.features.dtype == read.hidden.dtype == torch.bfloat16
    assert computed.features.dtype == torch.float32
    assert_close(read, computed, 2.0**-8)
    for name in ("features", "hidden"):
        one, other = getattr(read, name).float(), getattr(computed, name)
        assert (one - other).abs().le(other.abs() * 2.0**-8 + 1e-5).all()


def test_online_in_bfloat16_gives_what_a_store_holds(
    loaded: LoadedTarget, corpus: Corpus, store: StoreSource, online: OnlineSource
) -> None:
    rounded, read = fetch(OnlineSource(loaded, corpus, TAPS, dtype=torch.bfloat16)), fetch(store)
    assert rounded.features.dtype == torch.bfloat16
    same = rounded.features == read.features
    assert same.float().mean() > 0.99, "forwards of other shapes may round a few numbers to their neighbours"
    torch.testing.assert_close(rounded.log_z, read.log_z, atol=1e-3, rtol=0)


def test_teacher_probabilities_add_up_to_one(loaded: LoadedTarget, online: OnlineSource, store: StoreSource) -> None:
    for source in (online, store):
        fetched = fetch(source)
        logits = loaded.target.lm_head(fetched.hidden.float())
        total = torch.exp(logits - fetched.log_z[:, None]).sum(-1)
        torch.testing.assert_close(total, torch.ones_like(total), atol=1e-5, rtol=0)


def test_eight_bits_are_close(loaded: LoadedTarget, corpus: Corpus, store: StoreSource, tmp_path: Path) -> None:
    small, full = fetch(StoreSource([stored(loaded, corpus, tmp_path / "fp8", FeatureCoding.FP8)])), fetch(store)
    error = (small.features.float() - full.features.float()).norm() / full.features.float().norm()
    assert 0 < error < 0.04
    assert torch.equal(small.hidden, full.hidden)
    assert torch.equal(small.log_z, full.log_z)


@pytest.mark.parametrize("rows_per_forward", [1, 50, 100])
def test_memory_is_bounded_and_nothing_changes(
    loaded: LoadedTarget, corpus: Corpus, online: OnlineSource, rows_per_forward: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    widths: list[int] = []
    headed: list[int] = []
    forward, head = PackedTarget.forward, PackedTarget.lm_head
    monkeypatch.setattr(
        PackedTarget, "forward", lambda self, batch, **how: widths.append(batch.num_rows) or forward(self, batch, **how)
    )
    monkeypatch.setattr(PackedTarget, "lm_head", lambda self, rows: headed.append(len(rows)) or head(self, rows))
    bounded = fetch(OnlineSource(loaded, corpus, TAPS, rows_per_forward=rows_per_forward))
    longest = int(corpus.lengths[SEQUENCES].max())
    assert max(widths) <= max(rows_per_forward, longest)
    assert sum(widths) == corpus.lengths[SEQUENCES].sum()
    assert sum(headed) == len(some_rows(corpus, SEQUENCES)), "only teacher rows meet the vocabulary"
    assert max(headed) <= 128
    monkeypatch.undo()
    assert_close(bounded, fetch(online), 1e-5)


def test_no_teacher_rows(online: OnlineSource, store: StoreSource) -> None:
    for source in (online, store):
        fetched = source.fetch(SEQUENCES[:2], np.zeros(0, np.int64))
        assert (fetched.hidden.shape, fetched.log_z.shape) == ((0, 32), (0,))


def test_gradients_can_pass_through_what_is_computed(online: OnlineSource) -> None:
    fetched = fetch(online)
    weight = torch.randn(fetched.features.shape[1], 4, requires_grad=True)
    (fetched.features @ weight).square().sum().backward()
    assert weight.grad is not None


def test_a_target_that_was_used_in_between_is_taken_back(loaded: LoadedTarget, online: OnlineSource) -> None:
    before = fetch(online)
    loaded.target.set_taps((1,))
    loaded.target.allocate(1)
    after = fetch(online)
    for name in ("features", "hidden", "log_z"):
        assert torch.equal(getattr(before, name), getattr(after, name))


def test_many_threads_get_what_one_gets(online: OnlineSource) -> None:
    asked = [np.arange(start, start + 4) for start in range(8)]
    expected = [fetch(online, sequences) for sequences in asked]
    got: dict[int, Fetched] = {}
    threads = [threading.Thread(target=lambda i=i: got.update({i: fetch(online, asked[i])})) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for index, fetched in enumerate(expected):
        assert torch.equal(fetched.features, got[index].features)
        assert torch.equal(fetched.log_z, got[index].log_z)


def test_bfloat16_targets(loaded: LoadedTarget, corpus: Corpus, online: OnlineSource) -> None:
    half = load_target(loaded.source, dtype="bfloat16")
    fetched = fetch(OnlineSource(half, corpus, TAPS))
    assert fetched.features.dtype == fetched.hidden.dtype == torch.bfloat16
    assert fetched.log_z.dtype == torch.float32
    assert_close(fetched, fetch(online), 0.05)


def test_the_store_knows_its_target(
    loaded: LoadedTarget, store: StoreSource, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    store.check_target(loaded.target)
    store.check_target(load_target(loaded.source, dtype="bfloat16").target)
    retrained = load_target(str(save_tiny_target(tmp_path / "tiny-target", seed=1)), dtype="float32")
    wider = load_target(str(save_tiny_target(tmp_path / "wider", hidden=64)), dtype="float32")
    for other in (retrained, wider):
        with pytest.raises(InputError, match="are those of another target"):
            store.check_target(other.target)


def test_sequences_that_the_target_cannot_run(loaded: LoadedTarget, corpus: Corpus) -> None:
    foreign = replace(corpus, ids=np.where(np.arange(corpus.tokens) == corpus.offsets[4], 264, corpus.ids))
    with pytest.raises(InputError, match=r"conversation 5 has .* ids up to 264"):
        OnlineSource(loaded, foreign, TAPS)
    with pytest.raises(InputError, match="tapped layers"):
        OnlineSource(loaded, corpus, (7,))
