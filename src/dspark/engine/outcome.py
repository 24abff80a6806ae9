"""From target rows to what each sequence gains, decided completely before anything is changed."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass, replace
from itertools import accumulate

from torch import Tensor

from dspark.core import (
    CommittedRows,
    FinishReason,
    PackedBatch,
    Proposal,
    RequestsFailedError,
    TokenLogprobs,
    TokenOrigin,
    Verdict,
)
from dspark.engine.drafting import Draws
from dspark.engine.share import Share, to_device
from dspark.engine.transcript import Written, write
from dspark.verify import RowsAtFaultError, adjust_logits, judge, mask_logits, token_logprobs


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one share of rows leads to.

    Attributes:
        share: the rows.
        num_rows: leading rows of the share that become context: all committed tokens and the accepted drafts.
        tokens: new tokens of the answer.
        origins: who wrote each.
        logprobs: one per token if asked for, else empty.
        written: the new text; None for a chunk that yields no token.
    """

    share: Share
    num_rows: int
    tokens: tuple[int, ...] = ()
    origins: tuple[TokenOrigin, ...] = ()
    logprobs: tuple[TokenLogprobs, ...] = ()
    written: Written | None = None

    @property
    def finish_reason(self) -> FinishReason | None:
        """Why the answer ends with this step; None if it goes on."""
        return None if self.written is None else self.written.finish_reason

    @property
    def is_round(self) -> bool:
        """Whether these rows continue an answer; the step that ends a prompt's prefill does not count as a round."""
        return self.share.judged and self.share.sequence.num_output > 0

    @property
    def accepted(self) -> int:
        """Drafts that were kept."""
        return self.num_rows - len(self.share.tokens)

    @property
    def verified(self) -> int:
        """Drafts the target looked at; those after the one that ended the answer count as never looked at."""
        return self.accepted if self.accepted == len(self.tokens) else len(self.share.drafts)


def judge_rows(shares: Seq[Share], logits: Tensor, draws: Draws, proposal: Proposal) -> list[Verdict]:
    """Verdicts of all judged shares, which come first in ``shares``.

    Args:
        shares: all shares of the step.
        logits: [N, V] their target rows.
        draws: options and random numbers of the judged sequences.
        proposal: the blocks; row r belongs to share r.

    Raises:
        RequestsFailedError: rows of some requests hold no numbers, or their constraints failed.
    """
    judged = [share for share in shares if share.judged]
    if not judged:
        return []
    drafts = [share.drafts for share in judged]
    adjusted = adjust_logits(logits, [share.sequence.edits for share in judged], drafts)
    constraints = [share.sequence.constraint for share in judged]
    try:
        adjusted = mask_logits(adjusted, constraints, drafts, fresh=adjusted is not logits)
        return judge(adjusted, drafts, draws.sampling, draws.uniforms, proposal)
    except RowsAtFaultError as error:
        names = frozenset([judged[place].sequence.request.request_id for place in error.requests])
        raise RequestsFailedError(str(error), names) from None


def outcomes(shares: Seq[Share], verdicts: Seq[Verdict], logits: Tensor) -> list[Outcome]:
    """Apply stop rules and write texts; nothing of any sequence changes yet."""
    decided = [_gain(share, verdict) for share, verdict in zip(shares, verdicts, strict=False)]
    decided += [Outcome(share=share, num_rows=share.num_rows) for share in shares[len(verdicts) :]]
    if any(outcome.share.sequence.request.params.logprobs is not None for outcome in decided[: len(verdicts)]):
        return _with_logprobs(decided, logits)
    return decided


def committed_rows(outcomes: Seq[Outcome], batch: PackedBatch, features: Tensor | None) -> CommittedRows:
    """The rows of the batch that become context, for the drafter."""
    rows = CommittedRows(
        features=features,
        positions=batch.positions,
        kv_slots=batch.kv_slots,
        token_ids=batch.input_ids,
        previous_slots=_previous_slots(outcomes, batch),
    )
    index = _kept_rows(outcomes)
    return rows if index is None else rows.take(to_device(index, batch.positions.device))


def _kept_rows(outcomes: Seq[Outcome]) -> list[int] | None:
    """Rows that become context, None for all."""
    if all(outcome.num_rows == outcome.share.num_rows for outcome in outcomes):
        return None
    rows: list[int] = []
    first = 0
    for outcome in outcomes:
        rows.extend(range(first, first + outcome.num_rows))
        first += outcome.share.num_rows
    return rows


def _previous_slots(outcomes: Seq[Outcome], batch: PackedBatch) -> Tensor:
    """Slot of the row before each one, [T]: its neighbour's, but for the first row of each share."""
    firsts = [0, *accumulate(outcome.share.num_rows for outcome in outcomes)][:-1]
    before = [_slot_before(outcome.share, batch.page_size) for outcome in outcomes]
    device = batch.kv_slots.device
    return batch.kv_slots.roll(1).index_copy_(0, to_device(firsts, device), to_device(before, device))


def _slot_before(share: Share, page_size: int) -> int:
    """Slot of the position before a share's first one; position 0 stands for itself."""
    place = max(share.start - 1, 0)
    return share.sequence.table.pages[place // page_size] * page_size + place % page_size


def _gain(share: Share, verdict: Verdict) -> Outcome:
    """What a judged share yields: accepted drafts and the target's own token, up to the end of the answer."""
    sequence, request = share.sequence, share.sequence.request
    run = (*share.drafts[: verdict.accepted], verdict.next_token)
    origins = (TokenOrigin.DRAFT,) * verdict.accepted + (_own_origin(share, verdict),)
    confidences = (*share.believed[: len(share.drafts)], *(None,) * len(run))[: len(run)]
    written = write(sequence.transcript, sequence.num_output, run, origins, confidences, request.ending, request.decode)
    return Outcome(
        share=share,
        num_rows=len(share.tokens) + min(verdict.accepted, written.kept),
        tokens=run[: written.kept],
        origins=origins[: written.kept],
        written=written,
    )


def _own_origin(share: Share, verdict: Verdict) -> TokenOrigin:
    if not share.drafts:
        return TokenOrigin.PLAIN
    return TokenOrigin.BONUS if verdict.accepted == len(share.drafts) else TokenOrigin.CORRECTION


def _with_logprobs(decided: list[Outcome], logits: Tensor) -> list[Outcome]:
    """Add log probabilities where they are asked for, from the raw target rows."""
    rows: list[int] = []
    tokens: list[int] = []
    top: list[int] = []
    spans: list[range] = []
    first = 0
    for outcome in decided:
        asked = outcome.share.sequence.request.params.logprobs
        count = len(outcome.tokens) if asked is not None else 0
        spans.append(range(len(rows), len(rows) + count))
        rows.extend(range(first, first + count))
        tokens.extend(outcome.tokens[:count])
        top.extend([asked or 0] * count)
        first += len(outcome.share.logit_rows)
    found = token_logprobs(logits, rows, tokens, top)
    return [replace(o, logprobs=tuple(found[span.start : span.stop])) for o, span in zip(decided, spans, strict=True)]
