"""Short beginnings of user turns that the target completes, so that no data set is needed."""

from __future__ import annotations

from importlib.resources import files

from dspark.core import InputError

_FOLDER = "openings"


def opening_languages() -> tuple[str, ...]:
    """Two-letter codes of the languages that come with dspark."""
    names = (entry.name for entry in files("dspark.data").joinpath(_FOLDER).iterdir())
    return tuple(sorted(name.removesuffix(".txt") for name in names if name.endswith(".txt")))


def load_openings(language: str = "en") -> dict[str, tuple[str, ...]]:
    """Return the shipped openings of a language: domain -> texts.

    Raises:
        InputError: there are none in that language.
    """
    if language not in opening_languages():
        raise InputError(f"no openings in language {language!r}; known are: {', '.join(opening_languages())}")
    text = files("dspark.data").joinpath(_FOLDER, f"{language}.txt").read_text(encoding="utf-8")
    openings: dict[str, list[str]] = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            domain, opening = line.split("\t")
            openings.setdefault(domain, []).append(opening.replace("\\n", "\n"))
    return {domain: tuple(texts) for domain, texts in openings.items()}
