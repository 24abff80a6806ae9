"""What a profile was measured on: it holds for nothing else."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from dspark.core import InputError


@dataclass(frozen=True, kw_only=True)
class ProfileIdentity:
    """All that decides how long a step takes.

    Attributes:
        machine: processor or accelerator, in words.
        model: the target.
        drafter: the drafter; empty for none.
        dtype: number format of both.
        threads: threads that compute.
        backend: attention backend.
        versions: of the libraries that compute.
    """

    machine: str
    model: str
    drafter: str = ""
    dtype: str
    threads: int
    backend: str
    versions: Mapping[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self) | {"versions": dict(sorted(self.versions.items()))}

    def digest(self) -> str:
        """Sixteen hexadecimal digits that are others for another identity."""
        return hashlib.sha256(json.dumps(self.to_dict(), sort_keys=True).encode()).hexdigest()[:16]

    def difference(self, other: ProfileIdentity) -> str:
        """What is different in the other one, in words; empty if nothing is."""
        mine, theirs = self.to_dict(), other.to_dict()
        return ", ".join(
            f"{name} {theirs[name]!r} instead of {mine[name]!r}" for name in mine if mine[name] != theirs[name]
        )

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> ProfileIdentity:
        """Back from JSON.

        Raises:
            InputError: a field is missing or unknown.
        """
        try:
            return cls(**raw)
        except TypeError as error:
            raise InputError(f"a profile's identity is damaged: {error}") from None
