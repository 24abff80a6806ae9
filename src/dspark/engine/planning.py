"""Between the engine and its policy: who sits in which slot, what was begun for whom, what came of it."""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Sequence as Seq
from dataclasses import dataclass

import numpy as np

from dspark.engine.allotment import Allotment
from dspark.engine.blocks import Blocks
from dspark.engine.outcome import Outcome
from dspark.engine.outlook import Outlook, mean_keys
from dspark.engine.sequence import Sequence
from dspark.scheduling import Reveal, SlotBook, StepOutcome, StepPolicy, StepView
from dspark.scheduling.step_view import Floats, Ints


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A step that a policy has begun.

    Attributes:
        view: what the policy was told.
        places: row of each sequence in it.
        wanted: drafts of each of them.
    """

    view: StepView
    places: dict[Sequence, int]
    wanted: Ints

    def rows(self, sequences: Seq[Sequence]) -> Ints:
        """[n] their rows in the view."""
        return np.array([self.places[sequence] for sequence in sequences], np.int64)

    def limits(self, allotment: Allotment) -> tuple[int, ...]:
        """Drafts of each sequence that is ready, as planned and as there is room."""
        wanted = self.wanted[self.rows(allotment.ready)].tolist()
        return tuple([min(want, limit) for want, limit in zip(wanted, allotment.limits, strict=True)])


@dataclass(frozen=True, kw_only=True)
class Admission:
    """What was admitted in a step.

    Attributes:
        lengths: verify length of every ready sequence.
        stated: [ready, G] survivals that the confidence head stated, below 0 past the blocks; None without any.
    """

    lengths: tuple[int, ...]
    stated: Floats | None = None


class Planner:
    """Asks a policy step by step, in the order that :class:`~dspark.scheduling.StepPolicy` demands.

    A step is begun when its rows are known, or ahead of that, while the step before is still at work (:meth:`foresee`):
    then the policy plans for what can be foreseen. The step numbers count finished steps, so that one that failed is
    simply begun anew.

    Args:
        policy: made for at least ``num_slots`` slots.
        block_size: most drafts of a sequence.
        num_slots: most sequences that run at a time.
    """

    def __init__(self, policy: StepPolicy, *, block_size: int, num_slots: int) -> None:
        self.policy, self._block_size = policy, block_size
        self._book = SlotBook(num_slots)
        self._step = 0
        self._ahead: Plan | None = None

    def begin(self, allotment: Allotment, running: Collection[Sequence]) -> Plan | None:
        """The plan of this step; None if nobody decodes.

        Args:
            allotment: its rows.
            running: sequences that hold a slot; those of all others are freed.
        """
        if not allotment.ready:
            return None
        ahead = self._ahead
        if ahead is not None and ahead.view.step == self._step and ahead.places.keys() >= set(allotment.ready):
            return ahead
        return self._begin(Outlook.of(allotment), self._step, running)

    def foresee(self, allotment: Allotment, running: Collection[Sequence]) -> None:
        """Begin the step after the one that is at work; what comes of that one cannot be used for it yet."""
        outlook = Outlook.after(allotment, self._block_size)
        self._ahead = self._begin(outlook, self._step + 1, running) if outlook.sequences else None

    def admit(self, plan: Plan | None, allotment: Allotment, blocks: Blocks) -> Admission:
        """Let the policy choose among the drafts."""
        nothing = (0,) * len(allotment.ready)
        if plan is None or not any(blocks.lengths):
            return Admission(lengths=nothing)
        rows, drafting = plan.rows(allotment.ready), len(blocks.lengths)
        proposed = np.zeros(len(plan.places), np.int64)
        proposed[rows[:drafting]] = blocks.lengths
        confidence = None
        if blocks.trusted is not None:
            confidence = np.zeros((len(plan.places), blocks.trusted.shape[1]))
            confidence[rows[:drafting]] = blocks.trusted
        reveal = Reveal(proposed, confidence)
        self.policy.admit(reveal)
        stated = reveal.close()
        return Admission(lengths=tuple(reveal.lengths[rows].tolist()), stated=None if stated is None else stated[rows])

    def finish(
        self,
        plan: Plan | None,
        decided: Seq[Outcome],
        admission: Admission,
        *,
        verify_seconds: float,
        draft_seconds: float,
    ) -> StepOutcome:
        """Tell the policy what came of the step, and count it.

        Args:
            plan: of the step.
            decided: its outcomes, those that decode first.
            admission: what was admitted.
            verify_seconds, draft_seconds: what it took.
        """
        rounds = decided[: len(admission.lengths)]
        rows = plan.rows([outcome.share.sequence for outcome in rounds]) if plan is not None else _NOBODY
        counts = [
            (len(o.share.proposed), _judged(o, length), o.accepted)
            for o, length in zip(rounds, admission.lengths, strict=True)
        ]
        proposed, verified, accepted = np.array(counts, np.int64).reshape(-1, 3).T
        outcome = StepOutcome(
            step=self._step,
            slots=_NOBODY if plan is None else plan.view.slots[rows],
            generations=_NOBODY if plan is None else plan.view.generations[rows],
            proposed=proposed,
            verified=verified,
            accepted=accepted,
            stated=admission.stated,
            rows=sum(o.share.num_rows for o in decided),
            context=mean_keys((o.share.start, o.share.num_rows) for o in decided),
            verify_seconds=verify_seconds,
            draft_seconds=draft_seconds if any(proposed) else 0.0,
        )
        self._step += 1
        self.policy.outcome(outcome)
        return outcome

    def _begin(self, outlook: Outlook, step: int, running: Collection[Sequence]) -> Plan:
        self._book.retain(running)
        slots, generations = self._book.slots(outlook.sequences)
        limits = np.array(outlook.limits, np.int64)
        view = StepView(
            step=step,
            slots=slots,
            generations=generations,
            limits=limits,
            num_prefill_rows=outlook.prefill_rows,
            context=outlook.context,
        )
        wanted = self.policy.begin_step(view)
        name = self.policy.name
        assert wanted.shape == limits.shape, f"policy {name!r} wants drafts of {wanted.shape} for {limits.shape}"
        assert ((wanted >= 0) & (wanted <= limits)).all(), f"policy {name!r} wants more drafts than there is room for"
        return Plan(view=view, places={sequence: row for row, sequence in enumerate(outlook.sequences)}, wanted=wanted)


def _judged(outcome: Outcome, admitted: int) -> int:
    """Drafts that were judged: those the target looked at, and one that a constraint ruled out before it could."""
    left_out = len(outcome.share.drafts) < admitted
    return outcome.verified + (left_out and outcome.accepted == len(outcome.share.drafts) < len(outcome.tokens))


_NOBODY = np.zeros(0, np.int64)
