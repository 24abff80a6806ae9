"""Drafts under constraints: nothing is verified behind a draft that is sure to be rejected."""

from __future__ import annotations

from collections.abc import Sequence as Seq

from dspark.core import InputError, SamplingParams
from dspark.engine.blocks import Blocks
from dspark.engine.sequence import Sequence


def check_constrained(params: SamplingParams) -> None:
    """Refuse options that contradict a constraint.

    Raises:
        InputError: which.
    """
    if params.min_tokens:
        raise InputError("min_tokens cannot be met by an answer whose form is given; leave it out")
    if params.ignore_eos:
        raise InputError("ignore_eos makes no sense for an answer whose form is given; leave it out")


def within_constraints(lengths: tuple[int, ...], ready: Seq[Sequence], blocks: Blocks) -> tuple[int, ...]:
    """Cut verify lengths at the first draft that a constraint rules out.

    The policy has planned already, as what is cut here depends on the drafts themselves. A draft that is ruled out has
    target probability zero, so what comes after it can never matter. It is kept itself where it was drawn from a known
    law, as the token in its place must then come from the residual; where proposals are deterministic, the residual is
    the masked row itself, and the draft is left out.

    Args:
        lengths: verify length of each ready sequence.
        ready: the sequences.
        blocks: drafted by the first ones.
    """
    if all(sequence.constraint is None for sequence in ready):
        return lengths
    cut = list(lengths)
    for row, (sequence, length) in enumerate(zip(ready, lengths, strict=True)):
        if sequence.constraint is not None and length:
            good = sequence.constraint.allowed(blocks.tokens[row][:length])
            drawn = blocks.proposal.probs is not None and not sequence.request.params.greedy
            cut[row] = min(length, good + drawn)
    return tuple(cut)
