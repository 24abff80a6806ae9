"""The Python API: a target, a drafter, an engine."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from dspark.calibration import Calibration
from dspark.core import InputError, RequestsFailedError, SamplingParams
from dspark.drafters import Drafter
from dspark.engine.calibrating import check_calibration, choose_calibration
from dspark.engine.choice import check_drafter, choose_drafter
from dspark.engine.core import EngineCore
from dspark.engine.costs import AUTO_COSTS, check_costs
from dspark.engine.memory import count_pages
from dspark.engine.options import EngineOptions
from dspark.engine.outputs import CompletionOutput, RequestOutput, StepOutput
from dspark.engine.policies import AUTO_POLICY, ChosenPolicy, check_policy_text, choose_online, choose_policy
from dspark.engine.profile_plan import ProfilePlan
from dspark.engine.profiling import Tell, count_points
from dspark.engine.progress import LateProgress
from dspark.engine.prompts import Message, Prompt, is_conversation, read_conversations, read_params, read_prompts
from dspark.scheduling import StepCosts, StepPolicy
from dspark.target import DEFAULT_TARGET, LoadedTarget, load_target

_Inbox = deque[StepOutput | RequestsFailedError]
"""What a call's requests have got and the call has not read yet."""


class LLM:
    """A language model that answers, faster through speculation, with exactly the target's own distribution.

    A loaded target serves one engine at a time: its KV memory belongs to the LLM that was made last. Whether a seeded
    sample can change with the verify lengths is said at :meth:`EngineCore.add_request`.

    Args:
        target: name, directory, GGUF file or hub id of the model, or one that is loaded already.
        drafter: ``auto`` (the drafter shipped for the target, else plain decoding; see ``notes``), ``none``,
            ``ngram``, a checkpoint directory, or a drafter.
        policy: how much is drafted and verified: ``async`` (what pays, by measured costs and past confidences),
            ``sync`` (the method's Algorithm 1), ``fixed`` (whole blocks), ``fixed:4``, ``threshold:0.5``, ``auto``
            (``async`` with a drafter that has a confidence head, else ``fixed``), or a policy.
        calibration: what makes probabilities of the drafter's confidences: ``auto`` (the ``sts.json`` beside its
            checkpoint, if there is one), ``off``, a file, or a calibration.
        online_calibration: whether confidences are corrected further by what is observed; None does so for ``async``
            and ``sync``.
        costs: of steps, for ``async`` and ``sync``: ``auto`` (the profile kept for this machine and these models, else
            one that is measured now, which takes about ten seconds, and kept), a file, or costs.
        on_profile: told how far measuring costs has come; None shows a bar on a terminal.
        dtype: ``auto``, ``float32``, ``bfloat16`` or ``float16``; only for a target that is loaded here.
        device: ``auto``, ``cpu``, ``cuda``, ...; only for a target that is loaded here.
        max_requests: most answers in progress at a time.
        max_batch_rows: most rows of one target forward.
        max_context: most tokens of prompt and answer together; None for what model and memory hold.
        kv_tokens: tokens the KV memory must hold, all answers in progress together.
        kv_memory: bytes of KV memory, instead of ``kv_tokens``; None for a modest share of the machine.
        seed: seeds requests that come without one, so that whole runs can be repeated.
        prefix_cache: reuse the computed rows of earlier texts that start alike.
        record_rounds: keep a trace of every round in the statistics.
        plan_ahead: let the policy plan a step before the one before it has ended; None does so where that helps.

    Attributes:
        loaded: the target with its tokenizer.
        drafter: the drafter.
        policy: the policy.
        costs: what it plans with; None if it does not.
        calibration: what the policy's confidences went through, and where it comes from.
        engine: the engine, for step-by-step use.
        notes: what was decided on the user's behalf, one sentence each.

    Raises:
        InputError: one clear sentence about what is wrong.
    """

    def __init__(
        self,
        target: str | LoadedTarget = DEFAULT_TARGET,
        *,
        drafter: str | Path | Drafter = "auto",
        policy: str | StepPolicy = AUTO_POLICY,
        calibration: str | Path | Calibration = "auto",
        online_calibration: bool | None = None,
        costs: str | Path | StepCosts = AUTO_COSTS,
        on_profile: Tell | None = None,
        dtype: str = "auto",
        device: str = "auto",
        max_requests: int = 64,
        max_batch_rows: int = 512,
        max_context: int | None = None,
        kv_tokens: int | None = None,
        kv_memory: int | None = None,
        seed: int | None = None,
        prefix_cache: bool = True,
        record_rounds: bool = False,
        plan_ahead: bool | None = None,
    ) -> None:
        check_policy_text(policy)
        check_drafter(drafter)
        check_calibration(calibration)
        check_costs(costs)
        self.loaded = target if isinstance(target, LoadedTarget) else load_target(target, dtype=dtype, device=device)
        model = self.loaded.target
        self.drafter, choice = choose_drafter(drafter, model, self.loaded.name)
        self.calibration = choose_calibration(calibration, self.drafter)
        chosen = self._choose_policy(policy, costs, max_requests, on_profile)
        self.policy, self.costs = chosen.policy, chosen.costs
        pages = count_pages(
            model,
            self.drafter,
            max_requests=max_requests,
            context=max_context or model.facts.max_positions,
            kv_tokens=kv_tokens,
            kv_memory=kv_memory,
        )
        options = EngineOptions(
            num_pages=pages,
            max_requests=max_requests,
            max_batch_rows=max_batch_rows,
            max_context=max_context,
            prefix_cache=prefix_cache,
            seed=seed,
            record_rounds=record_rounds,
            plan_ahead=plan_ahead,
        )
        self.engine = EngineCore(
            model,
            self.drafter,
            self.policy,
            options=options,
            tokenizer=self.loaded.tokenizer,
            calibration=self.calibration.calibration,
            online=choose_online(online_calibration, chosen, self.drafter),
            costs=chosen.costs,
        )
        self.notes = (*self.loaded.notes, choice, *self.calibration.notes, *chosen.notes, *self._context_note())
        self._calls = count()
        self._inboxes: dict[str, _Inbox] = {}

    def generate(
        self,
        prompts: str | Sequence[str] | Sequence[int] | Sequence[Sequence[int]],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        progress: bool = True,
    ) -> list[RequestOutput]:
        """Answer prompts, all in one batch.

        Args:
            prompts: one text, a list of texts, token ids, or a list of those.
            params: options for all, or one per prompt.
            progress: show a bar on a terminal when it takes more than two seconds.

        Returns:
            One output per prompt, in their order.

        Raises:
            InputError: about the first prompt or option that is wrong; nothing has been generated then.
            KeyboardInterrupt: after Ctrl-C; the requests of this call are gone, the model can be used again.
        """
        return self._answer(read_prompts(prompts, self.loaded.tokenizer), params, progress)

    def chat(
        self,
        messages: Sequence[Message] | Sequence[Sequence[Message]],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        progress: bool = True,
    ) -> list[RequestOutput]:
        """Answer a conversation, or several, through the model's chat template; see :meth:`generate`."""
        return self._answer(read_conversations(messages, self.loaded.tokenizer), params, progress)

    def stream(
        self, prompt: str | Sequence[int] | Sequence[Message], params: SamplingParams | None = None
    ) -> Iterator[StepOutput]:
        """Answer one prompt or conversation piece by piece.

        Closing the iterator early aborts the request. Several streams may be open at a time; each step of one serves
        all.

        Raises:
            InputError: what is wrong with the prompt or the options.
        """
        read = read_conversations if is_conversation(prompt) else read_prompts
        ready = read(prompt, self.loaded.tokenizer)
        if len(ready) != 1:
            raise InputError(f"stream() takes one prompt, got {len(ready)}")
        return self._stream(ready[0], read_params(params, 1)[0])

    def _stream(self, prompt: Prompt, params: SamplingParams) -> Iterator[StepOutput]:
        with self._requests([prompt], [params]) as (_, inbox):
            unfinished = params.n
            while unfinished:
                output = self._next(inbox)
                unfinished -= output.completion is not None
                yield output

    def _answer(self, prompts: list[Prompt], params: object, progress: bool) -> list[RequestOutput]:
        options = read_params(params, len(prompts))
        total = sum(option.n for option in options)
        with (
            self._requests(prompts, options) as (names, inbox),
            LateProgress("Generating", total, enabled=progress) as bar,
        ):
            ended = self._collect(names, inbox, total, bar)
        return [
            RequestOutput(
                request_id=name,
                prompt=prompt.text,
                prompt_token_ids=prompt.ids,
                outputs=tuple(sorted(ended[name], key=lambda completion: completion.index)),
            )
            for name, prompt in zip(names, prompts, strict=True)
        ]

    def _collect(
        self, names: list[str], inbox: _Inbox, total: int, bar: LateProgress
    ) -> dict[str, list[CompletionOutput]]:
        """Step until all answers have ended."""
        ended: dict[str, list[CompletionOutput]] = {name: [] for name in names}
        done, tokens, start = 0, 0, time.monotonic()
        while done < total:
            output = self._next(inbox)
            tokens += len(output.token_ids)
            if output.completion is not None:
                ended[output.request_id].append(output.completion)
                done += 1
            bar.update(done, f"{tokens / max(time.monotonic() - start, 1e-6):.0f} tokens/s")
        return ended

    @contextmanager
    def _requests(self, prompts: list[Prompt], params: list[SamplingParams]) -> Iterator[tuple[list[str], _Inbox]]:
        """Add the requests of a call and give it an inbox; whatever happens in the body, none is left behind."""
        names = [f"llm-{next(self._calls)}" for _ in prompts]
        inbox: _Inbox = deque()
        try:
            for name, prompt, options in zip(names, prompts, params, strict=True):
                self._inboxes[name] = inbox
                self.engine.add_request(prompt.ids, options, prompt=prompt.text, request_id=name)
            yield names, inbox
        finally:
            for name in names:
                self.engine.abort(name)
                self._inboxes.pop(name, None)

    def _next(self, inbox: _Inbox) -> StepOutput:
        """The next output of a call's requests; what other open calls are to get goes to their own inboxes."""
        while not inbox:
            try:
                outputs = self.engine.step()
            except RequestsFailedError as error:
                self._fail(error)
                continue
            for output in outputs:
                if output.request_id in self._inboxes:
                    self._inboxes[output.request_id].append(output)
        found = inbox.popleft()
        if isinstance(found, RequestsFailedError):
            raise found
        return found

    def _fail(self, error: RequestsFailedError) -> None:
        """Take the failed requests out, and let the calls they belong to know; the others go on."""
        if not error.request_ids <= self._inboxes.keys():
            raise error
        for name in error.request_ids:
            self.engine.abort(name)
            self._inboxes[name].append(error)

    def _choose_policy(
        self, policy: str | StepPolicy, costs: str | Path | StepCosts, max_requests: int, tell: Tell | None
    ) -> ChosenPolicy:
        """The policy, and its costs if it needs any; a bar shows if these take long to measure."""
        plan = ProfilePlan()
        total = count_points(self.drafter, plan)
        with LateProgress("Measuring what steps cost", total, enabled=tell is None) as bar:
            return choose_policy(
                policy,
                self.loaded,
                self.drafter,
                costs=costs,
                max_requests=max_requests,
                plan=plan,
                tell=tell or bar.update,
            )

    def _context_note(self) -> tuple[str, ...]:
        asked, held = self.engine.options.max_context, self.engine.max_context
        positions = self.loaded.target.facts.max_positions
        if asked is not None or held == positions:
            return ()
        return (f"the KV memory limits texts to {held} of the model's {positions} positions",)
