"""Running texts through a packed target in ragged steps over shuffled pages."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import torch
from torch import Tensor

from dspark.core import PackedBatch
from dspark.target import PackedTarget, TargetOutput


@dataclass(kw_only=True)
class Text:
    """One request: its tokens, how many are computed, its pages."""

    ids: list[int]
    pages: list[int]
    done: int = 0
    rows: dict[str, list[Tensor]] = field(default_factory=lambda: {"logits": [], "features": [], "hidden": []})


def random_texts(lengths: list[int], vocab_size: int, page_size: int, rng: random.Random) -> list[Text]:
    """Texts with pages drawn at random from a pool of as many as they need."""
    counts = [-(-length // page_size) for length in lengths]
    pages = list(range(sum(counts)))
    rng.shuffle(pages)
    return [
        Text(ids=[rng.randrange(3, vocab_size) for _ in range(length)], pages=[pages.pop() for _ in range(count)])
        for length, count in zip(lengths, counts, strict=True)
    ]


def pack(steps: list[tuple[Text, int]], page_size: int, device: torch.device | str = "cpu") -> PackedBatch:
    """The batch that computes the next rows of each text."""
    ids, positions, slots = [], [], []
    for text, count in steps:
        for position in range(text.done, text.done + count):
            ids.append(text.ids[position])
            positions.append(position)
            slots.append(text.pages[position // page_size] * page_size + position % page_size)
    width = max(len(text.pages) for text, _ in steps)
    table = [text.pages + [0] * (width - len(text.pages)) for text, _ in steps]
    return PackedBatch(
        input_ids=torch.tensor(ids, device=device),
        positions=torch.tensor(positions, device=device),
        kv_slots=torch.tensor(slots, device=device),
        page_table=torch.tensor(table, device=device),
        q_lens=tuple(count for _, count in steps),
        kv_lens=tuple(text.done + count for text, count in steps),
        logit_rows=torch.arange(len(ids), device=device),
        page_size=page_size,
    )


def run(target: PackedTarget, steps: list[tuple[Text, int]]) -> TargetOutput:
    """Compute the next rows of each text and keep what came out."""
    output = target.forward(pack(steps, target.page_size, target.device), want_hidden=True)
    row = 0
    for text, count in steps:
        rows = slice(row, row + count)
        text.rows["logits"].append(output.logits[rows])
        if output.features is not None:
            text.rows["features"].append(output.features[rows])
        text.rows["hidden"].append(output.last_hidden[rows])
        text.done += count
        row += count
    return output


def run_ragged(target: PackedTarget, texts: list[Text], rng: random.Random, longest: int = 24) -> None:
    """Compute all texts in steps of random size: decode rows, verify blocks and prefill chunks side by side."""
    while waiting := [text for text in texts if text.done < len(text.ids)]:
        chosen = rng.sample(waiting, rng.randint(1, len(waiting)))
        sizes = [rng.choice((1, 1, rng.randint(2, 8), rng.randint(1, longest))) for _ in chosen]
        run(target, [(text, min(size, len(text.ids) - text.done)) for text, size in zip(chosen, sizes, strict=True)])
