"""The target's side of drafter training."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class FrozenTarget:
    """What a drafter borrows from its target, in the compute dtype.

    Attributes:
        embedding: [V, D] what a token's input is, the family's own scaling included.
        head: [Vd, D] rows of the LM head of the draft vocabulary's tokens.
        to_draft: [V] int64 entry of each target token in the draft vocabulary, -1 where it has none.
        feature_scale: [m * D] factor applied to raw features; folded into ``fc.weight`` on export.
        full_vocabulary: whether the draft vocabulary is the target's.
        logit_softcap: the target's soft-cap on final logits, for base and teacher logits alike; None without.
    """

    embedding: Tensor
    head: Tensor
    to_draft: Tensor
    feature_scale: Tensor
    full_vocabulary: bool
    logit_softcap: float | None = None
