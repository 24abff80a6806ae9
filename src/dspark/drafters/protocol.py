"""What the engine asks of anything that proposes tokens."""

from __future__ import annotations

from typing import Protocol

from dspark.core import CommittedRows, DraftBatch, Proposal


class Drafter(Protocol):
    """Proposes blocks after the anchors, and learns of every row that becomes context.

    The engine calls ``allocate`` once, then per step ``propose`` for the requests that want a block and ``observe``
    for the rows that were committed. A drafter that keeps context keeps it in the page slots of the target, so prefix
    hits, rollback and preemption need no call of their own.

    Attributes:
        name: short name for reports.
        block_size: most tokens one block can hold; 0 for plain decoding.
        tap_layers: target layers whose outputs ``observe`` needs, in order (-1 is the embedding output); may be empty.
        has_confidence: whether proposals carry confidence.
    """

    @property
    def name(self) -> str: ...  # noqa: D102 - described above

    @property
    def block_size(self) -> int: ...  # noqa: D102

    @property
    def tap_layers(self) -> tuple[int, ...]: ...  # noqa: D102

    @property
    def has_confidence(self) -> bool: ...  # noqa: D102

    def context_bytes_per_page(self, page_size: int) -> int:
        """Memory the drafter keeps for one page of ``page_size`` tokens, in bytes."""
        ...

    def allocate(self, num_pages: int, page_size: int) -> None:
        """Make room for the context of ``num_pages`` pages; before anything else, and again to start afresh."""
        ...

    def observe(self, rows: CommittedRows) -> None:
        """Take rows into the context, at their slots.

        They may come from several steps together and in any order, each slot once; what a slot held before is void.
        After a step that failed, the same rows may come again.
        """
        ...

    def propose(self, batch: DraftBatch) -> Proposal:
        """Draft one block per request of the batch."""
        ...
