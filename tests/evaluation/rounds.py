"""Hand-made rounds."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from dspark.engine import RoundTrace

STOP = 99


def made(
    accepted: int,
    verified: int = 4,
    *,
    drafted: int | None = None,
    confidence: Sequence[float] = (),
    stops: bool = False,
) -> RoundTrace:
    """A round; with ``stops`` its last accepted draft ended the answer."""
    length = verified if drafted is None else drafted
    tokens = tuple(range(10, 10 + length))
    if stops:
        tokens = (*tokens[: accepted - 1], STOP, *tokens[accepted:])
    return RoundTrace(
        anchor_position=5,
        anchor=7,
        drafted=tokens,
        confidence=tuple(confidence),
        verified=accepted if stops else verified,
        accepted=accepted,
        committed=tokens[:accepted] if stops else (*tokens[:accepted], 50),
    )


@st.composite
def rounds(draw: st.DrawFn, block_size: int = 4, *, whole: bool = False) -> RoundTrace:
    """Any round of a block; with ``whole`` everything of it was verified."""
    drafted = block_size if whole else draw(st.integers(0, block_size))
    verified = drafted if whole else draw(st.integers(0, drafted))
    accepted = draw(st.integers(0, verified))
    confidence = draw(st.lists(st.floats(0.0, 1.0, width=32), min_size=drafted, max_size=drafted))
    stops = not whole and accepted > 0 and draw(st.booleans())
    return made(accepted, verified, drafted=drafted, confidence=confidence, stops=stops)
