"""User turns out of the three common forms of conversations; what an assistant once said in them is not read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_ASSISTANT = {"assistant", "gpt", "chatgpt", "bot", "model", "bing", "bard"}
_ROLES = {"system": "system", "developer": "system", "user": "user", "human": "user"} | dict.fromkeys(
    _ASSISTANT, "assistant"
)
FORMS = '{"turns": [...]}, {"messages": [{"role", "content"}, ...]} or {"conversations": [{"from", "value"}, ...]}'


class BadPromptError(Exception):
    """A prompt that cannot be used; the text says why."""


@dataclass(frozen=True, kw_only=True)
class PromptTurns:
    """A conversation of which only the user's side is given.

    Attributes:
        line: its line in the file, or its row in the data set, from 1.
        users: the user turns, at least one, none of them empty.
        system: the system prompt; empty if there is none.
        domain: what the source says it is about; None if it does not.
    """

    line: int
    users: tuple[str, ...]
    system: str = ""
    domain: str | None = None


def read_turns(raw: object, line: int, column: str | None = None) -> PromptTurns:
    """Read the turns of one JSON object.

    Args:
        raw: the object.
        line: where it stands.
        column: a field that holds a single user turn, instead of the known forms.

    Raises:
        BadPromptError: what is wrong with it.
    """
    if not isinstance(raw, Mapping):
        raise BadPromptError(f"expected a JSON object such as {FORMS}, got {_short(raw)}")
    domain = raw.get("domain")
    turns = _turns(raw, column)
    systems = [content for role, content in turns if role == "system"]
    if systems and (len(systems) > 1 or turns[0][0] != "system"):
        raise BadPromptError("a system prompt that is not the first turn")
    users = tuple(content for role, content in turns if role == "user")
    if not users:
        raise BadPromptError("there is no user turn in it")
    return PromptTurns(
        line=line,
        users=users,
        system=systems[0] if systems else "",
        domain=domain if isinstance(domain, str) and domain else None,
    )


def _turns(raw: Mapping[str, Any], column: str | None) -> list[tuple[str, str]]:
    """Roles and contents; contents of assistant turns are left empty."""
    if column is not None:
        if column not in raw:
            raise BadPromptError(f"there is no field {column!r}; it has {', '.join(map(str, raw)) or 'none'}")
        return [("user", _content(raw[column], 1))]
    if "turns" in raw:
        return [("user", _content(turn, number)) for number, turn in enumerate(_list(raw, "turns"), start=1)]
    for key, role, content in (("messages", "role", "content"), ("conversations", "from", "value")):
        if key in raw:
            messages = enumerate(_list(raw, key), start=1)
            return [_message(message, number, role, content) for number, message in messages]
    raise BadPromptError(f"expected {FORMS}, got the fields {', '.join(map(str, raw)) or 'none'}")


def _list(raw: Mapping[str, Any], key: str) -> Sequence[Any]:
    value = raw[key]
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise BadPromptError(f"{key!r} must be a list, got {_short(value)}")
    return value


def _message(message: object, number: int, role_key: str, content_key: str) -> tuple[str, str]:
    if not isinstance(message, Mapping):
        raise BadPromptError(f"turn {number} must be an object with {role_key!r} and {content_key!r}")
    named = message.get(role_key)
    role = _ROLES.get(named) if isinstance(named, str) else None
    if role is None:
        raise BadPromptError(f"turn {number} has the unknown role {_short(named)}; known are {', '.join(_ROLES)}")
    return role, "" if role == "assistant" else _content(message.get(content_key), number)


def _content(content: object, number: int) -> str:
    """A text, or a list of text parts."""
    if isinstance(content, Sequence) and not isinstance(content, str):
        parts = [part.get("text") if isinstance(part, Mapping) else None for part in content]
        if not all(isinstance(part, str) for part in parts):
            raise BadPromptError(f"turn {number} holds more than text")
        content = "".join(map(str, parts))
    if not isinstance(content, str):
        raise BadPromptError(f"turn {number} must be a text, got {_short(content)}")
    if not content.strip():
        raise BadPromptError(f"turn {number} is empty")
    try:
        content.encode()
    except UnicodeEncodeError:
        raise BadPromptError(f"turn {number} is no Unicode text") from None
    return content


def _short(value: object) -> str:
    return f"{value!r:.60}"
