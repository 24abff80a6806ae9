"""Shape of an Eagle3 drafter, read from and written to the checkpoint's ``config.json``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dspark.core import InputError
from dspark.drafters.dspark.config import DSparkConfig, HeadType

ARCHITECTURE = "Qwen3Eagle3Model"
_MOST_STEPS = 1 << 10


@dataclass(frozen=True, kw_only=True)
class Eagle3Config:
    """All that fixes the shape and the behaviour of a one-layer autoregressive drafter (Li et al. 2025).

    Attributes:
        hidden_size: D, width; equals the target's.
        intermediate_size: width of the MLP.
        num_attention_heads, num_key_value_heads, head_dim: attention shape.
        vocab_size: V, the target's vocabulary.
        target_layer_ids: tapped target layers; n is the raw output of decoder layer n, -1 the embedding output.
        num_target_layers: layers of the target it was trained for.
        ttt_length: G, steps it was trained to run on its own output; as many tokens are proposed per block.
        step_loss_decay: in training, step k weighs step_loss_decay ** k.
        rms_norm_eps, rope_theta, max_position_embeddings: as in the Qwen3 family.
        draft_vocab_size: Vd, entries of the reduced draft vocabulary; None means the full vocabulary.
    """

    hidden_size: int
    intermediate_size: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    vocab_size: int
    target_layer_ids: tuple[int, ...]
    num_target_layers: int
    ttt_length: int = 7
    step_loss_decay: float = 0.8
    rms_norm_eps: float = 1e-6
    rope_theta: float = 10000.0
    max_position_embeddings: int = 32768
    draft_vocab_size: int | None = None

    def __post_init__(self) -> None:
        steps, decay = self.ttt_length, self.step_loss_decay
        if isinstance(steps, bool) or not isinstance(steps, int) or not 1 <= steps <= _MOST_STEPS:
            raise InputError(f"drafter config: ttt_length must be an integer from 1 to {_MOST_STEPS}, got {steps!r}")
        if not isinstance(decay, (int, float)) or not 0.0 < decay < math.inf:
            raise InputError(f"drafter config: step_loss_decay must be a number > 0, got {decay!r}")
        _ = self.layer_shape  # checks all sizes

    @property
    def proposal_vocab_size(self) -> int:
        """Vd, the number of tokens the drafter can propose."""
        return self.draft_vocab_size or self.vocab_size

    @property
    def layer_shape(self) -> DSparkConfig:
        """The same layer in the terms of the parallel backbone, whose parts (rotary tables, page store) serve here too.

        Raises:
            InputError: sizes that make no drafter.
        """
        return DSparkConfig(
            **{name: getattr(self, name) for name in _SHARED},
            num_hidden_layers=1,
            block_size=self.ttt_length,
            mask_token_id=0,
            head_type=HeadType.NONE,
            markov_rank=0,
            enable_confidence_head=False,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the ``config.json`` content."""
        fields = {name: value for name, value in self.layer_shape.to_dict().items() if name not in _PARALLEL_ONLY}
        return fields | {
            "architectures": [ARCHITECTURE],
            "draft_num_hidden_layers": 1,
            "ttt_length": self.ttt_length,
            "step_loss_decay": self.step_loss_decay,
        }

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> Eagle3Config:
        """Read a checkpoint's ``config.json`` content.

        Raises:
            InputError: another architecture, a missing field, or an option this implementation does not have.
        """
        _refuse_foreign(raw)
        shape = DSparkConfig.from_dict({**raw, **_PARALLEL_STAND_IN})
        return cls(
            **{name: getattr(shape, name) for name in _SHARED},
            ttt_length=raw["ttt_length"],
            step_loss_decay=raw["step_loss_decay"],
        )


_SHARED = (
    "hidden_size",
    "intermediate_size",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "vocab_size",
    "target_layer_ids",
    "num_target_layers",
    "rms_norm_eps",
    "rope_theta",
    "max_position_embeddings",
    "draft_vocab_size",
)
"""Fields that mean the same in both kinds of drafter."""

_NEEDED = (*_SHARED[:8], "rms_norm_eps", "ttt_length", "step_loss_decay")

_PARALLEL_ONLY = frozenset(
    {
        "block_size",
        "mask_token_id",
        "markov_rank",
        "enable_confidence_head",
        "confidence_head_with_markov",
        "num_anchors",
    }
)
"""Fields of the parallel backbone that an Eagle3 checkpoint does not have."""

_PARALLEL_STAND_IN: dict[str, Any] = {
    "architectures": ["Qwen3DSparkModel"],
    "block_size": 1,
    "mask_token_id": 0,
    "markov_rank": 0,
    "enable_confidence_head": False,
}


def _refuse_foreign(raw: Mapping[str, Any]) -> None:
    """Raise InputError for architectures, layouts and options that would be misread silently."""
    if raw.get("architectures") != [ARCHITECTURE]:
        raise InputError(
            f"drafter config.json: architectures must be [{ARCHITECTURE!r}] for an Eagle3 checkpoint, got "
            f"{raw.get('architectures')!r}; checkpoints of other formats name and join their weights differently and "
            "must be converted first"
        )
    if missing := [name for name in _NEEDED if name not in raw]:
        raise InputError(f"drafter config.json lacks the field {missing[0]!r}; it is no Eagle3 checkpoint")
    if mixed := sorted(_PARALLEL_ONLY & raw.keys()):
        raise InputError(
            f"drafter config.json has the field {mixed[0]!r}, which belongs to a DSpark checkpoint, but its "
            f"architectures say {ARCHITECTURE!r}"
        )
    for name, expected in (
        ("num_hidden_layers", 1),
        ("draft_num_hidden_layers", 1),
        ("use_sliding_window", False),
        ("num_experts", None),
    ):
        if raw.get(name, expected) != expected:
            raise InputError(f"drafter config.json: {name} must be {expected!r} for Eagle3, got {raw[name]!r}")
