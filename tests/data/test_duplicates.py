"""Texts that came before."""

from __future__ import annotations

import random

import pytest

from dspark.data.duplicates import Duplicates, SeenTexts, normalised

STORY = "A farmer has twelve cows and sells five of them at the market on Monday. How many cows are left on his farm?"


@pytest.mark.parametrize(
    ("first", "second", "kind"),
    [
        ("What is rain?", "What is rain?", Duplicates.EXACT),
        ("What is rain?", "what is  RAIN", Duplicates.NEAR),
        ("What is rain?", "What is a train?", None),
        ("What is the capital of France?", "What is the capital of Spain?", None),
        (STORY, STORY.replace("cows are", "cows remain"), Duplicates.NEAR),
        (STORY, "A baker has twelve loaves. How many are left when five are sold?", None),
        ("什么是光合作用？", "什么是光合作用", Duplicates.NEAR),
        ("什么是光合作用？", "什么是量子力学？", None),
        ("?", "?!", None),
        ("", "", Duplicates.EXACT),
    ],
)
def test_kinds(first: str, second: str, kind: Duplicates | None) -> None:
    seen = SeenTexts(Duplicates.NEAR)
    assert seen.add(first) is None
    assert seen.add(second) is kind
    exact = SeenTexts(Duplicates.EXACT)
    exact.add(first)
    assert (exact.add(second) is None) == (first != second)
    keep = SeenTexts(Duplicates.KEEP)
    assert keep.add(first) is keep.add(first) is None


def test_near_ones_are_found_among_many() -> None:
    draws = random.Random(0)
    words = ["".join(draws.choices("abcdefghijklmnop", k=5)) for _ in range(300)]
    seen = SeenTexts(Duplicates.NEAR)
    texts = [" ".join(draws.choices(words, k=25)) for _ in range(300)]
    assert all(seen.add(text) is None for text in texts)
    changed = [text.replace(text.split()[12], "zzzzz", 1) for text in texts]
    assert sum(seen.add(text) is Duplicates.NEAR for text in changed) > 280


def test_normalised() -> None:
    assert normalised("  Ünï, cödé:\n42! ") == "ünï cödé 42"
    assert normalised("?!") == "?!"
