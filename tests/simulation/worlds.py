"""Small worlds whose behaviour can be worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dspark.scheduling import CostModel, ProfileIdentity, TimeTable
from dspark.simulation import AcceptanceLaw, ConfidenceLaw, CurveShape, Difficulty, DrawnTexts, Lengths

IDENTITY = ProfileIdentity(machine="made up", model="", dtype="", threads=1, backend="")

RISING = CurveShape(step=10, row=0.2, tile=8, cliffs=((96, 4.0),), draft=0.5, draft_request=0.01, draft_token=0.1)


def flat(seconds: float, draft: float = 0.0) -> CostModel:
    """Every step takes the same, whatever is in it; every drafting too."""
    table = TimeTable(widths=(1, 10_000), depths=(0,), seconds=((seconds, seconds),))
    drafting = TimeTable(widths=(1, 2), depths=(1,), seconds=((draft, draft),)) if draft else None
    return CostModel(identity=IDENTITY, verify=table, draft=drafting)


def lengths(count: int, prompt: int | Sequence[int] = 1, answer: int | Sequence[int] = 100) -> Lengths:
    """Of so many texts; a list is repeated. Limits are the longest answer."""
    prompts, answers = (np.resize(np.array(value, np.int64), count) for value in (prompt, answer))
    return Lengths(prompt=prompts, answer=answers, max_tokens=np.full(count, answers.max(initial=1)))


def even(count: int, acceptance: float, block: int = 4, **sizes: int | Sequence[int]) -> DrawnTexts:
    """Texts in which every draft is accepted with one probability."""
    return DrawnTexts(lengths(count, **sizes), AcceptanceLaw.constant(acceptance, block), 0)


def uneven(
    count: int, block: int = 5, *, head: ConfidenceLaw | None = None, seed: int = 0, **sizes: int | Sequence[int]
) -> DrawnTexts:
    """Easy and hard texts, tokens that differ, and a confidence head."""
    law = AcceptanceLaw(
        parts=(Difficulty(mean=0.95, concentration=12), Difficulty(mean=0.6, concentration=6)),
        shift=(0.0,) * block,
        token_spread=1.5,
        confidence=head or ConfidenceLaw(),
    )
    return DrawnTexts(lengths(count, **sizes), law, seed)
