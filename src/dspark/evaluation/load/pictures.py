"""The two pictures that people know of serving: throughput against speed, and throughput and budget over load."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dspark.evaluation.panels import Sheet


@dataclass(frozen=True, kw_only=True)
class Curve:
    """One arm over the number of users, rising.

    Attributes:
        label: what the legend calls it.
        users: of closed loops.
        throughput: tokens per second of all users.
        speed: tokens per second of one user.
        budget: verified drafts per round.
        style: further options of matplotlib's ``plot``.
        marked: whether the numbers of users are written beside its points.
    """

    label: str
    users: Sequence[int]
    throughput: Sequence[float]
    speed: Sequence[float]
    budget: Sequence[float]
    style: Mapping[str, Any]
    marked: bool = False


def plain_style() -> dict[str, Any]:
    """Plain decoding: black."""
    return {"color": "black"}


def oracle_style() -> dict[str, Any]:
    """A bound: grey and dashed."""
    return {"color": "grey", "linestyle": "--"}


def fixed_style(share: float) -> dict[str, Any]:
    """A fixed length: thin, and the bluer the longer it is, as a share of the longest, 0 .. 1."""
    shade = 0.75 - 0.55 * share
    return {"color": (shade, shade, 0.85), "linewidth": 1}


def draw_frontier(path: Path, title: str, panels: Mapping[str, Sequence[Curve]]) -> None:
    """Draw throughput against the speed of one user.

    Args:
        path: where to.
        title: of the picture.
        panels: curves by title of their panel.
    """
    sheet = Sheet(1, len(panels), (5.5, 4))
    for column, (name, curves) in enumerate(panels.items()):
        panel = sheet.panel(0, column, name)
        for curve in curves:
            _plot(panel, curve, curve.speed, curve.throughput)
            if curve.marked:
                for users, place in zip(curve.users, zip(curve.speed, curve.throughput, strict=True), strict=True):
                    panel.annotate(f"x{users}", place, fontsize="x-small")
        panel.set_xlim(left=0)
        panel.set_ylim(bottom=0)
    sheet.label_rows("tokens per second, all users")
    sheet.label_columns("tokens per second of one user")
    sheet.save(path, title)


def draw_load(path: Path, title: str, panels: Mapping[str, Sequence[Curve]]) -> None:
    """Draw throughput and budget over the number of users; arguments as for :func:`draw_frontier`."""
    shown: Sequence[tuple[str, Callable[[Curve], Sequence[float]]]] = (
        ("tokens per second", lambda curve: curve.throughput),
        ("verified drafts per round", lambda curve: curve.budget),
    )
    sheet = Sheet(len(shown), len(panels), (5.5, 2.8))
    for column, (name, curves) in enumerate(panels.items()):
        users = sorted({number for curve in curves for number in curve.users})
        for place, (what, values) in enumerate(shown):
            panel = sheet.panel(place, column, f"{name}: {what}" if name else what)
            for curve in curves:
                _plot(panel, curve, curve.users, values(curve))
            panel.set_xscale("log", base=2)
            panel.set_xticks(users, [str(number) for number in users])
            panel.minorticks_off()
            panel.set_ylim(bottom=0)
    sheet.label_columns("users at a time")
    sheet.save(path, title)


def _plot(panel: Any, curve: Curve, x: Sequence[float], y: Sequence[float]) -> None:
    panel.plot(x, y, label=curve.label, **{"marker": "o", "markersize": 3, **curve.style})
