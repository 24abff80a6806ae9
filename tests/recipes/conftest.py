"""The tiny target of the tiny recipe."""

from __future__ import annotations

from pathlib import Path

import pytest

from dspark import LLM
from dspark.target import LoadedTarget, load_target

from ..evaluation.tiny_pair import save_tiny_target


@pytest.fixture(scope="session")
def target_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny target on disk."""
    return save_tiny_target(tmp_path_factory.mktemp("tiny") / "tiny-target")


@pytest.fixture(scope="session")
def loaded(target_dir: Path) -> LoadedTarget:
    """The tiny target in memory, float32."""
    return load_target(str(target_dir), dtype="float32", device="cpu")


@pytest.fixture
def llm(loaded: LoadedTarget) -> LLM:
    """Plain decoding over it."""
    return LLM(loaded, drafter="none")
