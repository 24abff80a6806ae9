"""Finding texts that came before, word for word or nearly."""

from __future__ import annotations

import re
import unicodedata
from enum import StrEnum
from zlib import crc32

import numpy as np

_SHINGLE = 5  # characters
_BANDS, _ROWS = 8, 4
_ALIKE = 0.8
_WORDS = re.compile(r"\w+")


class Duplicates(StrEnum):
    """What counts as a duplicate."""

    KEEP = "keep"
    EXACT = "exact"
    NEAR = "near"


class SeenTexts:
    """Remembers texts.

    Nearly the same are texts that differ in case, spacing and punctuation only, or that share at least four fifths of
    their runs of five characters (found through MinHash bands, then counted exactly).

    Args:
        kind: what counts as a duplicate.
    """

    def __init__(self, kind: Duplicates) -> None:
        self.kind = kind
        self._exact: set[str] = set()
        self._alike: set[str] = set()
        self._shingles: list[np.ndarray] = []
        self._bands: dict[bytes, list[int]] = {}
        draws = np.random.default_rng(0)
        self._factors = draws.integers(1, 2**31, (_BANDS * _ROWS, 1), np.uint64) | np.uint64(1)
        self._shifts = draws.integers(0, 2**31, (_BANDS * _ROWS, 1), np.uint64)

    def add(self, text: str) -> Duplicates | None:
        """Remember a text; says what kind of duplicate it is, None for a new one. A duplicate is not remembered."""
        if self.kind is Duplicates.KEEP:
            return None
        if text in self._exact:
            return Duplicates.EXACT
        if self.kind is Duplicates.NEAR and not self._add_near(text):
            return Duplicates.NEAR
        self._exact.add(text)
        return None

    def _add_near(self, text: str) -> bool:
        """Whether nothing like it came before; it is remembered then."""
        plain = normalised(text)
        shingles = _hashes(plain)
        bands = self._signature(shingles)
        candidates = {place for band in bands for place in self._bands.get(band, ())}
        if plain in self._alike or any(_shared(shingles, self._shingles[place]) >= _ALIKE for place in candidates):
            return False
        self._alike.add(plain)
        for band in bands:
            self._bands.setdefault(band, []).append(len(self._shingles))
        self._shingles.append(shingles)
        return True

    def _signature(self, shingles: np.ndarray) -> list[bytes]:
        """One key per band: texts that are alike share at least one of them."""
        mixed = (self._factors * shingles.astype(np.uint64) + self._shifts) & np.uint64(2**32 - 1)
        least = mixed.min(axis=1).astype(np.uint32).reshape(_BANDS, _ROWS)
        return [bytes([number]) + row.tobytes() for number, row in enumerate(least)]


def normalised(text: str) -> str:
    """The words of a text, in one case; the text itself if it has no words."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return " ".join(_WORDS.findall(folded)) or folded.strip()


def _hashes(text: str) -> np.ndarray:
    """Hashes of all runs of characters [n] uint32, sorted, each once; one of the whole for a short text."""
    runs = {text[start : start + _SHINGLE] for start in range(max(1, len(text) - _SHINGLE + 1))}
    return np.unique(np.array([crc32(run.encode("utf-8", "replace")) for run in runs], np.uint32))


def _shared(one: np.ndarray, other: np.ndarray) -> float:
    """Share of the hashes of both that are in both."""
    common = len(np.intersect1d(one, other, assume_unique=True))
    return common / (len(one) + len(other) - common)
