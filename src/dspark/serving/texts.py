"""The tokenizer outside of the engine: its own copy, on its own thread."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import TypeVar

from transformers import PreTrainedTokenizerBase

_T = TypeVar("_T")


class Texts:
    """Tokenises prompts and names tokens.

    Tokenizers are not made for several threads, so the one here is a copy, and long texts are taken care of away from
    the event loop.

    Args:
        tokenizer: the engine's.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self.tokenizer = copy.deepcopy(tokenizer)
        self._names: PreTrainedTokenizerBase = copy.deepcopy(tokenizer)
        self._worker = ThreadPoolExecutor(1, "dspark-texts")
        self.piece = lru_cache(maxsize=65536)(self._piece)

    async def run(self, work: Callable[[], _T]) -> _T:
        """Do something with :attr:`tokenizer` on its thread."""
        return await asyncio.get_running_loop().run_in_executor(self._worker, work)

    def close(self) -> None:
        """Let the thread end."""
        self._worker.shutdown(wait=False, cancel_futures=True)

    def decode(self, ids: list[int]) -> str:
        """Text of ids, special tokens included (worker thread)."""
        return str(self.tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False))

    def _piece(self, token: int) -> str:
        """Text of one token (event loop); bytes that are no whole character read as replacement characters."""
        return str(self._names.decode([token], skip_special_tokens=False, clean_up_tokenization_spaces=False))
