"""Apply the edits of all requests to the target rows of one step, sparsely."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from dspark.verify.edits import LogitEdits


def adjust_logits(logits: Tensor, edits: Sequence[LogitEdits | None], drafts: Sequence[Sequence[int]]) -> Tensor:
    """Logit bias, then repetition, frequency and presence penalties, then the ``min_tokens`` mask, on each row.

    Row j of a request is edited with exactly the history it has in plain decoding: its committed tokens and the drafts
    before it. Rows of requests without edits keep their values.

    Args:
        logits: [N, V] raw target rows, those of request r contiguous, ``len(drafts[r]) + 1`` of them; not changed.
        edits: one entry per request, None for nothing to do.
        drafts: verified tokens of each request.

    Returns:
        ``logits`` itself when there is nothing to do, else a new [N, V] tensor, float32 unless ``logits`` is float64.
    """
    if all(edit is None for edit in edits):
        return logits
    first = np.cumsum([0, *(len(d) + 1 for d in drafts)])
    assert first[-1] == logits.shape[0]
    work = [(e, int(row), d) for e, row, d in zip(edits, first, drafts, strict=False) if e is not None]
    out = logits.to(torch.float64 if logits.dtype == torch.float64 else torch.float32, copy=True)
    flat, vocab = out.view(-1), logits.shape[1]
    _add_bias_(flat, list(_bias(work, vocab)))
    _penalise_(flat, list(_penalties(work, vocab)))
    _mask_(flat, list(_masked(work, vocab)))
    return out


_Work = list[tuple[LogitEdits, int, Sequence[int]]]


def _cells(row: int, count: int, ids: np.ndarray, vocab: int) -> np.ndarray:
    """Flat indices [count, K] of columns ``ids`` in ``count`` rows from ``row``."""
    cells: np.ndarray = np.arange(row, row + count)[:, None] * vocab + ids[None]
    return cells


def _bias(work: _Work, vocab: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Per request: cells and what to add to them."""
    for edit, row, draft in work:
        if edit.bias_ids.size:
            cells = _cells(row, len(draft) + 1, edit.bias_ids, vocab)
            yield cells.ravel(), np.broadcast_to(edit.bias, cells.shape).ravel()


def _penalties(work: _Work, vocab: int) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Per request: cells of seen tokens, the factor of each, and what to subtract from it."""
    for edit, row, draft in work:
        if edit.counts is not None:
            ids, seen, counts = edit.counts.along(draft)
            cells = _cells(row, len(draft) + 1, ids, vocab)[seen]
            count = counts[seen]
            minus = edit.params.frequency_penalty * count + edit.params.presence_penalty * (count > 0)
            yield cells, np.full(len(cells), edit.params.repetition_penalty), minus


def _masked(work: _Work, vocab: int) -> Iterator[tuple[np.ndarray]]:
    """Per request: cells of stop ids in rows whose token would come too early to end the answer."""
    for edit, row, draft in work:
        early = min(edit.params.min_tokens - edit.num_output, len(draft) + 1)
        if early > 0 and edit.stop_ids.size:
            yield (_cells(row, early, edit.stop_ids, vocab).ravel(),)


def _merge(parts: Sequence[tuple[np.ndarray, ...]], like: Tensor) -> list[Tensor]:
    """Concatenate the columns of all requests and move them to the device; floats in the type of ``like``."""
    columns = [torch.from_numpy(np.concatenate(column)) for column in zip(*parts, strict=True)]
    return [c.to(like.device, like.dtype if c.is_floating_point() else c.dtype) for c in columns]


def _add_bias_(flat: Tensor, parts: list[tuple[np.ndarray, np.ndarray]]) -> None:
    if parts:
        cells, bias = _merge(parts, flat)
        flat[cells] += bias


def _penalise_(flat: Tensor, parts: list[tuple[np.ndarray, np.ndarray, np.ndarray]]) -> None:
    if parts:
        cells, factor, minus = _merge(parts, flat)
        value = flat[cells]
        flat[cells] = torch.where(value > 0, value / factor, value * factor) - minus


def _mask_(flat: Tensor, parts: list[tuple[np.ndarray]]) -> None:
    if parts:
        (cells,) = _merge(parts, flat)
        flat[cells] = -torch.inf
