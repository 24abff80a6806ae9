"""Benchmarks by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dspark.core import InputError
from dspark.evaluation import BENCHMARKS, benchmarks, load_benchmarks

ROWS: dict[str, dict[str, Any]] = {
    "openai/gsm8k": {"question": "How many?", "answer": "3"},
    "openai/openai_humaneval": {"prompt": "def f():\n"},
    "HuggingFaceH4/mt_bench_prompts": {"prompt": ["Write.", "Again."]},
}
TEXTS = {
    "gsm8k": "How many?\nPlease reason step by step, and put your final answer within \\boxed{}.",
    "humaneval": (
        "Write a solution to the following problem and make sure that it passes the tests:\n```python\ndef f():\n\n```"
    ),
    "mt-bench": "Write.",
}


class Hub:
    """Stands in for the library of data sets: three equal rows of each."""

    rows_of = ROWS

    def __init__(self, name: str, split: str, subset: str | None) -> None:
        self.name = name

    def rows(self) -> Iterator[tuple[int, Callable[[], Any]]]:
        for number in range(3):
            yield number, lambda: self.rows_of[self.name]


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> type[Hub]:
    monkeypatch.setattr(benchmarks, "PromptDataset", Hub)
    monkeypatch.setattr(benchmarks, "hub_is_reachable", lambda: True)
    return Hub


@pytest.mark.parametrize("name", list(BENCHMARKS))
def test_rows_of_the_hub_are_asked_as_in_the_files(hub: type[Hub], name: str) -> None:
    (found,) = load_benchmarks([f"{name}:2"])
    assert found.domain == name
    assert found.prompts == (({"role": "user", "content": TEXTS[name]},),) * 2
    assert len(load_benchmarks([name])[0].prompts) == 3


def test_too_few_rows_or_others(hub: type[Hub], monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="has 3 prompts, 4 were asked for"):
        load_benchmarks(["gsm8k:4"])
    monkeypatch.setattr(hub, "rows_of", {"openai/gsm8k": {"other": 1}})
    with pytest.raises(InputError, match="has changed its form: cannot read 'question'"):
        load_benchmarks(["gsm8k"])


def test_no_network_is_said_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benchmarks, "PromptDataset", Hub)
    monkeypatch.setattr(benchmarks, "hub_is_reachable", lambda: False)
    with pytest.raises(
        InputError, match=r"openai/gsm8k\), which cannot be reached; give a folder that holds gsm8k.jsonl"
    ):
        load_benchmarks(["gsm8k"])


def test_names_of_files(tmp_path: Path) -> None:
    (tmp_path / "mt_bench.jsonl").write_text('{"turns": ["a"]}\n{"turns": ["b"]}\n')
    for name in ("mt-bench", "mt_bench", "MT-Bench:2"):
        (found,) = load_benchmarks([name], tmp_path)
        assert (found.domain, len(found.prompts)) == ("mt-bench", 2)
    with pytest.raises(InputError, match="has 2 prompts, 3 were asked for"):
        load_benchmarks(["mt-bench:3"], tmp_path)
    with pytest.raises(InputError, match=r"there is no gsm8k\.jsonl in"):
        load_benchmarks(["gsm8k"], tmp_path)
