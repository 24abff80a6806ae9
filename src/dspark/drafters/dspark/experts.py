"""Mixture of experts in place of a dense feed-forward: router, grouped dispatch, balance of the load.

Rows are sorted by expert, so that every expert sees its rows as one matrix. The layout and the arithmetic are those of
the Qwen3-MoE family. Legend: n rows, D hidden, X experts, k experts per row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dspark.drafters.dspark.config import DSparkConfig


class GatedMLP(nn.Module):
    """SiLU-gated feed-forward: the dense one of a layer, or one expert."""

    def __init__(self, hidden: int, inner: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(hidden, inner, bias=False)
        self.up_proj = nn.Linear(hidden, inner, bias=False)
        self.down_proj = nn.Linear(inner, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Apply to [.., D]."""
        out: Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


class Routing(NamedTuple):
    """What a router decided.

    Attributes:
        probs: [.., X] float32 router probabilities.
        experts: [.., k] int64 chosen experts, most probable first.
        weights: [.., k] float32 weights of their outputs.
    """

    probs: Tensor
    experts: Tensor
    weights: Tensor


def route(logits: Tensor, per_row: int, normalise: bool) -> Routing:
    """Choose the ``per_row`` most probable experts of router logits [.., X]; their weights sum to 1 if normalised."""
    probs = torch.softmax(logits, dim=-1, dtype=torch.float32)
    weights, experts = probs.topk(per_row, dim=-1)
    return Routing(probs, experts, weights / weights.sum(dim=-1, keepdim=True) if normalise else weights)


def mix_experts(x: Tensor, routing: Routing, experts: Sequence[Callable[[Tensor], Tensor]], *, idle: bool) -> Tensor:
    """Weighted outputs of the chosen experts.

    Args:
        x: [n, D].
        routing: of the n rows.
        experts: the X experts, each [rows, D] -> [rows, D].
        idle: also call experts without rows. Training does, so that every parameter gets a gradient in every process.

    Returns:
        [n, D].
    """
    chosen = routing.experts.flatten()
    order = chosen.argsort(stable=True)
    counts = torch.bincount(chosen, minlength=len(experts)).tolist()
    parts = x[order // routing.experts.shape[1]].split(counts)
    sorted_out = torch.cat([expert(part) for expert, part in zip(experts, parts, strict=True) if idle or part.shape[0]])
    out = torch.empty_like(sorted_out).index_copy(0, order, sorted_out).view(*routing.experts.shape, -1)
    return (out * routing.weights.to(out.dtype)[..., None]).sum(dim=1)


class RoutingLog:
    """The routing of every expert layer of one pass; given to the pass by whoever wants the balance afterwards."""

    def __init__(self) -> None:
        self._layers: list[Routing] = []

    def add(self, routing: Routing) -> None:
        """Note one layer; layers call this in order."""
        self._layers.append(routing)

    def balance(self, mask: Tensor) -> Tensor:
        """Load-balancing loss: 1 when the load is even, up to X / k when all rows choose the same k experts.

        Mean over layers of X times the sum over experts of (share of the choices) * (mean router probability)
        (Fedus et al. 2021, equation 4).

        Args:
            mask: bool, shape of the rows; rows that count.

        Returns:
            scalar with gradient for the routers.
        """
        losses = [_imbalance(routing, mask) for routing in self._layers]
        assert losses, "no layer of the pass has experts"
        return torch.stack(losses).mean()


def _imbalance(routing: Routing, mask: Tensor) -> Tensor:
    probs, experts = routing.probs[mask], routing.experts[mask]
    count = probs.shape[-1]
    shares = torch.bincount(experts.flatten(), minlength=count) / max(1, experts.numel())
    return count * (shares * probs.sum(dim=0)).sum() / max(1, probs.shape[0])


class MixtureOfExperts(nn.Module):
    """Router and experts of one layer."""

    def __init__(self, config: DSparkConfig) -> None:
        super().__init__()
        assert config.num_experts is not None
        assert config.num_experts_per_tok is not None
        assert config.moe_intermediate_size is not None
        self.per_row, self.normalise = config.num_experts_per_tok, config.norm_topk_prob
        self.gate = nn.Linear(config.hidden_size, config.num_experts, bias=False)
        self.experts = nn.ModuleList(
            GatedMLP(config.hidden_size, config.moe_intermediate_size) for _ in range(config.num_experts)
        )

    def forward(self, x: Tensor, log: RoutingLog | None = None) -> Tensor:
        """Apply to [.., D], noting the routing in ``log``."""
        routing = route(self.gate(x), self.per_row, self.normalise)
        if log is not None:
            log.add(routing)
        flat = Routing(*(part.flatten(0, -2) for part in routing))
        return mix_experts(x.flatten(0, -2), flat, list(self.experts), idle=True).view_as(x)
