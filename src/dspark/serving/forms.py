"""The form an answer must have, as a grammar."""

from __future__ import annotations

from dspark.serving.errors import bad_request
from dspark.serving.grammar import json_grammar, lark_grammar, regex_grammar
from dspark.serving.schema import ChatRequest, NamedTool, ResponseFormat
from dspark.serving.tools import ToolSyntax


def format_grammar(wanted: ResponseFormat | None) -> str | None:
    """The grammar of a ``response_format``; None for any text.

    Raises:
        ApiError: 400, if what belongs to its type is missing.
    """
    if wanted is None or wanted.type == "text":
        return None
    if wanted.type == "json_object":
        return json_grammar({"type": "object"})
    if wanted.type == "json_schema":
        if wanted.json_schema is None:
            raise bad_request("a response_format of type json_schema needs json_schema", "response_format")
        schema = wanted.json_schema.json_schema
        return json_grammar({"type": "object"} if schema is None else schema)
    text = wanted.regex if wanted.type == "regex" else wanted.grammar
    if not text:
        raise bad_request(f"a response_format of type {wanted.type} needs {wanted.type}", "response_format")
    return regex_grammar(text) if wanted.type == "regex" else lark_grammar(text)


def tool_grammar(body: ChatRequest, syntax: ToolSyntax) -> str | None:
    """The grammar of an answer that has to be a tool call; None where it need not be one.

    Raises:
        ApiError: 400, if the tool that must be called is not there.
    """
    choice, tools = body.tool_choice, body.tools or []
    if choice is None or choice in ("none", "auto"):
        return None
    functions = [tool.function for tool in tools]
    if isinstance(choice, NamedTool):
        functions = [function for function in functions if function.name == choice.function.name]
        if not functions:
            raise bad_request(
                f"tool_choice names {choice.function.name!r:.80}, which is not among tools", "tool_choice"
            )
        return syntax.grammar(functions, several=False)
    if not functions:
        raise bad_request("tool_choice is 'required', but there are no tools", "tool_choice")
    return syntax.grammar(functions, several=body.parallel_tool_calls is not False)
