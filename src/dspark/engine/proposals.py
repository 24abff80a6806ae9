"""Checking what a drafter hands over: a block that breaks the contract must never become part of an answer."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dspark.core import DsparkError, Proposal


def check_proposal(proposal: Proposal, limits: tuple[int, ...], vocab_size: int, name: str) -> None:
    """See that a proposal is one, in shapes and types; what it says about probabilities is taken on trust.

    Args:
        proposal: from the drafter.
        limits: [R] most tokens of each request.
        vocab_size: V of the target.
        name: the drafter's, for the message.

    Raises:
        DsparkError: the first thing that is wrong.
    """
    if not isinstance(proposal, Proposal):
        raise DsparkError(f"drafter {name!r} must return a Proposal, got {type(proposal).__name__}")
    for fault in _faults(proposal, limits, vocab_size):
        raise _broken(name, fault)


def check_tokens(ids: NDArray[np.int64], lengths: tuple[int, ...], vocab_size: int, name: str) -> None:
    """See that proposed ids [R, G], fetched already, are tokens of the target.

    Raises:
        DsparkError: one is not.
    """
    used = ids[np.arange(ids.shape[1]) < np.array(lengths)[:, None]]
    if used.size and not (used.min() >= 0 and used.max() < vocab_size):
        raise _broken(name, f"token ids must be in [0, {vocab_size}), got {used.min()} to {used.max()}")


def _broken(name: str, fault: str) -> DsparkError:
    return DsparkError(f"drafter {name!r} broke the Drafter contract: {fault}")


def _faults(proposal: Proposal, limits: tuple[int, ...], vocab_size: int) -> Iterator[str]:
    tokens, lengths = proposal.tokens, proposal.lengths
    if tokens.ndim != 2 or tokens.dtype != torch.int64 or len(tokens) != len(limits):
        yield f"tokens must be int64 [{len(limits)}, G], got {_form(tokens)}"
    if len(lengths) != len(limits) or not all(isinstance(length, int) for length in lengths):
        yield f"lengths must be {len(limits)} integers, got {lengths!r}"
    for length, limit in zip(lengths, limits, strict=True):
        if not 0 <= length <= min(limit, tokens.shape[1]):
            yield f"it proposed {length} tokens (tensor: {tokens.shape[1]}) where at most {limit} were asked for"
    if proposal.probs is not None:
        yield from _law_faults(proposal.probs, proposal.draft_to_target, tokens, vocab_size)
    if proposal.confidence is not None and tuple(proposal.confidence.shape) != tuple(tokens.shape):
        yield f"confidence must be {list(tokens.shape)}, got {_form(proposal.confidence)}"


def _law_faults(probs: Tensor, mapping: Tensor | None, tokens: Tensor, vocab_size: int) -> Iterator[str]:
    width = vocab_size if mapping is None else len(mapping)
    if tuple(probs.shape) != (*tokens.shape, width) or not probs.is_floating_point():
        yield f"probs must be float {[*tokens.shape, width]}, got {_form(probs)}"


def _form(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"
