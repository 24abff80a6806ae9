"""``dspark generate``: answer prompts."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dspark.cli.answers import AnswerPrinter, say_summary
from dspark.cli.build import open_llm, sampling
from dspark.cli.options import Calibration, Device, Drafter, Dtype, Policy, Target, TopK, TopP

if TYPE_CHECKING:
    from dspark.core import SamplingParams
    from dspark.engine import LLM, CompletionOutput, RequestOutput

STDIN = "-"


def generate(
    prompts: Annotated[
        list[str] | None, typer.Argument(metavar="PROMPT...", help="Prompts; '-' or none reads one from stdin.")
    ] = None,
    target: Target = None,
    drafter: Drafter = None,
    policy: Policy = None,
    calibration: Calibration = None,
    dtype: Dtype = None,
    device: Device = None,
    max_tokens: Annotated[int | None, typer.Option(help="Length limit of an answer [256].", show_default=False)] = None,
    temperature: Annotated[float, typer.Option(help="0 is greedy.")] = 0.0,
    top_p: TopP = None,
    top_k: TopK = None,
    min_p: Annotated[float | None, typer.Option(help="Drop tokens below this share.", show_default=False)] = None,
    seed: Annotated[
        int | None, typer.Option(help="Same seed, same text with --policy fixed.", show_default=False)
    ] = None,
    n: Annotated[int | None, typer.Option("--n", "-n", help="Answers per prompt [1].", show_default=False)] = None,
    stop: Annotated[list[str] | None, typer.Option(help="String that ends an answer. May be repeated.")] = None,
    chat: Annotated[
        bool | None,
        typer.Option("--chat/--raw", help="Through the chat template (default if there is one), or as it is."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object per answer, with ids and statistics.")
    ] = False,
) -> None:
    """Answer one or more prompts."""
    params = sampling(
        max_tokens=max_tokens, temperature=temperature, top_p=top_p, top_k=top_k, min_p=min_p, seed=seed, n=n,
        stop=tuple(stop) if stop else None,
    )  # fmt: skip
    texts = _read(prompts or [STDIN])
    llm = open_llm(target=target, drafter=drafter, policy=policy, calibration=calibration, dtype=dtype, device=device)
    through_template = bool(llm.loaded.tokenizer.chat_template) if chat is None else chat
    if len(texts) == 1 and params.n == 1 and not as_json:
        _stream(llm, _conversation(texts[0]) if through_template else texts[0], params)
    elif through_template:
        _print_all(texts, llm.chat([_conversation(text) for text in texts], params), as_json)
    else:
        _print_all(texts, llm.generate(texts, params), as_json)


def _read(prompts: list[str]) -> list[str]:
    """The prompts, stdin read where it is asked for; none may be empty."""
    from dspark.core import InputError

    if prompts.count(STDIN) > 1:
        raise InputError("stdin can be read for one prompt only, '-' was given several times")
    texts = [_read_stdin() if prompt == STDIN else prompt for prompt in prompts]
    if not all(text.strip() for text in texts):
        raise InputError("the prompt is empty; give it as an argument or on stdin")
    return texts


def _read_stdin() -> str:
    from dspark.core import InputError

    if sys.stdin.isatty():
        print("Type the prompt, then Ctrl-D.", file=sys.stderr)
    try:
        return sys.stdin.read().removesuffix("\n")
    except UnicodeDecodeError as error:
        raise InputError(f"stdin is not a text in {error.encoding}") from None


def _conversation(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def _stream(llm: LLM, prompt: Any, params: SamplingParams) -> None:
    printer = AnswerPrinter()
    completion: CompletionOutput | None = None
    try:
        for output in llm.stream(prompt, params):
            printer.write(output)
            completion = output.completion or completion
    except KeyboardInterrupt:
        printer.end()
        raise
    printer.end()
    if completion is not None and completion.stats.drafted:
        printer.legend()
    if completion is not None:
        say_summary(completion.stats)


def _print_all(texts: list[str], outputs: list[RequestOutput], as_json: bool) -> None:
    many = sum(len(output.outputs) for output in outputs) > 1
    for number, (text, output) in enumerate(zip(texts, outputs, strict=True)):
        for answer in output.outputs:
            if as_json:
                print(json.dumps(_as_dict(number, text, answer)))
            else:
                print(f"--- prompt {number + 1}, answer {answer.index + 1} ---\n" * many + answer.text)


def _as_dict(number: int, prompt: str, answer: CompletionOutput) -> dict[str, Any]:
    stats = answer.stats
    return {
        "prompt_index": number,
        "index": answer.index,
        "prompt": prompt,
        "text": answer.text,
        "token_ids": answer.token_ids,
        "origins": answer.origins,
        "finish_reason": answer.finish_reason,
        "stop_reason": answer.stop_reason,
        "prompt_tokens": stats.prompt_tokens,
        "rounds": stats.rounds,
        "drafted": stats.drafted,
        "verified": stats.verified,
        "accepted": stats.accepted,
        "tau": round(stats.tau, 4),
        "acceptance": [round(share, 4) for share in stats.acceptance],
        "first_token_seconds": stats.first_token_seconds,
        "decode_seconds": stats.decode_seconds,
    }
