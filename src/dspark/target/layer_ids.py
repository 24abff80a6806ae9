"""What a feature layer id means: formats count from different places, and reading one as another fails silently.

Here, as in DeepSpec and in the DFlash and DSpark checkpoints that SGLang reads, id n is the *output* of decoder layer n
and -1 is the embedding output. vLLM's auxiliary layers and the index into ``hidden_states`` of transformers name the
*input* of a layer, which is the output of the one before. Eagle3 checkpoints exist in both ways (sglang#25454,
vllm#43671).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from dspark.core import InputError


class LayerIds(StrEnum):
    """What an id points at."""

    OUTPUT_OF = "output_of"
    """Output of decoder layer n; -1 is the embedding output. Used everywhere in this package."""

    INPUT_TO = "input_to"
    """Input of decoder layer n, as vLLM captures it and as transformers indexes ``hidden_states``; 0 is the embedding
    output."""


def convert_layer_ids(ids: Sequence[int], given: LayerIds, wanted: LayerIds, num_layers: int) -> tuple[int, ...]:
    """The same tapped points in another way of counting.

    Args:
        ids: layer ids.
        given, wanted: what they point at, and what the result shall point at.
        num_layers: decoder layers of the target.

    Raises:
        InputError: an id that points at nothing a drafter may read: the last layer's output only exists behind the
            final norm.
    """
    first = -1 if given is LayerIds.OUTPUT_OF else 0
    last = first + num_layers - 1
    foreign = [layer for layer in ids if not first <= layer <= last]
    if foreign:
        raise InputError(
            f"layer ids of a target with {num_layers} layers must be in [{first}, {last}] when they name the "
            f"{given.value.replace('_', ' ')} a layer, got {foreign}; do they count from another place?"
        )
    shift = (wanted is LayerIds.INPUT_TO) - (given is LayerIds.INPUT_TO)
    return tuple(layer + shift for layer in ids)
