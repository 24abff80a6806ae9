"""The chunked losses are those of a plain computation, in a third of the memory."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from dspark.drafters.dspark import HeadType
from dspark.drafters.dspark.objective import DSparkObjective
from dspark.drafters.losses import FrozenTarget, LossSums, LossWeights, Teacher, vocabulary_loss
from dspark.training.memory_scale import MemoryScale

from .dense_loss import dense_vocabulary_loss
from .practice import Captured, batch_of, config_for, family_target, frozen
from .standin import random_model

ALL_TERMS = LossWeights(ce=0.3, kl=0.7, tv=0.4, confidence=0.5)
WORDS = torch.arange(1, 97, 2)


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dspark.drafters.losses.vocabulary.CHUNK_ROWS", 16)


def plain_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dspark.drafters.dspark.objective.vocabulary_loss", dense_vocabulary_loss)


def seen_by(log_z_of: Tensor, hidden: int, softcap: float | None) -> Captured:
    """Random features and hidden states; logits from the head [V, D] as the target has it."""
    generator = torch.Generator().manual_seed(4)
    last = torch.randn(3, 19, hidden, generator=generator)
    logits = last @ log_z_of.T
    return Captured(
        ids=torch.randint(97, (3, 19), generator=generator),
        features=torch.randn(3, 19, 2 * hidden, generator=generator),
        last_hidden=last,
        logits=logits if softcap is None else softcap * torch.tanh(logits / softcap),
    )


def doubled(target: FrozenTarget) -> FrozenTarget:
    names = ("embedding", "head", "feature_scale")
    return replace(target, **{name: getattr(target, name).double() for name in names})


def gradients(objective: DSparkObjective, batch: Any) -> tuple[LossSums, dict[str, Tensor]]:
    """Sums, and gradients of the mean loss."""
    sums = objective(batch)
    (sums.loss / sums.weight).backward()
    return sums, {name: weight.grad for name, weight in objective.model.named_parameters()}


@pytest.mark.parametrize("softcap", [None, 3.0], ids=["no cap", "cap"])
@pytest.mark.parametrize("reduced", [False, True], ids=["all words", "some words"])
@pytest.mark.parametrize("head", list(HeadType))
def test_a_step_equals_plain_float64(
    head: HeadType, reduced: bool, softcap: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loss, terms and the gradient of every weight, for all heads with all terms at once."""
    target = family_target("qwen3")
    has_head = head is not HeadType.NONE
    config = config_for(
        target,
        head_type=head,
        markov_rank=8 if has_head else 0,
        enable_confidence_head=has_head,
        draft_vocab_size=len(WORDS) if reduced else None,
    )
    borrowed = replace(frozen(target, config, WORDS if reduced else None), logit_softcap=softcap)
    model, seen = random_model(config), seen_by(target.lm_head_weight(), config.hidden_size, softcap)
    batch = batch_of(seen, torch.tensor([[0, 4, 5], [2, 3, 17], [9, 10, 11]]), config.block_size)
    sums, got = gradients(DSparkObjective(model, borrowed, ALL_TERMS), batch)
    plain_loss(monkeypatch)
    wide_batch = replace(batch, features=batch.features.double(), teacher_hidden=batch.teacher_hidden.double())
    wide = DSparkObjective(copy.deepcopy(model).double(), doubled(borrowed), ALL_TERMS)
    wide.model.zero_grad()
    expected_sums, expected = gradients(wide, wide_batch)
    ours, theirs = (float((each.loss / each.weight).detach()) for each in (sums, expected_sums))
    assert ours == pytest.approx(theirs, abs=1e-5)
    for name, term in sums.terms.items():
        assert float(term / sums.weight) == pytest.approx(float(expected_sums.terms[name] / sums.weight), abs=1e-5)
    torch.testing.assert_close(sums.accept.double(), expected_sums.accept.double(), atol=1e-5, rtol=0)
    assert torch.equal(sums.hit, expected_sums.hit.float())
    for name, gradient in expected.items():
        torch.testing.assert_close(got[name].double(), gradient, atol=1e-5, rtol=0, msg=name)


@pytest.mark.parametrize("factors", [LossWeights(ce=1, tv=0), LossWeights(ce=0, kl=1, tv=0), LossWeights(ce=0, tv=1)])
@pytest.mark.parametrize("softcap", [None, 2.0])
def test_each_term_alone(factors: LossWeights, softcap: float | None) -> None:
    """Against float64, where the draft vocabulary holds a part of the target's mass and labels may be outside it."""
    generator = torch.Generator().manual_seed(0)

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    hidden, code, head, w2 = (random(50, 16) * 0.5, random(50, 4), random(40, 16), random(40, 4))
    labels = torch.randint(-1, 40, (50,), generator=generator)
    rows, weights = torch.randint(12, (50,), generator=generator), torch.rand(50, generator=generator) / 50
    teacher = Teacher(random(12, 16), labels, torch.full((12,), 12.0), rows)
    results = []
    for loss_of, dtype in ((vocabulary_loss, torch.float32), (dense_vocabulary_loss, torch.float64)):
        leaves = [tensor.to(dtype).requires_grad_() for tensor in (hidden, code, w2)]
        side = teacher._replace(hidden=teacher.hidden.to(dtype), log_z=teacher.log_z.to(dtype))
        loss, _ = loss_of(
            leaves[0], leaves[1], head.to(dtype), leaves[2], side, weights.to(dtype), factors, softcap=softcap
        )
        results.append([loss.detach().double(), *(g.double() for g in torch.autograd.grad(loss, leaves))])
    for got, expected in zip(*results, strict=True):
        torch.testing.assert_close(got, expected, atol=1e-5, rtol=0)


def test_order_of_slots_and_repeats_of_teacher_rows_do_not_matter() -> None:
    generator = torch.Generator().manual_seed(0)
    hidden, head = torch.randn(40, 8, generator=generator), torch.randn(30, 8, generator=generator)
    states, rows = torch.randn(7, 8, generator=generator), torch.randint(7, (40,), generator=generator)
    labels, weights = torch.randint(30, (40,), generator=generator), torch.rand(40, generator=generator)
    shared = vocabulary_loss(hidden, None, head, None, Teacher(states, labels, None, rows), weights, ALL_TERMS)
    single = vocabulary_loss(hidden, None, head, None, Teacher(states[rows], labels, None), weights, ALL_TERMS)
    torch.testing.assert_close(shared[0], single[0])
    for one, other in zip(shared[1], single[1], strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=0)


def test_same_terms_without_gradients_and_under_autocast() -> None:
    """Validation runs without gradients; autocast must not touch the float32 part."""
    generator = torch.Generator().manual_seed(0)
    hidden, head = torch.randn(40, 8, generator=generator), torch.randn(30, 8, generator=generator)
    teacher = Teacher(torch.randn(40, 8, generator=generator), torch.randint(30, (40,), generator=generator), None)
    args = (None, head, None, teacher, torch.ones(40), ALL_TERMS)
    with_gradient = vocabulary_loss(hidden.requires_grad_(), *args)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        without = vocabulary_loss(hidden, *args)
    assert not without[0].requires_grad
    for one, other in zip(with_gradient[1], without[1], strict=True):
        assert torch.equal(one, other)


def peak_of(run: Callable[[], object]) -> int:
    with MemoryScale() as scale:
        run()
    return scale.peak


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_peak_memory_of_a_step_is_a_third(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """One forward and backward of a whole drafter, 840 slots of 2 texts, 5,000 words, all terms."""
    monkeypatch.undo()  # chunks of their real size
    target = family_target("qwen3")
    words, width = 5000, target.facts.hidden_size
    config = config_for(target, vocab_size=words, block_size=7)
    generator = torch.Generator().manual_seed(4)
    head = torch.randn(words, width, generator=generator)
    borrowed = FrozenTarget(
        embedding=head.to(dtype),
        head=head.to(dtype),
        to_draft=torch.arange(words),
        feature_scale=torch.ones(2 * width, dtype=dtype),
        full_vocabulary=True,
    )
    seen = Captured(
        ids=torch.randint(words, (2, 128), generator=generator),
        features=torch.randn(2, 128, 2 * width, generator=generator),
        last_hidden=torch.randn(2, 128, width, generator=generator),
        logits=torch.zeros(2, 128, 1),
    )
    batch = batch_of(seen, torch.arange(60).repeat(2, 1), 7)
    objective = DSparkObjective(random_model(config), borrowed, ALL_TERMS)

    def step() -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype is torch.bfloat16):
            sums = objective(batch)
        sums.loss.backward()
        objective.zero_grad(set_to_none=True)

    chunked = peak_of(step)
    plain_loss(monkeypatch)
    dense = peak_of(step)
    print(f"peak of a step: {chunked / 1e6:.1f} MB chunked, {dense / 1e6:.1f} MB plain ({chunked / dense:.2f})")
    assert chunked <= dense / 3
