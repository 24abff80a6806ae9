"""What a step costs: measured tables of verifying and of drafting, with the identity of what was measured."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from dspark.core import InputError
from dspark.scheduling.profile_identity import ProfileIdentity
from dspark.scheduling.time_table import TimeTable

CostKind = Literal["verify", "draft"]
_FORMAT = 1


class StepCosts(Protocol):
    """Times that a policy plans with; :class:`CostModel` as measured, ``LiveCosts`` as they have become."""

    def verify_curve(self, max_rows: int, context: float) -> NDArray[np.float64]:
        """[max_rows + 1] seconds of a step with 0, 1, .. target rows, without its drafting.

        Args:
            max_rows: largest B wanted; prefill rows count.
            context: mean number of keys that a row sees.
        """
        ...

    def draft_curve(self, max_requests: int, block: int) -> NDArray[np.float64]:
        """[max_requests + 1] further seconds for drafting blocks of ``block`` tokens for 0, 1, .. requests."""
        ...

    def draft_blocks(self) -> tuple[int, ...]:
        """Block lengths whose drafting was measured apart; at most one says that length does not matter."""
        ...

    def observe(self, kind: CostKind, width: int, depth: float, seconds: float) -> None:
        """Learn from a step that really ran: rows and context, or requests and block, and its seconds."""
        ...


@dataclass(frozen=True, kw_only=True)
class CostModel:
    """A profile, as measured; it never changes.

    Attributes:
        identity: what was measured.
        verify: seconds of a whole step but its drafting (forward, judging, bookkeeping); widths are target rows B,
            prefill included; depths are mean keys per row.
        draft: further seconds of drafting, context upkeep included; widths are requests R, depths block lengths; None
            for none, which costs nothing.
        note: where it comes from, in words.
    """

    identity: ProfileIdentity
    verify: TimeTable
    draft: TimeTable | None = None
    note: str = ""

    def verify_curve(self, max_rows: int, context: float) -> NDArray[np.float64]:
        """See :class:`StepCosts`."""
        return self.verify.at(np.arange(max_rows + 1), context)

    def draft_curve(self, max_requests: int, block: int) -> NDArray[np.float64]:
        """See :class:`StepCosts`."""
        if self.draft is None or block == 0:
            return np.zeros(max_requests + 1)
        return with_free_start(self.draft.at(np.arange(max_requests + 1), block))

    def draft_blocks(self) -> tuple[int, ...]:
        """See :class:`StepCosts`."""
        return () if self.draft is None else self.draft.depths

    def observe(self, kind: CostKind, width: int, depth: float, seconds: float) -> None:
        """Nothing: a profile stays what was measured (online refinement is off)."""

    def sps(self, rows: int, context: float = 0.0) -> float:
        """Steps per second at step batch B, drafting left out (method, section 1)."""
        return 1.0 / float(self.verify.at(rows, context))

    def to_json(self) -> str:
        """The file's text."""
        fields = {
            "format": _FORMAT,
            "identity": self.identity.to_dict(),
            "verify": self.verify.to_dict(),
            "draft": None if self.draft is None else self.draft.to_dict(),
            "note": self.note,
        }
        return json.dumps(fields, indent=1, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str, place: str | Path = "the profile") -> CostModel:
        """Back from a file's text.

        Args:
            text: JSON.
            place: what messages call it.

        Raises:
            InputError: it is not a profile of this form.
        """
        raw = json_object(text, place)
        if raw.get("format") != _FORMAT:
            raise InputError(f"{place} has format {raw.get('format')!r}, expected {_FORMAT}; profile again")
        try:
            draft = raw["draft"]
            return cls(
                identity=ProfileIdentity.from_dict(raw["identity"]),
                verify=TimeTable.from_dict(raw["verify"]),
                draft=None if draft is None else TimeTable.from_dict(draft),
                note=str(raw["note"]),
            )
        except KeyError as error:
            raise InputError(f"{place} lacks {error}; profile again") from None


def with_free_start(curve: NDArray[np.float64]) -> NDArray[np.float64]:
    """The curve with nothing to pay for nobody."""
    curve[0] = 0.0
    return curve


def json_object(text: str, place: str | Path) -> dict[str, Any]:
    """A JSON object, read; ``place`` is what messages call it.

    Raises:
        InputError: it is something else.
    """
    try:
        raw = json.loads(text)
    except ValueError as error:
        raise InputError(f"{place} is not valid JSON: {error}") from None
    if not isinstance(raw, dict):
        raise InputError(f"{place} must hold a JSON object, got {type(raw).__name__}")
    return raw
