"""Texts: characters that span tokens, stop strings that span tokens, nothing given out that may be taken back."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dspark.core import FinishReason, TokenOrigin
from dspark.engine.ending import Ending
from dspark.engine.transcript import Transcript, Written, write

from .tiny import byte_tokenizer


def decode(ids: list[int]) -> str:
    return str(byte_tokenizer().backend_tokenizer.decode(ids, skip_special_tokens=True))


def encode(text: str) -> list[int]:
    return list(byte_tokenizer().encode(text))


def stream(ids: list[int], sizes: list[int], ending: Ending) -> tuple[list[str], Written, int]:
    """Write ids in runs of the given sizes (the last one repeats); pieces, the last result, tokens kept."""
    transcript, given_out, kept = Transcript(), [], 0
    while True:
        size = sizes.pop(0) if len(sizes) > 1 else sizes[0]
        run = ids[kept : kept + size]
        written = write(transcript, kept, run, [TokenOrigin.DRAFT] * len(run), [None] * len(run), ending, decode)
        transcript, kept = written.transcript, kept + written.kept
        given_out.append("".join(piece.text for piece in written.pieces))
        if written.finish_reason is not None:
            return given_out, written, kept


TEXTS = st.text(st.sampled_from("ab cthé日🎉🏳️‍🌈\n"), min_size=1, max_size=20)
SIZES = st.lists(st.integers(1, 6), min_size=1, max_size=6)


@settings(max_examples=60, deadline=None)
@given(text=TEXTS, sizes=SIZES)
def test_pieces_are_the_text(text: str, sizes: list[int]) -> None:
    ids = encode(text)
    pieces, written, kept = stream(ids, sizes, Ending(max_tokens=len(ids)))
    assert "".join(pieces) == written.transcript.text == text
    assert (kept, written.finish_reason) == (len(ids), FinishReason.LENGTH)
    assert not any("�" in piece for piece in pieces)


@settings(max_examples=100, deadline=None)
@given(text=TEXTS, stop=st.lists(st.text("ab 日", min_size=1, max_size=3), min_size=1, max_size=2), sizes=SIZES)
@pytest.mark.pitfall(11)
def test_stop_strings_cut_wherever_they_fall(text: str, stop: list[str], sizes: list[int]) -> None:
    ids = encode(text + "..")
    pieces, written, kept = stream(ids, sizes, Ending(max_tokens=len(ids), stop=tuple(stop)))
    places = [(text + "..").find(s) for s in stop if s in text]
    full = decode(ids[:kept])
    if not places:
        assert (written.finish_reason, "".join(pieces)) == (FinishReason.LENGTH, text + "..")
        return
    assert written.finish_reason is FinishReason.STOP
    assert written.stop_reason in stop
    assert str(written.stop_reason) in full
    assert not any(s in decode(ids[: kept - 1]) for s in stop), "it should have ended at an earlier token"
    assert "".join(pieces) == full[: full.index(str(written.stop_reason))]


@pytest.mark.parametrize("keep", [False, True])
def test_the_stop_string_can_stay(keep: bool) -> None:
    ids = encode("one two three")
    pieces, written, _ = stream(ids, [2], Ending(max_tokens=99, stop=("two",), keep_stop=keep))
    assert "".join(pieces) == ("one two" if keep else "one ")
    assert written.stop_reason == "two"


def test_possible_beginnings_of_a_stop_string_are_held_back() -> None:
    ids = encode("xaax")
    ending = Ending(max_tokens=4, stop=("aab",))
    pieces, _, _ = stream(ids, [1], ending)
    assert pieces == ["x", "", "", "aax"]


def test_min_tokens_lets_early_stop_strings_pass() -> None:
    ids = encode("a.a.a.a.")
    pieces, written, kept = stream(ids, [3], Ending(max_tokens=8, stop=(".",), min_tokens=5))
    assert (kept, "".join(pieces), written.finish_reason) == (6, "a.a.a", FinishReason.STOP)


@pytest.mark.parametrize("keep", [False, True])
def test_a_stop_token_is_kept_as_id_and_left_out_as_text(keep: bool) -> None:
    ids = encode("abz")
    ending = Ending(max_tokens=9, stop_ids=frozenset(ids[1:]), keep_stop=keep)
    pieces, written, kept = stream(ids, [5], ending)
    assert kept == 2
    assert (written.finish_reason, written.stop_reason) == (FinishReason.STOP, ids[1])
    assert "".join(pieces) == ("abz" if keep else "ab")


def test_an_end_of_text_id_has_no_stop_reason() -> None:
    ids = encode("hi")
    _, written, kept = stream(ids, [5], Ending(max_tokens=9, eos_ids=frozenset(ids[:1])))
    assert (kept, written.finish_reason, written.stop_reason) == (1, FinishReason.STOP, None)


def test_an_unfinished_character_comes_out_at_the_end() -> None:
    ids = encode("a🎉")[:-1]
    pieces, _, _ = stream(ids, [1], Ending(max_tokens=len(ids)))
    assert pieces[0] == "a"
    assert "".join(pieces) == decode(ids) == "a�"


def test_endless_broken_characters_do_not_wait_forever() -> None:
    broken = encode("🎉")[1:2]
    pieces, _, _ = stream(broken * 40, [1], Ending(max_tokens=40))
    assert sum(bool(piece) for piece in pieces) > 1


def test_text_is_split_by_writer() -> None:
    ids = encode("abc the")
    origins = [TokenOrigin.PLAIN, TokenOrigin.DRAFT, TokenOrigin.CORRECTION][: len(ids)]
    written = write(Transcript(), 0, ids, origins, [0.5] * len(ids), Ending(max_tokens=len(ids)), decode)
    assert written.pieces == tuple((decode([token]), origin, 0.5) for token, origin in zip(ids, origins, strict=True))


def test_without_a_tokenizer_there_is_no_text() -> None:
    written = write(Transcript(), 0, [1, 2], [TokenOrigin.PLAIN] * 2, [None] * 2, Ending(max_tokens=2), None)
    assert (written.pieces, written.transcript.text, written.kept) == ((), "", 2)
