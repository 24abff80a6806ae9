"""Eagle3: the reference's numbers (tests/golden/README.md), in training form and through the drafter over pages."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from dspark.drafters import Eagle3Drafter, load_drafter
from dspark.drafters.eagle3 import load_checkpoint

from .eagle3_standin import GOLDEN, TextUser
from .standin import RecordingSampler, golden_target

BOUND = json.loads((GOLDEN / "meta.json").read_text())["tolerance_abs_fp32"]["features_hidden_logits"]


@pytest.fixture(scope="module")
def io() -> dict[str, Tensor]:
    return load_file(GOLDEN / "eagle3" / "io.safetensors")


def assert_near(got: Tensor, expected: Tensor) -> None:
    assert got.shape == expected.shape
    assert (got - expected).abs().max().item() <= BOUND


def test_every_step_of_training_form(io: dict[str, Tensor]) -> None:
    """All rows at once: fused features, outputs and logits of every step."""
    model, target = load_checkpoint(GOLDEN / "eagle3").model, golden_target(GOLDEN)
    steps, rows = model.config.ttt_length, io["input_ids"].shape[1]
    ids = torch.stack([io[f"step{step}.input_ids"] for step in range(steps)], dim=2)
    positions = torch.arange(rows).expand(len(ids), rows)
    with torch.no_grad():
        fused, embedded = model.fuse(io["features"]), target.embed(ids)
        context = model.context(fused, embedded[:, :, 0], positions)
        outputs = model.unroll(fused, embedded, positions, context, positions)
        inside = io["attention_mask"].bool()
        assert_near(fused[inside], io["fc_out"][inside])
        for step, output in enumerate(outputs):
            valid = io[f"step{step}.valid"]
            assert_near(output[valid], io[f"step{step}.hidden"][valid])
            assert_near(target.lm_head(model.norm(output))[valid], io[f"step{step}.logits"][valid])


@pytest.mark.parametrize("page_size", [1, 4, 16])
def test_greedy_chains_over_a_growing_text(io: dict[str, Tensor], page_size: int) -> None:
    """Only new rows are fed each round; older keys and features come from the pages, drafts leave nothing behind."""
    drafter = load_drafter(GOLDEN / "eagle3", golden_target(GOLDEN))
    assert isinstance(drafter, Eagle3Drafter)
    user, ids, done = TextUser(drafter, page_size=page_size), io["chain.output_ids"], 0
    for number, start in enumerate(io["chain.starts"].tolist()):
        user.commit_text("text", io["chain.features"][done:start], ids[done:start], start=done)
        done, sampler = start, RecordingSampler()
        proposal = user.propose(["text"], [int(ids[start])], [start], sampler)
        assert torch.equal(proposal.tokens[0], io["chain.draft_tokens"][number])
        assert_near(torch.stack(sampler.logits, 1)[0], io["chain.draft_logits"][number])
        assert proposal.lengths == (drafter.block_size,)
        assert proposal.probs is proposal.confidence is None


def test_chains_of_all_rounds_in_one_ragged_batch(io: dict[str, Tensor]) -> None:
    user = TextUser(load_drafter(GOLDEN / "eagle3", golden_target(GOLDEN)))
    starts, ids = io["chain.starts"].tolist(), io["chain.output_ids"]
    for start in reversed(starts):
        user.commit_text(str(start), io["chain.features"][:start], ids[:start])
    sampler = RecordingSampler()
    proposal = user.propose(list(map(str, starts)), ids[io["chain.starts"]].tolist(), starts, sampler)
    assert torch.equal(proposal.tokens, io["chain.draft_tokens"])
    assert_near(torch.stack(sampler.logits, 1), io["chain.draft_logits"])


def test_hidden_state_that_yields_the_first_token(io: dict[str, Tensor]) -> None:
    model, target = load_checkpoint(GOLDEN / "eagle3").model, golden_target(GOLDEN)
    for number, start in enumerate(io["chain.starts"].tolist()):
        with torch.no_grad():
            positions = torch.arange(start)[None]
            fused = model.fuse(io["chain.features"][None, :start])
            embedded = target.embed(io["chain.output_ids"][None, 1 : start + 1])
            context = model.context(fused, embedded, positions)
            (output,) = model.unroll(fused[:, -1:], embedded[:, -1:, None], positions[:, -1:], context, positions)
        assert_near(output[0, 0], io["chain.first_hidden"][number])
