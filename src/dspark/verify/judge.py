"""One step's verdicts for all requests: the greedy rule or the rejection rule, whichever each request asks for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dspark.core import Proposal, Verdict
from dspark.verify.draft_law import DraftLaw, law_of
from dspark.verify.draw import draw
from dspark.verify.faults import RowsAtFaultError
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

    Raises:
        RowsAtFaultError: a row the verdict of a request rests on holds NaN.

    Returns:
        R verdicts. Every token emitted by a sampled request has positive probability in the warped row it comes from.
    """
    lens = np.array([len(d) for d in drafts], np.int64)
    first = np.concatenate([[0], np.cumsum(lens + 1)])
    assert first[-1] == logits.shape[0], "one row per draft plus the anchor row, for each request"
    assert len(sampling) == len(drafts)
    verdicts: dict[int, Verdict] = {}
    if sampling.greedy.any():
        best = best_tokens(logits).tolist()
        _check_numbers(logits, best, np.repeat(np.arange(len(drafts)), lens + 1))
        for r in np.flatnonzero(sampling.greedy).tolist():
            verdicts[r] = greedy_verdict(best[first[r] : first[r + 1]], drafts[r])
    sampled = np.flatnonzero(~sampling.greedy)
    if sampled.size:
        assert uniforms is not None
        law = law_of(proposal, proposal_rows, logits.shape[1])
        judging = _Judging(logits, _flat_tokens(drafts), first[:-1], lens, sampling, uniforms, law)
        verdicts |= judging.verdicts(sampled)
    return [verdicts[r] for r in range(len(drafts))]


def _flat_tokens(drafts: Sequence[Sequence[int]]) -> np.ndarray:
    """[N] the draft judged by each row; 0 on each request's last row, which judges none."""
    return np.array([token for draft in drafts for token in (*draft, 0)], np.int64)


@dataclass(frozen=True)
class _Window:
    """Some rows of this step, at least one of each request in ``alive``, in order."""

    alive: np.ndarray  # [A] requests
    starts: np.ndarray  # [A] where each one's rows start in the window
    request: np.ndarray  # [n]
    slot: np.ndarray  # [n]
    has_draft: np.ndarray  # [n] bool, False on each request's last row


@dataclass(frozen=True)
class _Judging:
    """The rejection rule, a window of slots at a time, for requests that have accepted everything so far."""

    logits: Tensor
    tokens: np.ndarray  # [N]
    first: np.ndarray  # [R] first row of each request
    lens: np.ndarray  # [R]
    sampling: RowSampling
    uniforms: RoundUniforms
    law: DraftLaw

    def verdicts(self, alive: np.ndarray) -> dict[int, Verdict]:
        """Verdicts of requests ``alive``."""
        reached = np.zeros(len(self.lens), np.int64)
        verdicts: dict[int, Verdict] = {}
        while alive.size:
            window = self._window(alive, reached)
            target = warp(_rows(self.logits, self._row(window)), self.sampling.take(window.request))
            stops = ~window.has_draft
            stops[window.has_draft] = ~self._accepted(window, target)
            end = np.minimum.reduceat(np.where(stops, np.arange(len(stops)), len(stops)), window.starts)
            decided = end < len(stops)
            if decided.any():
                verdicts |= self._emit(window, target, end[decided])
            reached[alive] += np.diff(window.starts, append=len(stops))
            alive = alive[~decided]
        return verdicts

    def _window(self, alive: np.ndarray, reached: np.ndarray) -> _Window:
        left = self.lens[alive] + 1 - reached[alive]
        if not self.logits.is_cuda:
            left = np.minimum(left, max(1, _CPU_ROWS // len(alive)))
        starts = np.cumsum(left) - left
        request = np.repeat(alive, left)
        slot = np.arange(len(request)) - np.repeat(starts, left) + reached[request]
        return _Window(alive, starts, request, slot, slot < self.lens[request])

    def _row(self, window: _Window) -> np.ndarray:
        rows: np.ndarray = self.first[window.request] + window.slot
        return rows

    def _accepted(self, window: _Window, target: Tensor) -> np.ndarray:
        """Which of the window's drafts pass on their own."""
        at = np.flatnonzero(window.has_draft)
        if not at.size:
            return np.zeros(0, bool)
        request, slot, token = window.request[at], window.slot[at], self.tokens[self._row(window)[at]]
        p = target[_index(at, target), _index(token, target)].double().cpu().numpy()
        accepted: np.ndarray = self.uniforms.accept[request, slot] < acceptance(
            p, self.law.of_tokens(request, slot, token)
        )
        return accepted

    def _emit(self, window: _Window, target: Tensor, end: np.ndarray) -> dict[int, Verdict]:
        """Draw the correction (where a draft was rejected) or the bonus, from window row ``end`` of each request."""
        request, slot = window.request[end], window.slot[end]
        weights = _rows(target, end)
        rejected = np.flatnonzero(window.has_draft[end])
        if rejected.size:
            token = self.tokens[self._row(window)[end[rejected]]]
            rest = self.law.residual(_rows(weights, rejected), request[rejected], slot[rejected], token)
            weights.index_copy_(0, _index(rejected, weights), rest)
        emitted = draw(weights, self.uniforms.emit[request]).tolist()
        _check_numbers(weights, emitted, request)
        found = zip(request.tolist(), slot.tolist(), emitted, strict=True)
        return {r: Verdict(accepted=accepted, next_token=token) for r, accepted, token in found}


def _check_numbers(rows: Tensor, tokens: list[int], request: np.ndarray) -> None:
    """Refuse rows of a target that overflowed: one entry of each row tells, as it was picked by comparing them all."""
    chosen = rows.gather(1, torch.tensor(tokens, device=rows.device)[:, None])[:, 0]
    finite = torch.isfinite(chosen)
    if not bool(finite.all()):
        raise RowsAtFaultError(
            f"the model computed logits that are not finite numbers in {rows.dtype}; use dtype float32, or weights "
            "without NaN",
            request[~finite.cpu().numpy()],
        )


def _index(numbers: np.ndarray, like: Tensor) -> Tensor:
    return torch.from_numpy(numbers).to(like.device)


def _rows(table: Tensor, rows: np.ndarray) -> Tensor:
    """A copy of the given rows (``index_select`` is several times faster than indexing)."""
    return table.index_select(0, _index(rows, table))
