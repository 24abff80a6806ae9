"""What the turns of an evaluation say: figures per drafter, prompt set and temperature, and over all prompt sets."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from dspark.engine import RoundTrace
from dspark.evaluation.acceptance import AcceptanceCounts, count_rounds, flat
from dspark.evaluation.arms import PLAIN
from dspark.evaluation.bootstrap import Bootstrapped, Estimate, mean_of, ratio_of, resamples, tau_of
from dspark.evaluation.confidence_quality import Confidence, confidence_quality
from dspark.evaluation.decode_figures import step_shares
from dspark.evaluation.eval_arms import EvalArm
from dspark.evaluation.eval_run import EvalPlan, Turn
from dspark.evaluation.threshold_sweep import SweepPoint, sweep
from dspark.scheduling import FixedLength, policy_name


@dataclass(frozen=True, kw_only=True)
class TimeShares:
    """Where the time of steps without prompt rows goes; the shares sum to 1.

    Attributes:
        draft: proposing, and feeding the drafter its context.
        verify: the target forward.
        rest: sampling, acceptance, bookkeeping.
        step_seconds: mean duration of a step.
    """

    draft: float
    verify: float
    rest: float
    step_seconds: float


@dataclass(frozen=True, kw_only=True)
class Case:
    """Everything one arm did with one prompt set at one temperature.

    Attributes:
        arm, domain, temperature: which.
        rounds: of each prompt's answer, in the order of the prompts.
        turns: where they come from.
    """

    arm: EvalArm
    domain: str
    temperature: float
    rounds: tuple[tuple[RoundTrace, ...], ...]
    turns: tuple[Turn, ...]

    @property
    def tokens_per_second(self) -> float:
        """Over whole requests, prefill included."""
        return sum(turn.run.tokens for turn in self.turns) / sum(turn.run.seconds for turn in self.turns)


@dataclass(frozen=True, kw_only=True)
class EvalRow:
    """Figures of one drafter, prompt set and temperature; G is the block size.

    Attributes:
        arm, domain, temperature: which.
        prompts: how many were answered.
        tau: tokens committed per round, corrections and bonus tokens included, with an interval over prompts.
        tau_full_blocks: tokens per round if no block were cut; see ``AcceptanceCounts``.
        counts: rounds, and drafts by position.
        acceptance_rate: accepted over verified drafts; None if nothing was verified.
        conditional: [G] P(k accepted | 1 .. k-1 accepted); None where never reached.
        survival: [G] P(1 .. k accepted).
        tokens, seconds: written, and what it took, prefill included.
        tokens_per_second: their ratio.
        over_plain: throughput over that of plain decoding; None if that was not measured.
        time: shares of decode steps; None if there were none.
        confidence: quality of the confidences; None without a confidence head.
        sweep: what thresholds would have done, round by round; empty where that is not known exactly.
    """

    arm: str
    domain: str
    temperature: float
    prompts: int
    tau: Estimate
    tau_full_blocks: float
    counts: AcceptanceCounts
    acceptance_rate: float | None
    conditional: tuple[float | None, ...]
    survival: tuple[float | None, ...]
    tokens: int
    seconds: float
    tokens_per_second: float
    over_plain: float | None
    time: TimeShares | None
    confidence: Confidence | None
    sweep: tuple[SweepPoint, ...]


@dataclass(frozen=True, kw_only=True)
class Summary:
    """One drafter at one temperature over all prompt sets.

    Attributes:
        arm, temperature: which.
        tau: unweighted mean over the prompt sets.
        over_baseline: that over the baseline's, prompts paired; None for plain decoding.
        tokens_per_second: unweighted mean over the prompt sets.
        over_plain: that over plain decoding's; None if that was not measured.
        confidence, sweep: as in the rows, over all rounds of all sets together.
    """

    arm: str
    temperature: float
    tau: Estimate
    over_baseline: Estimate | None
    tokens_per_second: float
    over_plain: float | None
    confidence: Confidence | None
    sweep: tuple[SweepPoint, ...]


def cases(turns: Sequence[Turn], arms: Sequence[EvalArm], domains: Sequence[str], plan: EvalPlan) -> list[Case]:
    """Sort turns into cases, by temperature, prompt set and arm; those without turns are left out."""
    wanted = [(temperature, domain, arm) for temperature in plan.temperatures for domain in domains for arm in arms]
    found = (_case(turns, arm, domain, temperature) for temperature, domain, arm in wanted)
    return [case for case in found if case.turns]


def _case(turns: Sequence[Turn], arm: EvalArm, domain: str, temperature: float) -> Case:
    ours = [turn for turn in turns if (turn.arm, turn.domain, turn.temperature) == (arm.name, domain, temperature)]
    ours.sort(key=lambda turn: turn.first)
    return Case(
        arm=arm,
        domain=domain,
        temperature=temperature,
        rounds=tuple(stats.traces for turn in ours for stats in turn.run.stats),
        turns=tuple(ours),
    )


class Figures:
    """Figures of cases that belong together.

    Args:
        found: the cases.
        plan: how they were measured.
        stop_ids: tokens that end an answer.
    """

    def __init__(self, found: Sequence[Case], plan: EvalPlan, stop_ids: Collection[int]) -> None:
        self._cases = {(case.arm.name, case.domain, case.temperature): case for case in found}
        self._domains = list(dict.fromkeys(case.domain for case in found))
        self._plan, self._stop_ids = plan, stop_ids

    def rows(self) -> tuple[EvalRow, ...]:
        """One per case."""
        return tuple(self._row(case) for case in self._cases.values())

    def summaries(self, baseline: str) -> tuple[Summary, ...]:
        """One per arm and temperature."""
        pairs = dict.fromkeys((arm, temperature) for arm, _, temperature in self._cases)
        return tuple(self._summary(arm, temperature, baseline) for arm, temperature in pairs)

    def _row(self, case: Case) -> EvalRow:
        counts = count_rounds(flat(case.rounds), case.arm.block_size)
        return EvalRow(
            arm=case.arm.name,
            domain=case.domain,
            temperature=case.temperature,
            prompts=len(case.rounds),
            tau=self._tau(case).estimate(),
            tau_full_blocks=counts.tau_full_blocks,
            counts=counts,
            acceptance_rate=counts.acceptance_rate,
            conditional=counts.conditional,
            survival=counts.survival,
            tokens=sum(turn.run.tokens for turn in case.turns),
            seconds=sum(turn.run.seconds for turn in case.turns),
            tokens_per_second=case.tokens_per_second,
            over_plain=self._over_plain([case]),
            time=_time(case),
            confidence=self._confidence([case]),
            sweep=self._sweep([case]),
        )

    def _summary(self, arm: str, temperature: float, baseline: str) -> Summary:
        ours, theirs = self._of(arm, temperature), self._of(baseline, temperature)
        tau = mean_of([self._tau(case) for case in ours])
        compared = theirs and arm != PLAIN
        over = ratio_of(tau, mean_of([self._tau(case) for case in theirs])).estimate() if compared else None
        return Summary(
            arm=arm,
            temperature=temperature,
            tau=tau.estimate(),
            over_baseline=over,
            tokens_per_second=_mean_speed(ours),
            over_plain=self._over_plain(ours),
            confidence=self._confidence(ours),
            sweep=self._sweep(ours),
        )

    def _of(self, arm: str, temperature: float) -> list[Case]:
        """Cases of all prompt sets."""
        keys = ((arm, domain, temperature) for domain in self._domains)
        return [self._cases[key] for key in keys if key in self._cases]

    def _tau(self, case: Case) -> Bootstrapped:
        """Arms share the resamples of a prompt set, temperatures and sets do not."""
        keys = (self._domains.index(case.domain), self._plan.temperatures.index(case.temperature))
        committed = [sum(len(trace.committed) for trace in rounds) for rounds in case.rounds]
        draws = resamples(len(case.rounds), self._plan.resamples, self._plan.seed, *keys)
        return tau_of(committed, [len(rounds) for rounds in case.rounds], draws)

    def _over_plain(self, ours: Sequence[Case]) -> float | None:
        plain = [self._cases.get((PLAIN, case.domain, case.temperature)) for case in ours]
        known = [case for case in plain if case is not None]
        return _mean_speed(ours) / _mean_speed(known) if len(known) == len(ours) else None

    def _confidence(self, ours: Sequence[Case]) -> Confidence | None:
        arm = ours[0].arm
        if not arm.arm.drafter.has_confidence:
            return None
        traces = flat(rounds for case in ours for rounds in case.rounds)
        return confidence_quality(traces, arm.block_size, self._stop_ids, arm.calibration)

    def _sweep(self, ours: Sequence[Case]) -> tuple[SweepPoint, ...]:
        arm = ours[0].arm
        if policy_name(arm.arm.policy) != FixedLength().name or not arm.arm.drafter.has_confidence:
            return ()
        traces = flat(rounds for case in ours for rounds in case.rounds)
        return sweep(traces, arm.block_size)


def _mean_speed(found: Sequence[Case]) -> float:
    return sum(case.tokens_per_second for case in found) / len(found)


def _time(case: Case) -> TimeShares | None:
    steps = [step for turn in case.turns for step in turn.run.steps if step.verify_lens and not step.prefill_rows]
    found = step_shares(steps, drafts_with_a_model=case.arm.arm.drafts_with_a_model)
    if found is None:
        return None
    rest = found.sample + found.host
    return TimeShares(draft=found.draft, verify=found.forward, rest=rest, step_seconds=found.step_seconds)
