"""``dspark demo``, ``bench``, ``check`` and ``info``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dspark.evaluation import lossless

from .conftest import Dspark, one_line


@pytest.fixture
def prompt_file(tmp_path: Path) -> Path:
    path = tmp_path / "some.jsonl"
    path.write_text('{"prompt": "abcabc"}\n{"turns": ["hello"]}\n')
    return path


def test_demo(on_target: Dspark, drafter_dir: Path) -> None:
    result = on_target("demo", "--drafter", drafter_dir, "--max-tokens", 4)
    assert result.exit_code == 0, result.output
    for said in ("plain decoding", "dspark", "ratio", "tau", "6 of 6 in float32"):
        assert said in result.stdout
    assert "\x1b" not in result.stdout


def test_demo_in_bfloat16_proves_in_float32(dspark: Dspark, target_dir: Path) -> None:
    result = dspark("demo", "--target", target_dir, "--dtype", "bfloat16", "--max-tokens", 3)
    assert result.exit_code == 0, result.output
    assert "no drafter is shipped for tiny-target" in result.stdout
    assert "6 of 6 in float32, up to 3 tokens, token by token" in result.stdout
    assert "in bfloat16" in result.stdout


def test_demo_sizes(dspark: Dspark) -> None:
    assert "--max-tokens >= 2" in one_line(dspark("demo", "--max-tokens", 1))


def test_bench_decode(on_target: Dspark, drafter_dir: Path, prompt_file: Path, tmp_path: Path) -> None:
    words = ("--prompts", f"{prompt_file}:2", "--max-tokens", 5, "--repeats", 1, "--concurrency", "1,2")
    result = on_target("bench", "decode", *words, "--drafter", drafter_dir, "--out", tmp_path / "report")
    assert result.exit_code == 0, result.output
    assert result.stdout == (tmp_path / "report" / "report.md").read_text()
    raw = json.loads((tmp_path / "report" / "report.json").read_text())
    arms = ["plain", "dspark", "dspark threshold:0.5", "ngram", "transformers"]
    assert [(row["concurrency"], row["arm"]) for row in raw["rows"]] == [
        (width, arm) for width in (1, 2) for arm in arms
    ]
    assert {row["domain"] for row in raw["rows"]} == {"some"}


def test_bench_decode_without_the_others(on_target: Dspark, prompt_file: Path) -> None:
    words = ("--prompts", prompt_file, "--max-tokens", 3, "--repeats", 1, "--no-transformers", "--no-ngram")
    result = on_target("bench", "decode", *words)
    assert result.exit_code == 0, result.output
    assert "| some   | plain" in result.stdout
    assert "ngram" not in result.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--concurrency", "1,x"), "--concurrency must be integers"),
        (("--concurrency", "0"), "concurrency must be >= 1"),
        (("--repeats", 0), "repeats must be >= 1"),
        (("--prompts", "missing.jsonl"), "cannot read prompts from missing.jsonl"),
        (("--out", __file__), "--out must be a folder"),
    ],
)
def test_bench_options(dspark: Dspark, words: tuple, said: str) -> None:
    result = dspark("bench", "decode", *words)
    assert result.exit_code == 1
    assert said in one_line(result)


def test_check_lossless(on_target: Dspark, drafter_dir: Path, prompt_file: Path) -> None:
    words = ("--prompts", prompt_file, "--max-tokens", 6, "--batch", "1,2")
    drafters = ("-d", "ngram", "-d", drafter_dir, "-d", f"dflash:{drafter_dir}")
    result = on_target("check", "lossless", *words, *drafters)
    assert result.exit_code == 0, result.output
    assert "12 texts: 12 identical to plain decoding, 0 differ at a near tie" in result.stdout
    lines = result.stdout.splitlines()
    assert lines[0].startswith("some, ngram, batch 1: 2 of 2 texts identical")
    assert sum("texts identical" in line for line in lines) == 6


def test_check_lossless_keeps_what_is_finished(
    on_target: Dspark, prompt_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = lossless.answers

    def stopped(
        arm: lossless.Arm, prompts: list, tokens: int, size: int, **options: object
    ) -> tuple[tuple[int, ...], ...]:
        if size == 2:
            raise KeyboardInterrupt
        return honest(arm, prompts, tokens, size, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(lossless, "answers", stopped)
    words = ("--prompts", prompt_file, "--max-tokens", 4, "--batch", "1,2", "-d", "ngram")
    result = on_target("check", "lossless", *words)
    assert result.exit_code == 130
    assert "2 texts: 2 identical to plain decoding" in result.stdout
    assert "those of the parts that were finished" in one_line(result)


@pytest.mark.parametrize("words", [("check", "lossless"), ("bench", "decode")])
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("-d", "missing/drafter"), "there is no drafter 'missing/drafter'"),
        (("--prompts", "missing.jsonl"), "cannot read prompts from missing.jsonl"),
    ],
)
def test_wrong_paths_are_reported_before_a_target_is_loaded(
    dspark: Dspark, monkeypatch: pytest.MonkeyPatch, words: tuple, options: tuple, said: str
) -> None:
    def loading(*_: object, **__: object) -> None:
        pytest.fail("the target was loaded first")

    monkeypatch.setattr("dspark.target.load_target", loading)
    result = dspark(*words, *options)
    assert result.exit_code == 1
    assert said in one_line(result)


def test_check_lossless_fails_on_a_fault(on_target: Dspark, prompt_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = lossless.answers

    def planted(arm: lossless.Arm, *rest: object, **options: object) -> tuple[tuple[int, ...], ...]:
        texts = honest(arm, *rest, **options)  # type: ignore[arg-type]
        return texts if arm.name == "plain" else ((*texts[0][:2], 263, *texts[0][3:]), *texts[1:])

    monkeypatch.setattr(lossless, "answers", planted)
    result = on_target("check", "lossless", "--prompts", prompt_file, "--max-tokens", 6, "--batch", 1, "-d", "ngram")
    assert result.exit_code == 1
    assert "1 differences are no near ties" in one_line(result)
    assert "ngram, batch 1, some prompt 1: differs at position 2" in result.stdout


def test_check_lossless_forgives_a_near_tie(
    on_target: Dspark, prompt_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = lossless.audit_parts

    def tied(*args: object, **options: object) -> Iterator[lossless.AuditPart]:
        tie = lossless.Difference(
            arm="ngram", batch_size=1, domain="some", prompt=0, position=1, expected=3, got=4, margin=2e-5
        )
        for part in honest(*args, **options):  # type: ignore[arg-type]
            yield replace(part, differences=(tie,))

    monkeypatch.setattr("dspark.evaluation.audit_parts", tied)
    result = on_target("check", "lossless", "--prompts", prompt_file, "--max-tokens", 4, "--batch", 1, "-d", "ngram")
    assert result.exit_code == 0, result.output
    assert "1 differ at a near tie" in result.stdout
    assert "margin 2.00e-05 (near tie)" in result.stdout


def test_info(on_target: Dspark, drafter_dir: Path) -> None:
    result = on_target("info", "--drafter", drafter_dir)
    assert result.exit_code == 0
    for title in ("machine", "target", "drafter", "memory", "choices", "folders"):
        assert f"{title}\n" in result.stdout
    assert "dtype float32, as asked" in result.stdout


def test_info_without_a_model(dspark: Dspark) -> None:
    result = dspark("info", "--target", "none", "--json")
    assert result.exit_code == 0
    assert sorted(json.loads(result.stdout)) == ["folders", "machine"]
