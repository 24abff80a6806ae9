"""The audit of losslessness: greedy texts of every drafter against plain decoding, token by token.

Float results may depend on the shape of a batch, so two greedy runs may part where the target's two best tokens are
(nearly) tied. Every difference is therefore reported with the logit margin at its first position.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from dspark.core import InputError
from dspark.engine import shipped_drafter
from dspark.evaluation.arms import Arm, Progress, counting, named_arm, no_progress
from dspark.evaluation.margins import TokenDifference, first_difference, logit_margin
from dspark.evaluation.prompts import PromptSet
from dspark.evaluation.runs import Ids, greedy, nobody, run_prompts
from dspark.target import LoadedTarget


@dataclass(frozen=True, kw_only=True)
class AuditPlan:
    """What is compared.

    Attributes:
        max_tokens: length limit of every answer.
        batch_sizes: numbers of answers in progress at a time.
        plain_batch_size: the same for plain decoding; one at a time is the strictest yardstick.
    """

    max_tokens: int = 128
    batch_sizes: tuple[int, ...] = (1, 8)
    plain_batch_size: int = 1

    def __post_init__(self) -> None:
        if self.max_tokens < 1 or not self.batch_sizes or min(*self.batch_sizes, self.plain_batch_size) < 1:
            raise InputError(
                f"max_tokens and batch sizes must be >= 1, got {self.max_tokens} and {list(self.batch_sizes)}"
            )


@dataclass(frozen=True, kw_only=True)
class Difference(TokenDifference):
    """A text that is not that of plain decoding.

    Attributes:
        arm, batch_size, domain: where it was seen.
        prompt: 0-based number of the prompt in its domain.
    """

    arm: str
    batch_size: int
    domain: str
    prompt: int


@dataclass(frozen=True, kw_only=True)
class Count:
    """Texts of one arm, batch size and domain."""

    arm: str
    batch_size: int
    domain: str
    texts: int
    tokens: int
    identical: int


@dataclass(frozen=True, kw_only=True)
class AuditPart:
    """All texts of one arm and batch size in one domain, and those that differ."""

    count: Count
    differences: tuple[Difference, ...]


@dataclass(frozen=True, kw_only=True)
class Audit:
    """Result of an audit."""

    counts: tuple[Count, ...]
    differences: tuple[Difference, ...]

    @classmethod
    def of(cls, parts: Iterable[AuditPart]) -> Audit:
        """Put parts together, those that there are."""
        found = list(parts)
        return cls(
            counts=tuple(part.count for part in found),
            differences=tuple(entry for part in found for entry in part.differences),
        )

    @property
    def faults(self) -> tuple[Difference, ...]:
        """Differences that no near tie explains."""
        return tuple(entry for entry in self.differences if not entry.is_near_tie)

    @property
    def passed(self) -> bool:
        """Whether everything is identical but for near ties."""
        return not self.faults


def audit_drafters(loaded: LoadedTarget) -> tuple[str, ...]:
    """What is audited by default: everything there is for the target."""
    return ("ngram",) if shipped_drafter(loaded.name) is None else ("ngram", "dflash", "auto")


def audit_arm(loaded: LoadedTarget, drafter: str, policy: str = "fixed") -> Arm:
    """An arm to audit.

    Args:
        loaded: the target.
        drafter: as for :func:`named_arm`.
        policy: as users write it.

    Raises:
        InputError: there is no such drafter, or it drafts nothing.
    """
    arm = named_arm(loaded, drafter, policy)
    if not arm.drafter.block_size:
        raise InputError(f"drafter {drafter!r} drafts nothing for {loaded.name}; give one that can be audited")
    return arm


def audit_greedy(
    plain: Arm, arms: Sequence[Arm], sets: Sequence[PromptSet], plan: AuditPlan, *, progress: Progress = no_progress
) -> Audit:
    """All parts of an audit together; see :func:`audit_parts`."""
    return Audit.of(audit_parts(plain, arms, sets, plan, progress=progress))


def audit_parts(
    plain: Arm, arms: Sequence[Arm], sets: Sequence[PromptSet], plan: AuditPlan, *, progress: Progress = no_progress
) -> Iterator[AuditPart]:
    """Compare the arms with plain decoding, and give each part of the result as soon as it is known.

    Args:
        plain: the null drafter.
        arms: what is audited; same target and dtype (float32, or near ties are everywhere).
        sets: prompts by domain.
        plan: sizes.
        progress: called after every text.

    Raises:
        InputError: a prompt the target cannot take.
    """
    finished = counting(progress)
    for entry in sets:
        prompts = entry.token_ids(plain.loaded.tokenizer)
        written = finished(f"{entry.domain} {plain.name}")
        expected = answers(plain, prompts, plan.max_tokens, plan.plain_batch_size, on_answer=written)
        for arm in arms:
            for size in plan.batch_sizes:
                written = finished(f"{entry.domain} {arm.name} x{size}")
                got = answers(arm, prompts, plan.max_tokens, size, on_answer=written)
                yield _part(plain, arm, size, entry.domain, prompts, expected, got)


def _part(
    plain: Arm,
    arm: Arm,
    batch_size: int,
    domain: str,
    prompts: Sequence[Ids],
    expected: Sequence[Ids],
    got: Sequence[Ids],
) -> AuditPart:
    found = []
    for number, (prompt, want, have) in enumerate(zip(prompts, expected, got, strict=True)):
        place = first_difference(have, want)
        if place is not None:
            first, second = (text[place] if place < len(text) else None for text in (want, have))
            found.append(
                Difference(
                    arm=arm.name,
                    batch_size=batch_size,
                    domain=domain,
                    prompt=number,
                    position=place,
                    expected=first,
                    got=second,
                    margin=margin_at(plain, (*prompt, *want[:place]), first, second),
                )
            )
    count = Count(
        arm=arm.name,
        batch_size=batch_size,
        domain=domain,
        texts=len(prompts),
        tokens=sum(map(len, got)),
        identical=len(prompts) - len(found),
    )
    return AuditPart(count=count, differences=tuple(found))


def count_texts(arms: Sequence[Arm], sets: Sequence[PromptSet], plan: AuditPlan) -> int:
    """How many texts an audit lets the target write."""
    return sum(len(entry.prompts) for entry in sets) * (1 + len(arms) * len(plan.batch_sizes))


def answers(
    arm: Arm, prompts: Sequence[Ids], max_tokens: int, batch_size: int, *, on_answer: Callable[[], None] = nobody
) -> tuple[tuple[int, ...], ...]:
    """Greedy texts of an arm, so many at a time."""
    llm = arm.open(prompts, max_tokens=max_tokens, concurrency=batch_size)
    return run_prompts(llm, prompts, greedy(max_tokens), on_answer=on_answer).token_ids


def margin_at(plain: Arm, context: Ids, first: int | None, second: int | None) -> float | None:
    """Logit margin of two tokens after a context, through a fresh engine; None if one of them is missing."""
    if first is None or second is None:
        return None
    return logit_margin(plain.open([context], max_tokens=1, concurrency=2), context, first, second)
