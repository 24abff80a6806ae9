"""The CUDA kernels against plain tensor operations, and packed = alone on the device."""

from __future__ import annotations

import random

import pytest
import torch

from dspark.target import pack_model
from dspark.target.backends import CpuBackend, CudaBackend, KVShape
from dspark.target.backends.base import AttentionRule
from dspark.target.backends.cuda import cuda_serves

from .families import tiny_model
from .test_parity import alone
from .traces import pack, random_texts, run_ragged

PAGE = 256


def shape(device: str, dtype: torch.dtype = torch.bfloat16, head_dim: int = 64) -> KVShape:
    return KVShape(
        num_layers=1, num_heads=6, num_kv_heads=2, head_dim=head_dim, dtype=dtype, device=torch.device(device)
    )


def test_the_kernels_are_not_asked_for_what_they_cannot_do() -> None:
    assert not cuda_serves(shape("cpu"), None, None)
    assert not cuda_serves(shape("cuda", torch.float32), None, None)
    assert not cuda_serves(shape("cuda"), 50.0, None)
    assert not cuda_serves(shape("cuda", head_dim=320), None, None)
    assert not cuda_serves(shape("cuda"), None, 32)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("window", [None, 100])
def test_kernels_equal_plain_operations(window: int | None) -> None:
    torch.manual_seed(0)
    rng = random.Random(0)
    kernels, plain = CudaBackend(shape("cuda")), CpuBackend(shape("cuda"), PAGE)
    texts = random_texts([700, 3, 256, 511], 97, PAGE, rng)
    rule = AttentionRule(scale=0.125, window=window)
    for backend in (kernels, plain):
        backend.allocate(sum(len(text.pages) for text in texts))
    for sizes in ((600, 2, 255, 511), (8, 1, 1, 0), (92, 0, 0, 0)):
        steps = [(text, size) for text, size in zip(texts, sizes, strict=True) if size]
        batch = pack(steps, PAGE, "cuda")
        rows = [torch.randn(batch.num_rows, heads, 64, device="cuda", dtype=torch.bfloat16) for heads in (6, 2, 2)]
        got, expected = (backend.attend(backend.plan(batch), 0, *rows, rule) for backend in (kernels, plain))
        torch.testing.assert_close(got, expected, atol=2e-2, rtol=2e-2)
        for text, size in steps:
            text.done += size


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("family", ["llama", "gemma2", "gemma3_text"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_packed_equals_alone(family: str, dtype: torch.dtype) -> None:
    rng = random.Random(1)
    texts = random_texts([40, 17, 3], 97, PAGE, rng)
    expected = [alone(tiny_model(family), text.ids)["logits"] for text in texts]
    target = pack_model(tiny_model(family).to(dtype).cuda(), page_size=PAGE)
    target.allocate(len(texts))
    run_ragged(target, texts, rng)
    limit = 1e-4 if dtype == torch.float32 else 3e-2
    for text, logits in zip(texts, expected, strict=True):
        got = torch.cat(text.rows["logits"]).float().cpu()
        assert (got - logits).norm() <= limit * logits.norm()
