"""The same prompts with plain decoding and with drafts, in turns: how much faster, and is it the same text?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dspark.core import SamplingParams
from dspark.engine import StepOutput
from dspark.evaluation.arms import Arm, Progress, make_arm, no_progress, plain_arm
from dspark.evaluation.builtin_prompts import builtin_prompt_sets
from dspark.evaluation.lossless import Audit, AuditPlan, audit_greedy, margin_at
from dspark.evaluation.margins import first_difference
from dspark.evaluation.prompts import PromptSet
from dspark.evaluation.runs import Ids, Run, greedy, run_prompts
from dspark.target import LoadedTarget

_PER_DOMAIN = 2


@dataclass(frozen=True, kw_only=True)
class Parting:
    """Where a text left that of plain decoding.

    Attributes:
        prompt: 0-based number of the prompt.
        position: first differing position, counted in generated tokens.
        margin: distance of the two tokens' logits, computed afresh; None where one of the texts ended.
    """

    prompt: int
    position: int
    margin: float | None


@dataclass(frozen=True, kw_only=True)
class SideBySide:
    """Result of a comparison.

    Attributes:
        plain, fast: runs by prompt.
        partings: texts that differ.
    """

    plain: tuple[Run, ...]
    fast: tuple[Run, ...]
    partings: tuple[Parting, ...]

    @property
    def plain_rate(self) -> float:
        """Tokens per second of plain decoding, prefill included."""
        return _rate(self.plain)

    @property
    def fast_rate(self) -> float:
        """Tokens per second with drafts, prefill included."""
        return _rate(self.fast)

    @property
    def ratio(self) -> float:
        """How many times as fast."""
        return self.fast_rate / self.plain_rate

    @property
    def tau(self) -> float:
        """Tokens committed per round."""
        return sum(run.round_tokens for run in self.fast) / max(1, sum(run.rounds for run in self.fast))

    @property
    def identical(self) -> int:
        """Texts that are the same, token by token."""
        return len(self.plain) - len(self.partings)


@dataclass(frozen=True, kw_only=True)
class Pair:
    """The two arms of the demo."""

    plain: Arm
    fast: Arm

    @classmethod
    def of(cls, loaded: LoadedTarget, drafter: str, policy: str) -> Pair:
        """Arms over a target; see :func:`make_arm`."""
        return cls(plain=plain_arm(loaded), fast=make_arm(loaded, drafter, policy))

    def prompts(self) -> list[tuple[int, ...]]:
        """Token ids of the demo's prompts."""
        return [ids for entry in demo_sets() for ids in entry.token_ids(self.plain.loaded.tokenizer)]


def demo_sets() -> tuple[PromptSet, ...]:
    """The demo's prompts: two word problems, two about code, two of everyday chat."""
    return builtin_prompt_sets(_PER_DOMAIN)


def show(arm: Arm, prompt: Ids, max_tokens: int) -> Iterator[StepOutput]:
    """One greedy answer, piece by piece; it also warms the arm up."""
    llm = arm.open([prompt], max_tokens=max_tokens, concurrency=1)
    return llm.stream(prompt, SamplingParams(temperature=0.0, max_tokens=max_tokens))


def side_by_side(
    pair: Pair, prompts: Sequence[Ids], max_tokens: int, *, progress: Progress = no_progress
) -> SideBySide:
    """Answer every prompt with both arms, which take turns in going first."""
    runs: dict[str, list[Run]] = {"plain": [], "fast": []}
    sides = [("plain", pair.plain), ("fast", pair.fast)]
    for number, prompt in enumerate(prompts):
        for side, arm in sides if number % 2 == 0 else reversed(sides):
            llm = arm.open([prompt], max_tokens=max_tokens, concurrency=1)
            runs[side].append(run_prompts(llm, [prompt], greedy(max_tokens)))
            progress(sum(map(len, runs.values())), arm.name)
    return SideBySide(
        plain=tuple(runs["plain"]),
        fast=tuple(runs["fast"]),
        partings=tuple(_partings(pair.plain, prompts, runs["plain"], runs["fast"])),
    )


def prove(pair: Pair, max_tokens: int, *, progress: Progress = no_progress) -> Audit:
    """Audit the demo's prompts; ``pair`` should be in float32, where rounding hardly ever flips a token."""
    prompts = tuple(prompt for entry in demo_sets() for prompt in entry.prompts)
    plan = AuditPlan(max_tokens=max_tokens, batch_sizes=(len(prompts),))
    return audit_greedy(pair.plain, [pair.fast], [PromptSet(domain="demo", prompts=prompts)], plan, progress=progress)


def _partings(plain: Arm, prompts: Sequence[Ids], expected: Sequence[Run], got: Sequence[Run]) -> Iterator[Parting]:
    for number, (prompt, want, have) in enumerate(zip(prompts, expected, got, strict=True)):
        (first,), (second,) = want.token_ids, have.token_ids
        place = first_difference(second, first)
        if place is not None:
            pair = [text[place] if place < len(text) else None for text in (first, second)]
            margin = margin_at(plain, (*prompt, *first[:place]), *pair)
            yield Parting(prompt=number, position=place, margin=margin)


def _rate(runs: Sequence[Run]) -> float:
    return sum(run.tokens for run in runs) / sum(run.seconds for run in runs)
