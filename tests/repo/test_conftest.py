"""The rules of tests/conftest.py hold."""

from __future__ import annotations

import os
from pathlib import Path


def test_tests_have_a_cache_of_their_own(test_cache: Path) -> None:
    assert Path(os.environ["DSPARK_CACHE"]) == test_cache
    assert Path.home() / ".cache" not in test_cache.parents


def test_the_default_target_is_shared_with_the_users_cache(default_target_dir: Path, test_cache: Path) -> None:
    from dspark.target.gguf import converted_directory
    from dspark.target.sources import resolve

    assert test_cache not in default_target_dir.parents
    found = converted_directory(resolve("smollm2-135m"))  # type: ignore[arg-type]
    assert found.parent == test_cache / "targets"
    assert found.resolve() == default_target_dir.resolve()


def test_the_hub_is_never_asked() -> None:
    from transformers.utils.hub import constants

    assert constants.HF_HUB_OFFLINE
