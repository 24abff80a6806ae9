"""All verbs together. Nothing here imports torch: help must come at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from dspark.cli.bench import bench_app
from dspark.cli.bench_plan import bench_plan
from dspark.cli.bench_serve import bench_serve
from dspark.cli.bench_train import bench_train
from dspark.cli.calibrate import calibrate
from dspark.cli.chat import chat
from dspark.cli.check import check_app
from dspark.cli.check_simulator import check_simulator
from dspark.cli.data import data_app
from dspark.cli.demo import demo
from dspark.cli.eval import evaluate
from dspark.cli.exits import guarded
from dspark.cli.generate import generate
from dspark.cli.info import info
from dspark.cli.profile import profile
from dspark.cli.screen import print_whatever_comes
from dspark.cli.serve import ServeCommand, serve
from dspark.cli.simulate import simulate
from dspark.cli.threads import bind_threads
from dspark.cli.train import train


class Verbs(TyperGroup):
    """Shows errors as one line and turns them into exit codes."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Read the options before the verb."""
        parent_method = super().make_context
        return guarded(lambda: parent_method(info_name, args, parent, **extra))

    def invoke(self, ctx: Any) -> Any:
        """Run the verb."""
        parent_method = super().invoke
        return guarded(lambda: parent_method(ctx))


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"dspark {version('dspark')}")
        raise typer.Exit


def _setup(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", is_eager=True, callback=_show_version)
    ] = False,
) -> None:
    """Language models that answer faster through speculation, with exactly the same text."""
    print_whatever_comes()
    bind_threads()


_VERBS: Sequence[Callable[..., None]] = (generate, chat, demo, info, train, calibrate, profile, simulate)


def _make_app() -> typer.Typer:
    made = typer.Typer(cls=Verbs, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
    made.callback()(_setup)
    for verb in _VERBS:
        made.command()(verb)
    made.command("eval")(evaluate)
    made.command("serve", cls=ServeCommand)(serve)
    bench_app.command("serve")(bench_serve)
    bench_app.command("plan")(bench_plan)
    bench_app.command("train")(bench_train)
    check_app.command("simulator")(check_simulator)
    for name, group in (("bench", bench_app), ("check", check_app), ("data", data_app)):
        made.add_typer(group, name=name)
    return made


app = _make_app()
