"""Every known fault of the field that this project answers has a test that names it: ``@pytest.mark.pitfall(N)``."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ALL = range(1, 45)
DUE = [*ALL]

# Items that nothing in the repository can show yet, each with its reason. An item leaves this table with its test.
NOT_YET: dict[int, str] = {}


def is_pitfall_mark(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "pitfall"


def marked(source: str) -> Iterator[int]:
    """Numbers of the pitfall marks that stand on tests, test classes, parameters or whole test modules."""
    tree = ast.parse(source)
    assert isinstance(tree, ast.Module)
    for call in filter(is_pitfall_mark, ast.walk(tree)):
        assert isinstance(call, ast.Call)
        assert call.args, f"line {call.lineno}: a pitfall mark without a number"
        for arg in call.args:
            assert isinstance(arg, ast.Constant), f"line {call.lineno}: write the number of the pitfall out"
            assert isinstance(arg.value, int), f"line {call.lineno}: a pitfall is named by its number"
            yield arg.value


@pytest.fixture(scope="module")
def shown(root: Path) -> dict[int, list[str]]:
    """Test files by pitfall number."""
    found: dict[int, list[str]] = {}
    for path in sorted((root / "tests").rglob("test_*.py")):
        if path == Path(__file__):
            continue
        for number in marked(path.read_text("utf-8")):
            found.setdefault(number, []).append(str(path.relative_to(root)))
    return found


def test_marks_name_items_that_exist(shown: dict[int, list[str]]) -> None:
    unknown = {number: files for number, files in shown.items() if number not in ALL}
    assert not unknown


def test_what_cannot_be_shown_yet_says_why(shown: dict[int, list[str]]) -> None:
    assert set(NOT_YET) <= set(DUE)
    assert all(len(reason) > 20 for reason in NOT_YET.values())
    assert not set(NOT_YET) & set(shown), "shown by now: take it out of NOT_YET"


def test_every_due_item_is_shown(shown: dict[int, list[str]]) -> None:
    missing = [number for number in DUE if number not in shown and number not in NOT_YET]
    assert not missing, f"no test is marked pitfall(N) for N in {missing}"


def test_marks_are_found_wherever_pytest_takes_them() -> None:
    source = """
import pytest
pytestmark = [pytest.mark.pitfall(1), pytest.mark.slow]

@pytest.mark.pitfall(2)
def test_a(): ...

@pytest.mark.parametrize("x", [pytest.param(1, marks=pytest.mark.pitfall(3, 4))])
class TestB: ...
"""
    assert sorted(marked(source)) == [1, 2, 3, 4]
