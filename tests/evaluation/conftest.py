"""The tiny pair, loaded once."""

from __future__ import annotations

from pathlib import Path

import pytest

from dspark.evaluation import Arm, make_arm, plain_arm
from dspark.target import LoadedTarget, load_target

from .tiny_pair import save_tiny_drafter, save_tiny_target


@pytest.fixture(scope="session")
def target_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny target on disk."""
    return save_tiny_target(tmp_path_factory.mktemp("tiny") / "tiny-target")


@pytest.fixture(scope="session")
def drafter_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random drafter for it."""
    return save_tiny_drafter(tmp_path_factory.mktemp("tiny") / "tiny-drafter")


@pytest.fixture(scope="session")
def loaded(target_dir: Path) -> LoadedTarget:
    """The tiny target in memory, float32."""
    return load_target(str(target_dir), dtype="float32", device="cpu")


@pytest.fixture(scope="session")
def plain(loaded: LoadedTarget) -> Arm:
    """Plain decoding."""
    return plain_arm(loaded)


@pytest.fixture(scope="session")
def fast(loaded: LoadedTarget, drafter_dir: Path) -> Arm:
    """Decoding with the random drafter."""
    return make_arm(loaded, str(drafter_dir))
