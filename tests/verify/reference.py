"""Slow, plain versions of what the room does, written token by token."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from dspark.core import SamplingParams


def softmax(logits: np.ndarray) -> np.ndarray:
    weights = np.exp(logits - logits.max())
    return weights / weights.sum()


def warped(logits: np.ndarray, params: SamplingParams) -> np.ndarray:
    """Temperature, top_k, top_p, min_p of one row by a full, stable sort."""
    probs = softmax(np.asarray(logits, np.float64) / params.temperature)
    order = np.lexsort((np.arange(len(probs)), -probs))
    kept = list(order[: params.top_k] if params.top_k else order)
    if params.top_p < 1.0:
        goal, mass, nucleus = params.top_p * probs[kept].sum(), 0.0, []
        for token in kept:
            nucleus.append(token)
            mass += probs[token]
            if mass >= goal:
                break
        kept = nucleus
    kept = [token for token in kept if probs[token] >= params.min_p * probs.max()]
    out = np.zeros_like(probs)
    out[kept] = probs[kept]
    return out / out.sum()


def adjusted(
    logits: np.ndarray, params: SamplingParams, prompt: Sequence[int], output: Sequence[int], stop_ids: Sequence[int]
) -> np.ndarray:
    """Bias, penalties and min_tokens of the row that follows ``prompt`` and ``output`` in plain decoding."""
    row = np.array(logits, np.float64)
    for token, bias in params.logit_bias.items():
        row[token] += bias
    for token in {*prompt, *output}:
        row[token] = (
            row[token] / params.repetition_penalty if row[token] > 0 else row[token] * params.repetition_penalty
        )
    for token, count in Counter(output).items():
        row[token] -= params.frequency_penalty * count + params.presence_penalty
    if len(output) < params.min_tokens:
        row[list(stop_ids)] = -np.inf
    return row
