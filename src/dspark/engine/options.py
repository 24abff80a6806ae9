"""Sizes of an engine."""

from __future__ import annotations

from dataclasses import dataclass

from dspark.core import InputError


def _at_least(name: str, value: object, low: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise InputError(f"{name} must be an integer >= {low}, got {value!r}")


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """What an engine is allowed to use.

    Attributes:
        num_pages: pages of the KV pool, shared by target and drafter context.
        max_requests: most answers in progress at a time; others wait.
        max_batch_rows: most rows of one target forward; at least ``max_requests``. Where more than
            ``max_batch_rows / (1 + block size)`` answers decode at a time (7/8 of that while prompts wait), blocks are
            cut evenly.
        max_context: most tokens of prompt and answer together; None for what the model and the pool hold.
        prefix_cache: reuse the pages of earlier texts that start alike.
        seed: seeds the requests that come without one; None for a different one each time.
        record_rounds: keep a trace of every round in the statistics.
        plan_ahead: let the policy plan a step while the target is at work on the one before, for what can be foreseen
            of it; None does so where the target runs beside the host, on CUDA.

    Raises:
        InputError: a size is out of range.
    """

    num_pages: int
    max_requests: int = 64
    max_batch_rows: int = 512
    max_context: int | None = None
    prefix_cache: bool = True
    seed: int | None = None
    record_rounds: bool = False
    plan_ahead: bool | None = None

    def __post_init__(self) -> None:
        _at_least("num_pages", self.num_pages, 1)
        _at_least("max_requests", self.max_requests, 1)
        _at_least("max_batch_rows", self.max_batch_rows, 1)
        if self.max_context is not None:
            _at_least("max_context", self.max_context, 2)
        if self.seed is not None:
            _at_least("seed", self.seed, 0)
        if self.max_batch_rows < self.max_requests:
            raise InputError(
                f"max_batch_rows must be at least max_requests ({self.max_requests}), got {self.max_batch_rows}"
            )

    def context_limit(self, max_positions: int, page_size: int) -> int:
        """Most tokens of one text, given the model's positions and the pool.

        Raises:
            InputError: ``max_context`` was given and is more than that.
        """
        room = self.num_pages * page_size
        if self.max_context is None:
            return min(max_positions, room)
        if self.max_context > max_positions:
            raise InputError(f"max_context must be <= the model's {max_positions} positions, got {self.max_context}")
        if self.max_context > room:
            raise InputError(
                f"max_context {self.max_context} does not fit the KV memory of {room} tokens; give more memory or less"
            )
        return self.max_context
