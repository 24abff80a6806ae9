"""An engine and a clock that are made up: texts and acceptance are given, a step takes what its costs say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from dspark.core import FinishReason, SamplingParams, TokenOrigin
from dspark.engine import CompletionOutput, CompletionStats, StepOutput, StepStats
from dspark.scheduling import CostModel, ProfileIdentity, Reveal, StepOutcome, StepPolicy, StepView, TimeTable

Ids = tuple[int, ...]
BLOCK = 4


def costs(rows: int = 1024, *, fixed: float = 1.0, each: float = 0.05, draft: float = 0.3) -> CostModel:
    """Steps that take ``fixed`` and ``each`` per row, with a cliff every 16 rows; drafting costs per request."""
    widths = tuple(range(1, rows + 1))
    verify = tuple(fixed + each * width + 0.3 * (width // 16) for width in widths)
    drafting = tuple(draft + 0.02 * width for width in widths)
    return CostModel(
        identity=ProfileIdentity(machine="made up", model="made up", dtype="float32", threads=1, backend="cpu"),
        verify=TimeTable(widths=widths, depths=(0,), seconds=(verify,)),
        draft=TimeTable(widths=widths, depths=(0,), seconds=(drafting,)),
    )


class MadeUpClock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.time = 100.0
        self.skipped = 0.0

    def now(self) -> float:
        return self.time

    def skip_to(self, moment: float) -> None:
        self.skipped += max(moment - self.time, 0.0)
        self.time = max(moment, self.time)


@dataclass(frozen=True)
class World:
    """Prompts, what is answered to them, and how many drafts are accepted after each token of an answer."""

    texts: Mapping[Ids, Ids]
    accepted: Mapping[Ids, Ids]
    confidence: Mapping[Ids, np.ndarray]

    @classmethod
    def drawn(cls, prompts: Iterable[Ids], *, length: int = 40, seed: int = 0) -> World:
        """Easy and hard prompts, and confidences that are right on average."""
        rng = np.random.default_rng(seed)
        texts, accepted, confidence = {}, {}, {}
        for number, prompt in enumerate(prompts):
            texts[prompt] = tuple(range(1000 * number, 1000 * number + length))
            sure = np.clip(rng.normal(0.9 if number % 2 else 0.3, 0.1, (length, BLOCK)), 0.01, 0.99)
            hits = np.logical_and.accumulate(rng.random((length, BLOCK)) < sure, axis=1).sum(axis=1)
            accepted[prompt] = tuple(min(int(hit), length - place - 1) for place, hit in enumerate(hits))
            confidence[prompt] = sure
        return cls(texts=texts, accepted=accepted, confidence=confidence)


@dataclass(eq=False)
class _Request:
    name: str
    prompt: Ids
    limit: int
    written: int = 0


@dataclass
class MadeUpEngine:
    """Serves a world with a policy, so many requests at a time, prompts whole; its clock passes with its steps."""

    world: World
    policy: StepPolicy
    costs: CostModel
    clock: MadeUpClock
    most: int = 1024
    last_step: StepStats = field(default_factory=StepStats)
    waiting: list[_Request] = field(default_factory=list)
    running: list[_Request] = field(default_factory=list)
    most_seen: int = 0
    fail_at: int | None = None
    _steps: int = 0
    _slots: dict[str, tuple[int, int]] = field(default_factory=dict)
    _generation: int = 0

    def add_request(
        self, prompt_token_ids: Iterable[int], params: SamplingParams | None = None, *, request_id: str | None = None
    ) -> str:
        assert params is not None
        assert request_id is not None
        prompt = tuple(prompt_token_ids)
        limit = min(params.max_tokens or 0, len(self.world.texts[prompt]))
        self.waiting.append(_Request(request_id, prompt, limit))
        return request_id

    def abort(self, request_id: str) -> None:
        self.waiting = [request for request in self.waiting if request.name != request_id]
        self.running = [request for request in self.running if request.name != request_id]
        self._slots.pop(request_id, None)

    def step(self) -> list[StepOutput]:
        if self._steps == self.fail_at:
            raise KeyboardInterrupt
        ready = list(self.running)
        fresh = self.waiting[: self.most - len(ready)]
        self.waiting = self.waiting[len(fresh) :]
        prefill = sum(len(request.prompt) for request in fresh)
        lengths, kept, seconds = self._round(ready, prefill)
        self.clock.time += seconds
        self.running = ready + fresh
        self.most_seen = max(self.most_seen, len(self.running))
        outputs = [self._write(request, hits + 1) for request, hits in zip(ready, kept, strict=True)]
        outputs += [self._write(request, 1) for request in fresh]
        self.last_step = StepStats(
            rows=len(ready) + sum(lengths) + prefill,
            prefill_rows=prefill,
            verify_lens=tuple(lengths),
            forward_seconds=seconds,
            running=len(self.running),
            waiting=len(self.waiting),
        )
        self._steps += 1
        return outputs

    def _round(self, ready: list[_Request], prefill: int) -> tuple[list[int], list[int], float]:
        if not ready:
            return [], [], float(self.costs.verify_curve(prefill, 0.0)[prefill])
        seats = np.array([self._seat(request.name) for request in ready]).reshape(-1, 2)
        view = StepView(
            step=self._steps,
            slots=seats[:, 0],
            generations=seats[:, 1],
            limits=np.array([min(BLOCK, request.limit - request.written - 1) for request in ready]),
            num_prefill_rows=prefill,
        )
        drafted = self.policy.begin_step(view)
        sure = np.stack([self.world.confidence[request.prompt][request.written - 1] for request in ready])
        reveal = Reveal(drafted, sure)
        self.policy.admit(reveal)
        lengths = reveal.lengths
        would = np.array([self.world.accepted[request.prompt][request.written - 1] for request in ready])
        kept = np.minimum(lengths, would)
        rows, drafting = view.base_rows + int(lengths.sum()), int((drafted > 0).sum())
        draft = float(self.costs.draft_curve(drafting, BLOCK)[drafting])
        verify = float(self.costs.verify_curve(rows, 0.0)[rows])
        self.policy.outcome(
            StepOutcome(
                step=view.step,
                slots=view.slots,
                generations=view.generations,
                proposed=drafted,
                verified=lengths,
                accepted=kept,
                stated=reveal.close(),
                rows=rows,
                verify_seconds=verify,
                draft_seconds=draft,
            )
        )
        return lengths.tolist(), kept.tolist(), draft + verify

    def _seat(self, name: str) -> tuple[int, int]:
        if name not in self._slots:
            taken = {slot for slot, _ in self._slots.values()}
            self._generation += 1
            self._slots[name] = (min(set(range(self.most)) - taken), self._generation)
        return self._slots[name]

    def _write(self, request: _Request, count: int) -> StepOutput:
        first, text = request.written, self.world.texts[request.prompt]
        request.written = min(first + count, request.limit)
        tokens = text[first : request.written]
        ended = request.written == request.limit
        if ended:
            self.abort(request.name)
        origins = (*(TokenOrigin.DRAFT,) * (len(tokens) - 1), TokenOrigin.PLAIN)
        return StepOutput(
            request_id=request.name,
            index=0,
            text="",
            token_ids=tokens,
            origins=origins,
            pieces=(),
            completion=_completion(text[: request.limit]) if ended else None,
        )


def _completion(tokens: Ids) -> CompletionOutput:
    return CompletionOutput(
        index=0,
        text="",
        token_ids=tokens,
        finish_reason=FinishReason.LENGTH,
        stop_reason=None,
        logprobs=None,
        origins=(TokenOrigin.PLAIN,) * len(tokens),
        stats=CompletionStats(
            rounds=0,
            drafted=0,
            verified=0,
            accepted=0,
            committed=0,
            verified_at=(),
            reached_at=(),
            accepted_at=(),
            prompt_tokens=1,
            cached_tokens=0,
            preemptions=0,
            first_token_seconds=None,
            decode_seconds=0.0,
        ),
    )
