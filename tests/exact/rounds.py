"""Rounds of the real verification code on tables, and the exact law of what they emit."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import product

import numpy as np
import torch

from dspark.core import Proposal, SamplingParams
from dspark.verify import RoundUniforms, RowSampling, judge

from .black_box import Run, block_laws

Tokens = tuple[int, ...]
Law = dict[Tokens, float]
Table = Callable[[Tokens], np.ndarray]
"""A row of numbers for a history of tokens (the anchor and what follows it)."""


def judge_run(
    blocks: Sequence[Tokens], logits: Table, probs: Sequence[np.ndarray] | None, params: SamplingParams, **kw: object
) -> Run:
    """``run`` of the black box for drafts ``blocks``, judged by :func:`dspark.verify.judge`.

    Args:
        blocks: drafts of each block.
        logits: target row after the drafts given to it.
        probs: [l, Vd] law of each block's drafts; None for deterministic proposals.
        params: sampling options of all.
        kw: ``dtype`` of rows and probabilities (float64 if absent), ``draft_to_target`` of the proposal.
    """
    dtype = kw.pop("dtype", torch.float64)
    mapping = kw.pop("draft_to_target", None)
    assert not kw
    slots = max(max(map(len, blocks)), 1)
    rows = [torch.from_numpy(np.stack([logits(x[:j]) for j in range(len(x) + 1)])).to(dtype) for x in blocks]
    table = None if probs is None else _padded(probs, slots).to(dtype)

    def run(block: np.ndarray, accept: np.ndarray, emit: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        chosen = block.tolist()
        proposal = None
        if table is not None:
            proposal = Proposal(
                tokens=torch.zeros(len(blocks), slots, dtype=torch.int64),
                lengths=tuple(map(len, blocks)),
                probs=table,
                draft_to_target=mapping,
            )
        verdicts = judge(
            torch.cat([rows[b] for b in chosen]),
            [blocks[b] for b in chosen],
            RowSampling.of([params]).take(np.zeros(len(chosen), np.int64)),
            RoundUniforms(draft=accept, accept=accept, emit=emit),
            proposal,
            chosen,
        )
        return np.array([v.accepted for v in verdicts]), np.array([v.next_token for v in verdicts])

    return run


def _padded(probs: Sequence[np.ndarray], slots: int) -> torch.Tensor:
    width = max(p.shape[1] for p in probs)
    table = np.zeros((len(probs), slots, width))
    for row, law in zip(table, probs, strict=True):
        row[: len(law), : law.shape[1]] = law
    return torch.from_numpy(table)


def emitted_law(paths: Mapping[Tokens, float], lengths: Mapping[Tokens, int], laws: Mapping[Tokens, np.ndarray]) -> Law:
    """Law of the tokens a round emits.

    Args:
        paths: probability of each drafted block.
        lengths: how much of it is verified.
        laws: [l + 1, V] joint law of accepted count and emitted token for each verified prefix.
    """
    law: Law = defaultdict(float)
    for path, chance in paths.items():
        drafts = path[: lengths[path]]
        for (count, token), share in np.ndenumerate(laws[drafts]):
            law[(*drafts[:count], token)] += chance * float(share)
    return dict(law)


def continued(law: Law, target: Table, vocab: int, length: int) -> np.ndarray:
    """Law [V, V, ..] of the first ``length`` tokens when the target itself writes what a round left open."""
    full = np.zeros((vocab,) * length)
    for emitted, chance in law.items():
        for rest in product(range(vocab), repeat=max(0, length - len(emitted))):
            text = (*emitted, *rest)
            share = chance
            for j in range(len(emitted), length):
                share *= float(target(text[:j])[text[j]])
            full[text[:length]] += share
    return full


def plain(target: Table, vocab: int, length: int) -> np.ndarray:
    """Law of the first ``length`` tokens of plain decoding."""
    return continued({(): 1.0}, target, vocab, length)


def prefix_laws(
    prefixes: Sequence[Tokens],
    logits: Table,
    probs: Callable[[Tokens], np.ndarray] | None,
    params: SamplingParams,
    vocab: int,
    **kw: object,
) -> dict[Tokens, np.ndarray]:
    """Joint laws of accepted count and emitted token for every verified prefix, measured on the real code."""
    tables = None if probs is None else [probs(prefix) for prefix in prefixes]
    run = judge_run(prefixes, logits, tables, params, **kw)
    return dict(zip(prefixes, block_laws(run, [len(p) for p in prefixes], vocab), strict=True))
