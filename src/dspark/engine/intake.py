"""Checking what a user asks for, and turning it into sequences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np
from transformers import PreTrainedTokenizerBase

from dspark.core import InputError, SamplingParams
from dspark.core.uniform import uniforms
from dspark.engine.detokenizer import Decode
from dspark.engine.ending import Ending
from dspark.engine.sequence import Request, Sequence
from dspark.verify import LogitEdits

_SIBLING = 3
"""Stream of the draws that give the answers of one request their seeds; 0 to 2 are used by the rounds."""


class Intake:
    """Makes requests out of user input; remembers nothing but its random generator.

    Args:
        vocab_size: V of the target.
        eos_ids: its end-of-text ids.
        context: most tokens of a text.
        tokenizer: for texts and stop strings; None for an engine of token ids only.
        seed: of the generator that seeds unseeded requests; None for a different one each time.
    """

    def __init__(
        self,
        *,
        vocab_size: int,
        eos_ids: frozenset[int],
        context: int,
        tokenizer: PreTrainedTokenizerBase | None,
        seed: int | None,
    ) -> None:
        self.vocab_size = vocab_size
        self.eos_ids = eos_ids
        self.context = context
        self.tokenizer = tokenizer
        self._generator = np.random.default_rng(seed)

    def request(
        self, request_id: str, prompt_ids: Iterable[int], params: SamplingParams, prompt: str | None
    ) -> Request:
        """Check a prompt and its options.

        Raises:
            InputError: one clear sentence about what is wrong.
        """
        ids = self._checked_prompt(prompt_ids)
        self._check_ids("stop_token_ids", params.stop_token_ids)
        if params.stop and self.tokenizer is None:
            raise InputError("stop strings need a tokenizer, and this engine has none; use stop_token_ids")
        room = self.context - len(ids)
        ending = Ending(
            eos_ids=frozenset() if params.ignore_eos else self.eos_ids,
            stop_ids=frozenset(params.stop_token_ids),
            stop=params.stop,
            keep_stop=params.include_stop_str_in_output,
            min_tokens=params.min_tokens,
            max_tokens=room if params.max_tokens is None else min(params.max_tokens, room),
        )
        return Request(
            request_id=request_id,
            prompt=prompt,
            prompt_token_ids=ids,
            params=params,
            ending=ending,
            decode=self._decoder(params.skip_special_tokens),
        )

    def check(self, prompt_ids: Iterable[int], params: SamplingParams) -> None:
        """See whether a request can be made of this; changes nothing, so any thread may ask.

        Raises:
            InputError: one clear sentence about what is wrong.
        """
        self._edits(self.request("", prompt_ids, params, None))

    def sequences(self, request: Request, arrivals: Iterator[int]) -> list[Sequence]:
        """The ``n`` answers of a request; all but the first wait until the prompt is in the prefix cache."""
        params = request.params
        seed = int(self._generator.integers(2**63)) if params.seed is None else params.seed % 2**64
        made: list[Sequence] = []
        for index in range(params.n):
            made.append(
                Sequence(
                    request=request,
                    index=index,
                    seed=sibling_seed(seed, index),
                    arrival=next(arrivals),
                    num_prompt=len(request.prompt_token_ids),
                    token_ids=list(request.prompt_token_ids),
                    leader=made[0] if made else None,
                    edits=self._edits(request),
                )
            )
        return made

    def _edits(self, request: Request) -> LogitEdits | None:
        stop_ids = request.ending.eos_ids | request.ending.stop_ids
        return LogitEdits.of(request.params, request.prompt_token_ids, stop_ids=stop_ids, vocab_size=self.vocab_size)

    def _checked_prompt(self, prompt_ids: Iterable[int]) -> tuple[int, ...]:
        try:
            ids = tuple(prompt_ids)
        except TypeError:
            raise InputError(f"a prompt must be a list of token ids, got {prompt_ids!r}") from None
        if not ids:
            raise InputError("the prompt is empty; give at least one token")
        self._check_ids("the prompt", ids)
        if len(ids) >= self.context:
            raise InputError(
                f"the prompt has {len(ids)} tokens, but the context holds {self.context}, one of them for the answer; "
                "shorten the prompt"
            )
        return tuple([int(token) for token in ids])

    def _check_ids(self, what: str, ids: Iterable[Any]) -> None:
        for token in ids:
            if isinstance(token, bool) or not isinstance(token, (int, np.integer)):
                raise InputError(f"{what} must hold integer token ids, got {token!r}")
            if not 0 <= token < self.vocab_size:
                raise InputError(f"{what} holds token id {token}, expected ids from 0 to {self.vocab_size - 1}")

    def _decoder(self, skip_special_tokens: bool) -> Decode | None:
        if self.tokenizer is None:
            return None
        return partial(_decode, self.tokenizer, skip_special_tokens)


def _decode(tokenizer: PreTrainedTokenizerBase, skip_special_tokens: bool, ids: list[int]) -> str:
    """Text of ids, without the cosmetic changes that would make it depend on what follows."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:  # four times faster than the way through transformers
        return str(backend.decode(ids, skip_special_tokens=skip_special_tokens))
    text = tokenizer.decode(ids, skip_special_tokens=skip_special_tokens, clean_up_tokenization_spaces=False)
    return str(text)


def sibling_seed(seed: int, index: int) -> int:
    """Seed of the ``index``-th answer; the first keeps the request's own, so ``n`` does not change it."""
    if index == 0:
        return seed
    draw = uniforms(np.array([seed], np.uint64), np.array([index], np.uint64), _SIBLING, 1)
    return int(draw[0, 0] * 2**53)
