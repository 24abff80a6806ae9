"""Who waits, who runs, and who has to step back when pages run out."""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Iterable, Iterator

from dspark.core import FinishReason
from dspark.engine.sequence import Sequence
from dspark.kvcache import PagePool, PageTable, pages_for


def _arrival(sequence: Sequence) -> int:
    return sequence.arrival


class Roster:
    """All unfinished sequences. Running ones hold pages, waiting ones hold none; both lists are in order of arrival.

    Pure bookkeeping that cannot fail; callers keep interrupts out of it. The earlier arrival always wins: the oldest
    sequence can take the pages of all others, so every sequence is the oldest one day and nobody starves.

    Args:
        pool: the pages.
        block_size: most drafts of a round.
        max_running: most sequences that run at a time.
    """

    def __init__(self, pool: PagePool, block_size: int, max_running: int) -> None:
        self.pool = pool
        self.block_size = block_size
        self.max_running = max_running
        self.waiting: list[Sequence] = []
        self.running: list[Sequence] = []
        self._unfinished: Counter[str] = Counter()  # sequences per request

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._unfinished

    def __iter__(self) -> Iterator[Sequence]:
        yield from self.running
        yield from self.waiting

    def __len__(self) -> int:
        return len(self.running) + len(self.waiting)

    def add(self, sequences: Iterable[Sequence]) -> None:
        """New arrivals go to the end of the queue."""
        for sequence in sequences:
            self.waiting.append(sequence)
            self._unfinished[sequence.request.request_id] += 1

    def make_room(self) -> bool:
        """Reserve the pages of this step's rows, one anchor and a block, for all that decode.

        Where pages run out, the latest arrivals step back.

        Returns:
            Whether anyone had to step back.
        """
        stepped_back = False
        for sequence in tuple(self.running):
            while sequence.ready and not self._reserve(sequence, sequence.table):
                self.step_back(self.running[-1])
                stepped_back = True
        return stepped_back

    def admit(self) -> None:
        """Let waiting sequences in as long as their whole text fits, first come first served."""
        for sequence in tuple(self.waiting):
            if len(self.running) == self.max_running:
                return
            if not sequence.blocked and not self._admit(sequence):
                return

    def step_back(self, sequence: Sequence) -> None:
        """Take a sequence's pages; it keeps its text and is computed again when there is room."""
        self.running.remove(sequence)
        self.pool.release(sequence.table)
        sequence.num_computed = 0
        sequence.preemptions += 1
        insort(self.waiting, sequence, key=_arrival)

    def retire(self, sequence: Sequence, reason: FinishReason) -> None:
        """End a sequence, running or waiting, and give back its pages."""
        (self.running if sequence in self.running else self.waiting).remove(sequence)
        self.pool.release(sequence.table)
        sequence.finish_reason = reason
        name = sequence.request.request_id
        self._unfinished[name] -= 1
        if not self._unfinished[name]:
            del self._unfinished[name]

    def check_integrity(self) -> None:
        """Check pages and lists from scratch.

        Raises:
            AssertionError: with the reason.
        """
        self.pool.check_integrity([sequence.table for sequence in self.running])
        for name, members in (("running", self.running), ("waiting", self.waiting)):
            order = [sequence.arrival for sequence in members]
            assert order == sorted(set(order)), f"the {name} list is out of order"
        counts = Counter(sequence.request.request_id for sequence in self)
        assert counts == self._unfinished, "requests are counted wrongly"
        for sequence in self.waiting:
            assert not sequence.table.pages, "a waiting sequence holds pages"
            assert sequence.num_computed == 0, "a waiting sequence believes that rows of it are computed"
        for sequence in self.running:
            room = len(sequence.table.pages) * self.pool.page_size
            assert sequence.num_computed <= room, "a running sequence lacks pages"
            assert sequence.num_computed < len(sequence.token_ids), "a running sequence has no anchor"

    def _admit(self, sequence: Sequence) -> bool:
        """Give a sequence its cached pages and pages for the rest of its text; False if there is no room."""
        table = self.pool.match_prefix(sequence.token_ids)
        spare = len(self.running)  # a page for each one that runs, or it would push this one out again at once
        need = pages_for(self._tokens(sequence), self.pool.page_size) - len(table.pages)
        if need + spare > self.pool.num_free() or not self._reserve(sequence, table):
            self.pool.release(table)
            return False
        sequence.table = table
        sequence.num_computed = table.num_matched * self.pool.page_size
        if not sequence.preemptions:
            sequence.cached_tokens = sequence.num_computed
        self.waiting.remove(sequence)
        insort(self.running, sequence, key=_arrival)
        return True

    def _reserve(self, sequence: Sequence, table: PageTable) -> bool:
        return self.pool.reserve(table, self._tokens(sequence))

    def _tokens(self, sequence: Sequence) -> int:
        """Tokens that must have room: the text, and a block after its anchor unless it is a fresh prompt."""
        drafts = min(self.block_size, sequence.max_draft) if sequence.num_output else 0
        return len(sequence.token_ids) + drafts
