"""The lock is complete, exact, and free of torch."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ENTRY = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)(?: ; ([^\\]+?))? \\$", re.MULTILINE)


@pytest.fixture(scope="module")
def lock(root: Path) -> str:
    return (root / "requirements/lock.txt").read_text()


@pytest.fixture(scope="module")
def pins(lock: str) -> dict[str, list[Version]]:
    """Versions by package; more than one where they differ by Python version."""
    found: dict[str, list[Version]] = {}
    for name, version, _ in ENTRY.findall(lock):
        found.setdefault(canonicalize_name(name), []).append(Version(version))
    return found


@pytest.fixture(scope="module")
def project(root: Path) -> dict:
    return tomllib.loads((root / "pyproject.toml").read_text())


def test_every_entry_is_exact_and_hashed(lock: str) -> None:
    entries = re.split(r"^(?=\S)", re.sub(r"^#.*\n", "", lock, flags=re.MULTILINE), flags=re.MULTILINE)[1:]
    assert len(entries) > 40
    loose = [entry.splitlines()[0] for entry in entries if "==" not in entry or "--hash=sha256:" not in entry]
    assert not loose


def test_torch_and_its_cuda_libraries_are_not_in_it(pins: dict[str, list[Version]]) -> None:
    assert not {name for name in pins if name in {"torch", "triton"} or name.startswith(("nvidia", "cuda"))}


NOT_LOCKED = {"hub", "browser"}
"""Extras that are left out: data sets of the hub are of no use without a network, and bring large packages; what drives
a browser is large too, and is of no use without one (make browser brings it)."""


def test_it_covers_what_pyproject_asks_for(project: dict, pins: dict[str, list[Version]]) -> None:
    table = project["project"]
    asked = [*table["dependencies"], *project["build-system"]["requires"]]
    for name, extra in table["optional-dependencies"].items():
        if name not in NOT_LOCKED:
            asked += extra
    for requirement in map(Requirement, asked):
        if requirement.name == "torch":
            continue
        versions = pins.get(canonicalize_name(requirement.name))
        assert versions, f"{requirement.name} is not in requirements/lock.txt: run make lock"
        assert all(version in requirement.specifier for version in versions), f"{requirement} but locked at {versions}"


def test_torch_needs_nothing_more_from_the_index(pins: dict[str, list[Version]]) -> None:
    """The needs of torch that every build shares are locked, so that installing torch brings only torch."""
    for requirement in map(Requirement, requires("torch") or []):
        if requirement.marker is not None:
            continue
        versions = pins.get(canonicalize_name(requirement.name), [])
        assert versions, f"add {requirement} to requirements/tools.in and run make lock"
        assert all(version in requirement.specifier for version in versions)


def test_the_pinned_torch_satisfies_pyproject(root: Path, project: dict) -> None:
    pinned = re.search(r"^readonly torch_version=(\S+)$", (root / "scripts/setup.sh").read_text(), re.MULTILINE)
    assert pinned
    wanted = next(r for r in map(Requirement, project["project"]["dependencies"]) if r.name == "torch")
    assert Version(pinned[1]) in wanted.specifier
