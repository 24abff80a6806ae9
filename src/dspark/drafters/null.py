"""Plain decoding, seen as speculation that never proposes anything."""

from __future__ import annotations

from dspark.core import CommittedRows, DraftBatch, Proposal


class NullDrafter:
    """Proposes nothing, needs nothing."""

    name = "none"
    block_size = 0
    tap_layers: tuple[int, ...] = ()
    has_confidence = False

    def context_bytes_per_page(self, page_size: int) -> int:
        """No context, no memory."""
        return 0

    def allocate(self, num_pages: int, page_size: int) -> None:
        """Nothing to allocate."""

    def observe(self, rows: CommittedRows) -> None:
        """Nothing to remember."""

    def propose(self, batch: DraftBatch) -> Proposal:
        """Return empty blocks: tokens [R, 0]."""
        count = batch.anchors.shape[0]
        return Proposal(tokens=batch.anchors.new_empty(count, 0), lengths=(0,) * count)
