"""A training run as a process of its own, started by the tests with ``python`` or ``torchrun``.

Arguments: a folder, a plan as JSON (fields of TrainConfig and ``optim``), and how long to wait after each step.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import time
from pathlib import Path

import torch

from dspark.training.config import Parallel
from dspark.training.optim import OptimConfig
from dspark.training.ranks import join, leave

_spec = importlib.util.spec_from_file_location("counting", Path(__file__).with_name("counting.py"))
assert _spec is not None
assert _spec.loader is not None
counting = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(counting)


def main(folder: str, plan: str, pause: str = "0") -> None:
    torch.set_num_threads(1)
    ranks = join(torch.device("cpu"))
    for name, changes in json.loads(plan).items():
        changes["optim"] = OptimConfig(**changes["optim"])
        changes["parallel"] = Parallel(changes.get("parallel", "ddp"))
        run = counting.trainer(Path(folder) / name, counting.run_config(**changes), ranks=ranks)
        run.run(tick=lambda step, entry: time.sleep(float(pause)))
        run.export(Path(folder) / name / "last")
    leave(ranks)


if __name__ == "__main__":
    main(*sys.argv[1:])
