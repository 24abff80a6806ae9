"""A training world in memory: sequences that count upwards, and features that tell where they are."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import torch

from dspark.data.conversation import Conversation
from dspark.data.corpus import Corpus
from dspark.data.feature_spec import FeatureSpec
from dspark.drafters.dspark import DSparkConfig
from dspark.drafters.losses import LossWeights
from dspark.training.config import TrainConfig
from dspark.training.optim import OptimConfig
from dspark.training.ranks import Ranks
from dspark.training.source import Fetched
from dspark.training.trainee import Borrowed
from dspark.training.trainer import Trainer

V, D, TAPS = 29, 16, (0, 2)


class CountingSource:
    """Features and teacher of sequences that count upwards from different starts."""

    def __init__(self, sequences: int = 24) -> None:
        self.corpus = Corpus.of(conversation(index) for index in range(sequences))
        self.spec = FeatureSpec(target="tiny", hidden_size=D, tap_layers=TAPS)
        generator = torch.Generator().manual_seed(0)
        self._codes = torch.randn(V, len(TAPS) * D, generator=generator)

    def fetch(self, sequences: np.ndarray, teacher_rows: np.ndarray) -> Fetched:
        ids = torch.from_numpy(self.corpus.ids[self.corpus.rows(sequences)]).long()
        following = torch.cat([ids[1:], ids.new_ones(1)])
        hidden = 4 * borrowed().head[following[torch.from_numpy(teacher_rows)]]
        return Fetched(
            features=self._codes[ids], hidden=hidden, log_z=torch.logsumexp(hidden @ borrowed().head.T, dim=-1)
        )


def conversation(index: int) -> Conversation:
    length = 12 + index % 5
    ids = [(index * 7 + step) % (V - 1) + 1 for step in range(length)]
    mask = [0] * 4 + [1] * (length - 4)
    return Conversation(ids=ids, mask=mask, domain="count", temperature=float(index % 2), complete=True)


def borrowed() -> Borrowed:
    generator = torch.Generator().manual_seed(1)
    return Borrowed(embedding=torch.randn(V, D, generator=generator), head=torch.randn(V, D, generator=generator))


def drafter_config(**changes: object) -> DSparkConfig:
    shape: dict = {"hidden_size": D, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    shape |= {"num_key_value_heads": 2, "head_dim": 8, "vocab_size": V, "block_size": 3, "mask_token_id": 1}
    shape |= {"markov_rank": 4, "target_layer_ids": TAPS, "num_target_layers": 4}
    return DSparkConfig(**{**shape, **changes})


def run_config(**changes: object) -> TrainConfig:
    base = TrainConfig(
        drafter=drafter_config(),
        loss=LossWeights(ce=0.1, kl=1.0, tv=0.5),
        optim=OptimConfig(lr=1e-2, warmup=5, steps=240, decay_share=0.3),
        sequences_per_step=4,
        anchors_per_sequence=4,
        validation_sequences=6,
        validate_every=120,
        save_every=10,
        bf16=False,
    )
    return dataclasses.replace(base, **changes)


def trainer(folder: Path, config: TrainConfig, *, ranks: Ranks | None = None, init_from: Path | None = None) -> Trainer:
    source = CountingSource()
    return Trainer(config, source, borrowed(), folder, device=torch.device("cpu"), ranks=ranks, init_from=init_from)
