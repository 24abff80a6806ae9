"""Root-mean-square norms through torch's own function instead of six separate operations."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class RMSNorm:
    """``x / rms(x) * weight`` over the last axis.

    Attributes:
        weight: [D]; in float32 with lower-precision rows the whole norm is computed in float32 (Gemma's habit).
        eps: added to the mean square.
    """

    weight: Tensor
    eps: float

    def __call__(self, x: Tensor) -> Tensor:
        """Apply it."""
        size = (self.weight.shape[0],)
        if self.weight.dtype == x.dtype:
            return F.rms_norm(x, size, self.weight, self.eps)
        return F.rms_norm(x.float(), size, self.weight, self.eps).to(x.dtype)


@dataclass(frozen=True)
class HeadNorm:
    """Query and key norms in one go over [T, H + K, d]: ``x / rms(x)`` per head, times that head's weight.

    Attributes:
        weight: [H + K, d], in the type of the rows or in float32 (as in :class:`RMSNorm`).
        eps: added to the mean square.
    """

    weight: Tensor
    eps: float

    def __call__(self, x: Tensor) -> Tensor:
        """Apply it."""
        size = (self.weight.shape[-1],)
        if self.weight.dtype == x.dtype:
            return F.rms_norm(x, size, None, self.eps) * self.weight
        return (F.rms_norm(x.float(), size, None, self.eps) * self.weight).to(x.dtype)


def read_norm(module: nn.Module, *, one_plus: bool) -> RMSNorm:
    """Read a norm of transformers; ``one_plus`` where the family multiplies by 1 + weight (Gemma)."""
    weight = module.weight
    assert isinstance(weight, Tensor)
    factor = 1.0 + weight.detach().float() if one_plus else weight.detach()
    return RMSNorm(factor, norm_eps(module))


def norm_eps(module: nn.Module) -> float:
    """The constant a norm of transformers adds to the mean square."""
    return float(getattr(module, "variance_epsilon", None) or module.eps)  # type: ignore[arg-type]


def read_head_norm(query: nn.Module, key: nn.Module, heads: int, kv_heads: int, *, one_plus: bool) -> HeadNorm:
    """Join the query norm and the key norm of an attention module."""
    norms = read_norm(query, one_plus=one_plus), read_norm(key, one_plus=one_plus)
    weight = torch.cat([norms[0].weight.expand(heads, -1), norms[1].weight.expand(kv_heads, -1)])
    return HeadNorm(weight, norms[0].eps)
