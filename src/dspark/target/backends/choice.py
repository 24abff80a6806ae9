"""Which backend serves a model on a device."""

from __future__ import annotations

from dspark.target.backends.base import AttentionBackend, KVShape
from dspark.target.backends.cpu import CpuBackend
from dspark.target.backends.cuda import CudaBackend, cuda_serves
from dspark.target.facts import TargetFacts


def choose_backend(shape: KVShape, facts: TargetFacts, page_size: int | None) -> AttentionBackend:
    """The CUDA kernels where they can serve the model, else plain tensor operations, which run on any device.

    Args:
        shape: sizes, type and device of keys and values.
        facts: the model's facts.
        page_size: tokens per page, None for the backend's own choice.
    """
    if cuda_serves(shape, facts.attn_softcap, page_size):
        return CudaBackend(shape)
    return CpuBackend(shape) if page_size is None else CpuBackend(shape, page_size)
