"""One step's verdicts for all requests: the greedy rule or the rejection rule, whichever each request asks for."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from dspark.core import Proposal, Verdict
from dspark.verify.draft_law import DraftLaw, law_of
from dspark.verify.draw import draw
from dspark.verify.greedy import best_tokens, greedy_verdict
from dspark.verify.row_sampling import RowSampling
from dspark.verify.rules import acceptance
from dspark.verify.uniforms import RoundUniforms
from dspark.verify.warp import warp

_CPU_ROWS = 32
"""Rows warped at a time on a CPU; later slots are looked at only for requests that still accept."""


def judge(
    logits: Tensor,
    drafts: Sequence[Sequence[int]],
    sampling: RowSampling,
    uniforms: RoundUniforms | None = None,
    proposal: Proposal | None = None,
    proposal_rows: Sequence[int] | None = None,
) -> list[Verdict]:
    """Decide for each request how many of its drafts survive and which token follows them.

    Args:
        logits: [N, V] adjusted target rows, those of request r contiguous: its anchor row, then one per draft;
            N = sum of ``len(drafts[r]) + 1``. Not changed.
        drafts: verified target-vocabulary tokens of each request, possibly none.
        sampling: options of the R requests.
        uniforms: numbers of this round, R rows of at least the longest draft; None if all requests are greedy.
        proposal: where the drafts came from; read for ``probs`` and ``draft_to_target`` only. None, or no ``probs``:
            the drafts are deterministic.
        proposal_rows: row of ``proposal`` of each request (any number for requests without drafts); None means r.

    Returns:
        R verdicts. Every emitted token has positive probability in the warped target row it comes from.
    """
    lens = np.array([len(d) for d in drafts], np.int64)
    first = np.concatenate([[0], np.cumsum(lens + 1)])
    assert first[-1] == logits.shape[0], "one row per draft plus the anchor row, for each request"
    assert len(sampling) == len(drafts)
    verdicts: dict[int, Verdict] = {}
    if sampling.greedy.any():
        best = best_tokens(logits).tolist()
        for r in np.flatnonzero(sampling.greedy).tolist():
            verdicts[r] = greedy_verdict(best[first[r] : first[r + 1]], drafts[r])
    sampled = np.flatnonzero(~sampling.greedy)
    if sampled.size:
        assert uniforms is not None
        rows = np.arange(len(drafts)) if proposal_rows is None else np.asarray(proposal_rows, np.int64)
        law = law_of(proposal, rows, logits.shape[1])
        verdicts |= _judge_sampled(logits, drafts, sampled, first, lens, sampling, uniforms, law)
    return [verdicts[r] for r in range(len(drafts))]


def _judge_sampled(
    logits: Tensor,
    drafts: Sequence[Sequence[int]],
    alive: np.ndarray,
    first: np.ndarray,
    lens: np.ndarray,
    sampling: RowSampling,
    uniforms: RoundUniforms,
    law: DraftLaw,
) -> dict[int, Verdict]:
    """The rejection rule for requests ``alive``, a window of slots at a time."""
    tokens = np.zeros(int(first[-1]), np.int64)
    for r in alive.tolist():
        tokens[first[r] : first[r] + lens[r]] = drafts[r]
    reached = np.zeros(len(lens), np.int64)
    verdicts: dict[int, Verdict] = {}
    while alive.size:
        request, slot, starts = _window(alive, reached, lens, logits)
        row = first[request] + slot
        target = warp(logits[torch.from_numpy(row).to(logits.device)], sampling.take(request))
        has_draft = slot < lens[request]
        stopped = ~has_draft
        at = np.flatnonzero(has_draft)
        if at.size:
            who, where, what = request[at], slot[at], tokens[row[at]]
            stopped[at] = uniforms.accept[who, where] >= acceptance(
                _entries(target, at, what), law.of_tokens(who, where, what)
            )
        end = np.minimum.reduceat(np.where(stopped, np.arange(len(stopped)), len(stopped)), starts)
        decided = end < len(stopped)
        reached[alive] += np.diff(starts, append=len(slot))
        if decided.any():
            verdicts |= _emit(target, end[decided], request, slot, tokens[row], has_draft, uniforms, law)
        alive = alive[~decided]
    return verdicts


def _window(
    alive: np.ndarray, reached: np.ndarray, lens: np.ndarray, logits: Tensor
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Next rows to look at: request [n] and slot [n] of each, and where each alive request starts in them."""
    left = lens[alive] + 1 - reached[alive]
    if not logits.is_cuda:
        left = np.minimum(left, max(1, _CPU_ROWS // len(alive)))
    starts = np.cumsum(left) - left
    request = np.repeat(alive, left)
    slot = np.arange(len(request)) - np.repeat(starts, left) + reached[request]
    return request, slot, starts


def _entries(table: Tensor, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """``table[rows, columns]`` as float64 on the host."""
    index = (torch.from_numpy(rows).to(table.device), torch.from_numpy(columns).to(table.device))
    return table[index].double().cpu().numpy()


def _emit(
    target: Tensor,
    end: np.ndarray,
    request: np.ndarray,
    slot: np.ndarray,
    tokens: np.ndarray,
    has_draft: np.ndarray,
    uniforms: RoundUniforms,
    law: DraftLaw,
) -> dict[int, Verdict]:
    """Draw the correction (where a draft was rejected) or the bonus, from row ``end`` of each decided request."""
    weights = target[torch.from_numpy(end).to(target.device)]
    rejected = np.flatnonzero(has_draft[end])
    if rejected.size:
        at = end[rejected]
        chosen = torch.from_numpy(rejected).to(target.device)
        weights[chosen] = law.residual(weights[chosen], request[at], slot[at], tokens[at])
    emitted = draw(weights, uniforms.emit[request[end]]).tolist()
    return {
        r: Verdict(accepted=accepted, next_token=token)
        for r, accepted, token in zip(request[end].tolist(), slot[end].tolist(), emitted, strict=True)
    }
