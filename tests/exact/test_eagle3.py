"""The real Eagle3 drafter over pages as the drafter of an exact enumeration: the output law equals the target's."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch

from dspark.core import CommittedRows, DraftBatch, SamplingParams
from dspark.drafters import Eagle3Drafter
from dspark.drafters.eagle3 import Eagle3Config, Eagle3Model

from .rounds import Tokens, emitted_law
from .tables import ANCHOR, World
from .test_lossless import POLICIES, WARPS, all_prefixes, assert_lossless, measured, verify_lengths

CONTEXT, PAGE, WIDTH = 6, 4, 8


class Borrowed:
    """Embedding, LM head and facts of a target that is nothing else."""

    dtype, device = torch.float32, torch.device("cpu")
    hidden_size, num_layers, max_positions, logit_softcap = WIDTH, 4, 64, None

    def __init__(self, vocab: int, generator: torch.Generator) -> None:
        self.vocab_size, self.facts = vocab, self
        self.embedding, self.head = (torch.randn(vocab, WIDTH, generator=generator) for _ in range(2))

    def embed(self, ids: torch.Tensor) -> torch.Tensor:
        return self.embedding[ids]

    def embed_weight(self) -> torch.Tensor:
        return self.embedding

    def lm_head_weight(self) -> torch.Tensor:
        return self.head

    def lm_head(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden @ self.head.T


def eagle_world(vocab: int, gamma: int, seed: int, draft_ids: tuple[int, ...] = ()) -> World:
    """A target that depends on its whole history, and an Eagle3 drafter after a short text."""
    generator = torch.Generator().manual_seed(seed)
    ids = draft_ids or tuple(range(vocab))
    config = Eagle3Config(
        hidden_size=WIDTH,
        intermediate_size=8,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=4,
        vocab_size=vocab,
        target_layer_ids=(0,),
        num_target_layers=4,
        ttt_length=gamma,
        draft_vocab_size=len(draft_ids) or None,
    )
    model = Eagle3Model(config)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim == 2:
                weight.copy_(torch.randn(weight.shape, generator=generator) * weight.shape[1] ** -0.5)
    mapping = torch.tensor(draft_ids) if draft_ids else None
    drafter = Eagle3Drafter(model, Borrowed(vocab, generator), draft_to_target=mapping)
    drafter.allocate(4, PAGE)
    places = torch.arange(CONTEXT)
    drafter.observe(
        CommittedRows(
            features=torch.randn(CONTEXT, WIDTH, generator=generator),
            positions=places,
            kv_slots=places,
            token_ids=torch.randint(vocab, (CONTEXT,), generator=generator),
            previous_slots=(places - 1).clamp_min(0),
        )
    )

    @cache
    def draft_logits(drafts: Tokens) -> np.ndarray:
        """Logits after the given drafts, which a sampler forces on the drafter."""
        seen: list[torch.Tensor] = []

        def forced(slot: int, logits: torch.Tensor) -> tuple[torch.Tensor, None]:
            seen.append(logits[0].clone())
            return torch.tensor([ids.index(drafts[slot]) if slot < len(drafts) else 0]), None

        drafter.propose(
            DraftBatch(
                anchors=torch.tensor([ANCHOR]),
                anchor_positions=(CONTEXT,),
                page_table=torch.tensor([[0, 1]]),
                page_size=PAGE,
                histories=[()],
                max_lens=(gamma,),
                sampler=forced,
            )
        )
        return seen[len(drafts)].double().numpy()

    @cache
    def target_logits(drafts: Tokens) -> np.ndarray:
        return np.random.default_rng((seed, len(drafts), *drafts)).normal(size=vocab) * 1.5

    return World(vocab, gamma, target_logits, draft_logits, ids)


@pytest.mark.pitfall(1)
@pytest.mark.pitfall(2)
@pytest.mark.parametrize("warping", WARPS)
def test_lossless(warping: str) -> None:
    params = WARPS[warping]
    world = eagle_world(vocab=3, gamma=3, seed=2)
    paths = world.paths(params)
    laws = measured(world, params, all_prefixes(list(paths), world.gamma))
    for policy, confidence in POLICIES:
        lengths = verify_lengths(policy, confidence, list(paths))
        assert_lossless(emitted_law(paths, lengths, laws), world, params, 1e-9)


def test_logits_depend_on_every_token_before_them() -> None:
    """Else the enumeration would show less than it seems to."""
    world = eagle_world(vocab=3, gamma=3, seed=2)
    rows = [world.draft_logits((a, b)) for a in range(3) for b in range(3)]
    gaps = [np.abs(one - other).max() for i, one in enumerate(rows) for other in rows[:i]]
    assert min(gaps) > 1e-3


@pytest.mark.parametrize("draft_ids", [(0, 2), (3, 1), (4,)])
def test_reduced_draft_vocabulary(draft_ids: tuple[int, ...]) -> None:
    params = SamplingParams(temperature=1.0)
    world = eagle_world(vocab=5, gamma=2, seed=11, draft_ids=draft_ids)
    paths = world.paths(params)
    laws = measured(world, params, list(paths))
    assert_lossless(emitted_law(paths, dict.fromkeys(paths, 2), laws), world, params, 1e-9)
