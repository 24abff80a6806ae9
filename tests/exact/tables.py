"""Small random worlds: a target that depends on its whole history, and drafters with the real sequential heads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import product

import numpy as np
import torch

from dspark.core import SamplingParams
from dspark.drafters.dspark.config import DSparkConfig, HeadType
from dspark.drafters.dspark.heads import build_sequential_head
from dspark.verify import DraftDraws, RowSampling, warp

from .rounds import Tokens

ANCHOR = 1
WIDTH, RANK = 3, 2


@dataclass(frozen=True)
class World:
    """A target and a drafter after one anchor.

    Attributes:
        vocab: V.
        gamma: drafted tokens.
        target_logits: [V] after drafts.
        draft_logits: [Vd] of the slot after drafts (target ids).
        draft_ids: target id of each draft entry.
    """

    vocab: int
    gamma: int
    target_logits: Callable[[Tokens], np.ndarray]
    draft_logits: Callable[[Tokens], np.ndarray]
    draft_ids: tuple[int, ...]

    def target_probs(self, params: SamplingParams) -> Callable[[Tokens], np.ndarray]:
        """Warped target rows, what plain decoding draws from."""
        return cache(lambda drafts: warped(self.target_logits(drafts), params))

    def draft_probs(self, params: SamplingParams) -> Callable[[Tokens], np.ndarray]:
        """[l, Vd] the probabilities the tokens of a block were drawn from, as the draft sampler reports them."""

        @cache
        def row(before: Tokens) -> np.ndarray:
            sampler = DraftDraws(RowSampling.of([params]), np.full((1, self.gamma), 0.5))
            _, probs = sampler(len(before), torch.from_numpy(self.draft_logits(before))[None])
            assert probs is not None
            return probs[0].numpy()

        return lambda drafts: np.stack(
            [row(drafts[:j]) for j in range(len(drafts))] or [np.zeros(len(self.draft_ids))]
        )[: len(drafts)]

    def paths(self, params: SamplingParams) -> dict[Tokens, float]:
        """Probability of every block the drafter can draw."""
        laws = self.draft_probs(params)
        found = {}
        for entries in product(range(len(self.draft_ids)), repeat=self.gamma):
            path = tuple(self.draft_ids[e] for e in entries)
            chance = float(np.prod([law[e] for law, e in zip(laws(path), entries, strict=True)]))
            if chance > 0:
                found[path] = chance
        return found


def warped(logits: np.ndarray, params: SamplingParams) -> np.ndarray:
    """One row through the real warping, in float64."""
    return warp(torch.from_numpy(logits)[None], RowSampling.of([params]))[0].numpy()


def make_world(head: HeadType, vocab: int, gamma: int, seed: int, *, draft_ids: tuple[int, ...] = ()) -> World:
    """A random world; ``draft_ids`` makes the draft vocabulary a reduced one."""
    ids = draft_ids or tuple(range(vocab))
    generator = torch.Generator().manual_seed(seed)
    base = torch.randn(gamma, len(ids), generator=generator, dtype=torch.float64)
    hidden = torch.randn(gamma, WIDTH, generator=generator, dtype=torch.float64)
    walker = _walker(head, vocab, len(ids), gamma, generator)

    @cache
    def target_logits(drafts: Tokens) -> np.ndarray:
        return np.random.default_rng((seed, len(drafts), *drafts)).normal(size=vocab) * 1.5

    @cache
    def draft_logits(drafts: Tokens) -> np.ndarray:
        return (base[len(drafts)] + walker((ANCHOR, *drafts), hidden)).numpy()

    return World(vocab, gamma, target_logits, draft_logits, ids)


def _walker(
    head: HeadType, vocab: int, entries: int, gamma: int, generator: torch.Generator
) -> Callable[[Tokens, torch.Tensor], torch.Tensor]:
    """The bias the real sequential head adds to the next slot's logits after tokens ``before`` (anchor first)."""
    config = DSparkConfig(
        hidden_size=WIDTH,
        intermediate_size=4,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
        head_dim=2,
        vocab_size=vocab,
        block_size=gamma,
        mask_token_id=0,
        target_layer_ids=(0,),
        num_target_layers=4,
        head_type=head,
        markov_rank=0 if head is HeadType.NONE else RANK,
        draft_vocab_size=None if entries == vocab else entries,
    )
    module = build_sequential_head(config)
    if module is None:
        return lambda before, hidden: torch.zeros(entries, dtype=torch.float64)
    module = module.double()
    for parameter in module.parameters():
        parameter.data.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * 1.5)

    @torch.no_grad()
    def bias(before: Tokens, hidden: torch.Tensor) -> torch.Tensor:
        state = module.initial_state(module.embed(torch.tensor(before[0])))
        code = state
        for slot, token in enumerate(before):
            code, state = module.step(module.embed(torch.tensor(token)), hidden[slot], state)
        return module.markov_w2(code)

    return bias
