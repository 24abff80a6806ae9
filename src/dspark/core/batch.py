"""The one batch form every target forward takes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class PackedBatch:
    """Rows of many requests flattened into one forward, no padding.

    A prefill chunk, a plain decode row and 1 + verify_len rows are all the same kind of rows. Row ``i`` of request
    ``r`` has position ``kv_lens[r] - q_lens[r] + i``: the rows of a request are contiguous and end at its last key.

    Legend: T rows, R requests, P pages of the longest request, N rows whose logits are wanted.

    Attributes:
        input_ids: [T] int64 token ids.
        positions: [T] int64 position of each row in its own request.
        kv_slots: [T] int64 slot (``page * page_size + offset``) where the row's K/V are written; all distinct.
        page_table: [R, P] int64 pages of each request in order; unused entries are 0 and must not be read.
        q_lens: rows of each request, sum T, each >= 1.
        kv_lens: keys of each request including its own rows of this batch.
        logit_rows: [N] int64 rows whose logits are wanted, increasing.
        page_size: tokens per page.
    """

    input_ids: Tensor
    positions: Tensor
    kv_slots: Tensor
    page_table: Tensor
    q_lens: tuple[int, ...]
    kv_lens: tuple[int, ...]
    logit_rows: Tensor
    page_size: int

    def __post_init__(self) -> None:
        rows = self.input_ids.shape[0]
        assert sum(self.q_lens) == rows == self.positions.shape[0] == self.kv_slots.shape[0]
        assert len(self.q_lens) == len(self.kv_lens) == self.page_table.shape[0]

    @property
    def num_rows(self) -> int:
        """T, the rows of this forward: the step batch B of the method."""
        return self.input_ids.shape[0]

    @property
    def num_requests(self) -> int:
        """R, the requests with rows in this batch."""
        return len(self.q_lens)

    @property
    def cu_q(self) -> Tensor:
        """[R + 1] int32 cumulative row offsets of the requests, on the batch's device."""
        lens = torch.tensor((0, *self.q_lens), dtype=torch.int32)
        return lens.cumsum(0, dtype=torch.int32).to(self.input_ids.device)
