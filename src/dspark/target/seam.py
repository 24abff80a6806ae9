"""The one place where attention of a Hugging Face model becomes ours.

transformers lets a registered function replace attention; it sees queries, keys and values after RoPE and before the
key heads are repeated, and every extra keyword given to the model. Ours gets the batch through such a keyword, which is
required: a model that drops it fails loudly at the probe instead of attending wrongly.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn
from transformers import AttentionInterface

from dspark.core import InputError
from dspark.target.backends import AttentionBackend, AttentionRule

ATTENTION_NAME = "dspark_packed"
"""Name in the attention registry; transformers treats names with flash, sdpa, flex_attention, '|' or '/' specially."""

_HARMLESS = frozenset({"position_ids", "use_cache", "output_attentions", "output_hidden_states", "cache_position"})


@dataclass(kw_only=True)
class Passage:
    """What travels through the model with one forward.

    Attributes:
        backend: where keys and values live.
        plan: the backend's view of the batch.
        features: [T, m * D] buffer that tapped layers write into, None without taps.
        rules: layer -> how it attended, filled as layers run.
    """

    backend: AttentionBackend
    plan: Any
    features: Tensor | None = None
    rules: dict[int, AttentionRule] = field(default_factory=dict)


def packed_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    passage: Passage,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    softcap: float | None = None,
    **rest: Any,
) -> tuple[Tensor, None]:
    """Attention over the paged store, in the form transformers calls it.

    Args:
        module: the attention module; ``layer_idx`` names its layer.
        query: [1, H, T, d].
        key: [1, K, T, d].
        value: [1, K, T, d].
        attention_mask: unused, no mask function is registered under our name.
        passage: given to the model as a keyword by :class:`PackedTarget`.
        scaling: factor on the scores.
        dropout: must be 0.
        sliding_window: keys a row sees counting itself.
        softcap: soft-cap on the scores.
        rest: checked to be harmless, as some models ask for attention we do not have (sinks, for one).

    Returns:
        [1, T, H * d] and None in place of attention weights.

    Raises:
        InputError: the model asks for something the backends cannot do.
    """
    layer = int(module.layer_idx)  # type: ignore[arg-type]
    rule = passage.rules.get(layer)
    if rule is None:
        _check_call(module, attention_mask, dropout, rest)
        scale = query.shape[-1] ** -0.5 if scaling is None else float(scaling)
        rule = AttentionRule(scale=scale, window=sliding_window, softcap=softcap)
        passage.rules[layer] = rule
    queries, keys, values = (tensor[0].transpose(0, 1) for tensor in (query, key, value))
    return passage.backend.attend(passage.plan, layer, queries, keys, values, rule)[None], None


def _check_call(module: nn.Module, attention_mask: Tensor | None, dropout: float, rest: dict[str, Any]) -> None:
    """Refuse what packed attention does not do."""
    asked = [name for name, value in rest.items() if value is not None and name not in _HARMLESS]
    if asked:
        raise InputError(
            f"attention of {type(module).__name__} asks for {asked[0]!r}, which packed attention does not do"
        )
    if not getattr(module, "is_causal", True) or attention_mask is not None or dropout:
        raise InputError(f"attention of {type(module).__name__} is not plain causal attention, so it cannot run packed")


def register() -> str:
    """Make :func:`packed_attention` known to transformers; harmless to repeat. Returns the name."""
    AttentionInterface.register(ATTENTION_NAME, packed_attention)
    return ATTENTION_NAME
