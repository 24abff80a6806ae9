"""Changing single fields of a nested configuration by dotted name."""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from difflib import get_close_matches
from enum import Enum
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from dspark.core import InputError

_C = TypeVar("_C")
_TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def override(config: _C, assignments: Iterable[str]) -> _C:
    """Apply ``NAME=VALUE`` assignments, each checked by the configuration itself.

    Values are written plainly: ``optim.lr=1e-3``, ``drafter.target_layer_ids=1,8,14``, ``optim.muon_lr=none``,
    ``synthesis.domains=chat:0.5,code:0.5``, ``phases=share:0.2,kl:1,tv:0.5;share:0.3,tv:1``.

    Raises:
        InputError: no such field (the nearest one is named), or a value that does not fit it.
    """
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        if not equals:
            raise InputError(f"fields are set by NAME=VALUE, got {assignment!r}")
        config = _replaced(config, name.strip(), text.strip())
    return config


def field_names(config: Any, prefix: str = "") -> Iterator[str]:
    """Dotted names of all fields that can be set."""
    for entry in fields(config):
        value = getattr(config, entry.name)
        if is_dataclass(value):
            yield from field_names(value, f"{prefix}{entry.name}.")
        else:
            yield prefix + entry.name


def _replaced(config: _C, name: str, text: str) -> _C:
    known = list(field_names(config))
    if name not in known:
        near = get_close_matches(name, known, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}?" if near else f"known are: {', '.join(known)}"
        raise InputError(f"there is no field {name!r}; {hint}")
    return _set(config, name.split("."), name, text)


def _set(config: Any, path: list[str], name: str, text: str) -> Any:
    first, rest = path[0], path[1:]
    if rest:
        return replace(config, **{first: _set(getattr(config, first), rest, name, text)})
    hint = get_type_hints(type(config))[first]
    try:
        value = _read(text, hint)
    except InputError:
        raise
    except (ValueError, KeyError, TypeError):
        raise InputError(f"{name} must be {_describe(hint)}, got {text!r}") from None
    return replace(config, **{first: value})


def _read(text: str, hint: Any) -> Any:
    """Read a value of a type; ValueError or KeyError if it is none."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return None if text.lower() == "none" else _read(text, next(part for part in inner if part is not type(None)))
    if origin is tuple:
        if is_dataclass(inner[0]):
            return tuple(_read(part, inner[0]) for part in text.split(";") if part.strip())
        kinds = inner[:1] if inner[-1] is Ellipsis else inner
        parts = [part.strip() for part in text.split(",") if part.strip()]
        if len(kinds) > 1 and len(parts) != len(kinds):
            raise ValueError(text)
        return tuple(_read(part, kinds[place % len(kinds)]) for place, part in enumerate(parts))
    if isinstance(hint, type) and is_dataclass(hint):
        types_of, pairs = get_type_hints(hint), [part.split(":") for part in text.split(",")]
        return hint(**{name.strip(): _read(value.strip(), types_of[name.strip()]) for name, value in pairs})
    if origin is Mapping:
        pairs = [part.split(":") for part in text.split(",")]
        return {_read(key.strip(), inner[0]): _read(value.strip(), inner[1]) for key, value in pairs}
    if hint is bool:
        return _TRUTH[text.lower()]
    assert hint in (int, float, str) or issubclass(hint, Enum), f"fields of type {hint} cannot be set"
    return hint(text)


def _describe(hint: Any) -> str:
    """A type in words."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return f"{_describe(next(part for part in inner if part is not type(None)))} or none"
    if origin is tuple and is_dataclass(inner[0]):
        names = ",".join(f"{field.name}:value" for field in fields(inner[0]))
        return f"groups such as {names} with semicolons between"
    if origin is tuple:
        return f"a list of such values with commas between: {_describe(inner[0])}"
    if origin is Mapping:
        return "a list such as name:number,name:number"
    words = {int: "an integer", float: "a number", bool: "true or false", str: "a text"}
    return words.get(hint) or f"one of {', '.join(entry.value for entry in hint)}"
