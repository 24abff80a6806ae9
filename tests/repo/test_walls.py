"""The import walls stand: an import across each of them makes lint-imports fail.

The walls are tried on an empty house, a package with every room and nothing in it, so that they are known to hold for
rooms that are still to be built.
"""

from __future__ import annotations

import configparser
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOMS = [
    "cli", "recipes", "simulation", "serving", "training", "evaluation", "interop", "engine", "drafters", "verify",
    "scheduling", "calibration", "data", "target", "kvcache", "core",
]  # fmt: skip


@pytest.fixture
def house(tmp_path: Path, root: Path) -> Path:
    """An empty package with every room, under the walls of this repository."""
    shutil.copy(root / ".importlinter", tmp_path)
    for room in ROOMS:
        (tmp_path / "src/dspark" / room).mkdir(parents=True)
        (tmp_path / "src/dspark" / room / "__init__.py").touch()
    (tmp_path / "src/dspark/__init__.py").touch()
    return tmp_path


def plant(house: Path, room: str, line: str) -> None:
    (house / "src/dspark" / room / "planted.py").write_text(line + "\n")


def check(house: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as c; c()", "--no-cache"]
    env = {**os.environ, "PYTHONPATH": str(house / "src")}
    return subprocess.run(command, cwd=house, env=env, capture_output=True, text=True, check=False)


def test_the_walls_of_the_empty_house_stand(house: Path) -> None:
    result = check(house)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize(
    ("room", "imported"),
    [
        ("core", "dspark.kvcache"),
        ("kvcache", "dspark.target"),
        ("target", "dspark.data"),
        ("data", "dspark.calibration"),
        ("data", "dspark.engine"),
        ("verify", "dspark.drafters"),
        ("drafters", "dspark.scheduling"),
        ("scheduling", "dspark.verify"),
        ("engine", "dspark.training"),
        ("training", "dspark.engine"),
        ("training", "dspark.evaluation"),
        ("serving", "dspark.training"),
        ("interop", "dspark.training"),
        ("evaluation", "dspark.recipes"),
        ("evaluation", "dspark.simulation"),
        ("simulation", "dspark.recipes"),
        ("recipes", "dspark.cli"),
        ("verify", "dspark.target"),
        ("scheduling", "dspark.target"),
        ("core", "transformers"),
        ("kvcache", "transformers"),
        ("verify", "transformers"),
        ("scheduling", "transformers"),
    ],
)
def test_an_import_across_a_wall_fails(house: Path, room: str, imported: str) -> None:
    plant(house, room, f"import {imported}")
    result = check(house)
    assert result.returncode != 0
    assert f"dspark.{room}.planted -> {imported}" in result.stdout


def test_a_way_round_through_the_package_itself_fails(house: Path) -> None:
    (house / "src/dspark/__init__.py").write_text("import dspark.engine\n")
    plant(house, "training", "import dspark")
    assert "BROKEN" in check(house).stdout


@pytest.mark.parametrize(
    ("room", "imported"), [("cli", "core"), ("training", "drafters"), ("engine", "verify"), ("drafters", "data")]
)
def test_imports_downwards_pass(house: Path, room: str, imported: str) -> None:
    plant(house, room, f"import dspark.{imported}")
    result = check(house)
    assert result.returncode == 0, result.stdout


def test_a_room_without_a_place_fails(house: Path) -> None:
    (house / "src/dspark/annex").mkdir()
    (house / "src/dspark/annex/__init__.py").touch()
    assert check(house).returncode != 0


def test_every_room_of_the_walls_is_tried_here(root: Path) -> None:
    config = configparser.ConfigParser()
    config.read(root / ".importlinter")
    layers = config["importlinter:contract:rooms"]["layers"]
    assert sorted(layers.translate(str.maketrans("()|", "   ")).split()) == sorted(ROOMS)
