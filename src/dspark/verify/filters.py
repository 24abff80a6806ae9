"""top_k, top_p and min_p on probabilities, by one cut-off value per row instead of a sort of the vocabulary."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from dspark.verify.buckets import Buckets
from dspark.verify.ranks import largest
from dspark.verify.row_sampling import RowSampling

_LOOK = 64
"""Ranks looked at first; most nuclei of a language model end within them."""
_LONG_LOOK = 512
"""A ``top_k`` up to this makes the first look longer; the largest values are found fast up to about here."""
_FLOOR = 1e-30
"""Least cut-off: rows that are filtered at all lose tokens less likely than this."""


def filter_probs_(probs: Tensor, rows: RowSampling) -> None:
    """Drop the tokens that top_k, top_p and min_p exclude and scale the rest to sum one, in place.

    Args:
        probs: [N, V], each row summing to one.
        rows: options of the N rows; rows without filters are left as they are.
    """
    active = rows.filtered()
    if not active.any():
        return
    if active.all():
        _filter_(probs, rows)
        return
    index = torch.from_numpy(np.flatnonzero(active)).to(probs.device)
    part = probs.index_select(0, index)
    _filter_(part, rows.take(np.flatnonzero(active)))
    probs.index_copy_(0, index, part)


def _filter_(probs: Tensor, rows: RowSampling) -> None:
    """The same for rows that all have filters.

    Dividing by the cut-off puts it at exactly one and everything below it strictly under one, so a threshold with a
    constant drops the rest; that is several times faster than a comparison with a mask.
    """
    cutoff = probs.new_full((len(probs),), _FLOOR)
    if rows.top_k is not None or rows.top_p is not None:
        _rank_cuts_(cutoff, probs, rows)
    if rows.min_p is not None:
        share = torch.from_numpy(rows.min_p).to(probs)
        cutoff = torch.maximum(cutoff, probs.amax(-1) * share)
    probs.div_(cutoff[:, None])
    torch.threshold_(probs, 1.0 - torch.finfo(probs.dtype).eps / 2, 0.0)
    probs.div_(probs.sum(-1, keepdim=True))


def _rank_cuts_(cutoff: Tensor, probs: Tensor, rows: RowSampling) -> None:
    """Raise the cut-offs to those of top_k and top_p, looking at more ranks only for rows that need them."""
    vocab = probs.shape[1]
    top_k = np.full(len(rows), vocab) if rows.top_k is None else np.where(rows.top_k == 0, vocab, rows.top_k)
    top_k = np.minimum(top_k, vocab)
    top_p = np.ones(len(rows)) if rows.top_p is None else rows.top_p
    todo = np.flatnonzero((top_k < vocab) | (top_p < 1.0))
    look = max(_LOOK, int(top_k[top_k < _LONG_LOOK].max(initial=0))) + 1
    todo = _look_(cutoff, probs, todo, top_k[todo], top_p[todo], min(look, vocab))
    if todo.size and probs.is_cuda:
        _look_(cutoff, probs, todo, top_k[todo], top_p[todo], vocab)
    for r in () if probs.is_cuda else todo.tolist():
        _cut_wide_(cutoff, probs, r, int(top_k[r]), float(top_p[r]))


def _look_(
    cutoff: Tensor, probs: Tensor, index: np.ndarray, top_k: np.ndarray, top_p: np.ndarray, width: int
) -> np.ndarray:
    """Cut rows ``index`` inside their ``width`` largest values; return the rows for which that was too early."""
    vocab = probs.shape[1]
    at = torch.from_numpy(index).to(probs.device)
    part = probs if len(index) == len(probs) else probs.index_select(0, at)
    ranked = largest(part, width)
    keep = _kept_ranks(ranked, vocab, top_k, top_p)
    done = (keep < width) | (width == vocab)
    last = torch.from_numpy(np.minimum(keep, width) - 1).to(at.device)[:, None]
    value = ranked.gather(1, last)
    tied = (ranked.gather(1, (last + 1).clamp_max_(width - 1)) == value)[:, 0].cpu().numpy() & (keep < width)
    if tied.any():
        chosen = torch.from_numpy(np.flatnonzero(tied)).to(at.device)
        allowed = last[chosen, 0] + 1 - (ranked[chosen] > value[chosen]).sum(1)
        _drop_late_ties_(probs, at[chosen], value[chosen], allowed)
    cutoff.index_copy_(0, at, value[:, 0].clamp_min(_FLOOR))
    return index[~done]


def _kept_ranks(ranked: Tensor, vocab: int, top_k: np.ndarray, top_p: np.ndarray) -> np.ndarray:
    """How many of the leading ranks each row keeps, >= 1; the number of ranks or more means the look was too short."""
    if (top_p >= 1.0).all():
        return top_k
    mass = ranked.cumsum(1, dtype=torch.float64).cpu().numpy()
    width = mass.shape[1]
    bounded = mass[np.arange(len(mass)), np.minimum(top_k, width) - 1]
    whole = np.where(top_k >= vocab, 1.0, np.inf)  # what a top_k beyond the look keeps is not known yet
    goal = top_p * np.where(top_k > width, whole, bounded)
    nucleus = (mass[:, :-1] < goal[:, None]).sum(1) + 1
    keep: np.ndarray = np.minimum(np.where(top_p >= 1.0, vocab, nucleus), top_k)
    return keep


def _cut_wide_(cutoff: Tensor, probs: Tensor, row: int, top_k: int, top_p: float) -> None:
    """Cut one row that keeps many tokens."""
    buckets = Buckets(probs[row].numpy())
    goal = top_p * (buckets.mass_of(top_k) if top_k < probs.shape[1] else 1.0)
    keep = min(top_k, buckets.ranks_reaching(goal)) if top_p < 1.0 else top_k
    value, allowed, ties = buckets.at_rank(keep)
    cutoff[row] = max(value, _FLOOR)
    if allowed < ties:
        late = np.flatnonzero(buckets.row == value)[allowed:]
        buckets.row[late] = 0.0


def _drop_late_ties_(probs: Tensor, rows: Tensor, value: Tensor, allowed: Tensor) -> None:
    """Of the tokens equal to ``value`` [n, 1] in ``rows`` [n], keep the ``allowed`` [n] smallest ids."""
    at, token = (probs.index_select(0, rows) == value).nonzero(as_tuple=True)
    counts = at.bincount(minlength=len(rows))
    place = torch.arange(len(at), device=at.device) - (counts.cumsum(0) - counts)[at]
    late = place >= allowed[at]
    probs[rows[at[late]], token[late]] = 0.0
