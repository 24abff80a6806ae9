"""A sliding window means the same keys in training, in serving round by round, and for any page size."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from dspark.drafters import DSparkDrafter
from dspark.drafters.dspark import DSparkModel

from .standin import PagedUser, RecordingSampler, StandInTarget, config_of, random_model, random_target

WINDOWS = [1, 3, 6, 128]
LENGTH = 23


def pair(window: int | None) -> tuple[DSparkModel, StandInTarget]:
    config = config_of(sliding_window=window, max_position_embeddings=512)
    return random_model(config), random_target(config)


def features_of(model: DSparkModel, rows: int, seed: int = 1) -> Tensor:
    return torch.randn(rows, model.fc.in_features, generator=torch.Generator().manual_seed(seed))


def brute_force(model: DSparkModel, target: StandInTarget, features: Tensor, anchor: int, token: int) -> Tensor:
    """Hidden states [G, D] of one block, slot by slot and key by key, straight from the definition."""
    config, g = model.config, model.config.block_size
    context = model.context(features[:anchor])
    x = target.embed(model.block_ids(torch.tensor(token)))
    window = config.sliding_window or 1 << 30
    for layer in model.draft_layers():
        attention, normed = layer.self_attn, layer.input_layernorm(x)
        rows = torch.cat([context, normed])
        places = torch.cat([torch.arange(anchor), anchor + torch.arange(g)])
        keys, values = attention.keys_values(rows, model.rotary.tables(places, torch.float32))
        queries = attention.q_norm(attention.q_proj(normed).view(g, config.num_attention_heads, config.head_dim))
        queries = model.rotary.rotate(queries, model.rotary.tables(places[anchor:], torch.float32))
        group = config.num_attention_heads // config.num_key_value_heads
        mixed = torch.zeros(g, config.num_attention_heads, config.head_dim)
        for slot in range(g):
            seen = [
                key for key in range(anchor + g) if key >= anchor or anchor + slot - window < int(places[key]) < anchor
            ]
            for head in range(config.num_attention_heads):
                scores = keys[seen, head // group] @ queries[slot, head] * config.head_dim**-0.5
                mixed[slot, head] = torch.softmax(scores, -1) @ values[seen, head // group]
        x = x + attention.o_proj(mixed.flatten(1))
        x = x + layer.mlp(layer.post_attention_layernorm(x))
    return model.norm(x)


@pytest.mark.parametrize("window", [None, *WINDOWS])
@torch.no_grad()
def test_training_form_sees_the_keys_of_the_definition(window: int | None) -> None:
    """Anchors side by side, one without context, some with less than a window of it."""
    model, target = pair(window)
    features, anchors = features_of(model, LENGTH), torch.tensor([0, 1, 4, 9, 17, 23])
    tokens = torch.arange(len(anchors)) + 3
    keys = torch.arange(LENGTH)[None]
    cache = model.context_keys_values(model.context(features[None]), keys)
    hidden = model.blocks(target.embed(model.block_ids(tokens))[None], anchors[None], cache, keys)[0]
    expected = [brute_force(model, target, features, int(a), int(t)) for a, t in zip(anchors, tokens, strict=True)]
    torch.testing.assert_close(hidden, torch.stack(expected), atol=2e-5, rtol=0)


@pytest.mark.parametrize("page_size", [1, 4, 16])
@pytest.mark.parametrize("window", WINDOWS)
@torch.no_grad()
def test_serving_round_by_round(window: int, page_size: int) -> None:
    """Context grows by a few rows a round; each round's first logits are those of the definition."""
    model, target = pair(window)
    user = PagedUser(DSparkDrafter(model, target), page_size=page_size)
    features, done = features_of(model, 40), 0
    for number, start in enumerate([0, 1, 4, 5, 9, 16, 17, 33, 40]):
        user.commit("a", features[done:start], start=done)
        done, sampler = start, RecordingSampler()
        user.propose(["a"], [number], [start], sampler)
        hidden = brute_force(model, target, features, start, number)
        bias = model.markov_head.markov_w2(model.markov_head.embed(torch.tensor(number)))
        expected = target.lm_head(hidden[0]) + bias
        torch.testing.assert_close(sampler.logits[0][0], expected, atol=5e-5, rtol=0)


@pytest.mark.parametrize("tile_bytes", [1, 20_000, 1 << 22])
@torch.no_grad()
def test_ragged_batch_over_pages(tile_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Contexts far shorter and far longer than the window in one batch."""
    monkeypatch.setattr("dspark.drafters.dspark.block_plan._TILE_BYTES", tile_bytes)
    model, target = pair(6)
    user, lens = PagedUser(DSparkDrafter(model, target)), [40, 0, 3, 77, 6, 7, 40, 21]
    names = [f"r{i}" for i in range(len(lens))]
    for seed, (name, length) in enumerate(zip(names, lens, strict=True)):
        user.commit(name, features_of(model, length, seed))
    together = RecordingSampler()
    user.propose(names, range(len(lens)), lens, together)
    for row, (name, length) in enumerate(zip(names, lens, strict=True)):
        alone = RecordingSampler()
        user.propose([name], [row], [length], alone)
        for ours, theirs in zip(together.logits, alone.logits, strict=True):
            torch.testing.assert_close(ours[row], theirs[0], atol=1e-5, rtol=0)


@torch.no_grad()
def test_pages_before_the_window_are_not_read() -> None:
    """A long context costs no more pages than a window, and NaN in the pages before it reaches nothing."""
    model, target = pair(6)
    outcomes = []
    for spoil in (False, True):
        user, sampler = PagedUser(DSparkDrafter(model, target)), RecordingSampler()
        user.commit("long", features_of(model, 101))
        user.commit("short", features_of(model, 2, seed=2))
        if spoil:
            with torch.inference_mode():
                user.drafter._store.pages[:, :, :, user.tables["long"][: (101 - 5) // 4]] = float("nan")
        user.propose(["long", "short"], [3, 4], [101, 2], sampler)
        outcomes.append(torch.stack(sampler.logits))
    torch.testing.assert_close(outcomes[0], outcomes[1], atol=0, rtol=0)
    plan = user.drafter._planner.plan(torch.arange(26)[None], (101,))
    assert plan.tiles[0].pages.tolist() == [24, 25, 0]  # positions 96 .. 106, the last page not there yet
