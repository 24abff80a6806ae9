"""Turning a loaded Hugging Face model into a packed target, with a probe that proves the seam is in use."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from dspark.core import InputError, PackedBatch
from dspark.target.backends import AttentionBackend, KVShape, choose_backend
from dspark.target.body import Body, SeamBody
from dspark.target.facts import TargetFacts, read_facts
from dspark.target.lean import build_lean_body
from dspark.target.lean.linear import Dense, prepack
from dspark.target.packed import PackedTarget
from dspark.target.seam import register

_PROBE_LENGTHS = (9, 4)  # each cut to one page
_TOLERANCES = {torch.float32: 1e-4}
_LOOSE = 5e-2


def pack_model(model: PreTrainedModel, *, page_size: int | None = None, lean: bool = True) -> PackedTarget:
    """Wrap a causal language model. The model is changed in place and must not be used otherwise.

    Args:
        model: any decoder-only causal language model of transformers.
        page_size: tokens per page, None for the backend's own choice.
        lean: use the lean layers where the family has them and they give the same logits on this model.

    Raises:
        InputError: the model cannot run packed.
    """
    facts = read_facts(model.config, model.generation_config)
    check_parts(model, facts)
    model.eval().requires_grad_(False)
    facts = replace(facts, num_parameters=sum(parameter.numel() for parameter in model.parameters()))
    backend = choose_backend(_kv_shape(model, facts), facts, page_size)
    batch = _probe_batch(facts, backend.page_size, _embedding(model).weight.device)
    expected = None if facts.proven else _alone(model, batch)
    model.set_attn_implementation(register())
    seam = SeamBody(model)
    backend.allocate(len(batch.q_lens))
    hidden = _probe_seam(seam, backend, batch, type(model).__name__)
    facts = facts.with_windows(seam.rules[layer].window for layer in range(facts.num_layers))
    body = _lean_or_seam(model, facts, seam, backend, batch, hidden) if lean and facts.proven else seam
    target = _assemble(model, body, backend, facts)
    if expected is not None:
        _check_against_alone(target.lm_head(hidden), expected, facts)
    backend.allocate(0)
    return target


def check_parts(model: PreTrainedModel, facts: TargetFacts) -> None:
    """Refuse models whose parts are not where a packed forward needs them.

    Raises:
        InputError: names the missing part.
    """
    name = type(model).__name__
    layers = getattr(model.base_model, "layers", None)
    found = len(layers) if isinstance(layers, nn.ModuleList) else 0
    if found != facts.num_layers or model.base_model is model:
        raise InputError(f"{name} has {found} decoder layers in .layers, expected {facts.num_layers}")
    head = model.get_output_embeddings()
    if not isinstance(head, nn.Linear):
        raise InputError(f"{name} has no linear LM head; expected a causal language model")
    expected = (facts.vocab_size, facts.hidden_size)
    for part, weight in (("LM head", head.weight), ("embedding", _embedding(model).weight)):
        if tuple(weight.shape) != expected:
            raise InputError(f"the {part} of {name} has shape {tuple(weight.shape)}, its configuration says {expected}")


def _assemble(model: PreTrainedModel, body: Body, backend: AttentionBackend, facts: TargetFacts) -> PackedTarget:
    head = model.get_output_embeddings()
    assert isinstance(head, nn.Linear)
    weight = head.weight.detach()
    dense = Dense(weight, None if head.bias is None else head.bias.detach())
    return PackedTarget(
        body=body,
        embedding=_embedding(model),
        head=prepack(dense),
        head_weight=weight,
        backend=backend,
        facts=facts,
    )


@torch.no_grad()
def _probe_seam(seam: SeamBody, backend: AttentionBackend, batch: PackedBatch, name: str) -> Tensor:
    """Run the probe over the seam and learn how each layer attends.

    Raises:
        InputError: attention did not go through the seam in every layer.
    """
    try:
        hidden = seam.run(batch, backend, backend.plan(batch), None)
    except (TypeError, KeyError) as error:
        raise InputError(
            f"{name} does not pass the batch on to its attention and cannot run packed: {error}"
        ) from error
    if sorted(seam.rules) != list(range(seam.num_layers)):
        raise InputError(
            f"{name} called packed attention in layers {sorted(seam.rules)}, expected all of its {seam.num_layers}"
        )
    return hidden


@torch.no_grad()
def _lean_or_seam(
    model: PreTrainedModel,
    facts: TargetFacts,
    seam: SeamBody,
    backend: AttentionBackend,
    batch: PackedBatch,
    expected: Tensor,
) -> Body:
    """The lean layers if they repeat the seam's numbers on this model, else the seam."""
    try:
        body = build_lean_body(model, facts, seam.rules)
        hidden = body.run(batch, backend, backend.plan(batch), None)
    except (AttributeError, KeyError, TypeError, RuntimeError):
        return seam
    if not _close(hidden, expected):
        return seam
    body.optimise()
    return body


@torch.no_grad()
def _alone(model: PreTrainedModel, batch: PackedBatch) -> Tensor:
    """Logits of the probe's texts, each run alone through the model as it came."""
    texts = batch.input_ids.split(batch.q_lens)
    return torch.cat([model(input_ids=text[None], use_cache=False).logits[0] for text in texts])


def _check_against_alone(logits: Tensor, expected: Tensor, facts: TargetFacts) -> None:
    """Families outside the proven list must at least give their own logits on the probe.

    Raises:
        InputError: they do not.
    """
    if not _close(logits, expected):
        raise InputError(
            f"model type {facts.model_type!r} gives other logits packed than alone, so it is not supported"
        )


def _close(got: Tensor, expected: Tensor) -> bool:
    """Whether two results of the same mathematics agree up to rounding."""
    got, limit = got.float(), _TOLERANCES.get(expected.dtype, _LOOSE)
    wanted = expected.float()
    return bool((got - wanted).norm() <= limit * wanted.norm())


def _probe_batch(facts: TargetFacts, page_size: int, device: torch.device) -> PackedBatch:
    """Two short texts, one page each."""
    lengths = tuple(min(length, page_size) for length in _PROBE_LENGTHS)
    texts = [(torch.arange(length) * 7 + length) % facts.vocab_size for length in lengths]
    slots = [torch.arange(length) + page * page_size for page, length in enumerate(lengths)]
    return PackedBatch(
        input_ids=torch.cat(texts).to(device),
        positions=torch.cat([torch.arange(length) for length in lengths]).to(device),
        kv_slots=torch.cat(slots).to(device),
        page_table=torch.arange(len(lengths), device=device)[:, None],
        q_lens=lengths,
        kv_lens=lengths,
        logit_rows=torch.arange(sum(lengths), device=device),
        page_size=page_size,
    )


def _kv_shape(model: PreTrainedModel, facts: TargetFacts) -> KVShape:
    weight = _embedding(model).weight
    return KVShape(
        num_layers=facts.num_layers,
        num_heads=facts.num_heads,
        num_kv_heads=facts.num_kv_heads,
        head_dim=facts.head_dim,
        dtype=weight.dtype,
        device=weight.device,
    )


def _embedding(model: PreTrainedModel) -> nn.Embedding:
    module = model.get_input_embeddings()
    assert isinstance(module, nn.Embedding)
    return module
