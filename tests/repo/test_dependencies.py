"""pyproject.toml names what the code imports, and nothing that it does not."""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

# Needed without an import of ours, each with its reason.
NEEDED_BY_OTHERS = {
    "gguf": "transformers reads GGUF files with it",
    "accelerate": "transformers asks for it before it reads a GGUF file",
}


def imported(source: str) -> Iterator[str]:
    """Top-level names of all absolute imports, those inside functions included."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module.split(".")[0]


def distributions(folder: Path) -> dict[str, str]:
    """Distributions that the files in a folder import, each with one file that does."""
    home = packages_distributions()
    found: dict[str, str] = {}
    for path in sorted(folder.rglob("*.py")):
        for name in imported(path.read_text("utf-8")):
            if name in sys.stdlib_module_names or name == "dspark":
                continue
            assert name in home, f"{path} imports {name}, which no installed distribution has"
            found[canonicalize_name(home[name][0])] = str(path.relative_to(folder))
    return found


@pytest.fixture(scope="module")
def asked(root: Path) -> dict[str, set[str]]:
    """Names that pyproject.toml asks for: always, and for development."""
    table = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    lists = {"always": table["dependencies"], "dev": table["optional-dependencies"]["dev"]}
    return {key: {canonicalize_name(Requirement(text).name) for text in texts} for key, texts in lists.items()}


def test_what_the_package_imports_is_asked_for(root: Path, asked: dict[str, set[str]]) -> None:
    used = distributions(root / "src")
    assert not {name: file for name, file in used.items() if name not in asked["always"]}


def test_what_the_tests_import_is_asked_for(root: Path, asked: dict[str, set[str]]) -> None:
    used = distributions(root / "tests")
    assert not {name: file for name, file in used.items() if name not in asked["always"] | asked["dev"]}


def test_what_is_asked_for_is_used(root: Path, asked: dict[str, set[str]]) -> None:
    assert not asked["always"] - set(distributions(root / "src")) - set(NEEDED_BY_OTHERS)
