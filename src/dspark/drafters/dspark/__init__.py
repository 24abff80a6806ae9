"""DSpark and DFlash: parallel backbone, sequential head, confidence head."""

from dspark.drafters.dspark.config import DSparkConfig, HeadType
from dspark.drafters.dspark.model import DSparkModel

__all__ = ["DSparkConfig", "DSparkModel", "HeadType"]
