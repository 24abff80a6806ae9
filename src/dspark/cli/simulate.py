"""``dspark simulate``: serving as it would be on another machine, with other traffic, or with other users."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dspark.cli.lists import integers
from dspark.cli.reports import write_report
from dspark.cli.screen import print_markdown, progress_bar, waiting

if TYPE_CHECKING:
    from collections.abc import Callable

    from dspark.simulation import RecordedText, Texts, Traffic

_POLICIES = ("fixed:1", "fixed", "async", "oracle")

_Costs = Annotated[
    str,
    typer.Option(
        help="What steps cost: gpu (made up), a profile, an SPS table of SGLang, or milliseconds such as "
        "step=13,row=0.03,tile=32,cliff=512:1.5."
    ),
]
_Policies = Annotated[
    list[str] | None,
    typer.Option(
        "--policy",
        "-p",
        help="fixed, fixed:K, threshold:T, sync, async or oracle; without it fixed:1, fixed, async and oracle. May be "
        "repeated.",
    ),
]
_Traces = Annotated[
    Path | None,
    typer.Option(help="Recorded answers (from dspark check simulator) in place of drawn ones.", show_default=False),
]
_Acceptance = Annotated[
    str,
    typer.Option(
        metavar="KIND|MEAN[:CONCENTRATION][*WEIGHT],...",
        help="Acceptance of drafts: math, code, chat, mixed, or numbers; several parts make a mixture of texts.",
    ),
]
_Arrivals = Annotated[
    list[str] | None,
    typer.Option(
        metavar="poisson:RATE|ramp:FROM:TO:SECONDS|burst:BASE:PEAK:SECONDS",
        help="Open loops, rates in requests per second, in place of closed ones. May be repeated.",
    ),
]
_Length = "N, A-B, exponential:MEAN or lognormal:MEDIAN:SIGMA."


def simulate(
    costs: _Costs = "gpu",
    policy: _Policies = None,
    concurrency: Annotated[
        str, typer.Option(help="Users of the closed loops, numbers with commas between.")
    ] = "1,4,16,64,256",
    rounds: Annotated[int, typer.Option(help="Requests of every user of a closed loop.")] = 4,
    arrivals: _Arrivals = None,
    requests: Annotated[int, typer.Option(help="Requests of every open loop.")] = 2000,
    replicas: Annotated[int, typer.Option(help="Engines behind a router to the least loaded one.")] = 1,
    max_requests: Annotated[int, typer.Option(help="Most answers in progress in an engine.")] = 512,
    max_batch_rows: Annotated[int, typer.Option(help="Most rows of a step.")] = 4096,
    traces: _Traces = None,
    acceptance: _Acceptance = "mixed",
    block_size: Annotated[int, typer.Option(help="Most drafts of a round.")] = 5,
    token_spread: Annotated[
        float | None, typer.Option(help="How much tokens differ in difficulty, in logits (2).", show_default=False)
    ] = None,
    confidence: Annotated[bool, typer.Option("--confidence/--no-confidence", help="With a confidence head.")] = True,
    noise: Annotated[float, typer.Option(help="What the confidence head does not see, in logits.")] = 0.5,
    overconfidence: Annotated[
        float, typer.Option(help="Logits of confidence are multiplied by this; 1 is calibrated.")
    ] = 1.0,
    bias: Annotated[float, typer.Option(help="Logits that the confidence head adds; 0 is calibrated.")] = 0.0,
    prompt_tokens: Annotated[str, typer.Option(help=f"Length of prompts: {_Length}")] = "128",
    answer_tokens: Annotated[str, typer.Option(help=f"Length of answers: {_Length}")] = "64-256",
    first_token: Annotated[float, typer.Option(help="Latency target: seconds to the first token.")] = 2.0,
    token: Annotated[float, typer.Option(help="Latency target: mean seconds of each further token.")] = 0.05,
    seed: Annotated[int, typer.Option(help="Seed of texts and arrivals.")] = 0,
    folder: Annotated[
        Path | None, typer.Option("--out", help="Folder for report.json, report.md and the plots.")
    ] = None,
) -> None:
    """Simulate serving: the engine's own policies on a clock that a cost curve advances, without any model.

    The same texts are answered under every policy. docs/simulator.md says what is predicted and what is left out.
    """
    with waiting("Starting ..."):
        from dspark import simulation as sim
        from dspark.core import InputError
        from dspark.evaluation import check_folder
        from dspark.evaluation.load import LatencyTarget
    check_folder(folder)
    if not overconfidence > 0:
        raise InputError(f"--overconfidence must be above 0, got {overconfidence}")
    law = sim.ConfidenceLaw(noise=noise, temperature=1 / overconfidence, offset=bias) if confidence else None
    traffic = sim.Traffic(
        prompt=sim.LengthLaw(text=prompt_tokens),
        answer=sim.LengthLaw(text=answer_tokens),
        law=sim.read_acceptance(acceptance, block_size, token_spread=token_spread, confidence=law),
        seed=seed,
    )
    cluster = sim.Cluster(
        costs=sim.read_costs(costs),
        replicas=replicas,
        options=sim.ReplicaOptions(max_requests=max_requests, max_batch_rows=max_batch_rows),
    )
    if arrivals:
        loads = tuple(sim.open_load(text, requests, seed) for text in arrivals)
    else:
        loads = sim.closed_loads(integers("--concurrency", concurrency), rounds)
    target = LatencyTarget(first_token=first_token, token=token)
    sweep = sim.Sweep(policies=tuple(policy or _POLICIES), loads=loads, target=target)
    draw, origin = _texts(traffic, traces, block_size, seed, acceptance)
    with progress_bar("Simulating", sweep.count) as update:
        rows = sweep.run(cluster, draw, update)
    settings = (
        ("costs", cluster.costs.note or costs),
        ("texts", origin),
        ("engines", f"{replicas}, at most {max_requests} answers and {max_batch_rows} rows each"),
        ("latency target", f"{first_token:g} s to the first token, {1e3 * token:g} ms for each further one"),
        ("seed", str(seed)),
    )
    report = sim.SimulationReport(settings=settings, target=target, rows=rows)
    print_markdown(report.to_markdown())
    if folder is not None:
        draw_all = partial(sim.plot_simulation, report, folder)
        write_report(folder, report.to_json(), report.to_markdown(), draw_all, undrawn="no plots: they need")


def _texts(
    traffic: Traffic, traces: Path | None, block_size: int, seed: int, acceptance: str
) -> tuple[Callable[[int], Texts], str]:
    """What gives requests, and what it is in words."""
    from dspark import simulation as sim

    if traces is not None:
        answers = sim.read_recordings(traces)
        return partial(_recorded, answers, block_size, seed), f"{len(answers)} recorded answers of {traces}"
    law, prompt, answer = traffic.law, traffic.prompt.text, traffic.answer.text
    head = "no confidence head"
    if law.confidence is not None:
        noise, temperature, offset = law.confidence.noise, law.confidence.temperature, law.confidence.offset
        head = f"confidence with noise {noise:g}, temperature {temperature:g}, offset {offset:g}"
    words = f"prompts of {prompt} tokens, answers of {answer}, acceptance {acceptance}, blocks of {block_size}, {head}"
    return traffic.draw, words


def _recorded(answers: tuple[RecordedText, ...], block_size: int, seed: int, count: int) -> Texts:
    """So many requests that repeat recorded answers, in random order, each as often as the others."""
    import numpy as np

    from dspark import simulation as sim

    rng = np.random.default_rng(seed)
    passes = [rng.permutation(len(answers)) for _ in range(-(-count // len(answers)))]
    order = np.concatenate([np.zeros(0, np.int64), *passes])[:count]
    return sim.RecordedTexts(answers, block_size, order)
