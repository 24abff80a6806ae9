"""What must hold for Eagle3 over pages: isolation, batch independence, contexts that depend on what they hold only."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from dspark.core import CommittedRows
from dspark.drafters import Eagle3Drafter
from dspark.drafters.eagle3 import Eagle3Model

from .eagle3_standin import TextUser, config_of, random_model, setup_of, text_of, user_of
from .standin import RecordingSampler, ReplaySampler, StandInTarget, random_target

CONFIG = config_of()


def assert_same_numbers(ours: RecordingSampler, theirs: RecordingSampler, row: int = 0, other: int = 0) -> None:
    for mine, yours in zip(ours.logits, theirs.logits, strict=True):
        torch.testing.assert_close(mine[row], yours[other], atol=1e-5, rtol=0)


def unrolled_logits(
    model: Eagle3Model, target: StandInTarget, features: Tensor, ids: Tensor, read: list[int]
) -> Tensor:
    """Logits [1, G, V] of the training form after a text, reading the anchor and the drafts after it."""
    positions = torch.arange(len(ids))[None]
    with torch.no_grad():
        fused = model.fuse(features[None])
        following = torch.cat([ids[1:], torch.tensor(read[:1])])
        context = model.context(fused, target.embed(following[None]), positions)
        steps = target.embed(torch.tensor(read))[None, None]
        outputs = model.unroll(fused[:, -1:], steps, positions[:, -1:], context, positions)
        return target.lm_head(model.norm(torch.cat(outputs, dim=1)))


@pytest.mark.parametrize("heads", [(4, 2, 8), (6, 1, 4), (2, 2, 16)])
def test_serving_form_equals_training_form(heads: tuple[int, int, int]) -> None:
    names = ("num_attention_heads", "num_key_value_heads", "head_dim")
    model, target = setup_of(**dict(zip(names, heads, strict=True)))
    user = TextUser(Eagle3Drafter(model, target))
    features, ids = text_of(model.config, 17)
    user.commit_text("a", features[:6], ids[:6])
    user.commit_text("a", features[6:], ids[6:], start=6)
    sampler = RecordingSampler()
    proposal = user.propose(["a"], [3], [17], sampler)
    expected = unrolled_logits(model, target, features, ids, [3, *proposal.tokens[0, :-1].tolist()])
    torch.testing.assert_close(torch.stack(sampler.logits, 1), expected, atol=2e-5, rtol=0)


@pytest.mark.pitfall(8)
@pytest.mark.parametrize("tile_pages", [1, 14, 512])
def test_ragged_batch_equals_one_by_one(tile_pages: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Contexts of very different length, in any order, in one tile, several tiles, or a tile each."""
    monkeypatch.setattr("dspark.drafters.eagle3.chain_plan._TILE_PAGES", tile_pages)
    user, lens = user_of(), [9, 2, 33, 4, 21, 4, 1]
    names = [f"r{i}" for i in range(len(lens))]
    for seed, (name, length) in enumerate(zip(names, lens, strict=True)):
        user.commit_text(name, *text_of(CONFIG, length, seed))
    together = RecordingSampler()
    batch = user.propose(names, range(len(lens)), lens, together)
    for row, (name, length) in enumerate(zip(names, lens, strict=True)):
        alone = user.drafted(name, row, length)
        assert torch.equal(batch.tokens[row], torch.cat(alone.tokens))
        assert_same_numbers(together, alone, row)


@pytest.mark.pitfall(23)
def test_pages_of_a_former_request_leave_no_trace() -> None:
    fresh, used = user_of(), user_of()
    features, ids = text_of(CONFIG, 10)
    old, old_ids = text_of(CONFIG, 250, seed=9)
    used.commit_text("old", 50.0 * old, old_ids)
    used.release("old")
    samplers = []
    for user in (fresh, used):
        user.commit_text("new", features, ids)
        samplers.append(user.drafted("new", 5, 10))
    assert_same_numbers(*samplers)


@pytest.mark.pitfall(23)
@pytest.mark.parametrize("length", [1, 4, 10])
def test_slots_never_written_may_hold_nan(length: int) -> None:
    """NaN anywhere outside the contexts reaches no number, in a ragged batch and for a chain past the last page."""
    clean, dirty = user_of(), user_of()
    with torch.inference_mode():
        dirty.drafter._store.pages.fill_(float("nan"))
        dirty.drafter._features.fill_(float("nan"))
    samplers = []
    for user in (clean, dirty):
        user.commit_text("a", *text_of(CONFIG, length))
        user.commit_text("b", *text_of(CONFIG, 30, seed=2))
        samplers.append(RecordingSampler())
        user.propose(["a", "b"], [5, 6], [length, 30], samplers[-1])
    assert_same_numbers(*samplers, row=0)
    assert_same_numbers(*samplers, row=1, other=1)


@pytest.mark.pitfall(24)
@pytest.mark.parametrize("length", [1, 3, 4, 7, 11])
def test_drafting_writes_nothing_into_the_context(length: int) -> None:
    user = user_of()
    user.commit_text("a", *text_of(CONFIG, length))
    before = user.drafter._store.pages.clone(), user.drafter._features.clone()
    user.drafted("a", 5, length)
    assert torch.equal(user.drafter._store.pages, before[0])
    assert torch.equal(user.drafter._features, before[1])


@pytest.mark.pitfall(10)
def test_repeated_drafts_are_identical() -> None:
    user = user_of()
    user.commit_text("a", *text_of(CONFIG, 6))
    drafts = [user.drafts(["a"], [5], [6]).tokens for _ in range(20)]
    assert all(torch.equal(draft, drafts[0]) for draft in drafts)


@pytest.mark.pitfall(21)
@pytest.mark.parametrize("chunks", [[23], [16, 7], [4, 4, 4, 4, 7], [1] * 23])
def test_context_written_in_chunks_is_the_same_context(chunks: list[int]) -> None:
    user, (features, ids) = user_of(), text_of(CONFIG, 23)
    user.commit_text("whole", features, ids)
    done = 0
    for chunk in chunks:
        user.commit_text("parts", features[done : done + chunk], ids[done : done + chunk], start=done)
        done += chunk
    sampler = RecordingSampler()
    user.propose(["whole", "parts"], [5, 5], [23, 23], sampler)
    assert_same_numbers(sampler, sampler, row=0, other=1)


@pytest.mark.pitfall(21)
def test_shared_pages_serve_texts_that_go_on_differently() -> None:
    """What full pages hold must not depend on the token after them: only some of it is known when they are shared."""
    user = user_of()
    features, ids = text_of(CONFIG, 14)
    user.commit_text("first", features[:12], ids[:12])
    for name, seed in (("one", 3), ("two", 4)):
        other, other_ids = text_of(CONFIG, 6, seed)
        mine, my_ids = torch.cat([features[:8], other]), torch.cat([ids[:8], other_ids])
        user.commit_text(f"{name} alone", mine, my_ids)
        user.tables[f"{name} hit"] = user.tables["first"][:2]
        user.commit_text(f"{name} hit", other, other_ids, start=8)
    sampler, names = RecordingSampler(), ["one alone", "one hit", "two alone", "two hit"]
    user.propose(names, [5] * 4, [14] * 4, sampler)
    assert_same_numbers(sampler, sampler, row=0, other=1)
    assert_same_numbers(sampler, sampler, row=2, other=3)
    assert not torch.allclose(sampler.logits[0][0], sampler.logits[0][2], atol=1e-2)


def test_rolled_back_rows_are_overwritten() -> None:
    user, (features, ids) = user_of(), text_of(CONFIG, 12)
    user.commit_text("a", *text_of(CONFIG, 20, seed=8))
    user.commit_text("a", features, ids)
    user.commit_text("b", features, ids)
    sampler = RecordingSampler()
    user.propose(["a", "b"], [5, 5], [12, 12], sampler)
    assert_same_numbers(sampler, sampler, row=0, other=1)


def test_shorter_limits_cut_the_same_chain() -> None:
    user = user_of()
    user.commit_text("a", *text_of(CONFIG, 8))
    user.commit_text("b", *text_of(CONFIG, 3, seed=4))
    full, short = RecordingSampler(), RecordingSampler()
    whole = user.propose(["a", "b"], [5, 6], [8, 3], full)
    part = user.propose(["a", "b"], [5, 6], [8, 3], short, max_lens=[1, 3])
    assert (part.lengths, part.tokens.shape) == ((1, 3), (2, 3))
    assert torch.equal(part.tokens, whole.tokens[:, :3])
    assert user.propose(["a"], [5], [8], RecordingSampler(), max_lens=[99]).lengths == (5,)


def test_probabilities_are_those_the_sampler_reports() -> None:
    user = user_of()
    user.commit_text("a", *text_of(CONFIG, 8))
    sampler = RecordingSampler(temperature=0.7)
    proposal = user.propose(["a"], [5], [8], sampler)
    assert torch.equal(proposal.probs, torch.stack(sampler.probs, 1))
    assert torch.equal(proposal.tokens, torch.stack(sampler.tokens, 1))


def test_reduced_vocabulary() -> None:
    """Draft logits are those of the full drafter at the mapped ids; tokens and feedback are target ids."""
    ids = torch.randperm(61, generator=torch.Generator().manual_seed(2))[:25]
    full, reduced = random_model(CONFIG), random_model(config_of(draft_vocab_size=25))
    target = random_target(CONFIG.layer_shape)
    small = TextUser(Eagle3Drafter(reduced, target, draft_to_target=ids))
    big = TextUser(Eagle3Drafter(full, target))
    features, text = text_of(CONFIG, 9)
    small.commit_text("a", features, text)
    big.commit_text("a", features, text)
    sampler = RecordingSampler(temperature=1.0)
    proposal = small.propose(["a"], [5], [9], sampler)
    assert torch.equal(proposal.draft_to_target, ids)
    assert torch.equal(proposal.tokens[0], ids[torch.cat(sampler.tokens)])
    assert proposal.probs.shape == (1, 5, 25)

    replay = ReplaySampler(proposal.tokens)
    big.propose(["a"], [5], [9], replay)
    for ours, theirs in zip(sampler.logits, replay.logits, strict=True):
        torch.testing.assert_close(ours, theirs[:, ids], atol=1e-5, rtol=0)


def test_bfloat16_stays_near_float32() -> None:
    model, target = setup_of()
    half = StandInTarget(embedding=target.embedding.bfloat16(), head=target.head.bfloat16(), facts=target.facts)
    samplers = []
    for chosen in (target, half):
        user = TextUser(Eagle3Drafter(model, chosen))
        user.commit_text("a", *text_of(CONFIG, 12))
        samplers.append(user.drafted("a", 3, 12))
    first, second = (sampler.logits[0] for sampler in samplers)
    assert (first - second).abs().max() < 0.05 * first.abs().max()
    assert model.fc.weight.dtype == torch.float32
    assert model.fc.weight.requires_grad


def test_facts_for_the_engine() -> None:
    user = user_of()
    drafter = user.drafter
    facts = (drafter.name, drafter.block_size, drafter.tap_layers, drafter.has_confidence)
    assert facts == ("eagle3", 5, (1, 3), False)
    held = sum(t.numel() * t.element_size() for t in (drafter._store.pages, drafter._features))
    assert drafter.context_bytes_per_page(4) * user.num_pages == held


def test_no_rows_to_observe() -> None:
    empty = torch.empty(0, dtype=torch.int64)
    rows = CommittedRows(
        features=torch.empty(0, 64), positions=empty, kv_slots=empty, token_ids=empty, previous_slots=empty
    )
    user_of().drafter.observe(rows)
