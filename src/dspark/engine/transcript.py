"""The text of one answer: written a run of tokens at a time, given out when nothing can cut it any more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dspark.core import FinishReason, Piece, TokenOrigin
from dspark.engine.detokenizer import Decode, Window
from dspark.engine.ending import Ending

Mark = tuple[int, TokenOrigin, float | None]
"""Where the text of a token ends, who wrote the token, and the confidence in its place."""

_Source = tuple[TokenOrigin, float | None]

_NOTHING_READ = Window()


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

    def give_out(self, held: int) -> tuple[Transcript, tuple[Piece, ...]]:
        """Give out everything but the last ``held`` characters, split by token."""
        end = max(self.sent, len(self.text) - held)
        pieces: list[Piece] = []
        place = self.sent
        for stop, origin, confidence in self.marks:
            if place < min(stop, end):
                pieces.append(Piece(self.text[place : min(stop, end)], origin, confidence))
                place = min(stop, end)
        left = tuple([mark for mark in self.marks if mark[0] > end])
        return Transcript(text=self.text, sent=end, window=self.window, marks=left), tuple(pieces)


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """Result of writing a run.

    Attributes:
        transcript: the new transcript.
        kept: how many tokens of the run belong to the answer; the others came after its end.
        finish_reason: why the answer ends here, None if it goes on.
        stop_reason: the stop string, or the id the user named, that ended it.
        pieces: text that is final now, split by token.
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
    confidences: Sequence[float | None],
    ending: Ending,
    decode: Decode | None,
) -> Written:
    """Append a run of tokens one by one, up to the first that ends the answer.

    Args:
        transcript: state before the run.
        num_output: tokens of the answer before the run.
        run: new tokens, at least one.
        origins: who wrote each of them.
        confidences: the drafter's confidence in the place of each.
        ending: what ends the answer.
        decode: ids to text; None leaves the text empty.
    """
    pen = _Pen(transcript, decode)
    reason: FinishReason | None = None
    stop: int | str | None = None
    kept = 0
    while reason is None and kept < len(run):
        token, source = run[kept], (origins[kept], confidences[kept])
        kept += 1
        if ending.by_token(token):
            reason, stop = FinishReason.STOP, ending.stop_reason(token)
            pen.finish(token if ending.keep_stop else None, source)
        else:
            reason = ending.by_length(num_output + kept)
            known = len(pen.text)
            pen.read(token, source)
            if reason is not None:
                pen.finish(None, source)
            if ending.stop and num_output + kept >= ending.min_tokens:
                stop = pen.cut(ending, known)
                reason = FinishReason.STOP if stop is not None else reason
    final, pieces = pen.transcript().give_out(0 if reason is not None else ending.held_back(pen.text))
    return Written(transcript=final, kept=kept, finish_reason=reason, stop_reason=stop, pieces=pieces)


class _Pen:
    """A transcript while it is being written; without a decoder it writes nothing."""

    def __init__(self, transcript: Transcript, decode: Decode | None) -> None:
        self.text, self._sent, self._window = transcript.text, transcript.sent, transcript.window
        self._marks, self._decode = list(transcript.marks), decode

    def read(self, token: int, source: _Source) -> None:
        """Write the text of a token."""
        if self._decode is not None:
            self._window, fresh = self._window.read(token, self._decode)
            self._append(fresh, source)

    def finish(self, token: int | None, source: _Source) -> None:
        """Write what waits for an unfinished character, and the text of a last token if there is one."""
        if self._decode is not None:
            if token is not None:
                self.read(token, source)
            self._append(self._window.rest(self._decode), source)
            self._window = _NOTHING_READ

    def cut(self, ending: Ending, known: int) -> str | None:
        """Cut the text at a stop string that ends past its first ``known`` characters, and return that string."""
        found = ending.find_string(self.text, known)
        if found is None:
            return None
        place, stop = found
        self.text = self.text[: place + len(stop) if ending.keep_stop else place]
        assert len(self.text) >= self._sent, "text that was given out cannot be cut"
        return stop

    def transcript(self) -> Transcript:
        """What has been written."""
        return Transcript(text=self.text, sent=self._sent, window=self._window, marks=tuple(self._marks))

    def _append(self, fresh: str, source: _Source) -> None:
        if fresh:
            self.text += fresh
            self._marks.append((len(self.text), *source))
