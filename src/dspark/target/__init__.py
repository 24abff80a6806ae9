"""The target room: a Hugging Face causal LM, loaded, run over packed batches with paged keys and values, and tapped."""

from dspark.target.facts import TargetFacts
from dspark.target.loading import LoadedTarget, load_target
from dspark.target.packed import PackedTarget, TargetOutput
from dspark.target.packing import pack_model
from dspark.target.sources import DEFAULT_TARGET

__all__ = [
    "DEFAULT_TARGET",
    "LoadedTarget",
    "PackedTarget",
    "TargetFacts",
    "TargetOutput",
    "load_target",
    "pack_model",
]
