"""``dspark data regenerate``: given prompts, answered anew by the target."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dspark.cli.build import open_llm
from dspark.cli.options import (
    Device,
    Dtype,
    Override,
    Repeats,
    Target,
    Temperatures,
    Thinking,
    TopK,
    TopP,
    WritingDrafter,
    WritingSeed,
    given,
)
from dspark.cli.screen import progress_bar, waiting

if TYPE_CHECKING:
    from dspark.data.duplicates import Duplicates
    from dspark.recipes.endpoint_answers import EndpointAnswers
    from dspark.recipes.regenerated_file import RegeneratedFile
    from dspark.recipes.regeneration import Answers
    from dspark.recipes.regeneration_plan import RegenerationPlan

KEY = "OPENAI_API_KEY"


def regenerate(
    prompts: Annotated[
        str,
        typer.Argument(
            metavar="PROMPTS", help="JSONL of turns, messages or conversations; or hf:NAME, a Hugging Face data set."
        ),
    ],
    path: Annotated[Path, typer.Argument(metavar="OUT.jsonl", help="Where conversations are appended.")],
    target: Target = None,
    drafter: WritingDrafter = "none",
    dtype: Dtype = None,
    device: Device = None,
    endpoint: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help=f"An OpenAI-compatible server that serves the target, up to /v1; key in {KEY}."
        ),
    ] = None,
    model: Annotated[str | None, typer.Option(help="Its name there (the only one there).", show_default=False)] = None,
    in_flight: Annotated[int, typer.Option(help="Conversations answered at a time.")] = 64,
    attempts: Annotated[int, typer.Option(help="How often a request to a server is tried.")] = 6,
    temperatures: Temperatures = None,
    top_p: TopP = None,
    top_k: TopK = None,
    answer_tokens: Annotated[int | None, typer.Option(help="Longest answer (1024).", show_default=False)] = None,
    max_tokens: Annotated[int | None, typer.Option(help="Longest conversation (4096).", show_default=False)] = None,
    system: Annotated[
        str | None, typer.Option(help="System prompt instead of the prompts' own; '' for none.", show_default=False)
    ] = None,
    thinking: Thinking = None,
    domain: Annotated[
        str | None, typer.Option(help="What prompts are about that do not say it (the file's name).")
    ] = None,
    duplicates: Repeats = None,
    column: Annotated[str | None, typer.Option(help="Field that holds one user turn, for data without turns.")] = None,
    split: Annotated[str, typer.Option(help="Of a data set.")] = "train",
    subset: Annotated[str | None, typer.Option(help="Of a data set.")] = None,
    limit: Annotated[int | None, typer.Option(help="Look at so many rows only.")] = None,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="List prompts that cannot be used as failures, do not stop at them.")
    ] = False,
    retry_failures: Annotated[bool, typer.Option("--retry-failures", help="Try earlier failures again.")] = False,
    seed: WritingSeed = None,
    overrides: Override = None,
) -> None:
    """Answer given prompts anew: user turns come from the source, every answer is written by the target.

    The same command goes on where the last one stopped. Prompts without an answer are in OUT.failures.jsonl.
    """
    with waiting("Starting ..."):
        from dspark.data.prompt_source import PromptReader, open_source
        from dspark.recipes.overrides import override
        from dspark.recipes.regenerated_file import RegeneratedFile
        from dspark.recipes.regeneration import regenerate as answer_all
        from dspark.recipes.regeneration_plan import RegenerationPlan
    source = open_source(prompts, split=split, subset=subset)
    options = given(
        top_p=top_p, top_k=top_k, answer_tokens=answer_tokens, max_tokens=max_tokens, system=system, thinking=thinking,
        seed=seed,
    )  # fmt: skip
    plan = RegenerationPlan(domain=domain or source.name, **options)
    plan = override(plan, [*(overrides or []), *([f"temperatures={temperatures}"] if temperatures else [])])
    reader = PromptReader(source=source, column=column, limit=limit, duplicates=_kind(duplicates))
    if skip_bad:
        reader.on_bad = lambda line, reason: None
    with waiting("Reading the prompts ..."):
        count = reader.count()
    answers, name, writer = (
        _from_endpoint(endpoint, model, target, plan, in_flight, attempts)
        if endpoint is not None
        else _from_engine(plan, in_flight, target=target, drafter=drafter, dtype=dtype, device=device)
    )
    identity = {
        "source": source.identity() | {"column": column},
        "plan": asdict(plan) | {"duplicates": reader.duplicates},
        "target": name,
        "writer": writer,
    }
    file = RegeneratedFile.open(path, identity, retry_failures=retry_failures)
    with progress_bar("Answering prompts", count) as update:
        answer_all(reader, answers, file, skip_bad=skip_bad, progress=lambda file: update(len(file.done), _note(file)))
    _say(file, reader.left_out, answers)


def _kind(text: str | None) -> Duplicates:
    from dspark.core import InputError
    from dspark.data.duplicates import Duplicates

    try:
        return Duplicates(text or Duplicates.EXACT)
    except ValueError:
        raise InputError(f"--duplicates must be one of {', '.join(Duplicates)}, got {text!r}") from None


def _from_engine(plan: RegenerationPlan, in_flight: int, **options: str | None) -> tuple[Answers, str, str]:
    from dspark.recipes.engine_answers import EngineAnswers

    llm = open_llm(max_requests=in_flight, **options)
    return EngineAnswers(llm, plan, chunk=2 * in_flight), llm.loaded.name, "engine"


def _from_endpoint(
    url: str, model: str | None, target: str | None, plan: RegenerationPlan, in_flight: int, attempts: int
) -> tuple[EndpointAnswers, str, str]:
    with waiting("Asking the endpoint ..."):
        from dspark.data.chat_template import ChatTemplate
        from dspark.recipes.endpoint import Endpoint, only_model
        from dspark.recipes.endpoint_answers import EndpointAnswers
        from dspark.target import DEFAULT_TARGET
        from dspark.target.tokenizers import load_tokenizer

        key = os.environ.get(KEY) or "none"
        loaded = load_tokenizer(target or DEFAULT_TARGET)
        template = ChatTemplate.of(loaded.tokenizer, thinking=plan.thinking)
        name = model or only_model(url, key)
    server = Endpoint(base_url=url, model=name, api_key=key, in_flight=in_flight, attempts=attempts)
    return EndpointAnswers(server, template, plan), loaded.name, name


def _note(file: RegeneratedFile) -> str:
    return f"{file.tokens} tokens, {file.failed} failed"


def _say(file: RegeneratedFile, left_out: int, answers: Answers) -> None:
    from dspark.evaluation.decode_report import count_of

    said = f"{file.path} holds {count_of(file.count, 'conversation')}, {count_of(file.tokens, 'token')}"
    if file.cut:
        said += f", {file.cut} with a cut answer"
    if left_out:
        said += f"; {count_of(left_out, 'repeated prompt')} left out"
    if file.failed:
        said += f"; {count_of(file.failed, 'prompt')} failed, see {file.failures}"
    typer.echo(said, err=True)
    differing, counted = getattr(answers, "differing", 0), getattr(answers, "counted", 0)
    if differing:
        typer.echo(
            f"for {differing} of {counted} answers the endpoint counted another prompt length than the target's "
            "template gives; does it serve this target, with the same template?",
            err=True,
        )
