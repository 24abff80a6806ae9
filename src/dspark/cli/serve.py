"""``dspark serve``: the OpenAI-compatible server. Its flags are the fields of the settings."""

from __future__ import annotations

import inspect
import types
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Union, get_args, get_origin

import typer
from typer.core import TyperCommand
from typer.main import get_command

from dspark.cli.screen import note, out, waiting

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

_GIVEN = "dspark.serve"
_SHORT = {"drafter": ("-d",), "policy": ("-p",)}


class ServeCommand(TyperCommand):
    """Has one flag per setting; reading them takes a moment, which other verbs need not wait for."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The parameters of the function, and the settings."""
        return [*super().get_params(ctx), *_flags()]


def serve(
    ctx: typer.Context,
    target: Annotated[
        str | None,
        typer.Argument(
            help="Model: smollm2-135m (the default), a directory, a GGUF file or a hub id.", show_default=False
        ),
    ] = None,
    config: Annotated[Path | None, typer.Option("--config", "-c", help="YAML file with settings.")] = None,
    print_config: Annotated[bool, typer.Option("--print-config", help="Show all settings as YAML and exit.")] = False,
) -> None:
    """Serve a model to OpenAI clients. Settings come from flags, the environment (DSPARK_SERVE_PORT) and --config."""
    from dspark.serving.settings import as_yaml, read_settings

    given = dict(ctx.meta.get(_GIVEN, {}))
    if target is not None:
        given["target"] = target
    settings = read_settings(given, config)
    if print_config:
        out().print(as_yaml(settings), end="", soft_wrap=True)
        return
    with waiting("Loading the model ..."):
        from dspark.serving.run import open_llm, run

        llm = open_llm(settings)
    note(llm.notes)
    run(llm, settings)


def _flags() -> list[Any]:
    """One option per setting, made by typer from a signature that lists them."""
    from dspark.serving.settings import ServeSettings

    fields = {name: field for name, field in ServeSettings.model_fields.items() if name != "target"}
    hints = {name: _hint(name, field) for name, field in fields.items()}

    def settings(**given: Any) -> None:
        """Never called."""

    keyword = inspect.Parameter.KEYWORD_ONLY
    listed = [inspect.Parameter(name, keyword, default=None, annotation=hint) for name, hint in hints.items()]
    settings.__signature__ = inspect.Signature(listed)  # type: ignore[attr-defined]
    settings.__annotations__ = hints
    app = typer.Typer(add_completion=False)
    app.command()(settings)
    return [option for option in get_command(app).params if option.name in hints]


def _hint(name: str, field: FieldInfo) -> Any:
    """The annotation of a setting's flag."""
    kind, dashed = _kind(field.annotation), name.replace("_", "-")
    declared = [f"--{dashed}/--no-{dashed}" if kind is bool else f"--{dashed}", *_SHORT.get(name, ())]
    shown = "" if field.default in (None, ()) or kind is bool else f" (default: {field.default})"
    option = typer.Option(
        *declared, help=f"{field.description}{shown}", expose_value=False, callback=_remember, show_default=False
    )
    return Annotated[kind | None, option]


def _remember(ctx: typer.Context, option: typer.CallbackParam, value: Any) -> Any:
    """Keep what was given for the verb."""
    if value is not None:
        ctx.meta.setdefault(_GIVEN, {})[option.name] = value
    return value


def _kind(annotation: Any) -> type:
    """The type of a flag."""
    if get_origin(annotation) in (Union, types.UnionType):
        annotation = next(part for part in get_args(annotation) if part is not type(None))
    return annotation if annotation in (bool, int, float) else str
