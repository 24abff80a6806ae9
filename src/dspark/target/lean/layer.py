"""One decoder layer of the Llama shape, which all proven families share up to optional parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from dspark.target.backends import AttentionBackend, AttentionRule
from dspark.target.lean.linear import Linear, optimise
from dspark.target.lean.norm import HeadNorm, RMSNorm
from dspark.target.lean.rope import RopeTable


@dataclass(frozen=True, kw_only=True)
class LeanLayer:
    """Weights and habits of one layer.

    Attributes:
        index: layer index.
        num_heads: query heads, H.
        num_kv_heads: key/value heads, K.
        rule: how the layer attends.
        rope: which rotary table it uses, None for a layer without positions.
        input_norm: before attention.
        qkv: [T, D] -> [T, (H + 2K) * d], queries, keys, values.
        head_norm: on queries and keys, None without.
        out: attention output to the residual stream.
        after_attention: norm of that output, None without (Gemma has it).
        mlp_norm: before the MLP.
        gate_up: [T, D] -> [T, 2 * F], gate and up.
        activation: of the gate.
        down: MLP output to the residual stream.
        after_mlp: norm of that output, None without (Gemma has it).
    """

    index: int
    num_heads: int
    num_kv_heads: int
    rule: AttentionRule
    rope: str | None
    input_norm: RMSNorm
    qkv: Linear
    head_norm: HeadNorm | None
    out: Linear
    after_attention: RMSNorm | None
    mlp_norm: RMSNorm
    gate_up: Linear
    activation: Callable[[Tensor], Tensor]
    down: Linear
    after_mlp: RMSNorm | None

    def __call__(self, x: Tensor, tables: dict[str, RopeTable], backend: AttentionBackend, plan: Any) -> Tensor:
        """Residual stream [T, D] before the layer to the one after it."""
        mixed = self.out(self._attend(self.input_norm(x), tables, backend, plan))
        x = x + (mixed if self.after_attention is None else self.after_attention(mixed))
        gate, up = self.gate_up(self.mlp_norm(x)).chunk(2, -1)
        folded = self.down(self.activation(gate) * up)
        return x + (folded if self.after_mlp is None else self.after_mlp(folded))

    def _attend(self, x: Tensor, tables: dict[str, RopeTable], backend: AttentionBackend, plan: Any) -> Tensor:
        heads, turned = self.num_heads, self.num_heads + self.num_kv_heads
        qkv = self.qkv(x).view(x.shape[0], turned + self.num_kv_heads, -1)
        qk = qkv[:, :turned]
        if self.head_norm is not None:
            qk = self.head_norm(qk)
        if self.rope is not None:
            qk = tables[self.rope].rotate(qk)
        return backend.attend(plan, self.index, qk[:, :heads], qk[:, heads:], qkv[:, turned:], self.rule)

    def optimised(self) -> LeanLayer:
        """The same layer with merged and reordered matrices; the model's own matrices are released."""
        return replace(
            self,
            qkv=optimise(self.qkv),
            out=optimise(self.out),
            gate_up=optimise(self.gate_up),
            down=optimise(self.down),
        )
