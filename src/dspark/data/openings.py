"""Short beginnings of user turns that the target completes, so that no data set is needed."""

from __future__ import annotations

from importlib.resources import files


def load_openings() -> dict[str, tuple[str, ...]]:
    """Return the shipped openings: domain -> texts."""
    text = files("dspark.data").joinpath("openings.txt").read_text(encoding="utf-8")
    openings: dict[str, list[str]] = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            domain, opening = line.split("\t")
            openings.setdefault(domain, []).append(opening.replace("\\n", "\n"))
    return {domain: tuple(texts) for domain, texts in openings.items()}
