"""The light parts on top of the backbone: sequential heads and the confidence head (paper section 2).

A sequential head turns (previous token, slot hidden state, own state) into a low-rank *code* z of size r; the slot's
logits are ``lm_head(h) + W_2 z``. Legend: D hidden, r rank, V vocabulary, Vd draft vocabulary, G slots.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor, nn

from dspark.drafters.dspark.config import DSparkConfig, HeadType


class SequentialHead(nn.Module, ABC):
    """Base of the heads: token factor ``W_1`` [V, r] and output factor ``W_2`` [Vd, r]."""

    def __init__(self, config: DSparkConfig) -> None:
        super().__init__()
        self.rank = config.markov_rank
        self.markov_w1 = nn.Embedding(config.vocab_size, config.markov_rank)
        self.markov_w2 = nn.Linear(config.markov_rank, config.proposal_vocab_size, bias=False)

    def embed(self, previous: Tensor) -> Tensor:
        """Return W_1[previous]: [..] int64 -> [.., r]."""
        embedded: Tensor = self.markov_w1(previous)
        return embedded

    def initial_state(self, embedded: Tensor) -> Tensor:
        """Return the state before slot 0 for embeddings [.., r]."""
        return torch.zeros_like(embedded)

    @abstractmethod
    def step(self, embedded: Tensor, hidden: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Advance one slot.

        Args:
            embedded: [.., r] W_1 of the previous token.
            hidden: [.., D] final hidden state of the slot.
            state: [.., r] the head's state before the slot.

        Returns:
            code [.., r] of this slot and the state after it.
        """

    def codes(self, embedded: Tensor, hidden: Tensor) -> Tensor:
        """Teacher-forced codes of whole blocks: [.., G, r], [.., G, D] -> [.., G, r]."""
        state = self.initial_state(embedded[..., 0, :])
        codes = []
        for slot in range(embedded.shape[-2]):
            code, state = self.step(embedded[..., slot, :], hidden[..., slot, :], state)
            codes.append(code)
        return torch.stack(codes, dim=-2)


class VanillaHead(SequentialHead):
    """First-order Markov: z = W_1[p]."""

    def step(self, embedded: Tensor, hidden: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """The previous token's embedding is the code."""
        return embedded, state

    def codes(self, embedded: Tensor, hidden: Tensor) -> Tensor:
        """All slots at once: there is no state."""
        return embedded


class GatedHead(SequentialHead):
    """Markov with a gate: z = sigmoid(W_g [h ; W_1[p]] + b) * W_1[p]."""

    def __init__(self, config: DSparkConfig) -> None:
        super().__init__(config)
        self.gate_proj = nn.Linear(config.hidden_size + config.markov_rank, config.markov_rank)

    def step(self, embedded: Tensor, hidden: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Gate one slot's embedding."""
        return self.codes(embedded, hidden), state

    def codes(self, embedded: Tensor, hidden: Tensor) -> Tensor:
        """All slots at once: there is no state."""
        return torch.sigmoid(self.gate_proj(torch.cat([hidden, embedded], dim=-1))) * embedded


class RnnHead(SequentialHead):
    """Recurrent: (g, c, o) from [s ; W_1[p] ; h]; z = tanh(o); s <- sigmoid(g) s + (1 - sigmoid(g)) tanh(c)."""

    def __init__(self, config: DSparkConfig) -> None:
        super().__init__(config)
        self.joint_proj = nn.Linear(2 * config.markov_rank + config.hidden_size, 3 * config.markov_rank)

    def step(self, embedded: Tensor, hidden: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Read out, then update the state."""
        gate, candidate, output = self.joint_proj(torch.cat([state, embedded, hidden], dim=-1)).chunk(3, dim=-1)
        keep = torch.sigmoid(gate)
        return torch.tanh(output), keep * state + (1 - keep) * torch.tanh(candidate)


class ConfidenceHead(nn.Module):
    """Logit of the probability that a slot's token is accepted, given that all earlier ones were."""

    def __init__(self, config: DSparkConfig) -> None:
        super().__init__()
        self.reads_markov = config.confidence_reads_markov
        self.proj = nn.Linear(config.hidden_size + (config.markov_rank if self.reads_markov else 0), 1)

    def forward(self, hidden: Tensor, embedded: Tensor | None) -> Tensor:
        """Return confidence logits.

        Args:
            hidden: [.., D] final hidden state of each slot.
            embedded: [.., r] W_1 of the token before each slot (unused if the head does not read it).

        Returns:
            [..] logits; never a function of the token drawn at the slot itself.
        """
        if self.reads_markov:
            assert embedded is not None
            hidden = torch.cat([hidden, embedded], dim=-1)
        logits: Tensor = self.proj(hidden).squeeze(-1)
        return logits


_HEADS: dict[HeadType, Callable[[DSparkConfig], SequentialHead]] = {
    HeadType.VANILLA: VanillaHead,
    HeadType.GATED: GatedHead,
    HeadType.RNN: RnnHead,
}


def build_sequential_head(config: DSparkConfig) -> SequentialHead | None:
    """Return the head the configuration names, None for DFlash."""
    return None if config.head_type is HeadType.NONE else _HEADS[config.head_type](config)
