"""Paged attention by torch's variable-length flash kernels on CUDA; no dependency beyond torch.

Keys and values of a layer are held as ``[pages, page_size, heads, head_dim]``, the form the kernels read through block
tables. They align the last row of a request with its last key, so prefill, decode and verify rows are all one call.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from dspark.core import PackedBatch
from dspark.target.backends.base import AttentionRule, KVShape, lasting

PAGE_SIZE = 256  # the built-in kernel takes multiples of 256 only
_MAX_HEAD_DIM = 256


def cuda_serves(shape: KVShape, softcap: float | None, page_size: int | None) -> bool:
    """Whether the kernels can do this model: half precision, no score soft-cap, heads of at most 256, pages of 256."""
    return (
        shape.device.type == "cuda"
        and shape.dtype in (torch.bfloat16, torch.float16)
        and softcap is None
        and shape.head_dim <= _MAX_HEAD_DIM
        and shape.head_dim % 8 == 0
        and (page_size is None or page_size % PAGE_SIZE == 0)
        and torch.cuda.get_device_capability(shape.device) >= (8, 0)
    )


@dataclass(frozen=True, kw_only=True)
class CudaPlan:
    """One batch as the kernels want it.

    Attributes:
        slots: [T] slot of each row.
        cu_q: [R + 1] int32 row offsets.
        used: [R] int32 keys of each request.
        blocks: [R, P] int32 pages.
        max_q: longest run of rows.
        max_k: most keys.
    """

    slots: Tensor
    cu_q: Tensor
    used: Tensor
    blocks: Tensor
    max_q: int
    max_k: int


class CudaBackend:
    """Paged key/value store on the GPU, attention by ``torch.nn.attention.varlen``."""

    def __init__(self, shape: KVShape, page_size: int = PAGE_SIZE) -> None:
        assert page_size % PAGE_SIZE == 0, page_size
        self.shape = shape
        self.page_size = page_size
        self._pool = torch.empty(0)

    def allocate(self, num_pages: int) -> None:
        """Make room for ``num_pages`` pages; earlier contents are lost."""
        s = self.shape
        sizes = (s.num_layers, 2, num_pages, self.page_size, s.num_kv_heads, s.head_dim)
        self._pool = lasting(sizes, s)

    def plan(self, batch: PackedBatch) -> CudaPlan:
        """Row offsets, key counts and block tables, on the device."""
        assert batch.page_size == self.page_size, (batch.page_size, self.page_size)
        device = self.shape.device
        return CudaPlan(
            slots=batch.kv_slots,
            cu_q=batch.cu_q,
            used=torch.tensor(batch.kv_lens, dtype=torch.int32).to(device),
            blocks=batch.page_table.to(torch.int32),
            max_q=max(batch.q_lens),
            max_k=max(batch.kv_lens),
        )

    def attend(
        self, plan: CudaPlan, layer: int, query: Tensor, key: Tensor, value: Tensor, rule: AttentionRule
    ) -> Tensor:
        """Store keys and values, then attend; see :class:`AttentionBackend`."""
        from torch.nn.attention.varlen import varlen_attn  # the kernels' module is only needed on CUDA

        assert rule.softcap is None
        keys, values = self._pool[layer]
        keys.flatten(0, 1).index_copy_(0, plan.slots, key)
        values.flatten(0, 1).index_copy_(0, plan.slots, value)
        # the kernel counts keys left of the row, a window counts the row itself too
        left = -1 if rule.window is None else rule.window - 1
        mixed = varlen_attn(
            query.contiguous(),
            keys,
            values,
            plan.cu_q,
            None,
            plan.max_q,
            plan.max_k,
            scale=rule.scale,
            window_size=(left, 0),
            enable_gqa=query.shape[1] != key.shape[1],
            seqused_k=plan.used,
            block_table=plan.blocks,
        )
        assert isinstance(mixed, Tensor)
        return mixed.flatten(1)
