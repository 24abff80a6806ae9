"""Drafters that are compared with each other, as users name them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dspark.calibration import Calibration
from dspark.core import InputError
from dspark.engine.calibrating import choose_calibration
from dspark.evaluation.arms import PLAIN, Arm, check_drafters, check_names, named_arm, plain_arm
from dspark.target import LoadedTarget


@dataclass(frozen=True, kw_only=True)
class EvalArm:
    """One drafter of a comparison.

    Attributes:
        arm: how it decodes.
        spec: what it was made of, as the user named it.
        calibration: what the checkpoint has beside it to correct its confidences; None if there is nothing.
    """

    arm: Arm
    spec: str
    calibration: Calibration | None = None

    @property
    def name(self) -> str:
        """What reports call it."""
        return self.arm.name

    @property
    def block_size(self) -> int:
        """G; 0 for plain decoding."""
        return self.arm.drafter.block_size


@dataclass(frozen=True, kw_only=True)
class DrafterSpec:
    """``NAME=DRAFTER`` or ``DRAFTER``, read."""

    drafter: str
    name: str | None = None


def read_drafters(texts: Sequence[str]) -> tuple[DrafterSpec, ...]:
    """Read ``[NAME=]DRAFTER`` and see whether the drafters are there, before a target is loaded.

    Raises:
        InputError: an empty name, two equal ones, or a drafter that is not there.
    """
    specs = tuple(_read_drafter(text) for text in texts)
    check_drafters(spec.drafter for spec in specs)
    check_names([spec.name for spec in specs if spec.name])
    return specs


def _read_drafter(text: str) -> DrafterSpec:
    name, equals, drafter = text.partition("=")
    if not equals or Path(text).exists():
        return DrafterSpec(drafter=text)
    if not name.strip() or not drafter:
        raise InputError(f"a drafter must be DRAFTER or NAME=DRAFTER, got {text!r}")
    if name.strip() == PLAIN:
        raise InputError(f"the name {PLAIN!r} is taken by plain decoding, give another one instead of {text!r}")
    return DrafterSpec(drafter=drafter, name=name.strip())


def make_arms(
    loaded: LoadedTarget, specs: Sequence[DrafterSpec], policy: str = "fixed", *, plain: bool = True
) -> tuple[EvalArm, ...]:
    """The arms of a comparison, plain decoding first if it is wanted.

    Raises:
        InputError: a drafter does not fit the target or the policy, one drafts nothing, its calibration is damaged, or
            two arms have one name.
    """
    arms = [_arm(loaded, spec, policy) for spec in specs]
    idle = [arm.spec for arm in arms if not arm.block_size and arm.spec != "none"]
    if idle:
        raise InputError(f"drafter {idle[0]!r} drafts nothing for {loaded.name}; give a checkpoint directory")
    if plain and all(arm.name != PLAIN for arm in arms):
        arms.insert(0, EvalArm(arm=plain_arm(loaded), spec="none"))
    names = [arm.name for arm in arms]
    if len(set(names)) < len(names):
        raise InputError(f"two arms are called the same in {', '.join(names)}; give names: NAME=DRAFTER")
    return tuple(arms)


def _arm(loaded: LoadedTarget, spec: DrafterSpec, policy: str) -> EvalArm:
    if spec.drafter == "none":
        return EvalArm(arm=plain_arm(loaded), spec="none")
    arm = named_arm(loaded, spec.drafter, policy)
    named = arm if spec.name is None else replace(arm, name=spec.name)
    return EvalArm(arm=named, spec=spec.drafter, calibration=choose_calibration("auto", arm.drafter).calibration)
