"""Turning a loaded Hugging Face model into a packed target, with a probe that proves the seam is in use."""

from __future__ import annotations

import torch
from transformers import PreTrainedModel

from dspark.core import InputError, PackedBatch
from dspark.target.backends import AttentionBackend, CpuBackend, KVShape
from dspark.target.facts import TargetFacts, read_facts
from dspark.target.packed import PackedTarget, TargetOutput, check_parts, embedding_weight
from dspark.target.seam import register

_PROBE_LENGTHS = (9, 4)  # each cut to one page


def pack_model(model: PreTrainedModel, *, page_size: int | None = None) -> PackedTarget:
    """Wrap a causal language model; the model is changed in place and should not be used otherwise.

    Args:
        model: any decoder-only causal language model of transformers.
        page_size: tokens per page, None for the backend's own choice.

    Raises:
        InputError: the model cannot run packed.
    """
    facts = read_facts(model.config, model.generation_config)
    check_parts(model, facts)
    model.eval().requires_grad_(False)
    backend = _backend(model, facts, page_size)
    lengths = tuple(min(length, backend.page_size) for length in _PROBE_LENGTHS)
    expected = None if facts.proven else _alone(model, facts, lengths)
    model.set_attn_implementation(register())
    target = PackedTarget(model, backend, facts)
    output = _probe(target, lengths)
    if expected is not None:
        _compare(expected, output, model)
    return target


def _backend(model: PreTrainedModel, facts: TargetFacts, page_size: int | None) -> AttentionBackend:
    weight = embedding_weight(model)
    shape = KVShape(
        num_layers=facts.num_layers,
        num_kv_heads=facts.num_kv_heads,
        head_dim=facts.head_dim,
        dtype=weight.dtype,
        device=weight.device,
    )
    return CpuBackend(shape) if page_size is None else CpuBackend(shape, page_size)


def _probe(target: PackedTarget, lengths: tuple[int, ...]) -> TargetOutput:
    """Run a tiny batch and learn how each layer attends.

    Raises:
        InputError: attention did not go through the seam in every layer.
    """
    facts, name = target.facts, type(target.model).__name__
    target.allocate(len(lengths))
    try:
        output = target.forward(_probe_batch(target, lengths))
    except (TypeError, KeyError) as error:
        raise InputError(
            f"{name} does not pass the batch on to its attention and cannot run packed: {error}"
        ) from error
    seen = sorted(target.attention_rules)
    if seen != list(range(facts.num_layers)):
        raise InputError(f"{name} called packed attention in layers {seen}, expected all of its {facts.num_layers}")
    target.facts = facts.with_windows(target.attention_rules[layer].window for layer in seen)
    target.allocate(0)
    return output


def _probe_ids(vocab_size: int, length: int) -> torch.Tensor:
    return (torch.arange(length) * 7 + length) % vocab_size


def _probe_batch(target: PackedTarget, lengths: tuple[int, ...]) -> PackedBatch:
    size = target.page_size
    ids = torch.cat([_probe_ids(target.facts.vocab_size, length) for length in lengths])
    positions = torch.cat([torch.arange(length) for length in lengths])
    slots = torch.cat([torch.arange(length) + page * size for page, length in enumerate(lengths)])
    device = target.device
    return PackedBatch(
        input_ids=ids.to(device),
        positions=positions.to(device),
        kv_slots=slots.to(device),
        page_table=torch.arange(len(lengths), device=device)[:, None],
        q_lens=lengths,
        kv_lens=lengths,
        logit_rows=torch.arange(sum(lengths), device=device),
        page_size=size,
    )


@torch.no_grad()
def _alone(model: PreTrainedModel, facts: TargetFacts, lengths: tuple[int, ...]) -> torch.Tensor:
    """Logits of the probe's texts, each run alone through the model as it came."""
    device = embedding_weight(model).device
    texts = [_probe_ids(facts.vocab_size, length).to(device)[None] for length in lengths]
    return torch.cat([model(input_ids=text, use_cache=False).logits[0] for text in texts])


def _compare(expected: torch.Tensor, output: TargetOutput, model: PreTrainedModel) -> None:
    """Families outside the proven list must at least give the probe's own logits.

    Raises:
        InputError: they do not.
    """
    tolerance = 1e-3 if expected.dtype == torch.float32 else 5e-2
    gap = float((expected.float() - output.logits.float()).abs().max() / expected.float().abs().max().clamp_min(1e-6))
    if not gap <= tolerance:
        raise InputError(
            f"{type(model).__name__} gives other logits packed than alone (relative difference {gap:.1e}); "
            f"model type {model.config.model_type!r} is not supported"
        )
