"""Shape of a DSpark or DFlash drafter, read from and written to the checkpoint's ``config.json``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from dspark.core import InputError

ARCHITECTURE = "Qwen3DSparkModel"


class HeadType(StrEnum):
    """Sequential heads of the method (section 2.2 of the DSpark paper); ``none`` is DFlash."""

    NONE = "none"
    VANILLA = "vanilla"
    GATED = "gated"
    RNN = "rnn"


@dataclass(frozen=True, kw_only=True)
class DSparkConfig:
    """All that fixes the shapes and the behaviour of a drafter.

    Attributes:
        hidden_size: D, width; equals the target's.
        intermediate_size: width of the MLPs (unused where experts take their place).
        num_hidden_layers: draft layers.
        num_attention_heads, num_key_value_heads, head_dim: attention shape of the draft layers.
        vocab_size: V, the target's vocabulary.
        block_size: G (gamma), tokens proposed per block; slot j predicts the token at anchor + j + 1.
        mask_token_id: token whose embedding fills slots 1 .. G-1.
        target_layer_ids: tapped target layers; n is the raw output of decoder layer n, -1 the embedding output.
        num_target_layers: layers of the target it was trained for.
        rms_norm_eps, rope_theta, max_position_embeddings: as in the Qwen3 family.
        head_type, markov_rank: sequential head and its rank r; ``none`` goes with rank 0.
        enable_confidence_head, confidence_head_with_markov: confidence head, and whether it sees the previous token.
        num_anchors: anchors per sequence in training (information only).
        draft_vocab_size: Vd, entries of the reduced draft vocabulary; None means the full vocabulary.
        sliding_window: W, a slot at position p sees context keys at positions > p - W (and always its whole block);
            None means all.
        num_experts: X, experts per layer in place of the dense MLP, all layers alike; None means dense.
        num_experts_per_tok, moe_intermediate_size, norm_topk_prob: experts each row goes to, their width, and whether
            the weights of a row's experts sum to one; as in the Qwen3-MoE family.
    """

    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    vocab_size: int
    block_size: int
    mask_token_id: int
    target_layer_ids: tuple[int, ...]
    num_target_layers: int
    rms_norm_eps: float = 1e-6
    rope_theta: float = 10000.0
    max_position_embeddings: int = 32768
    head_type: HeadType = HeadType.VANILLA
    markov_rank: int = 256
    enable_confidence_head: bool = True
    confidence_head_with_markov: bool = True
    num_anchors: int = 512
    draft_vocab_size: int | None = None
    sliding_window: int | None = None
    num_experts: int | None = None
    num_experts_per_tok: int | None = None
    moe_intermediate_size: int | None = None
    norm_topk_prob: bool = True

    def __post_init__(self) -> None:
        self._check_sizes()
        self._check_experts()
        self._check_heads()
        self._check_taps()

    def _check_sizes(self) -> None:
        sizes = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "head_dim")
        for name in (*sizes, "num_key_value_heads", "vocab_size", "block_size", "num_target_layers"):
            _check_integer(name, getattr(self, name), 1, _MOST_LAYERS if name == "num_hidden_layers" else _MOST)
        _check_integer("mask_token_id", self.mask_token_id, 0, _MOST)
        _check_integer("markov_rank", self.markov_rank, 0, _MOST)
        if self.sliding_window is not None:
            _check_integer("sliding_window", self.sliding_window, 1, _MOST)
        if self.head_dim % 2:
            raise InputError(f"drafter config: head_dim must be even, as halves are rotated, got {self.head_dim}")
        for name in ("rms_norm_eps", "rope_theta"):
            number = getattr(self, name)
            if not isinstance(number, (int, float)) or not 0.0 < number < math.inf:
                raise InputError(f"drafter config: {name} must be a number > 0, got {number!r}")
        if self.num_attention_heads % self.num_key_value_heads:
            raise InputError(
                f"drafter config: num_attention_heads ({self.num_attention_heads}) must be a multiple of "
                f"num_key_value_heads ({self.num_key_value_heads})"
            )
        if not 0 <= self.mask_token_id < self.vocab_size:
            raise InputError(
                f"drafter config: mask_token_id must be in [0, {self.vocab_size}), got {self.mask_token_id}"
            )
        if self.draft_vocab_size is not None and not 0 < self.draft_vocab_size <= self.vocab_size:
            raise InputError(
                f"drafter config: draft_vocab_size must be in [1, {self.vocab_size}], got {self.draft_vocab_size}"
            )

    def _check_experts(self) -> None:
        if self.num_experts is None:
            given = [name for name in _EXPERT_SIZES if getattr(self, name) is not None]
            if given:
                raise InputError(f"drafter config: {given[0]} needs num_experts, which is not set")
            return
        _check_integer("num_experts", self.num_experts, 1, _MOST)
        _check_integer("num_experts_per_tok", self.num_experts_per_tok, 1, self.num_experts)
        _check_integer("moe_intermediate_size", self.moe_intermediate_size, 1, _MOST)
        if not isinstance(self.norm_topk_prob, bool):
            raise InputError(f"drafter config: norm_topk_prob must be true or false, got {self.norm_topk_prob!r}")

    def _check_heads(self) -> None:
        if (self.head_type is HeadType.NONE) != (self.markov_rank == 0):
            raise InputError(
                f"drafter config: markov_rank 0 goes with no sequential head, got rank {self.markov_rank} "
                f"with head type {self.head_type.value!r}"
            )

    def _check_taps(self) -> None:
        taps, last = self.target_layer_ids, self.num_target_layers - 2
        if not taps or any(not -1 <= layer <= last for layer in taps):
            raise InputError(f"drafter config: target_layer_ids must be in [-1, {last}], got {list(taps)}")

    @property
    def proposal_vocab_size(self) -> int:
        """Vd, the number of tokens the drafter can propose."""
        return self.draft_vocab_size or self.vocab_size

    @property
    def confidence_reads_markov(self) -> bool:
        """Whether the confidence head reads the embedding of the previous token."""
        return self.confidence_head_with_markov and self.head_type is not HeadType.NONE

    def to_dict(self) -> dict[str, Any]:
        """Return the ``config.json`` content that SGLang and vLLM read."""
        taken = ("head_type", "sliding_window", "draft_vocab_size", "target_layer_ids", "rope_theta", *_EXPERT_FIELDS)
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__ if name not in taken}
        fields |= {
            "architectures": [ARCHITECTURE],
            "model_type": "qwen3",
            "hidden_act": "silu",
            "attention_bias": False,
            "tie_word_embeddings": False,
            "rope_theta": self.rope_theta,
            "rope_parameters": {"rope_theta": self.rope_theta, "rope_type": "default"},
            "target_layer_ids": list(self.target_layer_ids),
            "use_sliding_window": self.sliding_window is not None,
            "sliding_window": self.sliding_window,
            "layer_types": [_layer_type(self.sliding_window)] * self.num_hidden_layers,
        }
        if self.num_experts is not None:
            fields |= {name: getattr(self, name) for name in _EXPERT_FIELDS}
            fields |= {"model_type": "qwen3_moe", "decoder_sparse_step": 1, "mlp_only_layers": []}
        if self.head_type is not HeadType.NONE:
            fields["markov_head_type"] = self.head_type.value
        if self.draft_vocab_size is not None:
            fields["draft_vocab_size"] = self.draft_vocab_size
        return fields

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> DSparkConfig:
        """Read a checkpoint's ``config.json`` content.

        Raises:
            InputError: another architecture, a missing field, or an option this implementation does not have.
        """
        try:
            _refuse_foreign(raw)
            plain = {
                name: raw[name]
                for name, spec in cls.__dataclass_fields__.items()
                if name in raw and name not in _SPECIAL
            }
            rank = int(raw["markov_rank"])
            head = HeadType.NONE if rank == 0 else HeadType(raw["markov_head_type"])
            return cls(
                **plain,
                target_layer_ids=tuple(raw["target_layer_ids"]),
                rope_theta=_rope_theta(raw),
                head_type=head,
                markov_rank=rank,
                sliding_window=raw.get("sliding_window") if raw.get("use_sliding_window") else None,
            )
        except KeyError as missing:
            raise InputError(
                f"drafter config.json lacks the field {missing.args[0]!r}; it is no DSpark checkpoint"
            ) from None
        except (TypeError, ValueError, OverflowError) as wrong:
            if isinstance(wrong, InputError):
                raise
            raise InputError(f"drafter config.json has a wrong or missing field: {wrong}") from None


_EXPERT_SIZES = ("num_experts_per_tok", "moe_intermediate_size")
_EXPERT_FIELDS = ("num_experts", *_EXPERT_SIZES, "norm_topk_prob")

_MOST, _MOST_LAYERS = 1 << 24, 1 << 10
"""Sizes beyond these are damage, not a drafter."""


def _check_integer(name: str, value: object, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InputError(f"drafter config: {name} must be an integer from {low} to {high}, got {value!r}")


_SPECIAL = frozenset({"target_layer_ids", "rope_theta", "head_type", "markov_rank", "sliding_window"})


_FOREIGN_FIELDS = {
    "dflash_config": "a DFlash checkpoint of the format whose blocks have gamma + 1 slots and predict only at masks",
    "speculators_model_type": "a checkpoint of the speculators format",
    "eagle_config": "an Eagle checkpoint",
}


_FIXED_FIELDS: tuple[tuple[str, Any], ...] = (
    ("attention_bias", False),
    ("hidden_act", "silu"),
    ("tie_word_embeddings", False),
    ("decoder_sparse_step", 1),
    ("mlp_only_layers", []),
)


def _refuse_foreign(raw: Mapping[str, Any]) -> None:
    """Raise InputError for architectures and options that would be misread silently."""
    for field, format_name in _FOREIGN_FIELDS.items():
        if field in raw:
            raise InputError(
                f"drafter config.json has the field {field!r}: it is {format_name}; expected a checkpoint with "
                f"architectures [{ARCHITECTURE!r}], gamma slots per block; convert it first"
            )
    if raw.get("architectures") != [ARCHITECTURE]:
        raise InputError(
            f"drafter config.json: architectures must be [{ARCHITECTURE!r}], got {raw.get('architectures')!r}; "
            "checkpoints of other formats count block slots differently and must be converted first"
        )
    for name, expected in _FIXED_FIELDS:
        if raw.get(name, expected) != expected:
            raise InputError(f"drafter config.json: {name} must be {expected!r}, got {raw[name]!r}")
    _refuse_other_rope(raw)
    _refuse_mixed_layers(raw)


def _refuse_other_rope(raw: Mapping[str, Any]) -> None:
    """Raise InputError for scaled or partial rotary embeddings."""
    rope = dict(raw.get("rope_parameters") or raw.get("rope_scaling") or {})
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind != "default":
        raise InputError(f"drafter config.json: rope_type must be 'default', got {kind!r}")
    partial = rope.get("partial_rotary_factor", raw.get("partial_rotary_factor"))
    if partial not in (None, 1, 1.0):
        raise InputError(f"drafter config.json: partial_rotary_factor must be 1, got {partial!r}")


def _refuse_mixed_layers(raw: Mapping[str, Any]) -> None:
    """Raise InputError unless all draft layers have the same kind of attention."""
    window = raw.get("sliding_window") if raw.get("use_sliding_window") else None
    odd = set(raw.get("layer_types") or ()) - {_layer_type(window)}
    if odd:
        raise InputError(
            f"drafter config.json: layer_types must all be {_layer_type(window)!r} when use_sliding_window is "
            f"{bool(raw.get('use_sliding_window'))}, got {sorted(map(str, odd))}"
        )


def _layer_type(window: int | None) -> str:
    return "full_attention" if window is None else "sliding_attention"


def _rope_theta(raw: Mapping[str, Any]) -> float:
    """Read the RoPE base from either place where Hugging Face versions keep it."""
    nested = raw.get("rope_parameters") or {}
    return float(nested["rope_theta"] if "rope_theta" in nested else raw["rope_theta"])
