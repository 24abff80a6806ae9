"""What holds for every test: no network, bounded threads, a cache of its own, Ctrl-C heard, GPU tests only on GPUs, no
profiling by accident."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_OFFLINE"] = "1"
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import pytest
import torch

USER_CACHE = os.environ.get("DSPARK_CACHE")


def pytest_configure(config: pytest.Config) -> None:
    """Use what OMP_NUM_THREADS says, else every core; hear Ctrl-C even where whoever started the tests ignores it."""
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(os.cpu_count() or 1)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # background jobs of a shell; subprocesses would inherit it
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip what needs a GPU where there is none."""
    if torch.cuda.is_available():
        return
    skip = pytest.mark.skip(reason="needs a CUDA device")
    for item in items:
        if "gpu" in item.keywords:
            item.add_marker(skip)


@pytest.fixture(scope="session", autouse=True)
def test_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The cache folder of the tests and of the commands they start: an empty one, not the user's."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DSPARK_CACHE", str(folder))
        yield folder


@pytest.fixture(scope="session", autouse=True)
def profiler() -> Iterator[Callable[..., Any]]:
    """The real function that measures costs; everything else gets made-up ones, at once."""
    from dspark.engine import costs

    measure = costs.measure_costs
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(costs, "measure_costs", made_up_costs)
        yield measure


def made_up_costs(target: Any, drafter: Any, identity: Any, *args: Any, **kw: Any) -> Any:
    """A step takes 20 ms and 0.5 ms a row; drafting takes 3 ms."""
    from dspark.scheduling import CostModel, TimeTable

    rows, requests = (1, 16, 64, 256), (1, 64)
    return CostModel(
        identity=identity,
        verify=TimeTable(widths=rows, depths=(0,), seconds=(tuple([0.02 + 0.0005 * n for n in rows]),)),
        draft=TimeTable(widths=requests, depths=(drafter.block_size,), seconds=((0.003, 0.006),)),
        note="made up for tests",
    )


@pytest.fixture(scope="session")
def default_target_dir(test_cache: Path) -> Path:
    """The default target as a model directory.

    This one thing is shared with the user's cache, as making it takes long; once a test asked for it, the cache of the
    tests knows it too, so that loading the default target by name is quick from then on.
    """
    from dspark.target.gguf import converted_directory
    from dspark.target.sources import DEFAULT_SHA256, GGUFFile, default_gguf

    with pytest.MonkeyPatch.context() as patch:
        if USER_CACHE is None:
            patch.delenv("DSPARK_CACHE")
        else:
            patch.setenv("DSPARK_CACHE", USER_CACHE)
        folder = converted_directory(GGUFFile(path=default_gguf(), sha256=DEFAULT_SHA256))
    (test_cache / "targets").mkdir(exist_ok=True)
    (test_cache / "targets" / folder.name).symlink_to(folder)
    return folder


@pytest.fixture(scope="session")
def golden() -> Path:
    """The folder of golden numbers, described by its README."""
    return Path(__file__).parent / "golden"
