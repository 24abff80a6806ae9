"""The shared losses against plain dense computations."""

from __future__ import annotations

import pytest
import torch

from dspark.core import InputError
from dspark.drafters.losses import LossWeights, Teacher, vocabulary_loss


def test_reduced_vocabulary_matches_dense_autograd() -> None:
    """Loss and gradients over a part of the vocabulary equal those of a plain dense computation."""
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
