"""The projections of a draft layer's attention in serving form."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from dspark.drafters.dspark.backbone import DraftAttention
from dspark.drafters.dspark.frozen_linear import FrozenLinear
from dspark.drafters.dspark.rotary_table import RotaryRows


class MergedProjections:
    """q, k and v in one product; the score scale is inside the query norm.

    Legend: n rows, H query heads, K key/value heads, E head size.
    """

    def __init__(self, attention: DraftAttention) -> None:
        self.heads, self.kv_heads, self.head_dim = attention.heads, attention.kv_heads, attention.head_dim
        self._eps = attention.q_norm.eps
        q_norm = attention.q_norm.weight * attention.head_dim**-0.5
        norms = [q_norm.expand(self.heads, -1), attention.k_norm.weight.expand(self.kv_heads, -1)]
        self._qk_norm = torch.cat(norms)  # [H + K, E]
        weights = (attention.q_proj.weight, attention.k_proj.weight, attention.v_proj.weight)
        self._qkv, self.out = FrozenLinear(torch.cat(weights)), FrozenLinear(attention.o_proj.weight)

    def __call__(self, x: Tensor, rotary: RotaryRows) -> tuple[Tensor, Tensor]:
        """Rows [n, input size] and their rotation -> queries and keys [n, H + K, E], normed and rotated; values."""
        qkv = self._qkv(x).view(len(x), -1, self.head_dim)
        qk, values = qkv.split([self.heads + self.kv_heads, self.kv_heads], dim=1)
        return rotary.rotate(F.rms_norm(qk, qk.shape[-1:], None, self._eps) * self._qk_norm), values
