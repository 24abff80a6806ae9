from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from dspark.drafters.dspark.frozen_linear import FrozenLinear


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("rows", [1, 7, 65])
def test_is_the_plain_product(dtype: torch.dtype, rows: int) -> None:
    torch.manual_seed(0)
    weight, x, add = torch.randn(48, 32).to(dtype), torch.randn(rows, 32).to(dtype), torch.randn(rows, 48).to(dtype)
    with torch.inference_mode():
        linear = FrozenLinear(weight)
        expected = F.linear(x.double(), weight.double())
        bound = 1e-5 if dtype is torch.float32 else 0.2
        torch.testing.assert_close(linear(x).double(), expected, atol=bound, rtol=0)
        torch.testing.assert_close(linear(x, add=add).double(), expected + add.double(), atol=bound, rtol=0)
        assert linear(x[None]).shape == (1, rows, 48)


def test_views_are_read_correctly() -> None:
    """Inputs may be strided views, such as one slot of a block."""
    weight, block = torch.randn(24, 16), torch.randn(5, 3, 16)
    with torch.inference_mode():
        linear = FrozenLinear(weight)
        for slot in range(3):
            torch.testing.assert_close(linear(block[:, slot]), F.linear(block[:, slot], weight), atol=1e-5, rtol=0)
