"""A matrix that will not change any more, laid out once for the processor's kernels."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

_ROWS_HINT = 8
_OPS = torch.ops.mkldnn


class FrozenLinear:
    """``x W^T`` for a fixed W [out, in], without bias.

    On a CPU, oneDNN would bring W into its blocked layout in every call; doing it once makes products of few rows
    about twice as fast (bfloat16 results are the same bits). Elsewhere this is a plain product.
    """

    def __init__(self, weight: Tensor) -> None:
        self.shape = weight.shape
        self._blocked = _blocks_for(weight.dtype, weight.device)
        self._weight = _OPS._reorder_linear_weight(weight.contiguous(), _ROWS_HINT) if self._blocked else weight

    def __call__(self, x: Tensor, add: Tensor | None = None) -> Tensor:
        """Product of x [.., in] with the matrix, plus ``add`` [.., out] if given: [.., out]."""
        if not self._blocked:
            product = F.linear(x, self._weight)
            return product if add is None else product.add_(add)
        product = (
            _OPS._linear_pointwise(x, self._weight, None, "none", [], "")
            if add is None
            else _OPS._linear_pointwise.binary(x, add, self._weight, None, "add")
        )
        assert isinstance(product, Tensor)
        return product


def _blocks_for(dtype: torch.dtype, device: torch.device) -> bool:
    """Whether oneDNN has kernels for the type on this processor."""
    if device.type != "cpu" or not torch.backends.mkldnn.is_available():
        return False
    return dtype is torch.float32 or (dtype is torch.bfloat16 and bool(_OPS._is_mkldnn_bf16_supported()))
