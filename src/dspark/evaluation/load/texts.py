"""Whether the texts of a segment are those of plain decoding."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dspark.evaluation.load.trace import RequestTrace, Trace
from dspark.evaluation.load.traffic import Ids
from dspark.evaluation.margins import first_difference


@dataclass(frozen=True, kw_only=True)
class Parting:
    """A text that left that of plain decoding.

    Attributes:
        context: token ids before it, those of the prompt included.
        position: where it did, counted in generated tokens.
        expected, got: the tokens there; None where a text had ended.
    """

    context: Ids
    position: int
    expected: int | None
    got: int | None


@dataclass(frozen=True, kw_only=True)
class TextCheck:
    """All texts of a segment, those that were cut off as far as they came.

    Attributes:
        texts: how many.
        partings: those that differ.
    """

    texts: int
    partings: tuple[Parting, ...]


def check_texts(trace: Trace, expected: Mapping[Ids, Ids]) -> TextCheck:
    """Compare.

    Args:
        trace: the segment.
        expected: by prompt, the whole greedy text of plain decoding, at least as long as any job asks.
    """
    found = [_parting(request, expected[request.job.prompt]) for request in trace.requests]
    return TextCheck(texts=len(found), partings=tuple(parting for parting in found if parting is not None))


def _parting(request: RequestTrace, text: Ids) -> Parting | None:
    got = request.token_ids
    due = text[: request.job.max_tokens if request.ended is not None else len(got)]
    place = first_difference(got, due)
    if place is None:
        return None
    there, here = (ids[place] if place < len(ids) else None for ids in (due, got))
    return Parting(context=(*request.job.prompt, *due[:place]), position=place, expected=there, got=here)
