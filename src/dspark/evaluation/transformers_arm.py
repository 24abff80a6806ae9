"""Plain greedy decoding by transformers' own ``generate``, the yardstick for our plain decoding."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from dspark.core import InputError
from dspark.evaluation.runs import Ids, Run, end_token_ids
from dspark.target import LoadedTarget
from dspark.target.quiet import quiet_transformers


class TransformersArm:
    """The same weights, dtype and device as a loaded target, with the attention transformers chooses by itself."""

    name = "transformers"

    def __init__(self, loaded: LoadedTarget) -> None:
        """Load a second copy of the model, as the packed one cannot be run by transformers.

        Raises:
            InputError: the model is not where it was any more.
        """
        target = loaded.target
        with quiet_transformers():
            try:
                model: Any = AutoModelForCausalLM.from_pretrained(loaded.source, dtype=target.dtype)
            except (OSError, ValueError) as error:
                raise InputError(f"transformers cannot load {loaded.source} again: {error}") from error
        self._model = model.to(target.device).eval()
        self._ends = end_token_ids(loaded)

    @torch.inference_mode()
    def run(self, prompts: Sequence[Ids], max_tokens: int) -> Run:
        """Answer all prompts in one batch, padded on the left."""
        ids, mask = _padded(prompts, self._pad)
        start = time.perf_counter()
        with quiet_transformers():
            out = self._model.generate(
                input_ids=ids.to(self._model.device),
                attention_mask=mask.to(self._model.device),
                do_sample=False,
                max_new_tokens=max_tokens,
                eos_token_id=sorted(self._ends) or None,
                pad_token_id=self._pad,
            )
        rows = out[:, ids.shape[1] :].tolist()
        seconds = time.perf_counter() - start
        return Run(token_ids=tuple(self._until_end(row) for row in rows), seconds=seconds)

    @property
    def _pad(self) -> int:
        return min(self._ends, default=0)

    def _until_end(self, row: list[int]) -> tuple[int, ...]:
        """Cut the padding that follows the end of a text."""
        end = next((place for place, token in enumerate(row) if token in self._ends), len(row) - 1)
        return tuple(row[: end + 1])


def _padded(prompts: Sequence[Ids], pad: int) -> tuple[Tensor, Tensor]:
    """Ids and mask [n, longest], padded on the left."""
    longest = max(map(len, prompts))
    ids = torch.full((len(prompts), longest), pad)
    mask = torch.zeros_like(ids)
    for row, prompt in enumerate(prompts):
        ids[row, longest - len(prompt) :] = torch.tensor(list(prompt))
        mask[row, longest - len(prompt) :] = 1
    return ids, mask
