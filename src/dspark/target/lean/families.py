"""Reading lean layers out of the transformers modules of the proven families."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn
from transformers import PreTrainedModel

from dspark.target.backends import AttentionRule
from dspark.target.facts import TargetFacts
from dspark.target.lean.body import LeanBody
from dspark.target.lean.layer import LeanLayer
from dspark.target.lean.linear import Stacked
from dspark.target.lean.norm import RMSNorm, read_head_norm, read_norm

_GEMMA = frozenset({"gemma2", "gemma3_text"})
_ONE_TABLE = ""


def build_lean_body(model: PreTrainedModel, facts: TargetFacts, rules: Mapping[int, AttentionRule]) -> LeanBody:
    """Lean form of a proven family's model. Weights are shared with the model, nothing is copied.

    Args:
        model: a model of a proven family.
        facts: its facts.
        rules: how each layer attends, as the seam has seen it.

    Raises:
        AttributeError: a module is not where the family had it.
    """
    body: Any = model.base_model
    layers = [_layer(layer, facts, rules[i], _rope_kind(layer, facts)) for i, layer in enumerate(body.layers)]
    ropes = sorted({layer.rope for layer in layers if layer.rope is not None})
    norm = read_norm(body.norm, one_plus=facts.model_type in _GEMMA)
    return LeanBody(model.get_input_embeddings(), body.rotary_emb, ropes, layers, norm)


def _layer(layer: Any, facts: TargetFacts, rule: AttentionRule, rope: str | None) -> LeanLayer:
    gemma = facts.model_type in _GEMMA
    attention, mlp = layer.self_attn, layer.mlp
    return LeanLayer(
        index=attention.layer_idx,
        num_heads=facts.num_heads,
        num_kv_heads=facts.num_kv_heads,
        rule=rule,
        rope=rope,
        input_norm=read_norm(layer.input_layernorm, one_plus=gemma),
        qkv=_stacked(attention, "qkv_proj", "q_proj", "k_proj", "v_proj"),
        head_norm=None
        if getattr(attention, "q_norm", None) is None
        else read_head_norm(attention.q_norm, attention.k_norm, facts.num_heads, facts.num_kv_heads, one_plus=gemma),
        out=Stacked((attention.o_proj,)),
        after_attention=_gemma_norm(layer, "post_attention_layernorm", gemma),
        mlp_norm=read_norm(
            layer.pre_feedforward_layernorm if gemma else layer.post_attention_layernorm, one_plus=gemma
        ),
        gate_up=_stacked(mlp, "gate_up_proj", "gate_proj", "up_proj"),
        activation=mlp.activation_fn if hasattr(mlp, "activation_fn") else mlp.act_fn,
        down=Stacked((mlp.down_proj,)),
        after_mlp=_gemma_norm(layer, "post_feedforward_layernorm", gemma),
    )


def _stacked(module: nn.Module, joined: str, *names: str) -> Stacked:
    """The joined map where the family has one (Phi3), else the separate ones."""
    parts = (joined,) if hasattr(module, joined) else names
    return Stacked(tuple(getattr(module, name) for name in parts))


def _gemma_norm(layer: nn.Module, name: str, gemma: bool) -> RMSNorm | None:
    return read_norm(getattr(layer, name), one_plus=True) if gemma else None


def _rope_kind(layer: Any, facts: TargetFacts) -> str | None:
    """Which rotary table a layer uses: Gemma3 keeps one per layer type, SmolLM3 leaves positions out of some layers."""
    if not getattr(layer.self_attn, "use_rope", True):
        return None
    if facts.model_type == "gemma3_text":
        return str(layer.self_attn.layer_type)
    return _ONE_TABLE
