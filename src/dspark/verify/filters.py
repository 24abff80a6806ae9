"""top_k, top_p and min_p on scaled logits, by one cut-off value per row instead of a sort of the vocabulary."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dspark.verify.ranks import largest
from dspark.verify.row_sampling import RowSampling

_LOOKS = (64, 4096)
"""Ranks looked at first and second; nearly every nucleus of a language model ends within them, else all are sorted."""


def filter_logits_(scaled: Tensor, rows: RowSampling) -> None:
    """Set every token dropped by top_k, top_p or min_p to -inf, in place.

    Args:
        scaled: [N, V] logits divided by temperature.
        rows: options of the N rows.
    """
    cut = _Cut.none(scaled)
    if rows.top_k is not None or rows.top_p is not None:
        _rank_cuts_(cut, scaled, rows)
    if rows.min_p is not None:
        share = torch.from_numpy(rows.min_p).to(scaled).log_()
        cut.value = torch.maximum(cut.value, scaled.amax(-1) + share)
    if rows.filtered:
        scaled.masked_fill_(scaled < cut.value[:, None], -torch.inf)
        _drop_late_ties_(scaled, cut)


@dataclass
class _Cut:
    """Where rows are cut. ``allowed`` tokens equal to ``value`` stay; -1 keeps all of them."""

    value: Tensor  # [N]
    allowed: np.ndarray  # [N] int64

    @classmethod
    def none(cls, scaled: Tensor) -> _Cut:
        return cls(scaled.new_full((len(scaled),), -torch.inf), np.full(len(scaled), -1, np.int64))


def _rank_cuts_(cut: _Cut, scaled: Tensor, rows: RowSampling) -> None:
    """Find the cuts of top_k and top_p, looking at more ranks only for rows that need them."""
    vocab = scaled.shape[1]
    top_k = np.full(len(rows), vocab) if rows.top_k is None else np.where(rows.top_k == 0, vocab, rows.top_k)
    top_k = np.minimum(top_k, vocab)
    top_p = np.ones(len(rows)) if rows.top_p is None else rows.top_p
    todo = np.flatnonzero((top_k < vocab) | (top_p < 1.0))
    widest = int(top_k[top_k < vocab].max(initial=0)) + 1
    for width in (*(max(look, widest) for look in _LOOKS), vocab):
        if not todo.size:
            return
        todo = _look_(cut, scaled, todo, top_k[todo], top_p[todo], min(width, vocab))


def _look_(
    cut: _Cut, scaled: Tensor, index: np.ndarray, top_k: np.ndarray, top_p: np.ndarray, width: int
) -> np.ndarray:
    """Set the cuts of rows ``index`` that fall inside their ``width`` largest values; return the rows left over."""
    vocab = scaled.shape[1]
    part = scaled if len(index) == len(scaled) else scaled.index_select(0, torch.from_numpy(index).to(scaled.device))
    ranked = largest(part, width)
    keep = _kept_ranks(part, ranked, top_k, top_p)
    done = keep < width if width < vocab else np.ones(len(keep), bool)
    places = torch.from_numpy(np.minimum(keep, width) - 1).to(ranked.device)[:, None]
    value = ranked.gather(1, places)
    tied = (ranked.gather(1, (places + 1).clamp_max_(width - 1)) == value)[:, 0].cpu().numpy() & (keep < vocab) & done
    if tied.any():
        above = (ranked > value).sum(1).cpu().numpy()
        cut.allowed[index[tied]] = (keep - above)[tied]
    chosen = torch.from_numpy(np.flatnonzero(done)).to(value.device)
    cut.value[torch.from_numpy(index[done]).to(value.device)] = value[chosen, 0]
    return index[~done]


def _kept_ranks(part: Tensor, ranked: Tensor, top_k: np.ndarray, top_p: np.ndarray) -> np.ndarray:
    """How many of the leading ranks each row keeps, >= 1; ``width`` or more means the look was too short."""
    vocab, width = part.shape[1], ranked.shape[1]
    if (top_p >= 1.0).all():
        return top_k
    mass = (ranked - ranked[:, :1]).double().exp_().cumsum_(1)
    total = mass.gather(1, torch.from_numpy(np.minimum(top_k, width) - 1).to(mass.device)[:, None])
    unbounded = np.flatnonzero(top_k > width)
    if unbounded.size:
        rows = torch.from_numpy(unbounded).to(mass.device)
        whole = part if len(unbounded) == len(part) else part.index_select(0, rows)
        total[rows, 0] = (whole.logsumexp(-1) - ranked[rows, 0]).double().exp()
    goal = torch.from_numpy(top_p).to(mass.device)[:, None] * total
    nucleus = (mass[:, :-1] < goal).sum(1).add_(1).cpu().numpy()
    keep: np.ndarray = np.minimum(np.where(top_p >= 1.0, vocab, nucleus), top_k)
    return keep


def _drop_late_ties_(scaled: Tensor, cut: _Cut) -> None:
    """Of the tokens equal to a row's cut-off keep only the ``allowed`` smallest ids."""
    limited = np.flatnonzero(cut.allowed >= 0)
    if not limited.size:
        return
    rows = torch.from_numpy(limited).to(scaled.device)
    at, token = (scaled.index_select(0, rows) == cut.value[rows, None]).nonzero(as_tuple=True)
    counts = at.bincount(minlength=len(limited))
    place = torch.arange(len(at), device=at.device) - (counts.cumsum(0) - counts)[at]
    late = place >= torch.from_numpy(cut.allowed[limited]).to(at.device)[at]
    scaled[rows[at[late]], token[late]] = -torch.inf
