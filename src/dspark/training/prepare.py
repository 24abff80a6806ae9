"""What is fixed before the first step: draft vocabulary, feature scaling, the target's matrices, initial weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dspark.core import InputError
from dspark.data.corpus import Corpus
from dspark.drafters.losses import FrozenTarget
from dspark.training.source import FeatureSource
from dspark.training.trainee import Borrowed

_SCALE_ROWS = 20_000
_FETCHED_TOKENS = 4096
_OUTLIER = 10.0
_READ_WEIGHT = 0.3


def choose_draft_vocabulary(corpus: Corpus, target_vocab: int, size: int | None) -> Tensor:
    """The ``size`` most frequent tokens: [Vd] int64, increasing; all for None.

    What the target wrote counts fully, all else in the conversations for less: answers take up words of the question.

    Raises:
        InputError: more tokens asked for than the vocabulary has, or tokens it does not have.
    """
    largest = int(corpus.ids.max(initial=0))
    if largest >= target_vocab:
        raise InputError(
            f"the data has token {largest}, the target's vocabulary {target_vocab}; it is of another target"
        )
    if size is None:
        return torch.arange(target_vocab)
    if size > target_vocab:
        raise InputError(f"draft vocabulary must be <= the target's {target_vocab} tokens, got {size}")
    written = np.bincount(corpus.ids[corpus.mask], minlength=target_vocab)
    counts = torch.from_numpy(written + _READ_WEIGHT * np.bincount(corpus.ids, minlength=target_vocab))
    return counts.topk(size).indices.sort().values


def feature_scale(source: FeatureSource, seed: int = 0) -> Tensor:
    """Factor per feature dimension that brings its root mean square to one: [m * D] float32.

    Raw taps are badly conditioned: a few dimensions of a few attention-sink tokens hold nearly all the energy. Values
    far beyond a dimension's median are therefore capped before the mean is taken.
    """
    magnitudes = torch.cat([part.float().abs().cpu() for part in _some_features(source, seed)])[:_SCALE_ROWS]
    cap = _OUTLIER * magnitudes.median(dim=0).values + 1e-3
    return 1 / (torch.minimum(magnitudes, cap).square().mean(dim=0).sqrt() + 1e-6)


def _some_features(source: FeatureSource, seed: int) -> Iterator[Tensor]:
    """Features of randomly chosen sequences, a few thousand tokens at a time."""
    corpus, group, total = source.corpus, [], 0
    order = np.random.default_rng(seed).permutation(np.flatnonzero(corpus.lengths))
    for place, sequence in enumerate(order):
        group.append(sequence)
        size = int(corpus.lengths[group].sum())
        last = total + size >= _SCALE_ROWS or place == len(order) - 1
        if last or size >= _FETCHED_TOKENS:
            yield source.fetch(np.array(group), np.zeros(1, np.int64)).features
            total, group = total + size, []
        if last:
            return


def frozen_target(
    borrowed: Borrowed, vocabulary: Tensor, scale: Tensor, *, dtype: torch.dtype, device: torch.device
) -> FrozenTarget:
    """Collect what a drafter with this draft vocabulary [Vd] and feature scale [m * D] borrows."""
    size = borrowed.embedding.shape[0]
    to_draft = torch.full((size,), -1)
    to_draft[vocabulary] = torch.arange(len(vocabulary))
    full, head = len(vocabulary) == size, borrowed.head.detach()
    return FrozenTarget(
        embedding=borrowed.embedding.detach().to(device, dtype),
        head=(head if full else head[vocabulary.to(head.device)]).to(device, dtype).contiguous(),
        to_draft=to_draft.to(device),
        feature_scale=scale.to(device, dtype),
        full_vocabulary=full,
        logit_softcap=borrowed.logit_softcap,
    )


def initialise(build: Callable[[], nn.Module], seed: int) -> nn.Module:
    """A fresh drafter in float32: small normal weights, unit norms but for the last one.

    The last norm starts small: slots start as embeddings, and with tied embeddings a unit norm would make a fresh
    drafter all but certain that every token repeats.
    """
    torch.manual_seed(seed)
    model: Any = build()
    for parameter in model.parameters():
        if parameter.ndim == 2:
            nn.init.normal_(parameter, std=0.02)
    nn.init.constant_(model.norm.weight, 0.3)
    nn.init.normal_(model.fc.weight, std=model.fc.in_features**-0.5)
    head = getattr(model, "markov_head", None)
    if head is not None:
        nn.init.normal_(head.markov_w1.weight, std=0.05)
    return model
