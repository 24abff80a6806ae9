"""Whatever is wrong with the input: one clear line on stderr, an exit code, nothing on stdout."""

from __future__ import annotations

from pathlib import Path

import pytest

from ..evaluation.tiny_pair import save_tiny_drafter, save_tiny_target
from .conftest import Dspark, one_line


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--temperature", "nan"), "temperature must be a number >= 0, got nan"),
        (("--temperature", "-1"), "temperature must be a number >= 0, got -1"),
        (("--max-tokens", "-5"), "max_tokens must be an integer >= 1, got -5"),
        (("--max-tokens", "0"), "max_tokens must be an integer >= 1, got 0"),
        (("--top-p", "0"), "top_p"),
        (("--top-p", "1.5"), "top_p"),
        (("--min-p", "2"), "min_p"),
        (("--top-k", "-3"), "top_k"),
        (("--n", "0"), "n must be an integer >= 1"),
        (("--seed", "-1"), "seed"),
        (("--stop", ""), "stop must hold non-empty strings"),
    ],
)
def test_sampling_options(dspark: Dspark, words: tuple[str, str], said: str) -> None:
    result = dspark("generate", "hello", *words, "--target", "never-loaded")
    assert result.exit_code == 1
    assert said in one_line(result)
    assert result.stdout == ""


@pytest.mark.parametrize("stdin", ["", "\n", "  \n"])
@pytest.mark.parametrize("words", [(), ("-",), ("",), ("fine", " ")])
def test_empty_prompt(dspark: Dspark, words: tuple[str, ...], stdin: str) -> None:
    result = dspark("generate", *words, "--target", "never-loaded", stdin=stdin)
    assert result.exit_code == 1
    assert "the prompt is empty" in one_line(result)


def test_stdin_twice(dspark: Dspark) -> None:
    assert "several times" in one_line(dspark("generate", "-", "-", stdin="x"))


def test_stdin_that_is_no_text(dspark: Dspark) -> None:
    result = dspark("generate", stdin=b"\xff\xfe\x80")
    assert result.exit_code == 1
    assert "stdin is not a text" in one_line(result)


@pytest.mark.parametrize("words", [("--raw",), ("--chat",), ("--raw", "--drafter", "ngram")])
def test_prompt_longer_than_the_context(on_target: Dspark, words: tuple[str, ...]) -> None:
    result = on_target("generate", "x" * 600, *words)
    assert result.exit_code == 1
    assert "the context holds 512" in one_line(result)


def test_missing_target(dspark: Dspark) -> None:
    result = dspark("generate", "hello", "--target", "no/such/place")
    assert result.exit_code == 1
    assert "no target at 'no/such/place'" in one_line(result)


def test_foreign_targets(dspark: Dspark, tmp_path: Path, drafter_dir: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    (tmp_path / "empty").mkdir()
    cases = [(tmp_path / "notes.txt", "not a GGUF file"), (tmp_path / "empty", "no config.json"), (drafter_dir, "")]
    for place, said in cases:
        result = dspark("generate", "hello", "--target", place)
        assert result.exit_code == 1
        assert said in one_line(result)


def test_damaged_target(dspark: Dspark, tmp_path: Path) -> None:
    place = save_tiny_target(tmp_path / "t")
    whole = (place / "model.safetensors").read_bytes()
    (place / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    result = dspark("generate", "hello", "--target", place)
    assert result.exit_code == 1
    assert one_line(result)


def test_missing_and_foreign_drafters(on_target: Dspark, tmp_path: Path, target_dir: Path) -> None:
    (tmp_path / "empty").mkdir()
    for place, said in [
        (tmp_path / "missing", "there is no drafter"),
        (tmp_path / "empty", "no drafter checkpoint"),
        (target_dir, "architectures"),
    ]:
        result = on_target("generate", "hello", "--drafter", place)
        assert result.exit_code == 1
        assert said in one_line(result)


@pytest.mark.pitfall(34)
def test_drafter_for_another_target(on_target: Dspark, tmp_path: Path) -> None:
    other = save_tiny_drafter(tmp_path / "other", hidden_size=48)
    result = on_target("generate", "hello", "--drafter", other)
    assert result.exit_code == 1
    assert "hidden size 48 (target: 32)" in one_line(result)


@pytest.mark.pitfall(31)
def test_threshold_without_confidences(on_target: Dspark) -> None:
    result = on_target("generate", "hello", "--drafter", "ngram", "--policy", "threshold:0.5")
    assert result.exit_code == 1
    assert "confidence head" in one_line(result)


@pytest.mark.parametrize("policy", ["fixt", "fixed:x", "fixed:-1", "threshold:2", "threshold"])
def test_policies(dspark: Dspark, policy: str) -> None:
    result = dspark("generate", "hello", "--policy", policy, "--target", "never-loaded")
    assert result.exit_code == 1
    assert policy.partition(":")[0] in one_line(result)


@pytest.mark.parametrize(("option", "value"), [("--dtype", "float8"), ("--device", "abacus")])
def test_dtype_and_device(dspark: Dspark, target_dir: Path, option: str, value: str) -> None:
    result = dspark("generate", "hello", option, value, "--target", target_dir)
    assert result.exit_code == 1
    assert value in one_line(result)


@pytest.mark.parametrize(
    "words",
    [
        ("generate", "--tempo", "1"),
        ("generate", "x", "--max-tokens", "many"),
        ("bench", "decode", "--repeats", "x"),
        ("data", "synthesize"),
        ("no-such-verb",),
        ("bench", "no-such-verb"),
        ("--no-such-option",),
    ],
)
def test_a_wrong_command_line_is_exit_code_2(dspark: Dspark, words: tuple[str, ...]) -> None:
    result = dspark(*words)
    assert result.exit_code == 2
    assert "--help)" in one_line(result)


def test_a_fault_of_ours_keeps_its_traceback(dspark: Dspark, monkeypatch: pytest.MonkeyPatch) -> None:
    from dspark.cli import generate

    def broken(**options: object) -> None:
        raise AssertionError("a bug")

    monkeypatch.setattr(generate, "open_llm", broken)
    result = dspark("generate", "hello")
    assert isinstance(result.exception, AssertionError)
