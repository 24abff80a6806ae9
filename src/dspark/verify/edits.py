"""What a request does to its target rows before sampling: logit bias, penalties, min_tokens."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from dspark.core import InputError, SamplingParams
from dspark.verify.token_counts import TokenCounts


class LogitEdits:
    """Edits of one request and the history they depend on; made by :meth:`of`, fed by :meth:`commit`.

    Attributes:
        params: options of the request.
        counts: committed tokens; None without penalties.
        num_output: committed output tokens.
        stop_ids: ids masked before ``min_tokens``.
        bias_ids: ids with a logit bias.
        bias: their biases.
    """

    def __init__(self, params: SamplingParams, prompt: Sequence[int], stop_ids: np.ndarray) -> None:
        self.params = params
        self.counts = TokenCounts(prompt) if params.penalised else None
        self.num_output = 0
        self.stop_ids = stop_ids
        self.bias_ids = np.array(list(params.logit_bias), np.int64)
        self.bias = np.array(list(params.logit_bias.values()), np.float64)

    @classmethod
    def of(
        cls, params: SamplingParams, prompt: Sequence[int], *, stop_ids: Iterable[int], vocab_size: int
    ) -> LogitEdits | None:
        """Edits of a new request, or None when it asks for none.

        Args:
            params: options of the request.
            prompt: its prompt ids.
            stop_ids: every id that would end the answer: ``params.stop_token_ids`` and the model's own.
            vocab_size: V.

        Raises:
            InputError: ``logit_bias`` names a token the model does not have.
        """
        unknown = [token for token in params.logit_bias if token >= vocab_size]
        if unknown:
            raise InputError(f"logit_bias names token {unknown[0]}, but the model has tokens 0 to {vocab_size - 1}")
        if not (params.penalised or params.logit_bias or params.min_tokens):
            return None
        stops = sorted({token for token in stop_ids if token < vocab_size})
        return cls(params, prompt, np.array(stops, np.int64))

    def commit(self, tokens: Sequence[int]) -> None:
        """Append the output tokens a round committed."""
        self.num_output += len(tokens)
        if self.counts is not None:
            self.counts.commit(tokens)
