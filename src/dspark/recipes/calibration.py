"""Calibrating a drafter: record rounds on held-out prompts, fit on one half of the prompts, judge on the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dspark.calibration import (
    HEAD_KEY,
    MIN_ROUNDS,
    OFFSETS_KEY,
    Calibration,
    PositionReliability,
    Rounds,
    StsArtefact,
    StsFit,
    check_enough,
    fit_sts,
    head_fingerprint,
    mean_ece,
    reliability_by_position,
)
from dspark.core import InputError, SamplingParams
from dspark.drafters import Drafter
from dspark.engine import LLM, RoundTrace
from dspark.evaluation import PromptSet, run_prompts
from dspark.evaluation.arms import Progress, counting
from dspark.evaluation.runs import Ids, end_token_ids
from dspark.target import LoadedTarget

_ROWS = 512


@dataclass(frozen=True, kw_only=True)
class CalibrationPlan:
    """How rounds are recorded.

    Attributes:
        temperatures: sampling temperatures; every prompt is answered at each. Confidence is trained for 1.
        samples: answers to a prompt at every temperature above 0 (one at 0, where all would be the same).
        max_tokens: length limit of an answer.
        concurrency: answers in progress at a time.
        seed: of the samples, and of which prompts are fitted on.
        min_rounds: fewest usable rounds at a position, in either half.
        offsets: also fit an offset beside every temperature, and use that.
    """

    temperatures: tuple[float, ...] = (1.0,)
    samples: int = 4
    max_tokens: int = 256
    concurrency: int = 8
    seed: int = 0
    min_rounds: int = MIN_ROUNDS
    offsets: bool = False

    def __post_init__(self) -> None:
        for name in ("samples", "max_tokens", "concurrency", "min_rounds"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be >= 1, got {getattr(self, name)}")
        if not self.temperatures or any(not 0 <= t < float("inf") for t in self.temperatures):
            raise InputError(f"temperatures must be numbers >= 0, got {self.temperatures}")

    def options(self, prompt: int) -> list[SamplingParams]:
        """Options of all answers to a prompt."""
        first = self.seed + prompt * self.samples
        return [
            SamplingParams(temperature=temperature, max_tokens=self.max_tokens, seed=first + sample)
            for temperature in self.temperatures
            for sample in range(self.samples if temperature > 0 else 1)
        ]


@dataclass(frozen=True, kw_only=True)
class Recording:
    """Rounds by prompt.

    Attributes:
        domains: of every prompt.
        rounds: of every prompt, all its answers together.
        answers: how many answers there were.
        tokens: how many tokens all rounds committed.
        target_rounds: how many rounds there were, those that proposed nothing included.
    """

    domains: tuple[str, ...]
    rounds: tuple[Rounds, ...]
    answers: int
    tokens: int
    target_rounds: int

    @property
    def tau(self) -> float:
        """Mean tokens committed per round."""
        return self.tokens / max(self.target_rounds, 1)


def check_calibratable(drafter: Drafter) -> Path:
    """The checkpoint directory of a drafter.

    Raises:
        InputError: it gives no confidence, or comes from no checkpoint.
    """
    if not drafter.has_confidence:
        raise InputError(f"drafter {drafter.name!r} has no confidence head, there is nothing to calibrate")
    folder: Path | None = getattr(drafter, "folder", None)
    if folder is None:
        raise InputError("only a drafter with a checkpoint directory can be calibrated")
    return folder


def count_answers(sets: Sequence[PromptSet], plan: CalibrationPlan) -> int:
    """How many answers a plan asks for."""
    return sum(len(entry.prompts) for entry in sets) * len(plan.options(0))


def record(
    loaded: LoadedTarget, drafter: Drafter, sets: Sequence[PromptSet], plan: CalibrationPlan, *, progress: Progress
) -> Recording:
    """Answer the prompts with whole blocks verified, so that nothing is censored by a policy.

    Args:
        loaded: the target.
        drafter: with confidences; used uncalibrated.
        sets: prompts by domain.
        plan: how.
        progress: told the number of finished answers.

    Raises:
        InputError: a prompt the target cannot take.
    """
    prompts = [(entry.domain, ids) for entry in sets for ids in entry.token_ids(loaded.tokenizer)]
    asked = [(number, option) for number in range(len(prompts)) for option in plan.options(number)]
    llm = _open(loaded, drafter, [ids for _, ids in prompts], plan)
    run = run_prompts(
        llm,
        [prompts[number][1] for number, _ in asked],
        [option for _, option in asked],
        on_answer=counting(progress)(""),
    )
    traces: list[list[RoundTrace]] = [[] for _ in prompts]
    for (number, _), stats in zip(asked, run.stats, strict=True):
        traces[number].extend(stats.traces)
    stop_ids = end_token_ids(loaded)
    return Recording(
        domains=tuple(domain for domain, _ in prompts),
        rounds=tuple(Rounds.of(found, drafter.block_size, stop_ids) for found in traces),
        answers=len(asked),
        tokens=run.round_tokens,
        target_rounds=run.rounds,
    )


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """One set of confidences on the held-out half, [G] each.

    Attributes:
        survival: running products against accepted prefixes.
        conditional: each confidence where everything before was accepted.
    """

    survival: tuple[PositionReliability, ...]
    conditional: tuple[PositionReliability, ...]

    @classmethod
    def of(cls, rounds: Rounds, confidence: NDArray[np.float64]) -> Agreement:
        """Judge confidences [N, G] of these rounds."""
        return cls(
            survival=reliability_by_position(rounds.survival(confidence), rounds.labels, rounds.known),
            conditional=reliability_by_position(confidence, rounds.labels, rounds.reached),
        )

    @property
    def mean_ece(self) -> float:
        """Of survival, over the positions."""
        return mean_ece(self.survival)


@dataclass(frozen=True, kw_only=True)
class Calibrated:
    """Temperatures and what they do to rounds they were not fitted on.

    Attributes:
        fit: the temperatures alone.
        shifted: temperatures with offsets; None if they were not asked for.
        fit_rounds, held_out_rounds: rounds of the two halves.
        before: agreement on the held-out half of the drafter's own confidences.
        scaled: the same with the temperatures alone.
        after: the same with what is used, offsets included if there are any.
    """

    fit: StsFit
    shifted: StsFit | None
    fit_rounds: int
    held_out_rounds: int
    before: Agreement
    scaled: Agreement
    after: Agreement

    @property
    def worse(self) -> tuple[int, ...]:
        """Positions, counted from 0, whose survival has a larger ECE after than before."""
        pairs = zip(self.before.survival, self.after.survival, strict=True)
        return tuple(k for k, (b, a) in enumerate(pairs) if a.ece > b.ece)

    @property
    def used(self) -> Calibration:
        """What is applied."""
        return (self.shifted or self.fit).calibration


def calibrate(recording: Recording, plan: CalibrationPlan) -> Calibrated:
    """Fit temperatures on the rounds of half of the prompts, and judge them on the others.

    Raises:
        InputError: there are too few prompts or rounds.
    """
    first = _first_half(recording.domains, plan.seed)
    fitted_on = Rounds.join([rounds for rounds, chosen in zip(recording.rounds, first, strict=True) if chosen])
    held_out = Rounds.join([rounds for rounds, chosen in zip(recording.rounds, first, strict=True) if not chosen])
    fit = fit_sts(fitted_on, min_rounds=plan.min_rounds)
    check_enough(held_out, plan.min_rounds, "to judge the calibration")
    shifted = fit_sts(fitted_on, min_rounds=plan.min_rounds, offsets=True) if plan.offsets else None
    scaled = Agreement.of(held_out, fit.calibration.apply_array(held_out.confidence))
    better = None if shifted is None else shifted.calibration.apply_array(held_out.confidence)
    return Calibrated(
        fit=fit,
        shifted=shifted,
        fit_rounds=len(fitted_on),
        held_out_rounds=len(held_out),
        before=Agreement.of(held_out, held_out.confidence),
        scaled=scaled,
        after=scaled if better is None else Agreement.of(held_out, better),
    )


def artefact_of(found: Calibrated, *, folder: Path, dataset: str, target: str, plan: CalibrationPlan) -> StsArtefact:
    """The file to save: errors are those of the held-out half, of the temperatures alone where others read them.

    Args:
        found: the calibration.
        folder: checkpoint of the drafter.
        dataset: what it was fitted on, in words.
        target: name of the model.
        plan: how rounds were recorded.
    """
    return StsArtefact(
        temperatures=found.fit.calibration.temperatures,
        dataset=dataset,
        num_samples=found.fit_rounds,
        ece_before=tuple(position.ece for position in found.before.survival),
        ece_after=tuple(position.ece for position in found.scaled.survival),
        extra={
            **_with_offsets(found),
            HEAD_KEY: head_fingerprint(folder),
            "target": target,
            "sampling_temperatures": list(plan.temperatures),
            "num_held_out": found.held_out_rounds,
        },
    )


def _with_offsets(found: Calibrated) -> dict[str, Any]:
    """The optional field of the file."""
    if found.shifted is None:
        return {}
    used = found.shifted.calibration
    errors = [position.ece for position in found.after.survival]
    return {
        OFFSETS_KEY: {"temperatures": list(used.temperatures), "offsets": list(used.offsets or ()), "ece_after": errors}
    }


def _first_half(domains: Sequence[str], seed: int) -> NDArray[np.bool_]:
    """[P] which prompts are fitted on: half of every domain, drawn by the seed.

    All answers to a prompt are in one half, else the other half would not be new.
    """
    if len(domains) < 2:
        raise InputError("calibration needs two prompts at least: one half is fitted on, the other one judged on")
    order = np.random.default_rng(seed).permutation(len(domains))
    by_domain = sorted(order.tolist(), key=lambda prompt: domains[prompt])  # stable: drawn order within a domain
    chosen = np.zeros(len(domains), np.bool_)
    chosen[by_domain[::2]] = True
    return chosen


def _open(loaded: LoadedTarget, drafter: Drafter, prompts: Sequence[Ids], plan: CalibrationPlan) -> LLM:
    """An engine that always verifies whole blocks, with just enough memory."""
    block, page = 1 + drafter.block_size, loaded.target.page_size
    longest = min(loaded.target.facts.max_positions, max(map(len, prompts)) + plan.max_tokens)
    return LLM(
        loaded,
        drafter=drafter,
        policy="fixed",
        calibration="off",
        max_requests=plan.concurrency,
        max_batch_rows=max(_ROWS, 2 * plan.concurrency * block),
        kv_tokens=plan.concurrency * (longest + block + page),
        record_rounds=True,
    )
