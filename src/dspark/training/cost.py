"""What a training run takes, worked out from its numbers alone: nothing is loaded and nothing is run.

Legend: P parameters, T tokens and n slots of a micro-batch, U taught positions, D width, Vd draft vocabulary, V
vocabulary, m taps, L draft layers.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import nn

from dspark.training.config import DrafterConfig, Parallel, TrainConfig
from dspark.training.shapes import bare_module, block_length

_EFFICIENCY = 0.5
"""Share of the rate of a large matrix product that a step reaches; measured on CPUs."""

_TOKEN_BYTES = 9
"""Bytes of a feature store per token beside hidden states: id, loss mask, softmax denominator."""

_SAVED_PER_LAYER = 14
"""Numbers of width D that a draft layer keeps per slot for the backward, attention and MLP together."""

_CHUNK = 128
_CHUNK_COPIES = 4


@dataclass(frozen=True, kw_only=True)
class TargetSizes:
    """The target in numbers.

    Attributes:
        name: for people.
        parameters: P of the target, each tied matrix once.
        hidden_size, vocab_size: D and V.
        weight_bytes: bytes per weight.
    """

    name: str
    parameters: int
    hidden_size: int
    vocab_size: int
    weight_bytes: int = 2


@dataclass(frozen=True, kw_only=True)
class Assumptions:
    """What the numbers of a run do not say.

    Attributes:
        mean_length: tokens of a sequence.
        answer_share: share of them in the loss mask.
        sequences: in the data; None when it is not known.
        processes: that share the run.
        online: whether the target runs beside the trainer.
        flops: operations per second of a large matrix product in one process.
    """

    mean_length: float
    flops: float
    answer_share: float = 0.6
    sequences: int | None = None
    processes: int = 1
    online: bool = True


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What a run takes.

    Attributes:
        parameters: of the drafter, by part; ``active`` is how many of them a slot uses.
        active: see above.
        memory: bytes in one process, by purpose.
        storage: bytes on disk, by purpose.
        tokens: read over the whole run; ``epochs`` is how often that is all of the data (None when not known).
        epochs: see above.
        slots: learnt from over the whole run.
        operations: of the whole run, by part.
        seconds: of the whole run.
    """

    parameters: Mapping[str, int]
    active: int
    memory: Mapping[str, float]
    storage: Mapping[str, float]
    tokens: float
    epochs: float | None
    slots: float
    operations: Mapping[str, float]
    seconds: float


def estimate(config: TrainConfig, target: TargetSizes, given: Assumptions) -> Cost:
    """Work out what a run takes."""
    drafter = config.drafter
    module = bare_module(drafter)
    parameters = {name: _count(part) for name, part in module.named_children() if _count(part)}
    active = _active(drafter, module)
    tokens = config.sequences_per_step * given.mean_length * config.optim.steps
    blocks = config.sequences_per_step * min(config.anchors_per_sequence, given.answer_share * given.mean_length)
    slots = blocks * block_length(drafter) * config.optim.steps
    operations = _operations(config, target, given, active, tokens, slots)
    held = None if given.sequences is None else max(1, given.sequences - config.validation_sequences)
    return Cost(
        parameters=parameters,
        active=active,
        memory=_memory(config, target, given, sum(parameters.values())),
        storage=_storage(config, given, sum(parameters.values())),
        tokens=tokens,
        epochs=None if held is None else config.sequences_per_step * config.optim.steps / held,
        slots=slots,
        operations=operations,
        seconds=sum(operations.values()) / (given.flops * _EFFICIENCY * given.processes),
    )


def _count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def _active(drafter: DrafterConfig, module: nn.Module) -> int:
    """Parameters that one slot meets: with experts, those it is sent to."""
    experts, chosen = getattr(drafter, "num_experts", None), getattr(drafter, "num_experts_per_tok", None)
    total = _count(module)
    if experts is None or chosen is None:
        return total
    inside = sum(p.numel() for name, p in module.named_parameters() if ".experts." in name)
    return total - inside + inside * chosen // experts


def _operations(
    config: TrainConfig, target: TargetSizes, given: Assumptions, active: int, tokens: float, slots: float
) -> dict[str, float]:
    """Two operations per weight and row, three times that with the backward."""
    drafter, d = config.drafter, config.drafter.hidden_size
    entries = drafter.draft_vocab_size or drafter.vocab_size
    taught = min(slots, given.answer_share * tokens)
    fusion = len(drafter.target_layer_ids) * d * d
    online = 2 * target.parameters * tokens + (2 * d * target.vocab_size * taught if drafter.draft_vocab_size else 0)
    return {
        "target": online if given.online else 0.0,
        "context": 6 * 2 * fusion * tokens,
        "backbone and heads": 6 * active * slots,
        "vocabulary": 2 * d * entries * (2 * slots + taught),
    }


def _memory(config: TrainConfig, target: TargetSizes, given: Assumptions, parameters: int) -> dict[str, float]:
    drafter, d, number = config.drafter, config.drafter.hidden_size, 2 if config.bf16 else 4
    entries, taps = drafter.draft_vocab_size or drafter.vocab_size, len(drafter.target_layer_ids)
    sharded = given.processes if config.parallel is Parallel.FSDP2 else 1
    share = max(1, config.sequences_per_step // (given.processes * config.micro_batches))
    rows = share * given.mean_length
    slots = share * min(config.anchors_per_sequence, given.answer_share * given.mean_length) * block_length(drafter)
    layers = getattr(drafter, "num_hidden_layers", 1)
    seen = slots * getattr(drafter, "num_attention_heads", 1) * (given.mean_length + block_length(drafter)) * layers
    own_head = entries * d * number if drafter.draft_vocab_size or number != target.weight_bytes else 0
    return {
        "weights, gradients, moments (float32)": parameters * 16 / sharded,
        "moving average": parameters * 4 / sharded if config.ema is not None else 0.0,
        "target": target.parameters * target.weight_bytes,
        "embedding and LM head in the compute type": own_head
        + (target.vocab_size * d * number if number != target.weight_bytes else 0),
        "features": rows * (taps + 1) * d * number,
        "activations": slots * layers * _SAVED_PER_LAYER * d * number + seen * (4 + number),
        "vocabulary chunk": _CHUNK * entries * 4 * _CHUNK_COPIES,
    }


def _storage(config: TrainConfig, given: Assumptions, parameters: int) -> dict[str, float]:
    per_token = (len(config.drafter.target_layer_ids) + 1) * config.drafter.hidden_size
    tokens, which = 1e6, "a million tokens"
    if given.sequences is not None:
        tokens, which = given.sequences * given.mean_length, "the data"
    return {
        "state": parameters * (12 + (4 if config.ema is not None else 0)),
        "checkpoint (bfloat16)": parameters * 2,
        f"features of {which}, if stored (bf16)": tokens * (2 * per_token + _TOKEN_BYTES),
        f"features of {which}, if stored (fp8)": tokens * (per_token + _TOKEN_BYTES),
    }


def measured_flops(device: torch.device, dtype: torch.dtype) -> float:
    """Operations per second of a large matrix product here; takes a fraction of a second."""
    size = 4096 if device.type == "cuda" else 1024
    left = torch.randn(size, size, device=device, dtype=dtype)
    left @ left
    times = []
    for _ in range(5):
        _settle(device)
        started = time.perf_counter()
        left @ left
        _settle(device)
        times.append(time.perf_counter() - started)
    return 2 * size**3 / min(times)


def _settle(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
