"""One sequence's rows of a step, and the batch that all of them make."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass
from itertools import chain

import numpy as np
import torch
from torch import Tensor

from dspark.core import PackedBatch
from dspark.engine.sequence import Sequence
from dspark.kvcache import pages_of, slots


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """Rows of one sequence, all the same kind: ``tokens`` are committed, ``drafts`` are to be verified.

    Attributes:
        sequence: whose rows these are.
        tokens: committed tokens from ``sequence.num_computed`` on: a prefill chunk, or the anchor alone.
        drafts: verified drafts after the anchor.
        proposed: all drafts of the block.
        confidence: the drafter's confidence in each of ``proposed``; empty without a confidence head.
        calibrated: the same after calibration; empty without one.
        record: whether to keep a trace of the round.
        judged: whether the last token's row and the drafts' rows yield tokens.
    """

    sequence: Sequence
    tokens: tuple[int, ...]
    drafts: tuple[int, ...] = ()
    proposed: tuple[int, ...] = ()
    confidence: tuple[float, ...] = ()
    calibrated: tuple[float, ...] = ()
    record: bool = False
    judged: bool = True

    @property
    def believed(self) -> tuple[float, ...]:
        """Confidence in each of ``proposed`` as the policy saw it."""
        return self.calibrated or self.confidence

    @property
    def num_rows(self) -> int:
        """Rows of this share."""
        return len(self.tokens) + len(self.drafts)

    @property
    def start(self) -> int:
        """Position of the first row."""
        return self.sequence.num_computed

    @property
    def end(self) -> int:
        """Keys after this step, one past the position of the last row."""
        return self.start + self.num_rows

    @property
    def logit_rows(self) -> range:
        """Rows, counted in this share, whose logits are wanted."""
        return range(len(self.tokens) - 1, self.num_rows) if self.judged else range(0)


def pack(shares: Seq[Share], page_size: int, device: torch.device) -> PackedBatch:
    """Flatten the rows of all shares into one batch.

    Args:
        shares: at least one; pages for all rows are reserved.
        page_size: tokens per page.
        device: where the tensors go.
    """
    ids = list(chain.from_iterable(chain(share.tokens, share.drafts) for share in shares))
    positions = list(chain.from_iterable(range(share.start, share.end) for share in shares))
    places = list(chain.from_iterable(slots(s.sequence.table, s.start, s.end, page_size) for s in shares))
    firsts = np.cumsum([0, *(share.num_rows for share in shares)]).tolist()
    wanted = [first + row for first, share in zip(firsts, shares, strict=False) for row in share.logit_rows]
    return PackedBatch(
        input_ids=to_device(ids, device),
        positions=to_device(positions, device),
        kv_slots=to_device(places, device),
        page_table=torch.from_numpy(pages_of([share.sequence.table for share in shares])).to(device),
        q_lens=tuple([share.num_rows for share in shares]),
        kv_lens=tuple([share.end for share in shares]),
        logit_rows=to_device(wanted, device),
        page_size=page_size,
    )


def to_device(numbers: list[int], device: torch.device) -> Tensor:
    """Int64 tensor of a list, made on the host in one go."""
    return torch.from_numpy(np.array(numbers, np.int64)).to(device)
