"""top_k, top_p and min_p on scaled logits, by one cut-off value per row instead of a sort of the vocabulary."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from dspark.verify.row_sampling import RowSampling

_FIRST_LOOK = 64
"""Ranks looked at first; nearly every nucleus of a language model ends within them."""
_CHUNK = 64
"""Tokens per chunk when searching for the largest values."""


def filter_logits_(scaled: Tensor, rows: RowSampling) -> None:
    """Set every token dropped by top_k, top_p or min_p to -inf, in place.

    Args:
        scaled: [N, V] logits divided by temperature.
        rows: options of the N rows.
    """
    if rows.top_k is not None or rows.top_p is not None:
        _keep_ranks_(scaled, rows)
    if rows.min_p is not None:
        share = torch.from_numpy(rows.min_p).to(scaled).log_()[:, None]
        scaled.masked_fill_(scaled < scaled.amax(-1, keepdim=True) + share, -torch.inf)


def largest(values: Tensor, count: int) -> Tensor:
    """The ``count`` largest values of each row, descending: [N, V] -> [N, min(count, V)].

    The count largest values lie in the count chunks with the largest maxima, so most of the row is only read once.
    """
    width = values.shape[1]
    if count >= width:
        return _descending(values)
    if count * _CHUNK * 2 > width:
        return values.topk(count).values if count * 8 < width else _descending(values)[:, :count]
    whole = width - width % _CHUNK
    chunks = values[:, :whole].unflatten(1, (-1, _CHUNK))
    best = chunks.amax(-1).topk(count, sorted=False).indices
    pool = chunks.gather(1, best[:, :, None].expand(-1, -1, _CHUNK)).flatten(1)
    return torch.cat([pool, values[:, whole:]], 1).topk(count).values


def _descending(values: Tensor) -> Tensor:
    if values.is_cuda:
        return values.sort(-1, descending=True).values
    return torch.from_numpy(-np.sort(-values.numpy(), axis=-1))


def _keep_ranks_(scaled: Tensor, rows: RowSampling) -> None:
    """Apply top_k and top_p to the rows that use them; rows whose nucleus is wide get a full sort."""
    vocab = scaled.shape[1]
    top_k = np.full(len(rows), vocab) if rows.top_k is None else np.where(rows.top_k == 0, vocab, rows.top_k)
    top_k = np.minimum(top_k, vocab)
    top_p = np.ones(len(rows)) if rows.top_p is None else rows.top_p
    todo = np.flatnonzero((top_k < vocab) | (top_p < 1.0))
    bounded = top_k[todo][top_k[todo] < vocab]
    for width in (max(_FIRST_LOOK, int(bounded.max(initial=0)) + 1), vocab):
        if not todo.size:
            return
        todo = _cut_(scaled, todo, top_k[todo], top_p[todo], min(width, vocab))


def _cut_(scaled: Tensor, index: np.ndarray, top_k: np.ndarray, top_p: np.ndarray, width: int) -> np.ndarray:
    """Cut rows ``index`` whose last kept rank is among the ``width`` largest values; return the rows left over."""
    everything = len(index) == scaled.shape[0]
    part = scaled if everything else scaled[torch.from_numpy(index).to(scaled.device)]
    ranked = largest(part, width)
    keep = _kept_ranks(part, ranked, top_k, top_p)
    done = keep < width if width < part.shape[1] else np.ones(len(keep), bool)
    if done.any():
        chosen = torch.from_numpy(done).to(part.device)
        kept = torch.from_numpy(keep[done]).to(part.device)
        rows = torch.from_numpy(index[done]).to(scaled.device)
        scaled[rows] = _cut_after(part[chosen], ranked[chosen], kept)
    return index[~done]


def _kept_ranks(part: Tensor, ranked: Tensor, top_k: np.ndarray, top_p: np.ndarray) -> np.ndarray:
    """How many of the leading ranks each row keeps, >= 1; ``width`` or more means the look was too short."""
    vocab, width = part.shape[1], ranked.shape[1]
    if (top_p >= 1.0).all():
        return top_k
    mass = (ranked - ranked[:, :1]).double().exp_().cumsum_(1)
    limit = torch.from_numpy(top_k).to(mass.device)
    total = mass.gather(1, (limit.clamp_max(width) - 1)[:, None])
    if width < vocab and (top_k > width).any():
        whole = (part - ranked[:, :1]).exp_().sum(-1, keepdim=True, dtype=torch.float64)
        total = torch.where(limit[:, None] > width, whole, total)
    goal = torch.from_numpy(top_p).to(mass.device)[:, None] * total
    nucleus = (mass[:, :-1] < goal).sum(1).add_(1).cpu().numpy()
    keep: np.ndarray = np.minimum(np.where(top_p >= 1.0, vocab, nucleus), top_k)
    return keep


def _cut_after(part: Tensor, ranked: Tensor, keep: Tensor) -> Tensor:
    """Copy of ``part`` in which exactly the ``keep`` first ranks of each row are left."""
    vocab, width = part.shape[1], ranked.shape[1]
    cutoff = ranked.gather(1, (keep - 1)[:, None])
    out = part.masked_fill(part < cutoff, -torch.inf)
    following = ranked.gather(1, keep.clamp_max(width - 1)[:, None])
    tied = ((following == cutoff)[:, 0] & (keep < vocab)).nonzero()[:, 0]
    if tied.numel():
        allowed = keep[tied] - (ranked[tied] > cutoff[tied]).sum(1)
        out[tied] = _drop_late_ties(out[tied], cutoff[tied], allowed)
    return out


def _drop_late_ties(part: Tensor, cutoff: Tensor, allowed: Tensor) -> Tensor:
    """Keep only the ``allowed`` smallest ids among the tokens of each row that equal its cut-off."""
    row, token = (part == cutoff).nonzero(as_tuple=True)
    counts = row.bincount(minlength=part.shape[0])
    place = torch.arange(row.shape[0], device=row.device) - (counts.cumsum(0) - counts)[row]
    late = place >= allowed[row]
    part[row[late], token[late]] = -torch.inf
    return part
