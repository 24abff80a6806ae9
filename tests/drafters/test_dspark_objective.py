"""Losses, masks, acceptance estimates and gradients of the golden data."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from dspark.drafters.dspark import DSparkConfig, DSparkModel
from dspark.drafters.dspark.objective import training_pass
from dspark.drafters.dspark.training_batch import DraftTrainingBatch
from dspark.drafters.losses import FrozenTarget, LossSums, LossWeights, slot_weights
from dspark.training.anchors import anchor_candidates, slots_that_count
from dspark.training.metrics import acceptance

GOLDEN = Path(__file__).parents[1] / "golden"
TOLERANCE = json.loads((GOLDEN / "meta.json").read_text())["tolerance_abs_fp32"]
VARIANTS = ("vanilla", "gated", "rnn", "dflash", "vanilla_conf_nomarkov")


class Golden:
    """One variant's checkpoint and loss batch."""

    def __init__(self, variant: str) -> None:
        folder = GOLDEN / "dspark" / variant
        self.config = DSparkConfig.from_dict(json.loads((folder / "config.json").read_text()))
        weights = load_file(folder / "model.safetensors")
        self.embedding, self.head = weights.pop("embed_tokens.weight"), weights.pop("lm_head.weight")
        self.model = DSparkModel(self.config)
        self.model.load_state_dict(weights)
        self.io = load_file(GOLDEN / "losses" / f"{variant}.safetensors")
        self.grads = load_file(GOLDEN / "losses" / f"{variant}_grads.safetensors")
        ce, tv, confidence, decay = self.io["weights"].tolist()
        self.factors = LossWeights(ce=ce, tv=tv, confidence=confidence, decay=decay)

    def batch(self) -> DraftTrainingBatch:
        io, g = self.io, self.config.block_size
        n, t = io["input_ids"].shape
        spans = (io["anchors"][..., None] + torch.arange(g + 1)).clamp(max=t - 1)
        rows = torch.arange(n)[:, None, None]
        return DraftTrainingBatch(
            features=io["features"].flatten(0, 1),
            positions=torch.arange(t).repeat(n),
            gather=torch.arange(n * t).view(n, t),
            key_positions=torch.arange(t).expand(n, t),
            anchors=io["anchors"],
            tokens=io["input_ids"][rows, spans],
            teacher_hidden=io["target_last_hidden"].flatten(0, 1),
            log_z=torch.zeros(n * t),
            teacher_rows=rows * t + spans[..., :-1],
            mask=io["eval_mask"].bool(),
        )

    def run(self) -> LossSums:
        v, features = self.embedding.shape[0], self.io["features"].shape[-1]
        target = FrozenTarget(
            embedding=self.embedding,
            head=self.head,
            to_draft=torch.arange(v),
            feature_scale=torch.ones(features),
            full_vocabulary=True,
        )
        return training_pass(self.model, self.batch(), target, self.factors)


@pytest.fixture(scope="module", params=VARIANTS)
def golden(request: pytest.FixtureRequest) -> Golden:
    return Golden(request.param)


def test_losses(golden: Golden) -> None:
    result = golden.run()
    assert float(result.weight) == pytest.approx(float(golden.io["loss_weights"].sum()), rel=1e-6)
    for name, value in (("ce", result.terms["ce"]), ("l1", result.terms["tv"]), ("total", result.loss.detach())):
        assert float(value / result.weight) == pytest.approx(float(golden.io[f"loss.{name}"]), abs=TOLERANCE["losses"])
    if golden.model.confidence_head is not None:
        mean = result.terms["confidence"] / result.weight
        assert float(mean) == pytest.approx(float(golden.io["loss.conf"]), abs=TOLERANCE["losses"])


def test_acceptance_rates(golden: Golden) -> None:
    result = golden.run()
    expected = golden.io["accept_rate"].flatten(0, 1)
    assert (result.accept - expected)[result.mask].abs().max() <= TOLERANCE["accept_rates"]
    estimate = acceptance(result.accept, result.mask)
    assert estimate.tau == pytest.approx(float(golden.io["tau_probabilistic"]), abs=1e-4)


def test_gradients(golden: Golden) -> None:
    golden.model.zero_grad()
    result = golden.run()
    (result.loss / result.weight).backward()
    parameters = dict(golden.model.named_parameters())
    for key, expected in golden.grads.items():
        kind, _, name = key.partition(".")
        if kind == "grad":
            assert (parameters[name].grad - expected).abs().max() <= TOLERANCE["gradients"], name
        elif kind == "grad_norm" and name in parameters:
            relative = parameters[name].grad.norm() / expected - 1
            assert abs(float(relative)) <= TOLERANCE["gradient_norms_relative"], name


def test_masks_and_weights(golden: Golden) -> None:
    io, g = golden.io, golden.config.block_size
    for row, length in enumerate(io["seq_lens"].tolist()):
        mask = io["loss_mask"][row, :length].bool().numpy()
        expected = io["anchor_candidates"][row].bool().nonzero()[:, 0].tolist()
        assert anchor_candidates(mask).tolist() == expected
        kept = io["block_keep"][row].bool()
        slots = slots_that_count(mask, io["anchors"][row][kept].numpy(), g)
        assert torch.equal(torch.from_numpy(slots), io["eval_mask"][row][kept].bool())
    weights = slot_weights(io["eval_mask"].bool(), float(io["weights"][3]))
    assert torch.allclose(weights, io["loss_weights"], atol=1e-6)
