"""Random Eagle3 drafters, and the paged user of the other drafters' tests with token ids beside the features."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dspark.core import CommittedRows, Proposal
from dspark.drafters.eagle3 import Eagle3Config, Eagle3Drafter, Eagle3Model

from .standin import PagedUser, RecordingSampler, StandInTarget, random_target, randomised

GOLDEN = Path(__file__).parents[1] / "golden"


def config_of(**changes: Any) -> Eagle3Config:
    sizes: dict[str, Any] = {
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "vocab_size": 61,
        "target_layer_ids": (1, 3),
        "num_target_layers": 8,
        "ttt_length": 5,
    }
    return Eagle3Config(**(sizes | changes))


def random_model(config: Eagle3Config, seed: int = 0) -> Eagle3Model:
    """A drafter whose weights are all random, norms too."""
    torch.manual_seed(seed)
    return randomised(Eagle3Model(config))


def setup_of(**changes: Any) -> tuple[Eagle3Model, StandInTarget]:
    config = config_of(**changes)
    return random_model(config), random_target(config.layer_shape)


def user_of(**changes: Any) -> TextUser:
    return TextUser(Eagle3Drafter(*setup_of(**changes)))


def text_of(config: Eagle3Config, rows: int, seed: int = 1) -> tuple[Tensor, Tensor]:
    """Features and ids of a random text."""
    generator = torch.Generator().manual_seed(seed)
    width = len(config.target_layer_ids) * config.hidden_size
    return torch.randn(rows, width, generator=generator), torch.randint(config.vocab_size, (rows,), generator=generator)


class TextUser(PagedUser):
    """A paged user that commits texts: features and their tokens."""

    def commit_text(self, name: str, features: Tensor, ids: Tensor, start: int = 0) -> None:
        """Commit rows of positions start .. start + n - 1."""
        positions = self._room(name, start, start + len(features))
        self.drafter.observe(
            CommittedRows(
                features=features,
                positions=positions,
                kv_slots=self._slots(name, positions),
                token_ids=ids,
                previous_slots=self._slots(name, (positions - 1).clamp_min(0)),
            )
        )

    def drafted(self, name: str, anchor: int, position: int, **options: Any) -> RecordingSampler:
        """The sampler that drew a block for one request."""
        sampler = RecordingSampler(**options)
        self.propose([name], [anchor], [position], sampler)
        return sampler

    def drafts(self, names: Sequence[str], anchors: Sequence[int], positions: Sequence[int]) -> Proposal:
        return self.propose(names, anchors, positions, RecordingSampler())
