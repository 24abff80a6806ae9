"""DSpark and DFlash: parallel backbone, sequential head, confidence head."""

from dspark.drafters.dspark.checkpoint import DSparkCheckpoint, load_checkpoint, save_checkpoint
from dspark.drafters.dspark.config import DSparkConfig, HeadType
from dspark.drafters.dspark.drafter import DSparkDrafter
from dspark.drafters.dspark.loading import load_drafter
from dspark.drafters.dspark.model import DSparkModel

__all__ = [
    "DSparkCheckpoint",
    "DSparkConfig",
    "DSparkDrafter",
    "DSparkModel",
    "HeadType",
    "load_checkpoint",
    "load_drafter",
    "save_checkpoint",
]
