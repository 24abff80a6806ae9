"""The Python API on a tiny model with a real tokenizer."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import dspark.engine.progress as progress_module
from dspark import LLM, RequestOutput, SamplingParams
from dspark.core import FinishReason, InputError, RequestsFailedError, TokenOrigin
from dspark.drafters import NgramDrafter, NullDrafter
from dspark.drafters.dspark import DSparkCheckpoint, DSparkConfig, DSparkModel, HeadType, save_checkpoint
from dspark.engine import StepOutput
from dspark.engine.calibrating import UNCALIBRATED
from dspark.engine.choice import choose_drafter, shipped_drafter
from dspark.engine.memory import bytes_per_page, count_pages, default_kv_memory
from dspark.engine.progress import LateProgress
from dspark.target import LoadedTarget

from .tiny import PAGE, byte_tokenizer, greedy, tiny_drafter, tiny_target

VOCAB = 262


@pytest.fixture(scope="module")
def loaded() -> LoadedTarget:
    return LoadedTarget(
        target=tiny_target(VOCAB), tokenizer=byte_tokenizer(), name="tiny", source="memory", notes=("a note",)
    )


@pytest.fixture
def llm(loaded: LoadedTarget) -> LLM:
    return LLM(loaded, drafter="ngram", seed=1)


def texts(outputs: list[RequestOutput]) -> list[str]:
    return [output.outputs[0].text for output in outputs]


def test_importing_the_package_loads_no_library() -> None:
    code = "import sys, dspark; print('torch' in sys.modules, sorted(dspark.__all__))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "False ['LLM', 'RequestOutput', 'SamplingParams']"
    import dspark

    assert {"LLM", "RequestOutput", "SamplingParams"} <= set(dir(dspark))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = dspark.nothing  # type: ignore[attr-defined]


def test_generate_in_the_order_of_the_prompts(llm: LLM) -> None:
    prompts = ["a long prompt about the sea and the sand", "b", "the the the"]
    params = [greedy(3), greedy(20), greedy(9)]
    found = llm.generate(prompts, params)
    assert [output.prompt for output in found] == prompts
    assert [len(output.outputs[0].token_ids) for output in found] == [3, 20, 9]
    for prompt, output in zip(prompts, found, strict=True):
        assert list(output.prompt_token_ids) == byte_tokenizer().encode(prompt)
        assert output.outputs[0].text == byte_tokenizer().decode(output.outputs[0].token_ids)
    alone = [llm.generate(prompt, option)[0] for prompt, option in zip(prompts, params, strict=True)]
    assert texts(alone) == texts(found)


def test_prompts_may_be_token_ids(llm: LLM) -> None:
    ids = byte_tokenizer().encode("the")
    by_text, by_ids, by_list = (llm.generate(prompt, greedy(5))[0] for prompt in ("the", ids, [ids]))
    assert by_text.outputs[0].token_ids == by_ids.outputs[0].token_ids == by_list.outputs[0].token_ids
    assert (by_text.prompt, by_ids.prompt) == ("the", None)
    assert llm.generate([], greedy(5)) == []


def test_n_answers(llm: LLM) -> None:
    found = llm.generate("the", SamplingParams(n=3, max_tokens=6, seed=5))[0]
    assert [completion.index for completion in found.outputs] == [0, 1, 2]


def test_chat_uses_the_template(llm: LLM) -> None:
    talk = [{"role": "user", "content": "hello"}]
    one = llm.chat(talk, greedy(5))
    assert one[0].prompt == "user: hello\nassistant: "
    assert texts(llm.chat([talk, talk], greedy(5))) == texts(one) * 2
    assert texts(llm.generate("user: hello\nassistant: ", greedy(5))) == texts(one)


def test_streams_are_the_same_text_in_pieces(llm: LLM) -> None:
    params = greedy(12, logprobs=1)
    whole = llm.generate("the abc", params)[0].outputs[0]
    pieces = list(llm.stream("the abc", params))
    assert "".join(piece.text for piece in pieces) == whole.text
    assert sum((piece.token_ids for piece in pieces), ()) == whole.token_ids
    assert pieces[-1].completion is not None
    assert pieces[-1].completion.token_ids == whole.token_ids
    origins = [piece.origin for output in pieces for piece in output.pieces]
    assert TokenOrigin.PLAIN in origins


def test_two_streams_and_a_call_at_a_time(llm: LLM) -> None:
    talk = [{"role": "user", "content": "hello"}]
    expected = [texts(llm.generate("abc", greedy(10)))[0], texts(llm.chat(talk, greedy(10)))[0]]
    first, second = llm.stream("abc", greedy(10)), llm.stream(talk, greedy(10))
    got = [next(first).text, next(second).text]
    assert len(llm.generate(["x", "y"], greedy(3))) == 2
    got[0] += "".join(piece.text for piece in first)
    got[1] += "".join(piece.text for piece in second)
    assert got == expected
    assert not llm.engine.has_unfinished()


def test_closing_a_stream_aborts_it(llm: LLM) -> None:
    stream = llm.stream("abc", greedy(50))
    next(stream)
    assert llm.engine.has_unfinished()
    stream.close()  # type: ignore[attr-defined]
    assert not llm.engine.has_unfinished()
    llm.engine.check_integrity()


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_interrupted_calls_leave_nothing_behind(
    llm: LLM, error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = texts(llm.generate(["abc", "x"], greedy(8)))
    step, calls = llm.engine.step, []

    def failing() -> Any:
        calls.append(None)
        if len(calls) == 3:
            raise error("injected")
        return step()

    with monkeypatch.context() as patch:
        patch.setattr(llm.engine, "step", failing)
        with pytest.raises(error):
            llm.generate(["abc", "x"], greedy(8))
    assert not llm.engine.has_unfinished()
    llm.engine.check_integrity()
    assert texts(llm.generate(["abc", "x"], greedy(8))) == expected


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda llm: llm.generate(""), "the prompt is empty"),
        (lambda llm: llm.generate(["ok", ""]), "the prompt is empty"),
        (lambda llm: llm.generate([[]]), "the prompt is empty"),
        (lambda llm: llm.generate("a\udcff"), r"the prompt is no Unicode text: character 1 is '.udcff'"),
        (lambda llm: llm.chat([{"role": "user", "content": "\ud800"}]), "content of a message is no Unicode text"),
        (lambda llm: llm.generate(3), "prompts must be a text, token ids, or a list of these, got int"),
        (lambda llm: llm.generate(["ok", 3]), "a prompt must be a text or a list of token ids, got int"),
        (lambda llm: llm.generate("x" * 300), "300 tokens, but the context holds 96"),
        (lambda llm: llm.generate([1, 999]), "token id 999"),
        (lambda llm: llm.generate(["a", "b"], [greedy(1)]), "2 prompts but 1 sampling params"),
        (lambda llm: llm.generate("a", {"n": 1}), "params must be SamplingParams or a list"),
        (lambda llm: llm.generate(["ok", "no"], [greedy(2), greedy(2, logit_bias={300: 1.0})]), "token 300"),
        (lambda llm: llm.chat([]), "messages must be a non-empty list"),
        (lambda llm: llm.chat("hello"), "messages must be a non-empty list"),
        (lambda llm: llm.chat([{"role": "user"}]), "content of a message must be a text, got None"),
        (lambda llm: llm.chat([{"content": "x"}]), "a message must be a"),
        (lambda llm: llm.chat([[]]), "conversation must be a non-empty list"),
        (lambda llm: llm.stream(["a", "b"]), "stream.. takes one prompt, got 2"),
        (lambda llm: list(llm.stream("x" * 300)), "300 tokens"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(llm: LLM, call: Any, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        call(llm)
    assert "\n" not in str(caught.value)
    assert not llm.engine.has_unfinished()


def test_a_model_without_a_template_cannot_chat(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(byte_tokenizer(), "chat_template", None)
    with pytest.raises(InputError, match="no chat template"):
        llm.chat([{"role": "user", "content": "x"}])


def test_a_template_that_refuses_is_no_crash(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(byte_tokenizer(), "chat_template", "{{ raise_exception('roles must alternate') }}")
    with pytest.raises(InputError, match="refuses these messages: roles must alternate"):
        llm.chat([{"role": "user", "content": "x"}])


@pytest.fixture(scope="module")
def checkpoint(loaded: LoadedTarget, tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = tiny_drafter(loaded.target).config
    place = tmp_path_factory.mktemp("drafter") / "one"
    save_checkpoint(place, DSparkCheckpoint(model=DSparkModel(config)))
    return place


def test_drafters_by_name_path_and_object(loaded: LoadedTarget, checkpoint: Path) -> None:
    target = loaded.target
    assert isinstance(choose_drafter("none", target, "tiny")[0], NullDrafter)
    assert isinstance(choose_drafter("ngram", target, "tiny")[0], NgramDrafter)
    drafter, note = choose_drafter("auto", target, "tiny")
    assert isinstance(drafter, NullDrafter)
    assert note == "no drafter is shipped for target 'tiny': plain decoding"
    mine = NgramDrafter()
    assert choose_drafter(mine, target, "tiny")[0] is mine
    for spec in (checkpoint, str(checkpoint)):
        assert choose_drafter(spec, target, "tiny")[0].name == "dspark"
    answer = texts(LLM(loaded, drafter=checkpoint).generate("the", greedy(12)))
    assert answer == texts(LLM(loaded, drafter="none").generate("the", greedy(12)))


def test_auto_takes_what_is_shipped(
    loaded: LoadedTarget, checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shipped").mkdir()
    (tmp_path / "shipped" / "tiny").symlink_to(checkpoint)
    monkeypatch.setattr("dspark.engine.choice.files", lambda package: tmp_path)
    assert shipped_drafter("tiny") == tmp_path / "shipped" / "tiny"
    assert shipped_drafter("../tiny") is None
    assert shipped_drafter("") is None
    llm = LLM(loaded)
    assert llm.drafter.name == "dspark"
    assert llm.notes[:4] == ("a note", "drafter shipped with dspark for tiny", UNCALIBRATED, "policy 'async'")


def test_bad_drafters_are_refused(loaded: LoadedTarget, tmp_path: Path) -> None:
    for spec, message in [
        ("nonsense", "there is no drafter 'nonsense'"),
        (NgramDrafter, "drafter must be"),
        (3, "drafter must be"),
        (tmp_path, "config.json"),
    ]:
        with pytest.raises(InputError, match=message):
            choose_drafter(spec, loaded.target, "tiny")  # type: ignore[arg-type]
    config = DSparkConfig(
        hidden_size=16,
        intermediate_size=48,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        vocab_size=VOCAB,
        block_size=3,
        mask_token_id=1,
        target_layer_ids=(0,),
        num_target_layers=2,
        head_type=HeadType.NONE,
        markov_rank=0,
    )
    save_checkpoint(tmp_path / "other", DSparkCheckpoint(model=DSparkModel(config)))
    with pytest.raises(InputError, match="made for another target: it has hidden size 16"):
        LLM(loaded, drafter=tmp_path / "other")


def test_policies_by_name(loaded: LoadedTarget, checkpoint: Path) -> None:
    assert LLM(loaded, drafter=checkpoint, policy="threshold:0.4").policy.name == "threshold:0.4"
    for drafter, policy in ((checkpoint, "async"), ("ngram", "fixed"), ("none", "fixed")):
        assert LLM(loaded, drafter=drafter).policy.name == policy
    assert LLM(loaded, drafter="ngram", policy="async").policy.name == "async"
    assert LLM(loaded, drafter="none", policy="async").policy.name == "fixed"
    with pytest.raises(InputError, match="'sync' needs a drafter with a confidence head, and drafter 'ngram' has none"):
        LLM(loaded, drafter="ngram", policy="sync")
    with pytest.raises(InputError, match="unknown policy"):
        LLM(loaded, policy="fastest")
    with pytest.raises(InputError, match="confidence head"):
        LLM(loaded, drafter="ngram", policy="threshold:0.4")


def test_memory(loaded: LoadedTarget) -> None:
    target = loaded.target
    drafter = tiny_drafter(target)
    page = bytes_per_page(target, drafter)
    assert page == PAGE * 4 * (2 * 2 * 2 * 8 + 1 * 2 * 2 * 8)
    sizes: dict[str, Any] = {"max_requests": 3, "context": 10, "kv_tokens": None, "kv_memory": None}
    assert count_pages(target, drafter, **sizes) == 9
    assert count_pages(target, drafter, **sizes | {"kv_tokens": 41}) == 11
    assert count_pages(target, drafter, **sizes | {"kv_memory": 7 * page + 1}) == 7
    for wrong, message in [
        ({"kv_tokens": 1, "kv_memory": 1}, "not both"),
        ({"kv_memory": page - 1}, "at least one page"),
        ({"kv_tokens": 0}, "kv_tokens must be an integer >= 1, got 0"),
        ({"kv_memory": 1.5}, "kv_memory must be"),
    ]:
        with pytest.raises(InputError, match=message):
            count_pages(target, drafter, **sizes | wrong)
    assert 0 < default_kv_memory(target.device) <= 1 << 30
    limited = LLM(loaded, drafter="none", kv_tokens=40)
    assert limited.notes[-1] == "the KV memory limits texts to 40 of the model's 96 positions"


def test_stop_strings_end_answers(llm: LLM) -> None:
    text = texts(llm.generate("the", greedy(20)))[0]
    stop = text[5:7]
    done = llm.generate("the", greedy(20, stop=(stop,)))[0].outputs[0]
    assert (done.text, done.finish_reason, done.stop_reason) == (text[: text.index(stop)], FinishReason.STOP, stop)


def test_the_bar_comes_late_and_only_to_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_module.sys.stderr, "isatty", lambda: True, raising=False)
    with LateProgress("Generating", 3, enabled=True) as bar:
        bar.update(1, "fast")
        assert bar._bar is None
        now = time.monotonic()
        monkeypatch.setattr(progress_module.time, "monotonic", lambda: now + 3.0)
        bar.update(2, "12 tokens/s")
        assert bar._bar is not None
        assert bar._bar.tasks[0].completed == 2
    with LateProgress("Generating", 3, enabled=False) as silent:
        silent.update(2, "")
        assert silent._bar is None


def test_a_stream_that_fails_leaves_the_others_alone(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = llm.generate("the other", greedy(8))[0].outputs[0].text
    failing, other = llm.stream("the first", greedy(8)), llm.stream("the other", greedy(8))
    next(failing)
    name = next(iter(llm._inboxes))
    step = llm.engine.step

    def refusing() -> list[StepOutput]:
        if any(sequence.request.request_id == name for sequence in llm.engine._roster):
            raise RequestsFailedError("no numbers", frozenset((name,)))
        return step()

    monkeypatch.setattr(llm.engine, "step", refusing)
    assert "".join(output.text for output in other) == expected
    with pytest.raises(RequestsFailedError, match="no numbers"):
        list(failing)
    assert not llm.engine.has_unfinished()
