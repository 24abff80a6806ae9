"""The bound: an arm that knows how many drafts will be accepted. Only this benchmark can run it.

Greedily, what a drafter proposes after a text and how much of it the target accepts is always the same, so it can be
recorded at every position beforehand (:mod:`dspark.evaluation.load.outcomes`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

import numpy as np

from dspark.core import SamplingParams
from dspark.engine import StepOutput, StepStats
from dspark.evaluation.load.drive import Server
from dspark.evaluation.load.traffic import Ids
from dspark.scheduling import Reveal, StepCosts, StepOutcome, StepView, oracle_lengths
from dspark.scheduling.step_view import Ints

Outcomes = Mapping[Ids, tuple[int, ...]]
"""By prompt: drafts that are accepted after each token of the answer."""


class OraclePolicy:
    """Verifies what will be accepted as far as that pays, and drafts for nobody else.

    It goes by the order in which answers begin: :meth:`begins` is told before the first step that continues them.

    Args:
        outcomes: what is accepted where.
        costs: of steps.
    """

    name = "oracle"
    needs_confidence = False

    def __init__(self, outcomes: Outcomes, costs: StepCosts) -> None:
        self._outcomes, self._costs = outcomes, costs
        self._fresh: deque[Ids] = deque()
        self._answers: dict[int, tuple[Ids, int]] = {}
        self._lengths: Ints = np.empty(0, np.int64)

    def forget(self) -> None:
        """A fresh engine, in which no answer has begun yet."""
        self._fresh.clear()

    def begins(self, prompt: Ids) -> None:
        """An answer to this prompt has its first token and goes on."""
        self._fresh.append(prompt)

    def begin_step(self, view: StepView) -> Ints:
        """Lengths that bring the most tokens per second."""
        owners = view.generations.tolist()
        for owner in sorted(set(owners) - self._answers.keys()):
            self._answers[owner] = (self._fresh.popleft(), 0)
        accepted = np.array([self._accepted(owner) for owner in owners], np.int64)
        self._lengths = oracle_lengths(accepted, view, self._costs)
        return self._lengths

    def admit(self, reveal: Reveal) -> None:
        """All that was drafted."""
        reveal.admit_first(self._lengths)

    def outcome(self, outcome: StepOutcome) -> None:
        """See how far the answers have come, and what the step took."""
        self._costs.observe("verify", outcome.rows, outcome.context, outcome.verify_seconds)
        self._costs.observe("draft", outcome.num_drafting, outcome.block, outcome.draft_seconds)
        for owner, kept in zip(outcome.generations.tolist(), outcome.accepted.tolist(), strict=True):
            prompt, place = self._answers[owner]
            self._answers[owner] = (prompt, place + kept + 1)

    def _accepted(self, owner: int) -> int:
        prompt, place = self._answers[owner]
        known = self._outcomes[prompt]
        return known[place] if place < len(known) else 0


class OracleServer:
    """An engine that runs an :class:`OraclePolicy` and tells it which answers begin.

    Args:
        server: the engine.
        policy: its policy.
    """

    def __init__(self, server: Server, policy: OraclePolicy) -> None:
        self._server, self._policy = server, policy
        self._waiting: dict[str, Ids] = {}
        policy.forget()

    @property
    def last_step(self) -> StepStats:
        """See :class:`Server`."""
        return self._server.last_step

    def add_request(
        self, prompt_token_ids: Iterable[int], params: SamplingParams | None = None, *, request_id: str | None = None
    ) -> str:
        """See :class:`Server`."""
        prompt = tuple(prompt_token_ids)
        name = self._server.add_request(prompt, params, request_id=request_id)
        self._waiting[name] = prompt
        return name

    def step(self) -> list[StepOutput]:
        """See :class:`Server`; answers that begin in one step are told in order of arrival."""
        outputs = self._server.step()
        begun = {output.request_id for output in outputs if output.completion is None}
        for name in [name for name in self._waiting if name in begun]:
            self._policy.begins(self._waiting.pop(name))
        for output in outputs:
            self._waiting.pop(output.request_id, None)
        return outputs

    def abort(self, request_id: str) -> object:
        """See :class:`Server`."""
        return self._server.abort(request_id)
