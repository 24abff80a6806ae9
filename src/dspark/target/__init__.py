"""The target room: a Hugging Face causal LM, loaded, run over packed batches with paged keys and values, and tapped."""

from dspark.target.facts import TargetFacts
from dspark.target.packed import PackedTarget, TargetOutput
from dspark.target.packing import pack_model

__all__ = ["PackedTarget", "TargetFacts", "TargetOutput", "pack_model"]
