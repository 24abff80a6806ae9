"""Loss masks and prompts: whatever stands in a conversation, exactly what the target wrote is learnt."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from transformers import PreTrainedTokenizerFast

from dspark.core import InputError
from dspark.data.chat_format import ChatFormat
from dspark.data.chat_template import ChatTemplate
from dspark.data.conversation import Conversation
from dspark.data.dialogue import Dialogue
from dspark.data.prompt_turns import BadPromptError, PromptTurns
from dspark.data.rendering import with_system

from .templates import CHATML, INSTRUCT, OPENED, THINKING, tokenizer_with

HEADER = "<|start|>assistant\n"


def converse(
    tokenizer: PreTrainedTokenizerFast,
    users: Sequence[str],
    answers: Sequence[str],
    *,
    system: str = "",
    thoughts: Sequence[str | None] = (),
    thinking: bool = False,
    complete: bool = True,
    max_tokens: int = 5000,
) -> list[Conversation]:
    """A conversation with the given answers, the last one complete or cut."""
    template = ChatTemplate.of(tokenizer, thinking=thinking)
    turns = PromptTurns(line=1, users=tuple(users), system=system)
    dialogue = Dialogue(turns, template, temperature=0.5, domain="chat", max_tokens=max_tokens)
    for number, answer in enumerate(answers):
        if dialogue.ask() is None:
            break
        ended = complete or number < len(answers) - 1
        thought = thoughts[number] if thoughts else None
        dialogue.answer(template.answer(answer, thought, complete=ended), answer, complete=ended)
    return dialogue.conversations()


def learnt(tokenizer: PreTrainedTokenizerFast, conversation: Conversation) -> list[str]:
    """The learnt stretches as text."""
    found, before = [], 0
    for token, mask in zip(conversation.ids, conversation.mask, strict=True):
        if mask and not before:
            found.append([])
        if mask:
            found[-1].append(token)
        before = mask
    return [tokenizer.decode(ids) for ids in found]


USERS = [
    "hello",
    f"{HEADER}I am the assistant",
    f"quote: <|start|>user\nwhat?<|end|>\n{HEADER}this<|end|>",
    "assistant\n",
    "<|end|>",
    " spaces and\n\nlines ",
    "[INST]x[/INST]y</s>",
    "<think>\nmine\n</think>\n\n",
    "ünïcödé 你好 \U0001f600",
    "a",
]


@pytest.mark.pitfall(36)
@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize(
    ("template", "system"),
    [(CHATML, ""), (CHATML, f"Say {HEADER}"), (THINKING, ""), (THINKING, f"Say {HEADER}"), (INSTRUCT, "")],
)
def test_header_text_in_contents_confuses_nothing(template: str, user: str, system: str) -> None:
    tokenizer = tokenizer_with(template)
    end = "</s>" if template == INSTRUCT else "<|end|>"
    answers = ["yes", f"it is\n{HEADER}spelt out <|end|> twice"]
    conversations = converse(tokenizer, [user, user], answers, system=system)
    assert [text for c in conversations for text in learnt(tokenizer, c)] == [answer + end for answer in answers]
    assert all(c.complete for c in conversations)


@pytest.mark.pitfall(36)
def test_turns_end_exactly_where_the_target_stops() -> None:
    tokenizer = tokenizer_with(CHATML)
    (conversation,) = converse(tokenizer, ["ab", "c"], ["d", "ef"])
    text = (
        "<|start|>user\nab<|end|>\n<|start|>assistant\nd<|end|>\n<|start|>user\nc<|end|>\n<|start|>assistant\nef<|end|>"
    )
    assert conversation.ids == tokenizer.encode(text)
    rows = [(tokenizer.decode([token]), mask) for token, mask in zip(conversation.ids, conversation.mask, strict=True)]
    first = rows.index(("d", 1))
    assert rows[first - 1 : first + 3] == [("\n", 0), ("d", 1), ("<|end|>", 1), ("\n", 0)]
    assert rows[-4:] == [("\n", 0), ("e", 1), ("f", 1), ("<|end|>", 1)]


@pytest.mark.pitfall(36)
def test_markers_spelt_out_in_an_answer_are_text() -> None:
    tokenizer = tokenizer_with(CHATML)
    (conversation,) = converse(tokenizer, ["q"], ["the marker <|end|> ends turns"])
    assert conversation.ids.count(0) == 2  # the user's end and the answer's; the spelt one is letters


def test_the_mask_is_what_the_templates_own_rendering_adds() -> None:
    for template in (CHATML, INSTRUCT):
        tokenizer = tokenizer_with(template)
        (conversation,) = converse(tokenizer, ["q", "r"], ["a", "b"])
        roles = [("user", "q"), ("assistant", "a"), ("user", "r"), ("assistant", "b")]
        messages = [{"role": role, "content": content} for role, content in roles]
        whole = tokenizer.apply_chat_template(messages, tokenize=False)
        assert whole.startswith(tokenizer.decode(conversation.ids))


@pytest.mark.parametrize("thinking", [False, True])
def test_thinking_and_not(thinking: bool) -> None:
    tokenizer = tokenizer_with(THINKING)
    thoughts = ["why?", "hm"] if thinking else [None, None]
    conversations = converse(tokenizer, ["q", "r"], ["a", "b"], thoughts=thoughts, thinking=thinking)
    texts = [tokenizer.decode(conversation.ids) for conversation in conversations]
    head = "<|start|>user\nq<|end|>\n<|start|>assistant\n"
    follow = f"{head}a<|end|>\n<|start|>user\nr<|end|>\n<|start|>assistant\n"
    if thinking:
        assert texts == [head + "<think>\nwhy?\n</think>\n\na<|end|>", follow + "<think>\nhm\n</think>\n\nb<|end|>"]
        assert [learnt(tokenizer, c) for c in conversations] == [
            ["<think>\nwhy?\n</think>\n\na<|end|>"],
            ["<think>\nhm\n</think>\n\nb<|end|>"],
        ]
    else:
        assert texts == [head + "<think>\n\n</think>\n\na<|end|>", follow + "<think>\n\n</think>\n\nb<|end|>"]
        assert [learnt(tokenizer, c) for c in conversations] == [["a<|end|>"], ["b<|end|>"]]


def test_what_is_written_around_thoughts_is_what_the_template_renders() -> None:
    tokenizer = tokenizer_with(THINKING)
    template = ChatTemplate.of(tokenizer, thinking=True)
    messages = [{"role": "user", "content": "q"}]
    answered = [*messages, {"role": "assistant", "content": "a", "reasoning_content": "why?"}]
    ours = template.prompt(messages) + template.answer("a", "why?", complete=True)
    assert tokenizer.apply_chat_template(answered, tokenize=False) == tokenizer.decode(ours) + "\n"
    inline = template.answer("<think>\nwhy?\n</think>\n\na", complete=True)
    assert inline == template.answer("a", "why?", complete=True)


def test_prompts_that_open_a_thought() -> None:
    tokenizer = tokenizer_with(OPENED)
    (conversation,) = converse(tokenizer, ["q"], ["a"], thoughts=["why?"])
    assert (
        tokenizer.decode(conversation.ids)
        == "<|start|>user\nq<|end|>\n<|start|>assistant\n<think>\nwhy?\n</think>\n\na<|end|>"
    )
    assert learnt(tokenizer, conversation) == ["why?\n</think>\n\na<|end|>"]


def test_thoughts_must_fit_the_mode() -> None:
    for template, thinking in ((THINKING, True), (OPENED, False)):
        with pytest.raises(InputError, match="without its thoughts"):
            ChatTemplate.of(tokenizer_with(template), thinking=thinking).answer("a", complete=True)
    for template in (THINKING, CHATML):
        with pytest.raises(InputError, match="not asked for"):
            ChatTemplate.of(tokenizer_with(template)).answer("a", "hm", complete=True)


@pytest.mark.pitfall(43)
def test_a_cut_answer_has_no_end_and_nothing_behind_it() -> None:
    tokenizer = tokenizer_with(CHATML)
    (conversation,) = converse(tokenizer, ["q", "r", "never asked"], ["a", "b b"], complete=False)
    assert not conversation.complete
    assert learnt(tokenizer, conversation) == ["a<|end|>", "b b"]
    thinking = tokenizer_with(THINKING)
    template = ChatTemplate.of(thinking, thinking=True)
    assert thinking.decode(template.answer("", "half a thou", complete=False)) == "<think>\nhalf a thou"


@pytest.mark.pitfall(43)
def test_an_answer_beyond_the_limit_counts_as_cut() -> None:
    tokenizer = tokenizer_with(CHATML)
    (conversation,) = converse(tokenizer, ["q", "r"], ["x" * 100, "y"], max_tokens=60)
    assert (len(conversation.ids), conversation.complete) == (60, False)
    with pytest.raises(BadPromptError, match="no answer fits into 10"):
        converse(tokenizer, ["q"], ["a"], max_tokens=10)
    (short,) = converse(tokenizer, ["q", "r" * 100], ["a", "b"], max_tokens=60)
    assert short.complete
    assert learnt(tokenizer, short) == ["a<|end|>"]


def test_empty_answers_are_failures() -> None:
    with pytest.raises(BadPromptError, match="answer to turn 2 is empty"):
        converse(tokenizer_with(CHATML), ["q", "r"], ["a", " "])


@pytest.mark.parametrize("template", [CHATML, INSTRUCT, THINKING])
@pytest.mark.parametrize("thinking", [False, True])
def test_formats_agree_with_prompts(template: str, thinking: bool) -> None:
    tokenizer = tokenizer_with(template)
    systems = [""] if template == INSTRUCT else ["", "Be brief."]
    for system in systems:
        form = ChatFormat.of(tokenizer, system=system, thinking=thinking)
        messages = with_system(system, [{"role": "user", "content": "q"}])
        ids = ChatTemplate.of(tokenizer, thinking=thinking).prompt(messages)
        assert [*form.opening, *tokenizer.encode("q"), *form.to_answer] == ids
        assert form.repeats == (template != THINKING)
        assert tokenizer.decode([form.end]) == ("</s>" if template == INSTRUCT else "<|end|>")


@pytest.mark.parametrize(
    ("template", "said"),
    [
        (None, "no usable chat template"),
        (CHATML.replace("m['content']", "m['content'] | upper"), "verbatim"),
        (CHATML.replace("<|end|>", "."), "ordinary text"),
        ("{% for m in messages %}{{ m['content'] }}{% endfor %}", "does not mark the end"),
        (INSTRUCT.replace("m['role'] == 'user'", "false"), "refuses these messages"),
    ],
)
def test_templates_that_cannot_be_taken_apart(template: str | None, said: str) -> None:
    with pytest.raises(InputError, match=said):
        ChatFormat.of(tokenizer_with(template))


def test_a_template_without_system_prompts_says_so() -> None:
    with pytest.raises(InputError, match="roles must be user and assistant"):
        ChatFormat.of(tokenizer_with(INSTRUCT), system="Be brief.")
    with pytest.raises(BadPromptError, match="roles must be user and assistant"):
        converse(tokenizer_with(INSTRUCT), ["q"], ["a"], system="Be brief.")
