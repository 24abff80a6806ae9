"""What steps cost where nothing was measured: a curve from a few numbers, with its stairs and cliffs."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from difflib import get_close_matches
from itertools import chain
from pathlib import Path

import numpy as np

from dspark.core import InputError
from dspark.scheduling import CostModel, ProfileIdentity, TimeTable, from_sglang
from dspark.scheduling.cost_model import json_object
from dspark.simulation.spelling import number

_MS = 1e-3
_CONTEXTS = (0, 1000)
_WIDTHS = 4096
_BLOCKS = (1, 2, 4, 8, 16)


@dataclass(frozen=True, kw_only=True)
class CurveShape:
    """A cost curve; all times in milliseconds.

    A step of B rows takes ``step + row * max(tiles(B) - free, 0)``, where ``tiles`` rounds B up to whole tiles, and
    what the cliffs at or below B add. Every row adds ``keys`` for each 1000 keys it sees. Drafting adds ``draft``, and
    ``draft_request`` for each request that drafts, and ``draft_token`` for each token of the longest block.

    Attributes:
        step: a step that only reads the weights.
        row: a row past the free ones.
        free: rows that cost nothing extra.
        tile: rows that are computed together.
        cliffs: pairs of B and what is added from there on.
        keys: a row and 1000 keys.
        draft, draft_request, draft_token: of drafting; all 0 for free drafts.

    Raises:
        InputError: a number is out of range.
    """

    step: float
    row: float
    free: int = 0
    tile: int = 1
    cliffs: tuple[tuple[int, float], ...] = ()
    keys: float = 0.0
    draft: float = 0.0
    draft_request: float = 0.0
    draft_token: float = 0.0

    def __post_init__(self) -> None:
        times = (self.step, self.row, self.keys, self.draft, self.draft_request, self.draft_token)
        if not all(math.isfinite(time) and time >= 0 for time in times) or self.step <= 0:
            raise InputError("times of a curve must be numbers >= 0, and 'step' above 0")
        if self.free < 0 or self.tile < 1:
            raise InputError(f"of a curve, 'free' must be >= 0 and 'tile' >= 1, got {self.free} and {self.tile}")
        if any(at < 1 or not math.isfinite(added) for at, added in self.cliffs):
            raise InputError(f"a cliff is rows >= 1 and the milliseconds it adds, got {self.cliffs}")

    def seconds(self, rows: np.ndarray) -> np.ndarray:
        """Of steps with so many rows that see no keys."""
        tiled = -(-rows // self.tile) * self.tile
        total = self.step + self.row * np.maximum(tiled - self.free, 0)
        for at, added in self.cliffs:
            total = total + added * (rows >= at)
        return _MS * total

    def cost_model(self, note: str) -> CostModel:
        """As a profile, every stair and cliff kept."""
        treads = range(self.tile, _WIDTHS, self.tile) if self.tile > 1 else ()
        tiles = chain.from_iterable((rows, rows + 1) for rows in treads)
        edges = chain.from_iterable((at - 1, at) for at, _ in self.cliffs)
        widths = np.array(sorted({1, self.free, self.free + 1, _WIDTHS, *tiles, *edges} - {0}))
        seconds = self.seconds(widths)
        grid = [seconds + _MS * self.keys * widths * context / 1000 for context in _CONTEXTS]
        return CostModel(
            identity=ProfileIdentity(machine=note, model="", dtype="", threads=0, backend="made up"),
            verify=TimeTable(
                widths=tuple(widths.tolist()), depths=_CONTEXTS, seconds=tuple(tuple(row.tolist()) for row in grid)
            ),
            draft=self._draft(),
            note=note,
        )

    def _draft(self) -> TimeTable | None:
        blocks = _BLOCKS if self.draft_token else _BLOCKS[:1]
        base = self.draft + self.draft_request * np.array((1, 2))
        rows = [_MS * (base + self.draft_token * block) for block in blocks]
        if not rows[-1].all():
            return None
        return TimeTable(widths=(1, 2), depths=blocks, seconds=tuple(tuple(row.tolist()) for row in rows))


ACCELERATOR = CurveShape(
    step=13.0,
    row=0.03,
    tile=32,
    cliffs=((512, 1.5),),
    keys=0.0004,
    draft=0.5,
    draft_request=0.0015,
    draft_token=0.08,
)
"""The default: like an accelerator that serves a large model, and the measurement of none.

A step is bound by reading weights until some hundred rows, rows are computed in tiles, and above 512 rows (where
captured graphs commonly end) a step takes longer.
"""

NAMED = {"gpu": ACCELERATOR}
"""Curves that have names."""

FORMS = "gpu, NAME=MS,.. such as step=13,row=0.03,tile=32,cliff=512:1.5, or a file: a profile or SGLang's SPS table"
"""What :func:`read_costs` reads."""


def read_costs(text: str) -> CostModel:
    """The costs that a text names.

    Args:
        text: one of :data:`FORMS`.

    Raises:
        InputError: it names none.
    """
    if text in NAMED:
        return NAMED[text].cost_model(f"curve '{text}'")
    if "=" in text and not Path(text).exists():
        return read_curve(text).cost_model(f"curve {text}")
    try:
        content = Path(text).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read costs from {text!r} ({error}); expected {FORMS}") from None
    if "format" in json_object(content, text):
        return CostModel.from_json(content, text)
    return from_sglang(content, ProfileIdentity(machine=text, model="", dtype="", threads=0, backend=""), text)


def read_curve(text: str) -> CurveShape:
    """Read ``step=13,row=0.03,cliff=256:2,cliff=512:1.5``.

    Raises:
        InputError: an unknown name (the nearest one is shown), or a number that is none.
    """
    known = {entry.name: entry.type for entry in fields(CurveShape)} | {"cliff": "cliff"}
    del known["cliffs"]
    found: dict[str, float | int] = {}
    cliffs: list[tuple[int, float]] = []
    for part in text.split(","):
        name, _, value = (word.strip() for word in part.partition("="))
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise InputError(f"a curve has no {name!r}; {hint}expected {', '.join(known)}")
        if name == "cliff":
            at, _, added = value.partition(":")
            cliffs.append((number("the place of a cliff", at, int), number("what a cliff adds", added, float)))
        else:
            found[name] = number(f"{name!r} of a curve", value, int if known[name] == "int" else float)
    if "step" not in found or "row" not in found:
        raise InputError(f"a curve needs 'step' and 'row' in milliseconds, got {text!r}")
    return CurveShape(**found, cliffs=tuple(cliffs))  # type: ignore[arg-type]
