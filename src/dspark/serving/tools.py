"""Tool calls as models write them: between tags, or as a bare JSON object."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dspark.serving.grammar import lark_grammar
from dspark.serving.schema import Function

_ARGUMENTS = ("arguments", "parameters")


@dataclass(frozen=True)
class Call:
    """A call the model wrote: the function's name, and its arguments as JSON text."""

    name: str
    arguments: str


@dataclass(frozen=True, kw_only=True)
class ToolSyntax:
    """How one model's template has calls written.

    Attributes:
        opening: what a call starts with; empty for bare JSON, which must then be the whole answer.
        closing: what it ends with.
        arguments: key of the arguments beside ``name``.
    """

    opening: str
    closing: str
    arguments: str

    @classmethod
    def of(cls, template: str) -> ToolSyntax:
        """Read it off the template's source: Hermes' tags (Qwen, SmolLM, ...), else bare JSON (Llama)."""
        if "<tool_call>" in template:
            return cls(opening="<tool_call>", closing="</tool_call>", arguments="arguments")
        key = "parameters" if '"parameters"' in template and '"arguments"' not in template else "arguments"
        return cls(opening="", closing="", arguments=key)

    def read(self, text: str) -> list[Call] | None:
        """The calls in the text between the tags; None if it is something else."""
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            return None
        calls = [self._call(entry) for entry in (found if isinstance(found, list) else [found])]
        return [call for call in calls if call is not None] if calls and None not in calls else None

    def grammar(self, functions: Sequence[Function], *, several: bool) -> str:
        """A grammar of answers that are one call of these functions, or one or more."""
        again = "+" if several and self.opening else ""
        rules = [f"start: call{again}"]
        opening = json.dumps(self.opening + "\n") + " " if self.opening else ""
        closing = " " + json.dumps("\n" + self.closing + ("\n" if again else "")) if self.closing else ""
        rules.append(f"call: {opening}({' | '.join(f'fn_{i}' for i in range(len(functions)))}){closing}")
        for i, function in enumerate(functions):
            head = f'{{"name": {json.dumps(function.name)}, "{self.arguments}": '
            rules.append(f"fn_{i}: {json.dumps(head)} args_{i} {json.dumps('}')}")
            rules.append(f"args_{i}: %json {json.dumps(function.parameters or {'type': 'object'})}")
        return lark_grammar("\n".join(rules))

    def _call(self, entry: Any) -> Call | None:
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
            return None
        arguments: Any = next((entry[key] for key in (self.arguments, *_ARGUMENTS) if key in entry), {})
        written = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        return Call(entry["name"], written)
