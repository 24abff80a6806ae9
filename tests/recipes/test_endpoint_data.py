"""Answers of an OpenAI-compatible endpoint: many at a time, retried, never taken for complete when they are not."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from dspark.core import InputError
from dspark.data.chat_template import ChatTemplate
from dspark.data.conversation import Conversation, read_conversations
from dspark.data.duplicates import Duplicates
from dspark.data.prompt_source import PromptReader, open_source
from dspark.recipes.endpoint import Endpoint, only_model
from dspark.recipes.endpoint_answers import EndpointAnswers
from dspark.recipes.regenerated_file import RegeneratedFile
from dspark.recipes.regeneration import regenerate
from dspark.recipes.regeneration_plan import RegenerationPlan

from ..data.templates import CHATML, THINKING, tokenizer_with
from .fake_openai import Reply, serving

pytest.importorskip("openai")
TOKENIZER = tokenizer_with(CHATML)
Messages = list[dict[str, str]]


def write(path: Path, prompts: Sequence[Any]) -> Path:
    path.write_text("".join(json.dumps(prompt) + "\n" for prompt in prompts))
    return path


def answer(
    url: str, prompts: Path, out: Path, *, tokenizer: Any = TOKENIZER, retry: bool = False, **changes: Any
) -> tuple[RegeneratedFile, EndpointAnswers]:
    """Answer prompts with short waits."""
    options = {"first_wait": 0.01, "longest_wait": 0.05, "in_flight": 8, "attempts": 4}
    plan = RegenerationPlan(domain="test", **{k: v for k, v in changes.items() if k not in options})
    endpoint = Endpoint(base_url=url, model="tiny", **(options | {k: v for k, v in changes.items() if k in options}))
    answers = EndpointAnswers(endpoint, ChatTemplate.of(tokenizer, thinking=plan.thinking), plan)
    reader = PromptReader(source=open_source(str(prompts)), duplicates=Duplicates.KEEP)
    file = RegeneratedFile.open(out, {"source": reader.source.identity(), "target": "t"}, retry_failures=retry)
    regenerate(reader, answers, file)
    return file, answers


def texts(path: Path, tokenizer: Any = TOKENIZER) -> dict[int | None, str]:
    return {conversation.line: tokenizer.decode(conversation.ids) for conversation in read_conversations(path)}


def failures(file: RegeneratedFile) -> dict[int, dict[str, Any]]:
    return {entry["line"]: entry for entry in map(json.loads, file.failures.read_text().splitlines())}


def turns(count: int) -> list[dict[str, list[str]]]:
    return [{"turns": [f"question {number}"]} for number in range(count)]


def test_many_at_a_time_in_the_targets_tokens(tmp_path: Path) -> None:
    prompts = write(tmp_path / "p.jsonl", turns(24))
    with serving(lambda messages, times: Reply(f"re: {messages[-1]['content']}", delay=0.05)) as fake:
        file, _ = answer(fake.url, prompts, tmp_path / "out.jsonl", temperatures={0.7: 1.0}, top_k=5, answer_tokens=9)
    assert 4 <= fake.most <= 8
    assert (file.count, file.failed) == (24, 0)
    assert not file.failures.exists()
    found = texts(file.path)
    head = "<|start|>user\nquestion 3<|end|>\n<|start|>assistant\n"
    assert found[4] == f"{head}re: question 3<|end|>"
    four = next(conversation for conversation in read_conversations(file.path) if conversation.line == 4)
    assert four.ids[: four.mask.index(1)] == TOKENIZER.encode(head)
    assert (four.domain, four.temperature, four.complete) == ("test", 0.7, True)
    body = fake.requests[0]
    assert (body["temperature"], body["max_tokens"], body["top_k"]) == (0.7, 9, 5)
    assert len({body["seed"] for body in fake.requests}) == 24
    assert "chat_template_kwargs" not in body


def test_user_turns_come_from_the_file_and_answers_do_not(tmp_path: Path) -> None:
    old = {"role": "assistant", "content": "an old answer"}
    user = [{"role": "user", "content": text} for text in ("one", "two", "three")]
    system = {"role": "system", "content": "Be brief."}
    prompts = write(tmp_path / "p.jsonl", [{"messages": [system, user[0], old, user[1], old, user[2]]}])
    with serving(lambda messages, times: Reply(f"new {len(messages)}")) as fake:
        file, _ = answer(fake.url, prompts, tmp_path / "out.jsonl")
    asked = [[message["content"] for message in body["messages"]] for body in fake.requests]
    assert asked[-1] == ["Be brief.", "one", "new 2", "two", "new 4", "three"]
    assert asked[:2] == [asked[-1][:2], asked[-1][:4]]
    (conversation,) = read_conversations(file.path)
    assert "old" not in texts(file.path)[1]
    assert sum(conversation.mask) == 3 * (len("new 2") + 1)


def test_refusals_that_pass_are_waited_for(tmp_path: Path) -> None:
    """Errors 429 and 500, a Retry-After, a broken connection, an empty list of choices: all right in the end."""
    first = {
        "question 0": Reply(status=429, headers={"Retry-After": "0.05"}),
        "question 1": Reply(status=500),
        "question 2": Reply(cut=True),
        "question 3": Reply(status=503, headers={"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}),
    }

    def behave(messages: Messages, times: int) -> Reply:
        return first.get(messages[-1]["content"], Reply()) if times <= 2 else Reply("at last")

    prompts = write(tmp_path / "p.jsonl", turns(5))
    with serving(behave) as fake:
        file, _ = answer(fake.url, prompts, tmp_path / "out.jsonl")
    assert (file.count, file.failed) == (5, 0)
    assert len(fake.requests) == 4 * 3 + 1
    assert all("at last" in text or line == 5 for line, text in texts(file.path).items())


@pytest.mark.pitfall(43)
def test_cut_answers_end_their_conversation_and_are_marked(tmp_path: Path) -> None:
    def behave(messages: Messages, times: int) -> Reply:
        return Reply("half an answ\ufffd", finish="length") if len(messages) > 2 else Reply("whole")

    prompts = write(tmp_path / "p.jsonl", [{"turns": ["a", "b", "never asked"]}, {"turns": ["c"]}])
    with serving(behave) as fake:
        file, _ = answer(fake.url, prompts, tmp_path / "out.jsonl")
    found: dict[int | None, Conversation] = {c.line: c for c in read_conversations(file.path)}
    assert (found[1].complete, found[2].complete, file.cut) == (False, True, 1)
    assert texts(file.path)[1].endswith("half an answ")
    assert found[1].ids[-1] != TOKENIZER.eos_token_id
    assert found[2].ids[-1] == TOKENIZER.eos_token_id
    assert "never asked" not in json.dumps(fake.requests)


def test_failures_are_kept_apart_with_reason_and_line(tmp_path: Path) -> None:
    replies = {
        "question 0": Reply(finish="content_filter"),
        "question 1": Reply(""),
        "question 2": Reply(status=400),
        "question 3": Reply(status=500),
        "question 4": Reply(finish=None),
        "question 5": Reply(thoughts="not asked for"),
        "question 6": Reply(None, finish="tool_calls"),
    }
    prompts = write(tmp_path / "p.jsonl", turns(10))
    out = tmp_path / "out.jsonl"
    with serving(lambda messages, times: replies.get(messages[-1]["content"], Reply())) as fake:
        file, _ = answer(fake.url, prompts, out)
        assert (file.count, file.failed) == (3, 7)
        found = failures(file)
        assert sorted(found) == [1, 2, 3, 4, 5, 6, 7]
        for line, said in (
            (1, "content_filter"),
            (2, "is empty"),
            (3, "status 400"),
            (4, "status 500"),
            (6, "thoughts"),
        ):
            assert said in found[line]["reason"]
        assert found[4]["attempts"] == 4
        before = len(fake.requests)
        answer(fake.url, prompts, out)
        assert len(fake.requests) == before, "what failed is not tried again by itself"
        fake.behave = lambda messages, times: Reply()
        file, _ = answer(fake.url, prompts, out, retry=True)
    assert (file.count, file.failed, len(texts(out))) == (10, 0, 10)
    assert file.failures.read_text() == ""


@pytest.mark.parametrize(("status", "said"), [(401, "wrong key"), (404, "no such model"), (403, "not allowed")])
def test_what_no_retry_mends_stops_at_once(tmp_path: Path, status: int, said: str) -> None:
    def behave(messages: Messages, times: int) -> Reply:
        return Reply(status=status, delay=0.2) if messages[-1]["content"] == "question 9" else Reply()

    prompts = write(tmp_path / "p.jsonl", turns(10))
    out = tmp_path / "out.jsonl"
    with serving(behave) as fake:
        with pytest.raises(InputError, match=said):
            answer(fake.url, prompts, out, in_flight=2)
        fake.behave = lambda messages, times: Reply()
        file, _ = answer(fake.url, prompts, out)
    assert (file.count, file.failed) == (10, 0)
    asked = [body["messages"][-1]["content"] for body in fake.requests]
    assert len(asked) == 11


def test_a_dead_endpoint_is_no_failure_of_the_prompts(tmp_path: Path) -> None:
    prompts = write(tmp_path / "p.jsonl", turns(30))
    out = tmp_path / "out.jsonl"
    with serving(lambda messages, times: Reply()) as fake:
        url = fake.url
    with pytest.raises(InputError, match="does not answer"):
        answer(url, prompts, out)
    with pytest.raises(InputError, match="cannot ask"):
        only_model(url, "none")
    with serving(lambda messages, times: Reply()) as fake:
        file, _ = answer(fake.url, prompts, out)
    assert (file.count, file.failed) == (30, 0)


def test_the_only_model_is_found() -> None:
    with serving(lambda messages, times: Reply()) as fake:
        assert only_model(fake.url, "none") == "tiny"
    with serving(lambda messages, times: Reply(), models=("a", "b")) as fake, pytest.raises(InputError, match="a, b"):
        only_model(fake.url, "none")


@pytest.mark.parametrize("thinking", [False, True])
def test_thinking_is_asked_for_and_learnt(tmp_path: Path, thinking: bool) -> None:
    tokenizer = tokenizer_with(THINKING)
    prompts = write(tmp_path / "p.jsonl", [{"turns": ["q"]}])
    with serving(lambda messages, times: Reply("a", thoughts="hm" if thinking else None)) as fake:
        file, _ = answer(fake.url, prompts, tmp_path / "out.jsonl", tokenizer=tokenizer, thinking=thinking)
    assert fake.requests[0]["chat_template_kwargs"] == {"enable_thinking": thinking}
    (conversation,) = read_conversations(file.path)
    learnt = [token for token, mask in zip(conversation.ids, conversation.mask, strict=True) if mask]
    assert tokenizer.decode(learnt) == ("<think>\nhm\n</think>\n\na<|end|>" if thinking else "a<|end|>")


@pytest.mark.pitfall(37)
def test_a_server_that_renders_otherwise_is_noticed(tmp_path: Path) -> None:
    ours = len(TOKENIZER.encode("<|start|>user\nquestion 0<|end|>\n<|start|>assistant\n"))

    def behave(messages: Messages, times: int) -> Reply:
        return Reply(prompt_tokens=ours if messages[-1]["content"] != "question 1" else ours + 12)

    with serving(behave) as fake:
        _, answers = answer(fake.url, write(tmp_path / "p.jsonl", turns(3)), tmp_path / "out.jsonl")
    assert (answers.differing, answers.counted) == (1, 3)


def test_killed_and_gone_on_with(tmp_path: Path) -> None:
    """Kill -9 in the middle: what is recorded is kept, everything else is asked again, nothing is there twice."""
    prompts, out = write(tmp_path / "p.jsonl", turns(30)), tmp_path / "out.jsonl"

    def slow(messages: Messages, times: int) -> Reply:
        return Reply(delay=0.01 if int(messages[-1]["content"].split()[1]) < 12 else 60.0)

    with serving(slow) as fake:
        run = multiprocessing.get_context("fork").Process(target=answer, args=(fake.url, prompts, out))
        run.start()
        end = time.monotonic() + 60
        while not (out.exists() and len(out.read_bytes().splitlines()) >= 12):
            assert run.is_alive()
            assert time.monotonic() < end
            time.sleep(0.02)
        time.sleep(0.1)
        run.kill()
        run.join()
        assert run.exitcode == -signal.SIGKILL
    whole = out.read_bytes()
    out.write_bytes(whole + b'{"ids": [1, 2')  # what a write cut in two would leave
    with serving(lambda messages, times: Reply()) as fake:
        file, _ = answer(fake.url, prompts, out)
        assert len(fake.requests) == 18
    assert out.read_bytes().startswith(whole)
    assert sorted(conversation.line or 0 for conversation in read_conversations(out)) == list(range(1, 31))
    assert (file.count, file.failed) == (30, 0)


def test_ctrl_c_keeps_what_is_finished(tmp_path: Path) -> None:
    prompts, out = write(tmp_path / "p.jsonl", turns(20)), tmp_path / "out.jsonl"

    def behave(messages: Messages, times: int) -> Reply:
        if messages[-1]["content"] == "question 10":
            os.kill(os.getpid(), signal.SIGINT)
            return Reply(delay=1.0)
        return Reply()

    with serving(behave) as fake:
        with pytest.raises(KeyboardInterrupt, match="the same command goes on from there"):
            answer(fake.url, prompts, out, in_flight=1)
        fake.behave = lambda messages, times: Reply()
        assert len(texts(out)) == 10
        file, _ = answer(fake.url, prompts, out, in_flight=1)
    assert file.count == 20
    assert len(fake.requests) == 21


def test_a_server_that_comes_back(tmp_path: Path) -> None:
    """Lost requests count as failures once another one gets through, and the run goes on."""

    def behave(messages: Messages, times: int) -> Reply:
        return Reply(status=502) if messages[-1]["content"] in ("question 3", "question 19") else Reply()

    with serving(behave) as fake:
        file, _ = answer(fake.url, write(tmp_path / "p.jsonl", turns(20)), tmp_path / "out.jsonl", in_flight=1)
    assert (file.count, sorted(failures(file))) == (18, [4, 20])
