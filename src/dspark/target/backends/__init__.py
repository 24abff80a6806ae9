"""Where keys and values live and how rows attend to them; one file per kind of machine."""

from dspark.target.backends.base import AttentionBackend, AttentionRule, KVShape
from dspark.target.backends.choice import choose_backend
from dspark.target.backends.cpu import CpuBackend
from dspark.target.backends.cuda import CudaBackend

__all__ = ["AttentionBackend", "AttentionRule", "CpuBackend", "CudaBackend", "KVShape", "choose_backend"]
