"""The same prompts with plain decoding and with drafts, in turns: how much faster, and is it the same text?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dspark.core import InputError, SamplingParams
from dspark.engine import StepOutput, shipped_drafter
from dspark.evaluation.arms import Arm, Progress, make_arm, no_progress, plain_arm
from dspark.evaluation.builtin_prompts import builtin_prompt_sets
from dspark.evaluation.lossless import Audit, AuditPlan, audit_greedy, margin_at
from dspark.evaluation.margins import first_difference, is_near_tie
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
    def of(cls, loaded: LoadedTarget, drafter: str, policy: str = "fixed") -> Pair:
        """Arms over a target; see :func:`make_arm`."""
        return cls(plain=plain_arm(loaded), fast=make_arm(loaded, drafter, policy))

    def asked(self, number: int) -> str:
        """What the user says in one of the demo's prompts."""
        messages = [prompt for entry in demo_sets() for prompt in entry.prompts][number]
        return messages if isinstance(messages, str) else str(messages[-1]["content"])

    def prompts(self) -> list[tuple[int, ...]]:
        """Token ids of the demo's prompts."""
        return [ids for entry in demo_sets() for ids in entry.token_ids(self.plain.loaded.tokenizer)]


def demo_sets() -> tuple[PromptSet, ...]:
    """The demo's prompts: two word problems, two about code, two of everyday chat."""
    return builtin_prompt_sets(_PER_DOMAIN)


def fall_back(loaded: LoadedTarget, drafter: str) -> tuple[str, str]:
    """The drafter to show, and a remark: where none is shipped for the target, n-gram lookup stands in for it."""
    if drafter == "auto" and shipped_drafter(loaded.name) is None:
        return "ngram", f" (no drafter is shipped for {loaded.name}, so drafts are looked up in the text)"
    if drafter == "none":
        raise InputError("the demo compares a drafter with plain decoding; give one, or auto")
    return drafter, ""


def about_parting(parting: Parting, dtype: str) -> str:
    """One sentence about a text that differs."""
    where = f"text {parting.prompt + 1} goes another way at token {parting.position + 1}"
    if parting.margin is None:
        return f"{where}, where one of the two ends"
    return f"{where}, where the two tokens are {parting.margin:.2g} logits apart in {dtype}"


def is_fault(parting: Parting) -> bool:
    """Whether a difference in float32 is more than a near tie."""
    return not is_near_tie(parting.margin)


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
    """Audit the demo's prompts, all at once; ``pair`` is in float32, where rounding hardly ever flips a token."""
    prompts = tuple(prompt for entry in demo_sets() for prompt in entry.prompts)
    plan = AuditPlan(max_tokens=max_tokens, batch_sizes=(len(prompts),), plain_batch_size=len(prompts))
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
