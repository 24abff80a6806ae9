"""What a drafter borrows from its target: facts to check against, the embedding, the LM head."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
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
        """The embedding matrix [V, D], without the family's scaling."""
        ...

    def lm_head(self, hidden: Tensor) -> Tensor:
        """Logits [.., V] of final hidden states [.., D], soft-cap included."""
        ...

    def lm_head_weight(self) -> Tensor:
        """The output matrix [V, D]; the embedding matrix when the two are tied."""
        ...


def embedding_rows(target: DraftTarget) -> Tensor:
    """What every token's input is, [V, D], the family's own scaling included; the target's own matrix if unscaled."""
    plain = target.embed_weight()
    some = torch.arange(min(8, len(plain)), device=target.device)
    if torch.equal(target.embed(some), plain[some]):
        return plain
    return torch.cat([target.embed(ids) for ids in torch.arange(len(plain), device=target.device).split(4096)])


def block_embedding(target: DraftTarget, own: Tensor | None) -> Callable[[Tensor], Tensor]:
    """How block ids [..] become inputs [.., D]: the target's embedding, or an own matrix [V, D] scaled like it.

    Some families scale embeddings (Gemma by sqrt(D)). The factor is read off what the target does to its own rows.
    """
    if own is None:
        return target.embed
    ids = torch.arange(min(8, len(own)), device=target.device)
    scale = target.embed(ids).float().norm() / target.embed_weight()[ids].float().norm()
    return partial(_scaled_rows, own.to(device=target.device, dtype=target.dtype), scale.item())


def base_output(target: DraftTarget, own: Tensor | None, draft_to_target: Tensor | None) -> Callable[[Tensor], Tensor]:
    """How final hidden states [.., D] become base logits [.., Vd], the family's final soft-cap included.

    Uses the own matrix [Vd, D] if there is one, else the target's rows of the draft vocabulary.
    """
    if own is None and draft_to_target is None:
        return target.lm_head
    if own is None:
        assert draft_to_target is not None
        own = target.lm_head_weight().index_select(0, draft_to_target)
    project = FrozenLinear(own.to(device=target.device, dtype=target.dtype))
    cap = target.facts.logit_softcap
    return project if cap is None else partial(_capped, project, cap)


def _scaled_rows(weight: Tensor, scale: float, ids: Tensor) -> Tensor:
    rows = F.embedding(ids, weight)
    return rows if scale == 1.0 else rows * scale


def _capped(project: FrozenLinear, cap: float, hidden: Tensor) -> Tensor:
    return project(hidden).div_(cap).tanh_().mul_(cap)
