"""Making a step's outcomes true: bookkeeping only, nothing here can fail."""

from __future__ import annotations

import time

from dspark.core import FinishReason
from dspark.engine.outcome import Outcome
from dspark.engine.outputs import CompletionOutput, CompletionStats, RoundStats, RoundTrace, StepOutput
from dspark.engine.roster import Roster
from dspark.engine.sequence import Sequence


def commit(outcome: Outcome, roster: Roster) -> None:
    """Advance a sequence, publish its finished pages, give back those of rejected drafts, end it if it has ended."""
    sequence, written = outcome.share.sequence, outcome.written
    if outcome.is_round:
        _count(outcome)
    sequence.num_computed += outcome.num_rows
    if written is not None:
        sequence.round += 1
        sequence.token_ids.extend(outcome.tokens)
        sequence.origins.extend(outcome.origins)
        sequence.logprobs.extend(outcome.logprobs)
        sequence.transcript = written.transcript
        sequence.stop_reason = written.stop_reason
        sequence.last_token_at = time.perf_counter()
        sequence.first_token_at = sequence.first_token_at or sequence.last_token_at
        if sequence.edits is not None:
            sequence.edits.commit(outcome.tokens)
        if sequence.constraint is not None:
            sequence.constraint.commit(outcome.tokens)
    roster.pool.publish(sequence.table, sequence.token_ids, sequence.num_computed)
    if outcome.finish_reason is None:
        roster.pool.rollback(sequence.table, len(sequence.token_ids))
    else:
        roster.retire(sequence, outcome.finish_reason)


def report(outcome: Outcome) -> StepOutput:
    """What the step added to a committed sequence's answer."""
    sequence, written = outcome.share.sequence, outcome.written
    assert written is not None, "a prefill chunk adds nothing to an answer"
    return StepOutput(
        request_id=sequence.request.request_id,
        index=sequence.index,
        text="".join([piece.text for piece in written.pieces]),
        token_ids=outcome.tokens,
        origins=outcome.origins,
        pieces=written.pieces,
        logprobs=outcome.logprobs if sequence.request.params.logprobs is not None else None,
        completion=None if sequence.finish_reason is None else completion(sequence),
    )


def report_abort(sequence: Sequence) -> StepOutput:
    """The end of an aborted sequence, with the text that was held back."""
    sequence.transcript, pieces = sequence.transcript.give_out(0)
    return StepOutput(
        request_id=sequence.request.request_id,
        index=sequence.index,
        text="".join([piece.text for piece in pieces]),
        token_ids=(),
        origins=(),
        pieces=pieces,
        completion=completion(sequence),
    )


def completion(sequence: Sequence) -> CompletionOutput:
    """The whole answer of a sequence that has ended."""
    reason = sequence.finish_reason
    assert reason is not None, "the answer goes on"
    return CompletionOutput(
        index=sequence.index,
        text=sequence.transcript.text,
        token_ids=tuple(sequence.token_ids[sequence.num_prompt :]),
        finish_reason=reason,
        stop_reason=sequence.stop_reason if reason is FinishReason.STOP else None,
        logprobs=tuple(sequence.logprobs) if sequence.request.params.logprobs is not None else None,
        origins=tuple(sequence.origins),
        stats=_stats(sequence),
    )


def round_stats(outcome: Outcome) -> RoundStats:
    """What became of the drafts of one answer."""
    share = outcome.share
    return RoundStats(
        drafted=len(share.proposed),
        verified=outcome.verified,
        accepted=outcome.accepted,
        believed=share.believed,
    )


def _stats(sequence: Sequence) -> CompletionStats:
    tally, first, last = sequence.tally, sequence.first_token_at, sequence.last_token_at
    return CompletionStats(
        rounds=tally.rounds,
        drafted=tally.drafted,
        verified=sum(tally.verified_at),
        accepted=sum(tally.accepted_at),
        committed=tally.committed,
        verified_at=tuple(tally.verified_at),
        reached_at=tally.padded(tally.reached_at),
        accepted_at=tally.padded(tally.accepted_at),
        prompt_tokens=sequence.num_prompt,
        cached_tokens=sequence.cached_tokens,
        preemptions=sequence.preemptions,
        first_token_seconds=None if first is None else first - sequence.arrived_at,
        decode_seconds=0.0 if first is None or last is None else last - first,
        traces=tuple(tally.traces),
    )


def _count(outcome: Outcome) -> None:
    """Count a round."""
    share, tally = outcome.share, outcome.share.sequence.tally
    tally.add(
        drafted=len(share.proposed),
        verified=outcome.verified,
        accepted=outcome.accepted,
        committed=len(outcome.tokens),
    )
    if share.record:
        tally.traces.append(_trace(outcome))


def _trace(outcome: Outcome) -> RoundTrace:
    share = outcome.share
    return RoundTrace(
        anchor_position=share.start,
        anchor=share.tokens[0],
        drafted=share.proposed,
        confidence=share.confidence,
        calibrated=share.calibrated,
        verified=outcome.verified,
        accepted=outcome.accepted,
        committed=outcome.tokens,
    )
