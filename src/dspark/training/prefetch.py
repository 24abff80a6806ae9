"""Preparing the next batches while the trainer works on the present one."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Ahead(Generic[T]):
    """An iterator over the same items in the same order, made in a background thread up to ``depth`` items ahead.

    It pays where the target computes on a device of its own or a store is read from a slow disk; where target and
    trainer share all cores it only takes turns. What is made depends on the items alone, never on time, so results do
    not change. An error in the making is raised where its item is due. Use it as a context manager: leaving it stops
    the thread after the item in the making.
    """

    def __init__(self, items: Iterable[T], depth: int = 1) -> None:
        """Start to make items.

        Args:
            items: made one by one in the other thread, and nowhere else.
            depth: finished items that may wait, >= 1.
        """
        assert depth >= 1
        self._ready: queue.Queue[T | _End] = queue.Queue(depth)
        self._stopped = threading.Event()
        self._end: _End | None = None
        self._thread = threading.Thread(target=self._make, args=(iter(items),), name="prefetch", daemon=True)
        self._thread.start()

    def __enter__(self) -> Ahead[T]:
        return self

    def __exit__(self, *told: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        if self._end is None:
            item = self._ready.get()
            if not isinstance(item, _End):
                return item
            self._end = item
        if self._end.error is not None:
            raise self._end.error
        raise StopIteration

    def close(self) -> None:
        """Stop the thread and forget what waits; iterating further ends at once."""
        self._stopped.set()
        while self._thread.is_alive():
            self._drop()
            self._thread.join(0.05)
        self._drop()
        self._end = self._end or _End(None)

    def _make(self, items: Iterator[T]) -> None:
        end = _End(None)
        try:
            for item in items:
                self._ready.put(item)
                if self._stopped.is_set():
                    return
        except BaseException as error:  # handed to the thread that waits for the item
            end = _End(error)
        self._ready.put(end)

    def _drop(self) -> None:
        while True:
            try:
                self._ready.get_nowait()
            except queue.Empty:
                return


class _End:
    """After the last item, with the error that made it the last."""

    def __init__(self, error: BaseException | None) -> None:
        self.error = error
