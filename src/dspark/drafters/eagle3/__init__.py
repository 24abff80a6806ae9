"""Eagle3: one layer that drafts token by token on its own output."""

from dspark.drafters.eagle3.checkpoint import Eagle3Checkpoint, load_checkpoint, save_checkpoint
from dspark.drafters.eagle3.config import Eagle3Config
from dspark.drafters.eagle3.drafter import Eagle3Drafter
from dspark.drafters.eagle3.loading import load_drafter
from dspark.drafters.eagle3.model import Eagle3Model

__all__ = [
    "Eagle3Checkpoint",
    "Eagle3Config",
    "Eagle3Drafter",
    "Eagle3Model",
    "load_checkpoint",
    "load_drafter",
    "save_checkpoint",
]
