"""Our own engine answers prompts, a chunk of conversations side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from dspark.core import FinishReason, SamplingParams
from dspark.data.chat_template import ChatTemplate
from dspark.data.dialogue import Dialogue
from dspark.data.prompt_turns import BadPromptError, PromptTurns
from dspark.engine import LLM, CompletionOutput
from dspark.recipes.regeneration_plan import Outcome, RegenerationPlan


class EngineAnswers:
    """Answers by the target itself.

    Args:
        llm: the engine with the target.
        plan: how to answer.
        chunk: conversations that are answered and recorded together.
    """

    def __init__(self, llm: LLM, plan: RegenerationPlan, *, chunk: int = 128) -> None:
        self.template = ChatTemplate.of(llm.loaded.tokenizer, thinking=plan.thinking)
        self._llm, self._plan, self._chunk = llm, plan, chunk

    def run(self, prompts: Iterator[PromptTurns], commit: Callable[[Sequence[Outcome]], None]) -> None:
        """Answer all prompts, chunk by chunk."""
        while chunk := list(islice(prompts, self._chunk)):
            commit(self._answer(chunk))

    def _answer(self, chunk: Sequence[PromptTurns]) -> list[Outcome]:
        longest = self._llm.engine.max_context
        dialogues = [self._plan.dialogue(turns, self.template, longest) for turns in chunk]
        failed: dict[int, str] = {}
        while asked := self._ask(dialogues, failed):
            self._round(asked, failed)
        return [
            Outcome(line=dialogue.turns.line, reason=failed[dialogue.turns.line])
            if dialogue.turns.line in failed
            else Outcome(line=dialogue.turns.line, conversations=tuple(dialogue.conversations()))
            for dialogue in dialogues
        ]

    def _ask(self, dialogues: Sequence[Dialogue], failed: dict[int, str]) -> list[tuple[Dialogue, list[int]]]:
        """Dialogues with a further user turn, and their prompts."""
        asked = []
        for dialogue in dialogues:
            if dialogue.turns.line in failed:
                continue
            try:
                prompt = dialogue.ask()
            except BadPromptError as bad:
                failed[dialogue.turns.line] = str(bad)
                continue
            if prompt is not None:
                asked.append((dialogue, prompt))
        return asked

    def _round(self, asked: Sequence[tuple[Dialogue, list[int]]], failed: dict[int, str]) -> None:
        """Answer one turn of each."""
        params = [self._params(dialogue) for dialogue, _ in asked]
        outputs = self._llm.generate([prompt for _, prompt in asked], params, progress=False)
        for (dialogue, _), output in zip(asked, outputs, strict=True):
            try:
                _take(dialogue, output.outputs[0])
            except BadPromptError as bad:
                failed[dialogue.turns.line] = str(bad)

    def _params(self, dialogue: Dialogue) -> SamplingParams:
        return SamplingParams(
            temperature=dialogue.temperature,
            top_k=self._plan.top_k,
            top_p=self._plan.top_p,
            max_tokens=min(self._plan.answer_tokens, dialogue.room()),
            stop_token_ids=(self.template.end,),
            seed=self._plan.seed_of(dialogue),
        )


def _take(dialogue: Dialogue, answer: CompletionOutput) -> None:
    if answer.finish_reason not in (FinishReason.STOP, FinishReason.LENGTH):
        raise BadPromptError(f"the answer to turn {dialogue.asked} ended by {answer.finish_reason}")
    dialogue.answer(list(answer.token_ids), answer.text, complete=answer.finish_reason is FinishReason.STOP)
