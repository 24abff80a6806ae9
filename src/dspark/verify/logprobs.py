"""Log probabilities of emitted tokens under the model's own, unwarped distribution."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from dspark.core import TokenLogprobs


def token_logprobs(
    logits: Tensor, rows: Sequence[int], tokens: Sequence[int], top_n: Sequence[int]
) -> list[TokenLogprobs]:
    """Log probabilities of tokens and of the most likely alternatives.

    Args:
        logits: [N, V] raw target rows (before any adjustment).
        rows: [n] row each token was emitted from.
        tokens: [n] emitted ids.
        top_n: [n] how many alternatives to give for each, >= 0.

    Returns:
        n entries; alternatives best first, equal ones by id.
    """
    if not len(rows):
        return []
    index = torch.tensor(rows, device=logits.device)
    logp = logits.index_select(0, index).float().log_softmax(-1)
    chosen = logp.gather(1, torch.tensor(tokens, device=logits.device)[:, None])[:, 0].tolist()
    values, ids = (part.cpu() for part in logp.topk(min(max(top_n), logp.shape[1])))
    order = [sorted(zip(v, i, strict=True), key=_rank) for v, i in zip(values.tolist(), ids.tolist(), strict=True)]
    return [
        TokenLogprobs(token=token, logprob=value, top=tuple((i, v) for v, i in best[:n]))
        for token, value, best, n in zip(tokens, chosen, order, top_n, strict=True)
    ]


def _rank(entry: tuple[float, int]) -> tuple[float, int]:
    return -entry[0], entry[1]
