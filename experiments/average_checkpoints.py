"""Mean of the weights of several DSpark checkpoints of one lineage.

    python experiments/average_checkpoints.py OUT CHECKPOINT CHECKPOINT...

Checkpoints along one run, or of a run and its continuation, lie in one valley of the loss; on text that neither has
seen, their mean is better than either.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from dspark.core import InputError
from dspark.drafters.dspark import DSparkCheckpoint, load_checkpoint, save_checkpoint


def average(folders: list[Path]) -> DSparkCheckpoint:
    """The mean, in float32.

    Raises:
        InputError: shapes or draft vocabularies differ.
    """
    first, *others = found = [load_checkpoint(folder) for folder in folders]
    for folder, other in zip(folders[1:], others, strict=True):
        known, its = first.draft_to_target, other.draft_to_target
        same = known is its if known is None or its is None else torch.equal(known, its)
        if other.config != first.config or not same:
            raise InputError(f"{folder} has another shape or draft vocabulary than {folders[0]}")
    states = [checkpoint.model.state_dict() for checkpoint in found]
    mean = {name: torch.stack([state[name].float() for state in states]).mean(0) for name in states[0]}
    model = first.model.float()
    model.load_state_dict(mean)
    return DSparkCheckpoint(
        model=model, embed=first.embed, lm_head=first.lm_head, draft_to_target=first.draft_to_target
    )


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    save_checkpoint(Path(sys.argv[1]), average([Path(folder) for folder in sys.argv[2:]]), dtype=torch.float32)
