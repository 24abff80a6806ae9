"""Linear maps: as transformers holds them, merged, and reordered once for the processor's matrix kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_TYPICAL_ROWS = 8
_PROBE_ROWS = 3
_TOLERANCE = 1e-2
_ONE_PASS = 1024  # longest sum that oneDNN adds up in the same order whatever the number of rows


class Linear(Protocol):
    """A linear map [..., i] -> [..., o]."""

    def __call__(self, x: Tensor) -> Tensor:
        """Apply it."""
        ...


@dataclass(frozen=True)
class Stacked:
    """Several maps of one input, outputs side by side. Holds the model's own modules; nothing is copied."""

    parts: Sequence[nn.Linear]

    def __call__(self, x: Tensor) -> Tensor:
        """Apply all parts."""
        outputs = [F.linear(x, part.weight, part.bias) for part in self.parts]
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs, -1)


@dataclass(frozen=True)
class Dense:
    """One map held as one matrix [o, i]."""

    weight: Tensor
    bias: Tensor | None

    def __call__(self, x: Tensor) -> Tensor:
        """Apply it."""
        return _steady(lambda rows: F.linear(rows, self.weight, self.bias), x)


@dataclass(frozen=True)
class Prepacked:
    """One map whose matrix lies in the blocked order of oneDNN's kernels.

    ``F.linear`` brings the matrix into that order at every call, which for a few rows costs as much as the product.
    """

    weight: Tensor
    bias: Tensor | None

    def __call__(self, x: Tensor) -> Tensor:
        """Apply it."""
        return _steady(self._product, x)

    def _product(self, x: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, "none", [], "")  # type: ignore[no-any-return]


def _steady(product: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """``product(x)`` with numbers that do not depend on how many rows are computed together.

    oneDNN adds up long sums in another order when there is a single row, which in bfloat16 now and then flips the last
    bit and with it, layers later, a near-tie: a token decoded alone and one verified inside a block would disagree. Two
    rows cost what one does, as the time goes into reading the matrix.
    """
    if x.shape[0] != 1 or x.shape[-1] <= _ONE_PASS or x.is_cuda:
        return product(x)
    return product(x.expand(2, -1).contiguous())[:1]


def merge(parts: Sequence[nn.Linear]) -> Dense:
    """One matrix from several maps of the same input; a single map is not copied."""
    if len(parts) == 1:
        return Dense(parts[0].weight.detach(), None if parts[0].bias is None else parts[0].bias.detach())
    weight = torch.cat([part.weight.detach() for part in parts])
    if all(part.bias is None for part in parts):
        return Dense(weight, None)
    biases = [weight.new_zeros(part.out_features) if part.bias is None else part.bias.detach() for part in parts]
    return Dense(weight, torch.cat(biases))


def prepack(dense: Dense) -> Linear:
    """Reorder the matrix for this processor, or return ``dense`` where that is not possible or gives other numbers."""
    if dense.weight.device.type != "cpu" or not torch.backends.mkldnn.is_available():
        return dense
    try:
        packed = Prepacked(torch.ops.mkldnn._reorder_linear_weight(dense.weight, _TYPICAL_ROWS), dense.bias)
        rows = dense.weight[:1].expand(_PROBE_ROWS, -1).contiguous()
        expected, got = dense(rows).float(), packed(rows).float()
    except (RuntimeError, AttributeError):
        return dense
    same = bool((expected - got).abs().max() <= _TOLERANCE * expected.abs().max())
    return packed if same else dense


def optimise(linear: Linear) -> Linear:
    """Merge and reorder a map of the model's own modules, and release the originals."""
    if not isinstance(linear, Stacked):
        return linear
    fast = prepack(merge(linear.parts))
    for part in linear.parts:
        part.weight = nn.Parameter(part.weight.new_empty(0), requires_grad=False)
    return fast
