"""What a drafter uses of its target: facts to check against, the embedding, the LM head."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from dspark.drafters.dspark.frozen_linear import FrozenLinear


class SharedFacts(Protocol):
    """The target facts a drafter depends on (a part of the target room's TargetFacts)."""

    @property
    def vocab_size(self) -> int: ...  # noqa: D102

    @property
    def hidden_size(self) -> int: ...  # noqa: D102

    @property
    def num_layers(self) -> int: ...  # noqa: D102

    @property
    def max_positions(self) -> int: ...  # noqa: D102

    @property
    def logit_softcap(self) -> float | None: ...  # noqa: D102


class DraftTarget(Protocol):
    """The part of a PackedTarget that a drafter needs; tests give a small stand-in."""

    @property
    def facts(self) -> SharedFacts: ...  # noqa: D102

    @property
    def dtype(self) -> torch.dtype: ...  # noqa: D102

    @property
    def device(self) -> torch.device: ...  # noqa: D102

    def embed(self, ids: Tensor) -> Tensor:
        """Embed ids [..] -> [.., D], the family's own scaling included."""
        ...

    def embed_weight(self) -> Tensor:
        """The embedding matrix [V, D]."""
        ...

    def lm_head(self, hidden: Tensor) -> Tensor:
        """Logits [.., V] of final hidden states [.., D], soft-cap included."""
        ...

    def lm_head_weight(self) -> Tensor:
        """The output matrix [V, D]; the embedding matrix when the two are tied."""
        ...


@dataclass(frozen=True, kw_only=True)
class OwnEmbedding:
    """Embedding matrix of a checkpoint that differs from the target's; scaled as the target's family scales.

    Attributes:
        weight: [V, D].
        scale: the family's factor (Gemma scales by sqrt(D)), 1 for most.
    """

    weight: Tensor
    scale: float

    @classmethod
    def like(cls, target: DraftTarget, weight: Tensor) -> OwnEmbedding:
        """Take the scale from what the target does to its own rows."""
        ids = torch.arange(min(8, weight.shape[0]), device=weight.device)
        ratio = target.embed(ids).float().norm() / target.embed_weight()[ids].float().norm()
        return cls(weight=weight, scale=ratio.item())

    def __call__(self, ids: Tensor) -> Tensor:
        """Embed ids [..] -> [.., D]."""
        rows = F.embedding(ids, self.weight)
        return rows if self.scale == 1.0 else rows * self.scale


@dataclass(frozen=True, kw_only=True)
class BaseHead:
    """Hidden states to base logits over the draft vocabulary.

    Attributes:
        project: [.., D] -> [.., Vd].
        softcap: the target family's final soft-cap c in c * tanh(logits / c), None for most.
    """

    project: FrozenLinear
    softcap: float | None

    def __call__(self, hidden: Tensor) -> Tensor:
        """[.., D] -> [.., Vd]."""
        logits = self.project(hidden)
        return logits if self.softcap is None else torch.tanh(logits / self.softcap) * self.softcap
