"""Feature taps: raw residual-stream values after chosen layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from dspark.core import InputError

EMBEDDING = -1
"""Layer id of the embedding output, which includes the family's own scaling."""


def check_taps(layer_ids: Sequence[int], num_layers: int) -> tuple[int, ...]:
    """The ids as a tuple.

    Raises:
        InputError: an id is outside -1 .. num_layers - 1, or repeated.
    """
    ids = tuple(layer_ids)
    if len(set(ids)) != len(ids) or not all(EMBEDDING <= i < num_layers for i in ids):
        raise InputError(f"tapped layers must be different ids from -1 to {num_layers - 1}, got {list(layer_ids)}")
    return ids


class FeatureTaps:
    """Hooks on decoder layers that copy their raw output into the feature buffer of the passage.

    ``hidden_states`` of transformers is no substitute: its last entry is taken after the final norm.
    """

    def __init__(self, layers: nn.ModuleList) -> None:
        self._layers = layers
        self._handles: list[RemovableHandle] = []

    def set(self, layer_ids: Sequence[int]) -> None:
        """Tap these layers, in this order; -1 is the embedding output, n the output of decoder layer n."""
        for handle in self._handles:
            handle.remove()
        self._handles = [self._hook(layer, place) for place, layer in enumerate(layer_ids)]

    def _hook(self, layer: int, place: int) -> RemovableHandle:
        if layer == EMBEDDING:
            return self._layers[0].register_forward_pre_hook(_BeforeLayer(place), with_kwargs=True)
        return self._layers[layer].register_forward_hook(_AfterLayer(place), with_kwargs=True)


class _BeforeLayer:
    """Copies what enters a layer."""

    def __init__(self, place: int) -> None:
        self.place = place

    def __call__(self, layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        hidden = args[0] if args else kwargs["hidden_states"]
        _store(kwargs["passage"].features, self.place, hidden)


class _AfterLayer:
    """Copies what leaves a layer."""

    def __init__(self, place: int) -> None:
        self.place = place

    def __call__(self, layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        hidden = output[0] if isinstance(output, tuple) else output
        _store(kwargs["passage"].features, self.place, hidden)


def _store(features: Tensor | None, place: int, hidden: Tensor) -> None:
    """Write [1, T, D] into columns place * D .. (place + 1) * D - 1 of [T, m * D]."""
    assert features is not None
    width = hidden.shape[-1]
    features[:, place * width : (place + 1) * width] = hidden[0]
