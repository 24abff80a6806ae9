"""What is fixed before the first step: draft vocabulary, feature scaling, initial weights."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from dspark.core import InputError
from dspark.data.feature_store import FeatureStore
from dspark.drafters.dspark import DSparkConfig, DSparkModel
from dspark.drafters.losses import FrozenTarget

_SCALE_ROWS = 20_000
_OUTLIER = 10.0
_READ_WEIGHT = 0.3


def choose_draft_vocabulary(store: FeatureStore, target_vocab: int, size: int | None) -> Tensor:
    """The ``size`` most frequent tokens: [Vd] int64, increasing; all for None.

    What the target wrote counts fully, all else in the conversations for less: answers take up words of the question.

    Raises:
        InputError: more tokens asked for than the vocabulary has.
    """
    if size is None:
        return torch.arange(target_vocab)
    if size > target_vocab:
        raise InputError(f"draft vocabulary must be <= the target's {target_vocab} tokens, got {size}")
    written = torch.bincount(store.ids[store.mask], minlength=target_vocab)
    counts = written + _READ_WEIGHT * torch.bincount(store.ids, minlength=target_vocab)
    return counts.topk(size).indices.sort().values


def feature_scale(store: FeatureStore, seed: int = 0) -> Tensor:
    """Factor per feature dimension that brings its root mean square to one: [m * D] float32.

    Raw taps are badly conditioned: a few dimensions of a few attention-sink tokens hold nearly all the energy. Values
    far beyond a dimension's median are therefore capped before the mean is taken.
    """
    rows = np.sort(np.random.default_rng(seed).permutation(store.manifest.tokens)[:_SCALE_ROWS])
    magnitudes = store.features(rows).float().abs()
    cap = _OUTLIER * magnitudes.median(dim=0).values + 1e-3
    return 1 / (torch.minimum(magnitudes, cap).square().mean(dim=0).sqrt() + 1e-6)


def frozen_target(
    embedding: Tensor, head: Tensor, vocabulary: Tensor, scale: Tensor, dtype: torch.dtype
) -> FrozenTarget:
    """Collect what the drafter borrows: embedding [V, D], head [V, D], vocabulary [Vd], feature scale [m * D]."""
    to_draft = torch.full((embedding.shape[0],), -1)
    to_draft[vocabulary] = torch.arange(len(vocabulary))
    return FrozenTarget(
        embedding=embedding.detach().to(dtype),
        head=head.detach()[vocabulary].to(dtype).contiguous(),
        to_draft=to_draft,
        feature_scale=scale.to(dtype),
        full_vocabulary=len(vocabulary) == embedding.shape[0],
    )


def initialise(config: DSparkConfig, seed: int) -> DSparkModel:
    """A fresh drafter in float32: small normal weights, unit norms but for the last one.

    The last norm starts small: slots start as embeddings, and with tied embeddings a unit norm would make a fresh
    drafter all but certain that every token repeats.
    """
    torch.manual_seed(seed)
    model = DSparkModel(config)
    for parameter in model.parameters():
        if parameter.ndim == 2:
            nn.init.normal_(parameter, std=0.02)
    nn.init.constant_(model.norm.weight, 0.3)
    nn.init.normal_(model.fc.weight, std=model.fc.in_features**-0.5)
    if model.markov_head is not None:
        nn.init.normal_(model.markov_head.markov_w1.weight, std=0.05)
    return model
