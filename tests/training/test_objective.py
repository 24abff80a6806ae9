"""Losses, masks, acceptance estimates and gradients of the golden data."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from dspark.core import InputError
from dspark.drafters.dspark import DSparkConfig, DSparkModel
from dspark.training.batches import DraftTrainingBatch, anchor_candidates, slots_that_count
from dspark.training.forward import FrozenTarget, PassResult, training_pass
from dspark.training.metrics import acceptance
from dspark.training.objective import LossWeights, slot_weights

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
            teacher_hidden=io["target_last_hidden"][rows, spans[..., :-1]],
            log_z=torch.zeros(*spans.shape[:2], g),
            mask=io["eval_mask"].bool(),
        )

    def run(self) -> PassResult:
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
    for name, value in (("ce", result.ce), ("l1", result.tv), ("total", result.loss.detach())):
        assert float(value) == pytest.approx(float(golden.io[f"loss.{name}"]), abs=TOLERANCE["losses"])
    if golden.model.confidence_head is not None:
        assert float(result.confidence) == pytest.approx(float(golden.io["loss.conf"]), abs=TOLERANCE["losses"])


def test_acceptance_rates(golden: Golden) -> None:
    result = golden.run()
    expected = golden.io["accept_rate"][result.mask]
    assert (result.terms.accept - expected).abs().max() <= TOLERANCE["accept_rates"]
    grid = torch.zeros(result.mask.shape).masked_scatter_(result.mask, result.terms.accept)
    estimate = acceptance(grid.flatten(0, 1), result.mask.flatten(0, 1))
    assert estimate.tau == pytest.approx(float(golden.io["tau_probabilistic"]), abs=1e-4)


def test_gradients(golden: Golden) -> None:
    golden.model.zero_grad()
    golden.run().loss.backward()
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


def test_reduced_vocabulary_matches_dense_autograd() -> None:
    """Loss and gradients over a part of the vocabulary equal those of a plain dense computation."""
    from dspark.training.objective import Teacher, vocabulary_loss

    torch.manual_seed(0)
    n, d, r, v = 300, 16, 4, 40
    vocabulary = torch.arange(0, v, 2)
    full_head, w2 = torch.randn(v, d), torch.randn(len(vocabulary), r, requires_grad=True)
    hidden = torch.randn(n, d, requires_grad=True)
    code, teacher_hidden = torch.randn(n, r), torch.randn(n, d)
    labels = torch.randint(-1, len(vocabulary), (n,))
    weights = torch.rand(n)
    factors = LossWeights(ce=0.3, kl=0.7, tv=0.4)

    logits = hidden @ full_head[vocabulary].T + code @ w2.T
    draft = torch.log_softmax(logits, -1)
    target = torch.softmax(teacher_hidden @ full_head.T, -1)
    inside = target[:, vocabulary]
    ce = -draft.gather(1, labels.clamp_min(0)[:, None])[:, 0] * (labels >= 0)
    tv = (draft.exp() - inside).abs().sum(-1) + 1 - inside.sum(-1)
    dense = (weights * (0.3 * ce - 0.7 * (inside * draft).sum(-1) + 0.4 * tv)).sum()
    expected = torch.autograd.grad(dense, (hidden, w2))

    log_z = torch.logsumexp(teacher_hidden @ full_head.T, -1)
    teacher = Teacher(hidden=teacher_hidden, labels=labels, log_z=log_z)
    loss, terms = vocabulary_loss(hidden, code, full_head[vocabulary], w2, teacher, weights, factors)
    got = torch.autograd.grad(loss, (hidden, w2))
    assert loss.item() == pytest.approx(dense.item(), rel=1e-5)
    assert torch.allclose(terms.tv, tv.detach(), atol=1e-5)
    for a, b in zip(got, expected, strict=True):
        assert torch.allclose(a, b, atol=1e-4)


@pytest.mark.parametrize("wrong", [{"ce": -1.0}, {"tv": float("nan")}, {"decay": 0.0}])
def test_wrong_weights_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InputError):
        LossWeights(**wrong)
