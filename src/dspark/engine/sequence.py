"""One answer in the making, and the request it belongs to."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from dspark.core import FinishReason, SamplingParams, TokenLogprobs, TokenOrigin
from dspark.engine.detokenizer import Decode
from dspark.engine.ending import Ending
from dspark.engine.tally import Tally
from dspark.engine.transcript import Transcript
from dspark.kvcache import PageTable
from dspark.verify import LogitEdits, TokenConstraint


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a user asked for, checked.

    Attributes:
        request_id: unique name.
        prompt: text of the prompt, None if it came as ids.
        prompt_token_ids: its ids, at least one.
        params: sampling options.
        ending: what ends an answer.
        decode: ids to text; None gives empty texts.
    """

    request_id: str
    prompt: str | None
    prompt_token_ids: tuple[int, ...]
    params: SamplingParams
    ending: Ending
    decode: Decode | None


@dataclass(slots=True, eq=False, kw_only=True)
class Sequence:
    """State of one answer; changed by the commit of a step, by admission, preemption and abort only.

    The last token is the *anchor*: committed, but its keys and values are not computed yet. A sequence is ``ready`` to
    decode when only the anchor is left to compute; before that its rows are prefill.

    Attributes:
        request: the request.
        index: which of its ``n`` answers.
        seed: of all its draws.
        arrival: order of arrival; smaller goes first.
        num_prompt: prompt tokens.
        token_ids: prompt and output.
        leader: the sibling whose prompt pages this one waits for; None for the first answer.
        table: its pages; empty while it waits.
        num_computed: leading tokens whose target KV is written; their drafter context is too, or waits (``Upkeep``).
        round: rounds drawn so far, counter of its random numbers.
        edits: state of penalties, bias and ``min_tokens``.
        constraint: what may follow, and where the answer stands in it; None for anything.
        transcript: its text.
    """

    request: Request
    index: int
    seed: int
    arrival: int
    num_prompt: int
    token_ids: list[int]
    leader: Sequence | None = None
    edits: LogitEdits | None = None
    constraint: TokenConstraint | None = None
    table: PageTable = field(default_factory=PageTable)
    num_computed: int = 0
    round: int = 0
    transcript: Transcript = field(default_factory=Transcript)
    origins: list[TokenOrigin] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    tally: Tally = field(default_factory=Tally)
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None
    cached_tokens: int = 0
    preemptions: int = 0
    arrived_at: float = field(default_factory=time.perf_counter)
    first_token_at: float | None = None
    last_token_at: float | None = None

    @property
    def num_output(self) -> int:
        """Tokens written so far."""
        return len(self.token_ids) - self.num_prompt

    @property
    def num_to_prefill(self) -> int:
        """Rows to compute before the next round: a fresh prompt whole, a resumed text up to its anchor."""
        return len(self.token_ids) - self.num_computed - (1 if self.num_output else 0)

    @property
    def ready(self) -> bool:
        """Whether only the anchor is left to compute."""
        return self.num_to_prefill == 0

    @property
    def max_draft(self) -> int:
        """Most drafts of the next round: what the request allows, and could all be kept, one token being the bonus."""
        return self.max_draft_after(0)

    @property
    def surely_ends(self) -> bool:
        """Whether the next token is the last one that the length limit leaves room for."""
        return self.num_output + 1 >= self.request.ending.max_tokens

    def max_draft_after(self, tokens: int) -> int:
        """The same for the round that begins when so many more tokens are written."""
        room = self.request.ending.max_tokens - self.num_output - tokens - 1
        limit = self.request.params.max_draft_tokens
        return room if limit is None else min(room, limit)

    @property
    def blocked(self) -> bool:
        """Whether the prompt is being computed by a sibling right now."""
        leader = self.leader
        return leader is not None and leader.finish_reason is None and leader.num_computed < leader.num_prompt
