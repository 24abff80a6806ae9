"""What users get back: whole answers, pieces of streamed answers, and statistics."""

from __future__ import annotations

from dataclasses import dataclass, field

from dspark.core import FinishReason, Piece, TokenLogprobs, TokenOrigin


@dataclass(frozen=True, kw_only=True)
class RoundTrace:
    """One round of one answer, kept when the engine is asked to record rounds.

    Attributes:
        anchor_position: position of the anchor.
        anchor: its token id.
        drafted: token ids the drafter proposed.
        confidence: the drafter's confidence in each of them, before calibration; empty without a confidence head.
        verified: how many of them the target looked at.
        accepted: how many of them were kept.
        committed: token ids the round added to the answer.
        calibrated: the confidences after calibration, which are those the policy saw; empty without a calibration, when
            it saw ``confidence``.
    """

    anchor_position: int
    anchor: int
    drafted: tuple[int, ...]
    confidence: tuple[float, ...]
    verified: int
    accepted: int
    committed: tuple[int, ...]
    calibrated: tuple[float, ...] = ()


@dataclass(frozen=True, kw_only=True)
class CompletionStats:
    """What one answer cost, and how well its drafts did. The token that ends the prompt's prefill is not a round.

    Attributes:
        rounds: target steps that continued the answer.
        drafted: tokens the drafter proposed.
        verified: proposed tokens the target looked at (up to the token that ended the answer).
        accepted: verified tokens that were kept.
        committed: tokens all rounds added to the answer.
        verified_at: how often draft position j (0-based) was verified.
        reached_at: how often it was verified with all earlier positions of its block accepted.
        accepted_at: how often it was accepted.
        prompt_tokens: length of the prompt.
        cached_tokens: leading prompt tokens that were found in the prefix cache.
        preemptions: how often the answer lost its pages and was recomputed.
        first_token_seconds: from the arrival of the request to its first token; None if there was none.
        decode_seconds: from the first token to the last one.
        traces: all rounds, if the engine records them.
    """

    rounds: int
    drafted: int
    verified: int
    accepted: int
    committed: int
    verified_at: tuple[int, ...]
    reached_at: tuple[int, ...]
    accepted_at: tuple[int, ...]
    prompt_tokens: int
    cached_tokens: int
    preemptions: int
    first_token_seconds: float | None
    decode_seconds: float
    traces: tuple[RoundTrace, ...] = ()

    @property
    def tau(self) -> float:
        """Mean tokens committed per round, bonus or correction included; plain decoding has 1."""
        return self.committed / self.rounds if self.rounds else 1.0

    @property
    def acceptance(self) -> tuple[float, ...]:
        """Per draft position, the share accepted among the drafts whose predecessors had all been accepted."""
        return tuple(hit / max(tried, 1) for hit, tried in zip(self.accepted_at, self.reached_at, strict=True))


@dataclass(frozen=True, kw_only=True)
class CompletionOutput:
    """One answer.

    Attributes:
        index: which of the request's ``n`` answers.
        text: the answer, without the stop string or stop token that ended it.
        token_ids: all generated ids; a stop token that ended the answer is the last one.
        finish_reason: why it ended.
        stop_reason: the stop string or the id from ``stop_token_ids`` that ended it; None for end-of-text and others.
        logprobs: one entry per token of ``token_ids`` if asked for.
        origins: who wrote each token of ``token_ids``.
        stats: cost and acceptance.
    """

    index: int
    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    stop_reason: int | str | None
    logprobs: tuple[TokenLogprobs, ...] | None
    origins: tuple[TokenOrigin, ...]
    stats: CompletionStats


@dataclass(frozen=True, kw_only=True)
class RequestOutput:
    """A finished request.

    Attributes:
        request_id: the engine's name for it.
        prompt: the prompt's text; None if it was given as token ids.
        prompt_token_ids: the prompt's ids.
        outputs: its ``n`` answers in order of index.
    """

    request_id: str
    prompt: str | None
    prompt_token_ids: tuple[int, ...]
    outputs: tuple[CompletionOutput, ...]


@dataclass(frozen=True, kw_only=True)
class StepOutput:
    """What one engine step added to one answer.

    Attributes:
        request_id: the request.
        index: which of its answers.
        text: text that is final now: no stop string can cut it any more.
        token_ids: new token ids; their text may come in a later step (unfinished characters, possible stop strings).
        origins: who wrote each of ``token_ids``.
        pieces: ``text`` split by token, with who wrote it and how sure the drafter was.
        logprobs: one entry per token of ``token_ids`` if asked for.
        completion: the whole answer, once it has ended.
    """

    request_id: str
    index: int
    text: str
    token_ids: tuple[int, ...]
    origins: tuple[TokenOrigin, ...]
    pieces: tuple[Piece, ...]
    logprobs: tuple[TokenLogprobs, ...] | None = None
    completion: CompletionOutput | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundStats:
    """One answer in one step.

    Attributes:
        drafted: tokens proposed.
        verified: those the target looked at (up to the token that ended the answer).
        accepted: those that were kept.
        believed: confidence in each of them, as the policy saw it; empty without a confidence head.
    """

    drafted: int
    verified: int
    accepted: int
    believed: tuple[float, ...]

    @property
    def reached(self) -> int:
        """Leading drafts that were looked at with all before them kept."""
        return min(self.verified, self.accepted + 1)


@dataclass(frozen=True, kw_only=True)
class StepStats:
    """Rows and times of one engine step.

    On CUDA the forward returns before the device is done; its time shows up where the host waits, under sampling.

    Attributes:
        rows: target rows of the forward, the step batch B.
        prefill_rows: those of them that were prompt (or recomputed) tokens.
        verify_lens: draft tokens verified, per decoding answer.
        rounds: what became of them, one for each of ``verify_lens``.
        committed: tokens added to answers.
        draft_seconds: proposing and feeding the drafter its context.
        forward_seconds: the target forward.
        sample_seconds: from logits to accepted tokens.
        host_seconds: everything else.
        running: answers that hold pages after the step.
        waiting: answers that wait for room after the step.
    """

    rows: int = 0
    prefill_rows: int = 0
    verify_lens: tuple[int, ...] = field(default=())
    rounds: tuple[RoundStats, ...] = field(default=())
    committed: int = 0
    draft_seconds: float = 0.0
    forward_seconds: float = 0.0
    sample_seconds: float = 0.0
    host_seconds: float = 0.0
    running: int = 0
    waiting: int = 0

    @property
    def seconds(self) -> float:
        """Duration of the whole step."""
        return self.draft_seconds + self.forward_seconds + self.sample_seconds + self.host_seconds
