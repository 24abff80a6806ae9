"""``dspark demo``: the same prompts with plain decoding and with DSpark, and proof that the text is the same."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from dspark.cli.answers import AnswerPrinter
from dspark.cli.build import open_target
from dspark.cli.options import Device, Drafter, Dtype, MaxTokens, Policy, Target, given
from dspark.cli.screen import out, progress_bar, waiting

if TYPE_CHECKING:
    from dspark.evaluation import Audit, SideBySide
    from dspark.evaluation.demo import Pair
    from dspark.target import LoadedTarget

_FLOAT32_BYTES = 4
_FAULT = "texts differ by more than rounding explains; this is a fault of dspark, please report it"


def demo(
    target: Target = None,
    drafter: Drafter = None,
    policy: Policy = None,
    dtype: Dtype = None,
    device: Device = None,
    max_tokens: MaxTokens = 48,
    proof: Annotated[
        bool, typer.Option("--proof/--no-proof", help="Compare the texts in float32 as well, where rounding is small.")
    ] = True,
) -> None:
    """Watch DSpark answer, then compare its speed and its texts with those of plain decoding."""
    _check_length(max_tokens)
    loaded = open_target(target, dtype, device)
    pair = _open_pair(loaded, drafter, policy)
    prompts = pair.prompts()
    _show_first(pair, prompts[0], max_tokens)
    result = _compare(pair, prompts, max_tokens)
    _print_speeds(pair.fast.name, result)
    if proof and loaded.target.dtype.itemsize < _FLOAT32_BYTES:
        _print_proof(_prove(target or loaded.name, device, drafter, policy, max_tokens), max_tokens)
    _print_texts(loaded, result)


def _check_length(max_tokens: int) -> None:
    from dspark.core import InputError

    if max_tokens < 2:
        raise InputError(f"the demo needs --max-tokens >= 2, got {max_tokens}")


def _open_pair(loaded: LoadedTarget, drafter: str | None, policy: str | None) -> Pair:
    """The two arms; without a shipped drafter, n-gram lookup takes its place."""
    from dspark.evaluation.demo import Pair, fall_back

    name, remark = fall_back(loaded, drafter or "auto")
    pair = Pair.of(loaded, name, **given(policy=policy))
    console = out()
    console.print(f"target   {loaded.name}: {'; '.join(loaded.notes)}", soft_wrap=True)
    console.print(f"drafter  {pair.fast.name}, {pair.fast.drafter.block_size} tokens a block{remark}", soft_wrap=True)
    return pair


def _show_first(pair: Pair, prompt: Any, max_tokens: int) -> None:
    """Warm both arms up, and let the fast one be seen."""
    from dspark.evaluation.decode import run_arm
    from dspark.evaluation.demo import show

    console, printer = out(), AnswerPrinter()
    with waiting("Warming up ..."):
        run_arm(pair.plain, [prompt], 8, 1)
    console.print(f"\n{pair.asked(0)}\n", style="bold" if printer.coloured else "", soft_wrap=True)
    with closing(cast("Any", show(pair.fast, prompt, max_tokens))) as outputs:
        for output in outputs:
            printer.write(output)
    printer.end()
    printer.legend()


def _compare(pair: Pair, prompts: Any, max_tokens: int) -> SideBySide:
    from dspark.evaluation.demo import side_by_side

    with progress_bar("Comparing", 2 * len(prompts)) as update:
        return side_by_side(pair, prompts, max_tokens, progress=update)


def _print_speeds(name: str, result: SideBySide) -> None:
    console = out()
    console.print(f"\n{len(result.plain)} prompts, both ways in turns, greedy")
    console.print(f"  plain decoding   {result.plain_rate:6.1f} tokens/s")
    console.print(f"  {name:<15}  {result.fast_rate:6.1f} tokens/s")
    console.print(f"  ratio            {result.ratio:6.2f}")
    console.print(f"  tau              {result.tau:6.2f} tokens a round (plain decoding: 1)")


def _print_texts(loaded: LoadedTarget, result: SideBySide) -> None:
    """Texts in the dtype of the comparison; in float32, a difference is a fault unless it is a near tie."""
    from dspark.core import DsparkError
    from dspark.evaluation.demo import about_parting, is_fault

    dtype = str(loaded.target.dtype).removeprefix("torch.")
    console = out()
    console.print(f"  same text        {result.identical} of {len(result.plain)} in {dtype}")
    for parting in result.partings:
        console.print(f"                   {about_parting(parting, dtype)}", soft_wrap=True)
    if loaded.target.dtype.itemsize == _FLOAT32_BYTES and any(map(is_fault, result.partings)):
        raise DsparkError(_FAULT)


def _prove(target: str, device: str | None, drafter: str | None, policy: str | None, tokens: int) -> Audit:
    """The same comparison in float32, where rounding hardly ever decides between two tokens."""
    from dspark.evaluation.demo import Pair, fall_back, prove

    loaded = open_target(target, "float32", device)
    pair = Pair.of(loaded, fall_back(loaded, drafter or "auto")[0], **given(policy=policy))
    with progress_bar("Proving in float32", 2 * len(pair.prompts())) as update:
        return prove(pair, tokens, progress=update)


def _print_proof(audit: Audit, tokens: int) -> None:
    from dspark.core import DsparkError
    from dspark.evaluation.audit_report import describe

    count = audit.counts[0]
    out().print(
        f"  same text        {count.identical} of {count.texts} in float32, up to {tokens} tokens, token by token"
    )
    for entry in audit.differences:
        out().print(f"                   {describe(entry)}", soft_wrap=True)
    if not audit.passed:
        raise DsparkError(_FAULT)
