"""The reference's numbers (tests/golden/README.md), through the real drafter over shuffled pages."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from dspark.drafters import load_drafter
from dspark.drafters.dspark import load_checkpoint

from .standin import PagedUser, RecordingSampler, golden_target

VARIANTS = ["vanilla", "gated", "rnn", "dflash", "vanilla_conf_nomarkov"]


@pytest.fixture(params=VARIANTS)
def variant(request: pytest.FixtureRequest, golden: Path) -> Path:
    return golden / "dspark" / request.param


@pytest.fixture
def io(variant: Path) -> dict[str, Tensor]:
    return load_file(variant / "io.safetensors")


@pytest.fixture(scope="module")
def tolerance() -> dict[str, float]:
    meta = Path(__file__).parents[1] / "golden" / "meta.json"
    return json.loads(meta.read_text())["tolerance_abs_fp32"]


def assert_near(got: Tensor, expected: Tensor, bound: float) -> None:
    assert got.shape == expected.shape
    assert (got - expected).abs().max().item() <= bound


def confidence_logits(probabilities: Tensor | None) -> Tensor:
    assert probabilities is not None
    return torch.logit(probabilities)


def test_training_form_reproduces_every_stage(
    variant: Path, io: dict[str, Tensor], golden: Path, tolerance: dict[str, float]
) -> None:
    """All anchors side by side: context, residual stream after each layer, hidden, logits, confidence."""
    model, target, bound = load_checkpoint(variant).model, golden_target(golden), tolerance["features_hidden_logits"]
    layer_outputs: list[Tensor] = []
    for layer in model.layers:
        layer.register_forward_hook(lambda _module, _inputs, output: layer_outputs.append(output[0]))
    with torch.no_grad():
        context = model.context(io["features"][None])
        keys = torch.arange(context.shape[1])[None]
        ids = model.block_ids(io["anchor_tokens"])[None]
        cache = model.context_keys_values(context, keys)
        hidden = model.blocks(target.embed(ids), io["anchors"][None], cache, keys)[0]
        base = target.lm_head(hidden)
    assert torch.equal(ids[0], io["block_ids"])
    assert_near(context[0], io["ctx_features"], bound)
    for index, output in enumerate(layer_outputs):
        assert_near(output, io[f"layer_out.{index}"], bound)
    assert_near(hidden, io["hidden"], bound)
    assert_near(base, io["base_logits"], bound)
    if model.markov_head is None:
        return
    with torch.no_grad():
        embedded = model.markov_head.embed(io["prev_tokens"])
        bias = model.markov_head.markov_w2(model.markov_head.codes(embedded, hidden))
        confidence = model.confidence_head(hidden, embedded)
    assert_near(base + bias, io["logits_tf"], bound)
    assert_near(confidence, io["conf_logits_tf"], tolerance["confidence_logits"])


def test_greedy_drafts_of_all_anchors_in_one_ragged_batch(
    variant: Path, io: dict[str, Tensor], golden: Path, tolerance: dict[str, float]
) -> None:
    """Requests whose contexts end at the golden anchors (one has none) give the golden drafts."""
    user = PagedUser(load_drafter(variant, golden_target(golden)), page_size=4)
    names = [f"r{anchor}" for anchor in io["anchors"].tolist()]
    for name, anchor in zip(names, io["anchors"].tolist(), strict=True):
        user.commit(name, io["features"][:anchor])
    sampler = RecordingSampler()
    proposal = user.propose(names, io["anchor_tokens"].tolist(), io["anchors"].tolist(), sampler)
    assert torch.equal(proposal.tokens, io["draft_tokens"])
    assert_near(torch.stack(sampler.logits, 1), io["draft_logits"], tolerance["features_hidden_logits"])
    assert proposal.lengths == (user.drafter.block_size,) * len(names)
    assert proposal.probs is None
    assert (proposal.confidence is not None) == user.drafter.has_confidence == ("draft_conf_logits" in io)
    if user.drafter.has_confidence:
        got = confidence_logits(proposal.confidence)
        assert_near(got, io["draft_conf_logits"], tolerance["confidence_logits"])


@pytest.mark.parametrize("page_size", [1, 4, 16])
def test_incremental_rounds(
    variant: Path, io: dict[str, Tensor], golden: Path, tolerance: dict[str, float], page_size: int
) -> None:
    """Only new features are fed each round; older keys come from the pages, blocks leave nothing behind."""
    user = PagedUser(load_drafter(variant, golden_target(golden)), page_size=page_size)
    done = 0
    for number, start in enumerate(io["inc.starts"].tolist()):
        user.commit("text", io["features"][done:start], start=done)
        done, sampler = start, RecordingSampler()
        proposal = user.propose(["text"], [int(io["inc.anchor_tokens"][number])], [start], sampler)
        assert torch.equal(proposal.tokens[0], io["inc.draft_tokens"][number])
        logits = torch.stack(sampler.logits, 1)[0]
        assert_near(logits, io["inc.draft_logits"][number], tolerance["features_hidden_logits"])
        if proposal.confidence is not None:
            got = confidence_logits(proposal.confidence)[0]
            assert_near(got, io["inc.draft_conf_logits"][number], tolerance["confidence_logits"])
