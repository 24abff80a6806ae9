"""Thoughts, content and tool calls, cut anywhere."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dspark.serving.reading import AnswerReader, Part
from dspark.serving.tools import Call, ToolSyntax

HERMES = ToolSyntax.of("... <tool_call> ...")
BARE = ToolSyntax.of('{"name": ..., "parameters": ...}')
CASES: list[tuple[str, dict, list[Part]]] = [
    ("plain text", {}, [("content", "plain text")]),
    ("<think>\na\n</think>\n\nb", {"thinks": True}, [("thought", "a\n"), ("content", "b")]),
    ("a</think>b", {"inside": True}, [("thought", "a"), ("content", "b")]),
    ("never ends", {"inside": True}, [("thought", "never ends")]),
    ("<thin ice", {"thinks": True}, [("content", "<thin ice")]),
    ("a <think> b", {"thinks": True}, [("content", "a <think> b")]),
    ("<think>x", {}, [("content", "<think>x")]),
    (
        'so: <tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>\n<tool_call>{"name": "g"}</tool_call>',
        {"tools": HERMES},
        [("content", "so: "), Call("f", '{"a": 1}'), Call("g", "{}")],
    ),
    ('<tool_call>[{"name": "f"}, {"name": "g"}]</tool_call>', {"tools": HERMES}, [Call("f", "{}"), Call("g", "{}")]),
    ("<tool_call>no json</tool_call>", {"tools": HERMES}, [("content", "<tool_call>no json</tool_call>")]),
    ('<tool_call>{"name": "f"}', {"tools": HERMES}, [Call("f", "{}")]),
    ("a < b <tool", {"tools": HERMES}, [("content", "a < b <tool")]),
    ('{"name": "f", "parameters": {"x": "y"}}', {"tools": BARE}, [Call("f", '{"x": "y"}')]),
    ('{"no": "call"}', {"tools": BARE}, [("content", '{"no": "call"}')]),
    ("text {", {"tools": BARE}, [("content", "text {")]),
    ("", {"thinks": True, "tools": HERMES}, []),
]  # fmt: skip


def merged(parts: list[Part]) -> list[Part]:
    found: list[Part] = []
    for part in parts:
        last = found[-1] if found else None
        if isinstance(part, tuple) and isinstance(last, tuple) and last[0] == part[0]:
            found[-1] = (part[0], last[1] + part[1])
        else:
            found.append(part)
    return found


def read(text: str, cuts: list[int], options: dict) -> list[Part]:
    reader = AnswerReader(**{"thinks": False, "inside": False, "tools": None} | options)
    places = sorted({min(cut, len(text)) for cut in cuts} | {0, len(text)})
    parts: list[Part] = []
    for start, end in pairwise(places):
        parts += reader.feed(text[start:end])
    return merged(parts + reader.end())


@pytest.mark.parametrize(("text", "options", "expected"), CASES)
def test_parts(text: str, options: dict, expected: list[Part]) -> None:
    assert read(text, [], options) == expected
    assert read(text, list(range(len(text))), options) == expected


@given(case=st.sampled_from(CASES), cuts=st.lists(st.integers(0, 120), max_size=6))
def test_parts_do_not_depend_on_how_the_text_arrives(case: tuple, cuts: list[int]) -> None:
    text, options, expected = case
    assert read(text, cuts, options) == expected


@given(st.text(alphabet='<tool_cal>/{}"nam: x', max_size=60), st.lists(st.integers(0, 60), max_size=8))
def test_no_text_breaks_the_reader(text: str, cuts: list[int]) -> None:
    assert read(text, cuts, {"tools": HERMES, "thinks": True}) == read(text, [], {"tools": HERMES, "thinks": True})
