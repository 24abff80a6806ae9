"""Prompts of well-known benchmarks, by name: from a folder of JSONL files, or from the Hugging Face hub."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from dspark.core import InputError
from dspark.data.prompt_source import PromptDataset
from dspark.evaluation.prompts import PromptSet, load_prompts, split_count
from dspark.target.hub import hub_is_reachable


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """Where the prompts of a benchmark are on the hub, and how a row is asked.

    Attributes:
        source: name of the data set.
        subset: part of it; None if it has none.
        split: of it.
        ask: the user's turn, made of a row.
    """

    source: str
    subset: str | None
    split: str
    ask: Callable[[Mapping[str, Any]], str]


BENCHMARKS = {
    "gsm8k": Benchmark(
        source="openai/gsm8k",
        subset="main",
        split="test",
        ask=lambda row: f"{row['question']}\nPlease reason step by step, and put your final answer within \\boxed{{}}.",
    ),
    "humaneval": Benchmark(
        source="openai/openai_humaneval",
        subset=None,
        split="test",
        ask=lambda row: (
            "Write a solution to the following problem and make sure that it passes the tests:\n"
            f"```python\n{row['prompt']}\n```"
        ),
    ),
    "mt-bench": Benchmark(
        source="HuggingFaceH4/mt_bench_prompts", subset=None, split="train", ask=lambda row: row["prompt"][0]
    ),
}
"""The benchmarks that have names."""


def load_benchmarks(specs: Sequence[str], folder: Path | None = None) -> tuple[PromptSet, ...]:
    """Read several ``NAME[:N]``, the first N prompts of each.

    Args:
        specs: names, one of :data:`BENCHMARKS`.
        folder: holds ``NAME.jsonl`` in the forms of :func:`load_prompts`; None for the hub.

    Raises:
        InputError: an unknown name, a file that is missing or wrong, no network, or too few prompts.
    """
    return tuple(_load(spec, folder) for spec in specs)


def _load(spec: str, folder: Path | None) -> PromptSet:
    name, count = split_count(spec)
    known = name.lower().replace("_", "-")
    if known not in BENCHMARKS:
        raise InputError(
            f"there is no benchmark {name!r}; there are {', '.join(BENCHMARKS)}; read other prompts with --prompts FILE"
        )
    if folder is None:
        return _from_hub(known, BENCHMARKS[known], count)
    place = next((path for path in (folder / f"{n}.jsonl" for n in _spellings(known)) if path.is_file()), None)
    if place is None:
        raise InputError(f"there is no {known}.jsonl in {folder}")
    return replace(load_prompts(str(place) if count is None else f"{place}:{count}"), domain=known)


def _spellings(name: str) -> tuple[str, str]:
    return name, name.replace("-", "_")


def _from_hub(name: str, benchmark: Benchmark, count: int | None) -> PromptSet:
    dataset = PromptDataset(benchmark.source, benchmark.split, benchmark.subset)
    if not hub_is_reachable():
        raise InputError(
            f"benchmark {name!r} is read from the hub ({benchmark.source}), which cannot be reached; give a folder "
            f"that holds {name}.jsonl with --benchmarks-folder, or any file with --prompts"
        )
    rows = [load() for _, load in islice(dataset.rows(), count)]
    if not rows or (count is not None and len(rows) < count):
        raise InputError(f"{benchmark.source} has {len(rows)} prompts, {count or 'at least 1'} were asked for")
    try:
        texts = [benchmark.ask(row) for row in rows]
    except (KeyError, IndexError, TypeError) as error:
        raise InputError(f"{benchmark.source} has changed its form: cannot read {error} of a row") from None
    return PromptSet(domain=name, prompts=tuple(({"role": "user", "content": text},) for text in texts))
