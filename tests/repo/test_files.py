"""What may stand in the files of this repository."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

# Written in pieces so that this file passes its own check.
MACHINE_PATHS = [
    r"(?<![\w.~-])/" + part for part in (r"work/", r"root/", r"opt/wh", r"opt/py", r"home/(?!user\b|you\b)\w+/")
]
REGISTRY_HOSTS = [r"\.".join(parts) for parts in (
    ("py" "pi", "org"), ("python" "hosted", "org"), ("download", "pytorch", "org"), ("npm" "js", "org"),
    ("debian", "org/debian"), ("crates", "io"), ("anaconda", "org"),
)]  # fmt: skip
FORBIDDEN = re.compile("|".join(MACHINE_PATHS + REGISTRY_HOSTS))
MAX_LINES = 350
SOURCES = {".py", ".sh", ".js", ".ts", ".css", ".html"}


def text_of(path: Path) -> str | None:
    data = path.read_bytes()
    return None if b"\0" in data[:8192] else data.decode("utf-8", errors="replace")


def findings(name: str, text: str) -> list[str]:
    return [
        f"{name}:{n}: {line.strip()[:120]}" for n, line in enumerate(text.splitlines(), 1) if FORBIDDEN.search(line)
    ]


def test_no_file_names_a_machine_or_a_registry(files: list[Path], root: Path) -> None:
    found: list[str] = []
    for path in files:
        found += findings(str(path.relative_to(root)), text_of(path) or "")
    assert not found, "machine paths or registry hosts:\n" + "\n".join(found)


@pytest.mark.parametrize(
    "line",
    ["cd /" + "work/main", "cache in '/" + "root/.cache'", "https://" + "py" + "pi.org/simple", "/" + "home/jane/x.py"],
)
def test_the_check_finds_what_it_is_for(line: str) -> None:
    assert findings("f", f"fine\n{line}\n") == [f"f:2: {line}"]


@pytest.mark.parametrize("line", ["a/b/work/c", "network/root/x", "~/work/x", "see the package index"])
def test_the_check_lets_honest_lines_pass(line: str) -> None:
    assert findings("f", line) == []


def test_source_files_are_short(files: list[Path], root: Path) -> None:
    sizes = {
        str(path.relative_to(root)): len(path.read_text("utf-8").splitlines())
        for path in files
        if path.suffix in SOURCES or path.name == "Makefile"
    }
    assert sizes
    too_long = {name: lines for name, lines in sizes.items() if lines > MAX_LINES}
    assert not too_long, f"longer than {MAX_LINES} lines: {too_long}"


def test_nothing_unfinished_is_left_in_the_sources(files: list[Path], root: Path) -> None:
    marks = re.compile(r"\b(TO" r"DO|FIX" r"ME|X" r"XX)\b")
    found = [
        f"{path.relative_to(root)}:{n}"
        for path in files
        if path.suffix in SOURCES
        for n, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if marks.search(line)
    ]
    assert not found, found


@pytest.mark.parametrize("name", ["scripts/setup.sh", "scripts/lock.sh", ".ci/run"])
def test_scripts_can_be_run(root: Path, name: str) -> None:
    path = root / name
    assert path.stat().st_mode & 0o111, f"{name} is not executable"
    assert path.read_text().startswith("#!/usr/bin/env bash\n")
