"""Fills a feature store by running the target over a corpus."""

from __future__ import annotations

from collections.abc import Callable

from dspark.data.corpus import Corpus
from dspark.data.feature_store import FeatureStoreWriter
from dspark.data.grouping import consecutive_groups
from dspark.target import PackedTarget
from dspark.training.capture import Capture, check_corpus

ROWS_PER_FORWARD = 2048


def write_features(
    target: PackedTarget,
    corpus: Corpus,
    writer: FeatureStoreWriter,
    *,
    rows_per_forward: int = ROWS_PER_FORWARD,
    progress: Callable[[int], None] = lambda tokens: None,
) -> None:
    """Write taps, last hidden states and log softmax denominators of all sequences, and finish the store.

    Forwards never span two shards, so that a store that is continued gets the same forwards, and the same numbers, as
    one written in one go.

    Args:
        target: the target; its taps and its KV pool are set here.
        corpus: what to run; sequences that the writer has already are skipped.
        writer: the store.
        rows_per_forward: tokens per forward; a longer sequence goes alone.
        progress: called with the number of tokens that were added since the last call.

    Raises:
        InputError: a sequence that the target cannot run, or that gives numbers that are not finite.
        OSError: the disk does not take a shard; finished ones stay.
    """
    capture = Capture(target, writer.spec.tap_layers)
    check_corpus(corpus, target.facts)
    for start, stop in consecutive_groups(corpus.lengths, writer.manifest.shard_tokens):
        if stop <= writer.finished:
            progress(int(corpus.offsets[stop] - corpus.offsets[start]))
            continue
        assert start == writer.finished
        for first, end in consecutive_groups(corpus.lengths[start:stop], rows_per_forward):
            _write_group(capture, corpus, writer, range(start + first, start + end))
            progress(int(corpus.offsets[start + end] - corpus.offsets[start + first]))
        writer.cut()
    writer.close()


def _write_group(capture: Capture, corpus: Corpus, writer: FeatureStoreWriter, group: range) -> None:
    """Run one forward and append its sequences."""
    features, hidden = capture.run([corpus.ids_of(index) for index in group])
    hidden = hidden.bfloat16()  # as it is stored: the teacher's probabilities then add up to one
    log_z = capture.log_denominators(hidden)
    sizes = [int(corpus.lengths[index]) for index in group]
    parts = (values.cpu().split(sizes) for values in (features, hidden, log_z))
    for index, own_features, own_hidden, own_log_z in zip(group, *parts, strict=True):
        writer.append(
            corpus.ids_of(index).tolist(),
            corpus.mask_of(index).tolist(),
            float(corpus.temperatures[index]),
            own_features,
            own_hidden,
            own_log_z,
            domain=corpus.domains[index],
            complete=bool(corpus.complete[index]),
        )
