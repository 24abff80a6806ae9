"""What must hold for any DSpark drafter over pages: isolation, batch independence, honest probabilities."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from dspark.core import CommittedRows
from dspark.drafters import DSparkDrafter
from dspark.drafters.dspark import DSparkConfig, DSparkModel, HeadType

from .standin import PagedUser, RecordingSampler, ReplaySampler, StandInTarget, config_of, random_model, random_target

HEADS = list(HeadType)


def setup_of(head: HeadType = HeadType.VANILLA, **changes: Any) -> tuple[DSparkModel, StandInTarget]:
    rank = 0 if head is HeadType.NONE else 6
    sizes = {"head_type": head, "markov_rank": rank, "enable_confidence_head": rank > 0} | changes
    config = config_of(**sizes)
    return random_model(config), random_target(config)


def user_of(head: HeadType = HeadType.VANILLA, **changes: Any) -> PagedUser:
    return PagedUser(DSparkDrafter(*setup_of(head, **changes)))


def features_of(config: DSparkConfig, rows: int, seed: int = 1) -> Tensor:
    width = len(config.target_layer_ids) * config.hidden_size
    return torch.randn(rows, width, generator=torch.Generator().manual_seed(seed))


def assert_same_numbers(ours: RecordingSampler, theirs: RecordingSampler, row: int, other: int = 0) -> None:
    for mine, yours in zip(ours.logits, theirs.logits, strict=True):
        torch.testing.assert_close(mine[row], yours[other], atol=1e-5, rtol=0)


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("window", [None, 1, 6])
def test_serving_form_equals_training_form(head: HeadType, window: int | None) -> None:
    """Paged, fused and incremental gives the numbers of the module that is trained, teacher-forced along the draft."""
    model, target = setup_of(head, sliding_window=window)
    user, sampler = PagedUser(DSparkDrafter(model, target)), RecordingSampler()
    features = features_of(model.config, 17)
    user.commit("a", features[:6])
    user.commit("a", features[6:], start=6)
    proposal = user.propose(["a"], [3], [17], sampler)
    with torch.no_grad():
        keys = torch.arange(17)[None]
        cache = model.context_keys_values(model.context(features[None]), keys)
        embedded = target.embed(model.block_ids(torch.tensor([[3]])))
        hidden = model.blocks(embedded, torch.tensor([[17]]), cache, keys)[0]
        logits = target.lm_head(hidden)
        if model.markov_head is not None:
            before = torch.cat([torch.tensor([[3]]), proposal.tokens[:, :-1]], dim=1)
            codes = model.markov_head.codes(model.markov_head.embed(before), hidden)
            logits = logits + model.markov_head.markov_w2(codes)
    torch.testing.assert_close(torch.stack(sampler.logits, 1), logits, atol=2e-5, rtol=0)


@pytest.mark.pitfall(8)
@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("tile_bytes", [1, 20_000, 1 << 22])
def test_ragged_batch_equals_one_by_one(head: HeadType, tile_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Contexts of very different length, in any order, in one tile, several tiles, or a tile each."""
    monkeypatch.setattr("dspark.drafters.dspark.block_plan._TILE_BYTES", tile_bytes)
    user = user_of(head)
    lens = [9, 0, 33, 4, 21, 4, 1]
    names = [f"r{i}" for i in range(len(lens))]
    for seed, (name, length) in enumerate(zip(names, lens, strict=True)):
        user.commit(name, features_of(user.drafter.config, length, seed))
    together = RecordingSampler()
    batch = user.propose(names, range(len(lens)), lens, together)
    for row, (name, length) in enumerate(zip(names, lens, strict=True)):
        alone = RecordingSampler()
        single = user.propose([name], [row], [length], alone)
        assert torch.equal(batch.tokens[row], single.tokens[0])
        assert_same_numbers(together, alone, row)
        if single.confidence is not None:
            torch.testing.assert_close(batch.confidence[row], single.confidence[0], atol=1e-6, rtol=0)


@pytest.mark.pitfall(23)
def test_pages_of_a_former_request_leave_no_trace() -> None:
    """The same text in fresh pages and in pages that held a longer, different text."""
    fresh, used = user_of(), user_of()
    features = features_of(fresh.drafter.config, 10)
    used.commit("old", 50.0 * features_of(used.drafter.config, 250, seed=9))
    used.release("old")
    outcomes = []
    for user in (fresh, used):
        user.commit("new", features)
        sampler = RecordingSampler()
        user.propose(["new"], [5], [10], sampler)
        outcomes.append(sampler)
    assert_same_numbers(*outcomes, row=0)


@pytest.mark.pitfall(23)
@pytest.mark.parametrize("length", [0, 1, 4, 10])
def test_slots_never_written_may_hold_nan(length: int) -> None:
    """NaN anywhere outside the contexts reaches no number, in a ragged batch and for a block past the last page."""
    clean, dirty = user_of(), user_of()
    with torch.inference_mode():
        dirty.drafter._store.pages.fill_(float("nan"))
    outcomes = []
    for user in (clean, dirty):
        user.commit("a", features_of(user.drafter.config, length))
        user.commit("b", features_of(user.drafter.config, 30, seed=2))
        sampler = RecordingSampler()
        proposal = user.propose(["a", "b"], [5, 6], [length, 30], sampler)
        assert proposal.confidence.isfinite().all()
        outcomes.append(sampler)
    assert_same_numbers(*outcomes, row=0)
    assert_same_numbers(*outcomes, row=1, other=1)


@pytest.mark.pitfall(24)
@pytest.mark.parametrize("length", [0, 3, 4, 7, 11])
def test_drafting_writes_nothing_into_the_context(length: int) -> None:
    """Also where the block runs over the last page the request owns: neighbouring pages keep their canaries."""
    user = user_of()
    with torch.inference_mode():
        user.drafter._store.pages.fill_(7.0)
    user.commit("a", features_of(user.drafter.config, length))
    before = user.drafter._store.pages.clone()
    user.propose(["a"], [5], [length], RecordingSampler())
    assert torch.equal(user.drafter._store.pages, before)


@pytest.mark.pitfall(10)
def test_repeated_drafts_are_identical() -> None:
    user = user_of(HeadType.RNN)
    user.commit("a", features_of(user.drafter.config, 6))
    drafts = [user.propose(["a"], [5], [6], RecordingSampler()).tokens for _ in range(20)]
    assert all(torch.equal(draft, drafts[0]) for draft in drafts)


@pytest.mark.pitfall(21)
@pytest.mark.parametrize("chunks", [[23], [16, 7], [4, 4, 4, 4, 7], [1] * 23])
def test_context_written_in_chunks_is_the_same_context(chunks: list[int]) -> None:
    """Recomputing after preemption, or prefilling in other chunks, gives the same draft."""
    user, features = user_of(), features_of(config_of(), 23)
    user.commit("whole", features)
    done = 0
    for chunk in chunks:
        user.commit("parts", features[done : done + chunk], start=done)
        done += chunk
    sampler = RecordingSampler()
    user.propose(["whole", "parts"], [5, 5], [23, 23], sampler)
    assert_same_numbers(sampler, sampler, row=0, other=1)


@pytest.mark.pitfall(21)
def test_shared_prefix_pages_serve_both_requests() -> None:
    """A request that takes over cached full pages and adds its own rows drafts as one that wrote everything."""
    user, config = user_of(), config_of()
    features = features_of(config, 14)
    user.commit("first", features[:12])
    user.commit("own", features)
    user.tables["hit"] = user.tables["first"][:2]
    user.commit("hit", features[8:], start=8)
    sampler = RecordingSampler()
    user.propose(["own", "hit"], [5, 5], [14, 14], sampler)
    assert_same_numbers(sampler, sampler, row=0, other=1)


def test_rolled_back_rows_are_overwritten() -> None:
    """Rows past the anchor (a former, longer context) are neither seen nor in the way."""
    user, config = user_of(), config_of()
    features = features_of(config, 12)
    user.commit("a", features_of(config, 20, seed=8))
    user.commit("a", features)
    user.commit("b", features)
    sampler = RecordingSampler()
    user.propose(["a", "b"], [5, 5], [12, 12], sampler)
    assert_same_numbers(sampler, sampler, row=0, other=1)


@pytest.mark.parametrize("head", HEADS)
def test_shorter_limits_cut_the_same_block(head: HeadType) -> None:
    """All slots enter the backbone whatever the limits, so fewer sampled slots are a prefix of the full draft."""
    user = user_of(head)
    user.commit("a", features_of(user.drafter.config, 8))
    user.commit("b", features_of(user.drafter.config, 3, seed=4))
    full, short = RecordingSampler(), RecordingSampler()
    whole = user.propose(["a", "b"], [5, 6], [8, 3], full)
    part = user.propose(["a", "b"], [5, 6], [8, 3], short, max_lens=[1, 3])
    assert part.lengths == (1, 3)
    assert part.tokens.shape == (2, 3)
    assert torch.equal(part.tokens, whole.tokens[:, :3])
    assert len(short.logits) == 3
    if head is not HeadType.NONE:
        torch.testing.assert_close(part.confidence, whole.confidence[:, :3])


def test_limits_beyond_the_block_give_the_block() -> None:
    user = user_of()
    user.commit("a", features_of(user.drafter.config, 8))
    assert user.propose(["a"], [5], [8], RecordingSampler(), max_lens=[99]).lengths == (5,)


@pytest.mark.pitfall(1)
@pytest.mark.parametrize("head", HEADS)
def test_probabilities_are_the_numbers_drawn_from(head: HeadType) -> None:
    user, sampler = user_of(head), RecordingSampler(temperature=0.7)
    user.commit("a", features_of(user.drafter.config, 8))
    user.commit("b", features_of(user.drafter.config, 5, seed=3))
    proposal = user.propose(["a", "b"], [5, 6], [8, 5], sampler)
    assert torch.equal(proposal.probs, torch.stack(sampler.probs, 1))
    assert torch.equal(proposal.tokens, torch.stack(sampler.tokens, 1))
    assert proposal.probs.dtype == torch.float32


@pytest.mark.pitfall(6)
@pytest.mark.parametrize("head", [HeadType.VANILLA, HeadType.GATED, HeadType.RNN])
@pytest.mark.parametrize("changed", range(5))
def test_confidence_does_not_see_the_token_drawn_at_its_slot(head: HeadType, changed: int) -> None:
    """Another token at slot j changes confidence after j only (and does change it)."""
    user = user_of(head)
    user.commit("a", features_of(user.drafter.config, 8))

    class Forced(RecordingSampler):
        def __call__(self, slot: int, logits: Tensor) -> tuple[Tensor, Tensor | None]:
            drawn, _ = super().__call__(slot, logits)
            return (drawn + 1) % logits.shape[-1] if slot == changed else drawn, None

    plain = user.propose(["a"], [5], [8], RecordingSampler()).confidence[0]
    forced = user.propose(["a"], [5], [8], Forced()).confidence[0]
    assert torch.equal(plain[: changed + 1], forced[: changed + 1])
    assert changed == 4 or not torch.equal(plain[changed + 1 :], forced[changed + 1 :])


@pytest.mark.pitfall(31)
@pytest.mark.parametrize("head", HEADS)
def test_confidence_is_there_exactly_with_a_confidence_head(head: HeadType) -> None:
    for enabled in (False, True):
        user = user_of(head, enable_confidence_head=enabled)
        user.commit("a", features_of(user.drafter.config, 3))
        proposal = user.propose(["a"], [5], [3], RecordingSampler())
        assert user.drafter.has_confidence is enabled
        assert (proposal.confidence is not None) is enabled
        if enabled:
            assert proposal.confidence.dtype == torch.float32
            assert ((proposal.confidence > 0) & (proposal.confidence < 1)).all()


@pytest.mark.parametrize("head", HEADS)
def test_reduced_vocabulary(head: HeadType) -> None:
    """Draft logits are those of the full drafter at the mapped ids; tokens and feedback are target ids."""
    rank = 0 if head is HeadType.NONE else 6
    sizes = {"head_type": head, "markov_rank": rank, "enable_confidence_head": rank > 0}
    full = random_model(config_of(**sizes))
    ids = torch.randperm(61, generator=torch.Generator().manual_seed(2))[:25]
    reduced = DSparkModel(config_of(**sizes, draft_vocab_size=25))
    state = full.state_dict()
    if rank:
        state["markov_head.markov_w2.weight"] = state["markov_head.markov_w2.weight"][ids]
    reduced.load_state_dict(state)
    target = random_target(full.config)
    small = PagedUser(DSparkDrafter(reduced, target, draft_to_target=ids))
    big = PagedUser(DSparkDrafter(full, target))
    features = features_of(full.config, 9)
    small.commit("a", features)
    big.commit("a", features)
    sampler = RecordingSampler(temperature=1.0)
    proposal = small.propose(["a"], [5], [9], sampler)
    assert torch.equal(proposal.draft_to_target, ids)
    assert torch.equal(proposal.tokens[0], ids[torch.cat(sampler.tokens)])
    assert proposal.probs.shape == (1, 5, 25)

    replay = ReplaySampler(proposal.tokens)
    big.propose(["a"], [5], [9], replay)
    for ours, theirs in zip(sampler.logits, replay.logits, strict=True):
        torch.testing.assert_close(ours, theirs[:, ids], atol=1e-5, rtol=0)


def test_one_key_value_head_for_all_query_heads() -> None:
    """Gives the numbers of the training form (see the first test)."""
    model, target = setup_of(HeadType.VANILLA, num_attention_heads=6, num_key_value_heads=1, head_dim=4)
    user, sampler = PagedUser(DSparkDrafter(model, target)), RecordingSampler()
    features = features_of(model.config, 7)
    user.commit("a", features)
    user.propose(["a"], [3], [7], sampler)
    with torch.no_grad():
        keys = torch.arange(7)[None]
        cache = model.context_keys_values(model.context(features[None]), keys)
        hidden = model.blocks(target.embed(model.block_ids(torch.tensor([[3]]))), torch.tensor([[7]]), cache, keys)
        first = target.lm_head(hidden[0, 0, 0]) + model.markov_head.markov_w2(model.markov_head.embed(torch.tensor(3)))
    torch.testing.assert_close(sampler.logits[0][0], first, atol=2e-5, rtol=0)


def test_bfloat16_stays_near_float32() -> None:
    model, target = setup_of(HeadType.GATED)
    half = StandInTarget(embedding=target.embedding.bfloat16(), head=target.head.bfloat16(), facts=target.facts)
    outcomes = []
    for chosen in (target, half):
        user, sampler = PagedUser(DSparkDrafter(model, chosen)), RecordingSampler()
        user.commit("a", features_of(model.config, 12))
        proposal = user.propose(["a"], [3], [12], sampler)
        assert proposal.confidence.dtype == torch.float32
        outcomes.append(sampler.logits[0])
    assert (outcomes[0] - outcomes[1]).abs().max() < 0.05 * outcomes[0].abs().max()


def test_the_trained_model_is_left_alone() -> None:
    """A trainer may build a drafter mid-training: weights, dtype and gradients of its model stay."""
    model, target = setup_of()
    half = StandInTarget(embedding=target.embedding.bfloat16(), head=target.head.bfloat16(), facts=target.facts)
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    DSparkDrafter(model, half)
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())
    assert all(p.dtype == torch.float32 and p.requires_grad for p in model.parameters())


def test_facts_for_the_engine() -> None:
    user = user_of(HeadType.NONE)
    drafter = user.drafter
    assert (drafter.name, drafter.block_size, drafter.tap_layers) == ("dflash", 5, (1, 3))
    assert user_of().drafter.name == "dspark"
    pages = drafter._store.pages
    assert drafter.context_bytes_per_page(4) * user.num_pages == pages.numel() * pages.element_size()


def test_no_rows_to_observe() -> None:
    user = user_of()
    empty = torch.empty(0, dtype=torch.int64)
    user.drafter.observe(CommittedRows(features=torch.empty(0, 64), positions=empty, kv_slots=empty))
