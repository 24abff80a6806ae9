"""Ways of decoding that are compared with each other, over one target held in memory once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import TypeVar

import torch

from dspark.calibration import Calibration
from dspark.core import InputError
from dspark.drafters import Drafter, DSparkDrafter
from dspark.drafters.dspark import DSparkCheckpoint, DSparkModel, HeadType, load_checkpoint
from dspark.engine import LLM, shipped_drafter
from dspark.engine.choice import DRAFTER_NAMES, check_drafter
from dspark.scheduling import StepPolicy
from dspark.target import LoadedTarget

PLAIN = "plain"
"""Name of plain decoding in reports."""

_ROWS = 512
_USUAL_THRESHOLD = "threshold:0.5"

_T = TypeVar("_T")

Progress = Callable[[int, str], None]
"""Told how much is done so far, and a note about it."""


def no_progress(done: int, note: str) -> None:
    """Tell nobody."""


def counting(progress: Progress) -> Callable[[str], Callable[[], None]]:
    """Reporters that count together: by a note, a function that tells that one more is done."""
    done = count(1)
    return lambda note: lambda: progress(next(done), note)


@dataclass(frozen=True, kw_only=True)
class Arm:
    """One drafter and policy over a target.

    A target's memory belongs to the engine that was made last, so the arms of a comparison take turns: each turn opens
    a fresh engine, which also means that no turn finds anything in a prefix cache.

    Attributes:
        name: what reports call it.
        loaded: the target, shared with the other arms.
        drafter: who proposes.
        policy: how much of each block is verified.
        calibration: what its confidences go through.
        online_calibration: whether they are corrected further by what is observed; None where policies plan with them.
        plan_ahead: whether a step may be planned before the one before it has ended; None where that helps.
    """

    name: str
    loaded: LoadedTarget
    drafter: Drafter
    policy: str | StepPolicy = "fixed"
    calibration: str | Path | Calibration = "auto"
    online_calibration: bool | None = None
    plan_ahead: bool | None = None

    @property
    def drafts_with_a_model(self) -> bool:
        """Whether drafting is a model forward, and not the engine's own work."""
        return bool(self.drafter.tap_layers)

    def open(
        self, prompts: Sequence[Sequence[int]], *, max_tokens: int, concurrency: int, record_rounds: bool = False
    ) -> LLM:
        """A fresh engine with just enough memory for these prompts, so many at a time."""
        block = 1 + self.drafter.block_size
        positions = self.loaded.target.facts.max_positions
        longest = min(positions, max(map(len, prompts)) + max_tokens)
        page = self.loaded.target.page_size
        return LLM(
            self.loaded,
            drafter=self.drafter,
            policy=self.policy,
            calibration=self.calibration,
            online_calibration=self.online_calibration,
            plan_ahead=self.plan_ahead,
            max_requests=concurrency,
            max_batch_rows=max(_ROWS, concurrency * block),
            kv_tokens=concurrency * (longest + block + page),
            prefix_cache=False,
            record_rounds=record_rounds,
        )


def make_arm(
    loaded: LoadedTarget,
    drafter: str | Drafter,
    policy: str | StepPolicy = "fixed",
    *,
    calibration: str | Path | Calibration = "auto",
    name: str | None = None,
) -> Arm:
    """An arm for a drafter as users name it.

    Args:
        loaded: the target.
        drafter: ``none``, ``ngram``, ``auto``, a checkpoint directory, or a drafter.
        policy: as users write it, or a policy.
        calibration: as :class:`~dspark.engine.LLM` takes it.
        name: for reports; None takes the drafter's name.

    Raises:
        InputError: there is no such drafter, it does not fit the target, or the policy does not fit the drafter.
    """
    probe = LLM(
        loaded,
        drafter=drafter,
        policy=policy,
        calibration=calibration,
        max_requests=1,
        kv_tokens=2 * loaded.target.page_size,
    )
    return Arm(
        name=name or probe.drafter.name, loaded=loaded, drafter=probe.drafter, policy=policy, calibration=calibration
    )


def plain_arm(loaded: LoadedTarget) -> Arm:
    """Plain decoding, what all others are compared with."""
    return make_arm(loaded, "none", name=PLAIN)


def check_drafters(specs: Iterable[str]) -> None:
    """See before a target is loaded whether there are drafters of these names, as :func:`named_arm` takes them.

    Raises:
        InputError: about the first one that is neither a name nor a checkpoint directory.
    """
    for spec in specs:
        kind, _, path = spec.partition(":")
        if kind not in DERIVED:
            check_drafter(spec)
        elif path:
            check_drafter(Path(path))


def named_arm(loaded: LoadedTarget, spec: str, policy: str = "fixed") -> Arm:
    """An arm that is called after the drafter it was made of.

    Args:
        loaded: the target.
        spec: ``none``, ``ngram``, ``auto``, a checkpoint directory; or one of :data:`DERIVED`, made of the shipped
            drafter, or ``KIND:PATH``, made of another one.
        policy: as users write it.

    Raises:
        InputError: there is no such drafter, or as :func:`make_arm`.
    """
    kind, _, path = spec.partition(":")
    if kind not in DERIVED:
        arm = make_arm(loaded, spec, policy)
        return arm if spec in DRAFTER_NAMES else replace(arm, name=f"{arm.name} {Path(spec).name}")
    place = path or shipped_drafter(loaded.name)
    if not place:
        raise InputError(f"no drafter is shipped for {loaded.name}; give {kind}:PATH")
    made = DERIVED[kind](load_checkpoint(place), loaded)
    return make_arm(loaded, made, policy, name=f"{kind} {Path(path).name}" if path else kind)


def check_names(names: Sequence[str]) -> None:
    """Raise InputError unless all arms have different names."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise InputError(f"arms must have different names, {twice[0]!r} comes twice")


def rotated(arms: Sequence[_T], number: int) -> Sequence[_T]:
    """The arms, starting with another one each time."""
    first = number % len(arms)
    return [*arms[first:], *arms[:first]]


def drafter_arms(
    loaded: LoadedTarget, drafter: str, policies: Sequence[str] | None = None, calibration: str | Path = "auto"
) -> tuple[Arm, ...]:
    """Arms of one drafter with several policies; none where ``auto`` finds no drafter, or for ``none``.

    Args:
        loaded: the target.
        drafter: as users name it.
        policies: as users write them; None for whole blocks and, if the drafter has confidences, a threshold.
        calibration: as users name it; of drafters without confidences anything but a name is refused.

    Raises:
        InputError: as :func:`make_arm`.
    """
    first = make_arm(loaded, drafter, calibration=calibration)
    if not first.drafter.block_size:
        return ()
    usual = ("fixed", _USUAL_THRESHOLD) if first.drafter.has_confidence else ("fixed",)
    names = {policy: first.name if policy == "fixed" else f"{first.name} {policy}" for policy in policies or usual}
    return tuple(
        make_arm(loaded, first.drafter, policy, calibration=calibration, name=name) for policy, name in names.items()
    )


def without_sequential_head(checkpoint: DSparkCheckpoint) -> DSparkCheckpoint:
    """The same backbone without sequential and confidence head, which is a DFlash drafter."""
    config = replace(checkpoint.config, head_type=HeadType.NONE, markov_rank=0, enable_confidence_head=False)
    model = DSparkModel(config).to(next(checkpoint.model.parameters()).dtype)
    weights = checkpoint.model.state_dict()
    model.load_state_dict({name: weights[name] for name in model.state_dict()})
    return DSparkCheckpoint(
        model=model,
        embed=checkpoint.embed,
        lm_head=checkpoint.lm_head,
        draft_to_target=checkpoint.draft_to_target,
    )


def dflash_drafter(checkpoint: DSparkCheckpoint, loaded: LoadedTarget) -> DSparkDrafter:
    """A DFlash drafter made of a DSpark checkpoint, for a target that the checkpoint fits."""
    return _drafter_of(checkpoint, without_sequential_head(checkpoint).model, loaded)


def random_drafter(checkpoint: DSparkCheckpoint, loaded: LoadedTarget) -> DSparkDrafter:
    """A drafter that has learnt nothing: the configuration of a checkpoint with random weights, always the same."""
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(0)
        return _drafter_of(checkpoint, DSparkModel(checkpoint.config), loaded)


def _drafter_of(checkpoint: DSparkCheckpoint, model: DSparkModel, loaded: LoadedTarget) -> DSparkDrafter:
    """A drafter with another model than a checkpoint's own, and the rest of it."""
    return DSparkDrafter(
        model,
        loaded.target,
        embed=checkpoint.embed,
        lm_head=checkpoint.lm_head,
        draft_to_target=checkpoint.draft_to_target,
    )


DERIVED: Mapping[str, Callable[[DSparkCheckpoint, LoadedTarget], DSparkDrafter]] = {
    "dflash": dflash_drafter,
    "random": random_drafter,
}
"""Drafters that are made of a checkpoint: without its sequential head, and with random weights."""
