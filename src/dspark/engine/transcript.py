"""The text of one answer: written a run of tokens at a time, given out when nothing can cut it any more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dspark.core import FinishReason, TokenOrigin
from dspark.engine.detokenizer import Decode, Window
from dspark.engine.ending import Ending

Mark = tuple[int, TokenOrigin]
"""Where the text of a token ends, and who wrote the token."""

_NOTHING_READ = Window()

Piece = tuple[str, TokenOrigin]
"""Some text and who wrote it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transcript:
    """A value: writing gives a new one, so a step that fails leaves the old one in force.

    Attributes:
        text: characters read so far.
        sent: how many of them have been given out.
        window: what decides how the next token reads.
        marks: of the tokens whose text has not been given out completely.
    """

    text: str = ""
    sent: int = 0
    window: Window = _NOTHING_READ
    marks: tuple[Mark, ...] = ()

    def add(self, token: int, origin: TokenOrigin, decode: Decode) -> Transcript:
        """Read one more token."""
        window, fresh = self.window.read(token, decode)
        return self._longer(window, fresh, origin)

    def flush(self, origin: TokenOrigin, decode: Decode) -> Transcript:
        """Read what waits for an unfinished character."""
        return self._longer(_NOTHING_READ, self.window.rest(decode), origin)

    def cut(self, size: int) -> Transcript:
        """Forget all characters from ``size`` on; none of them has been given out."""
        assert size >= self.sent, "text that was given out cannot be cut"
        return replace(self, text=self.text[:size])

    def give_out(self, held: int) -> tuple[Transcript, tuple[Piece, ...]]:
        """Give out everything but the last ``held`` characters, split by writer."""
        end = max(self.sent, len(self.text) - held)
        pieces: list[Piece] = []
        place = self.sent
        for stop, origin in self.marks:
            if place < min(stop, end):
                pieces.append((self.text[place : min(stop, end)], origin))
                place = min(stop, end)
        left = tuple([mark for mark in self.marks if mark[0] > end])
        return replace(self, sent=end, marks=left), tuple(pieces)

    def _longer(self, window: Window, fresh: str, origin: TokenOrigin) -> Transcript:
        if not fresh:
            return replace(self, window=window)
        text = self.text + fresh
        return replace(self, text=text, window=window, marks=(*self.marks, (len(text), origin)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """Result of writing a run.

    Attributes:
        transcript: the new transcript.
        kept: how many tokens of the run belong to the answer; the others came after its end.
        finish_reason: why the answer ends here, None if it goes on.
        stop_reason: the stop string, or the id the user named, that ended it.
        pieces: text that is final now, split by writer.
    """

    transcript: Transcript
    kept: int
    finish_reason: FinishReason | None
    stop_reason: int | str | None
    pieces: tuple[Piece, ...]


def write(
    transcript: Transcript,
    num_output: int,
    run: Sequence[int],
    origins: Sequence[TokenOrigin],
    ending: Ending,
    decode: Decode | None,
) -> Written:
    """Append a run of tokens one by one, up to the first that ends the answer.

    Args:
        transcript: state before the run.
        num_output: tokens of the answer before the run.
        run: new tokens, at least one.
        origins: who wrote each of them.
        ending: what ends the answer.
        decode: ids to text; None leaves the text empty.
    """
    read = decode or _no_text
    reason: FinishReason | None = None
    stop: int | str | None = None
    kept = 0
    for token, origin in zip(run, origins, strict=True):
        kept += 1
        if ending.by_token(token):
            reason, stop = FinishReason.STOP, ending.stop_reason(token)
            transcript = transcript.add(token, origin, read) if ending.keep_stop else transcript
        else:
            fresh = len(transcript.text)
            reason, transcript = ending.by_length(num_output + kept), transcript.add(token, origin, read)
            transcript = transcript.flush(origin, read) if reason else transcript
            if ending.stop and num_output + kept >= ending.min_tokens:
                transcript, stop = _stop_at_string(transcript, fresh, ending)
                reason = FinishReason.STOP if stop is not None else reason
        if reason is not None:
            break
    if reason is FinishReason.STOP and not isinstance(stop, str):
        transcript = transcript.flush(origins[kept - 1], read)
    transcript, pieces = transcript.give_out(0 if reason else ending.held_back(transcript.text))
    return Written(transcript=transcript, kept=kept, finish_reason=reason, stop_reason=stop, pieces=pieces)


def _stop_at_string(transcript: Transcript, fresh: int, ending: Ending) -> tuple[Transcript, str | None]:
    """Cut the text at a stop string that ends among the characters past ``fresh``."""
    found = ending.find_string(transcript.text, fresh)
    if found is None:
        return transcript, None
    place, stop = found
    return transcript.cut(place + (len(stop) if ending.keep_stop else 0)), stop


def _no_text(ids: list[int]) -> str:
    """Without a tokenizer answers are ids only."""
    return ""
