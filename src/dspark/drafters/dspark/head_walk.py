"""The light parts at inference: the sequential head slot after slot, then confidence for the whole block.

Legend: R requests, G slots, D hidden, r head rank, Vd draft vocabulary.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dspark.drafters.dspark.frozen_linear import FrozenLinear
from dspark.drafters.dspark.heads import ConfidenceHead, SequentialHead


class HeadWalk:
    """One walk of a sequential head over the slots of a block; remembers the embedding met before each slot.

    Args:
        head: the head; None (DFlash) leaves base logits as they are.
        output: the head's W_2, laid out for inference.
    """

    def __init__(self, head: SequentialHead | None, output: FrozenLinear | None) -> None:
        self._head, self._output = head, output
        self._state: Tensor | None = None
        self.embedded: list[Tensor] = []

    def logits(self, base: Tensor, hidden: Tensor, previous: Tensor) -> Tensor:
        """Logits of the next slot.

        Args:
            base: [R, Vd] base logits of the slot.
            hidden: [R, D] final hidden state of the slot.
            previous: [R] int64 the token before the one to be drawn.

        Returns:
            [R, Vd].
        """
        if self._head is None or self._output is None:
            return base
        embedded = self._head.embed(previous)
        state = self._head.initial_state(embedded) if self._state is None else self._state
        code, self._state = self._head.step(embedded, hidden, state)
        self.embedded.append(embedded)
        return self._output(code, add=base)


class BlockConfidence:
    """The confidence head in float32, all slots at once: slot j reads only what stood before its token was drawn."""

    def __init__(self, head: ConfidenceHead) -> None:
        self._weight, self._bias = head.proj.weight[0].float(), head.proj.bias.float()
        self._reads_markov = head.reads_markov

    def __call__(self, hidden: Tensor, embedded: list[Tensor]) -> Tensor:
        """Probabilities [R, G] from hidden [G, R, D] and the embedding before each slot, [R, r] each."""
        inputs = torch.cat([hidden, torch.stack(embedded)], dim=-1) if self._reads_markov else hidden
        return torch.sigmoid(inputs.float() @ self._weight + self._bias).t()
