"""In bfloat16 on a CPU, a row's numbers do not depend on how many rows are computed with it: bit for bit."""

from __future__ import annotations

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from dspark.core import PackedBatch
from dspark.target import PackedTarget, pack_model

WIDE = 1536  # sums this long are where oneDNN treats single rows on their own

exact_kernels = pytest.mark.skipif(
    not torch.backends.mkldnn.is_available()
    or torch.backends.cpu.get_cpu_capability() != "AVX512"
    or not torch.cpu._is_avx512_bf16_supported(),
    reason="the order of sums is that of oneDNN's AVX-512 kernels",
)


@pytest.fixture(scope="module")
def target() -> PackedTarget:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=512,
        hidden_size=128,
        intermediate_size=WIDE,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        initializer_range=0.1,
    )
    return pack_model(LlamaForCausalLM(config).to(torch.bfloat16).eval())


def forward(target: PackedTarget, ids: list[int], start: int) -> torch.Tensor:
    stop, size = start + len(ids), target.page_size
    batch = PackedBatch(
        input_ids=torch.tensor(ids),
        positions=torch.arange(start, stop),
        kv_slots=torch.arange(start, stop),
        page_table=torch.arange(-(-stop // size))[None],
        q_lens=(len(ids),),
        kv_lens=(stop,),
        logit_rows=torch.arange(len(ids)),
        page_size=size,
    )
    return target.forward(batch).logits


@exact_kernels
@pytest.mark.pitfall(7)
@pytest.mark.parametrize("prompt", [5, 26, 60, 90])
def test_decoded_alone_equals_verified_in_a_block(target: PackedTarget, prompt: int) -> None:
    generator = torch.Generator().manual_seed(prompt)
    ids = torch.randint(512, (prompt + 8,), generator=generator).tolist()
    target.allocate(8)
    forward(target, ids[:prompt], 0)
    alone = torch.cat([forward(target, [ids[position]], position) for position in range(prompt, prompt + 8)])
    together = forward(target, ids[prompt:], prompt)
    assert torch.equal(alone, together)
    chunks = torch.cat([forward(target, ids[start : start + 7], start) for start in range(0, prompt + 8, 7)])
    assert torch.equal(chunks[prompt:], together)
