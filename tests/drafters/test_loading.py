"""From a checkpoint to a drafter of one target: what fits, what is borrowed, what is refused."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from dspark.core import InputError
from dspark.drafters import load_drafter
from dspark.drafters.dspark import DSparkCheckpoint, DSparkModel, save_checkpoint

from .standin import PagedUser, RecordingSampler, StandInTarget, config_of, random_model, random_target


def saved(folder: Path, **parts: Any) -> DSparkModel:
    model = random_model(config_of(draft_vocab_size=20) if "draft_to_target" in parts else config_of())
    save_checkpoint(folder, DSparkCheckpoint(model=model, **parts), dtype=torch.float32)
    return model


def first_logits(folder: Path, target: StandInTarget) -> torch.Tensor:
    """Logits of slot 0 after a fixed context."""
    user, sampler = PagedUser(load_drafter(folder, target)), RecordingSampler()
    user.commit("a", torch.randn(6, 64, generator=torch.Generator().manual_seed(3)))
    user.propose(["a"], [5], [6], sampler)
    return sampler.logits[0][0]


@pytest.mark.pitfall(34)
@pytest.mark.parametrize(
    ("facts", "named"),
    [
        ({"hidden_size": 48}, "hidden size 32 (target: 48)"),
        ({"vocab_size": 64}, "vocabulary 61 (target: 64)"),
        ({"num_layers": 12}, "number of target layers 8 (target: 12)"),
    ],
)
def test_drafter_of_another_target(tmp_path: Path, facts: dict[str, int], named: str) -> None:
    model = saved(tmp_path)
    target = random_target(model.config, **facts)
    with pytest.raises(InputError) as caught:
        load_drafter(tmp_path, target)
    assert named in str(caught.value)


@pytest.mark.pitfall(34)
def test_tied_target(tmp_path: Path) -> None:
    """The LM head of a tied target is its embedding matrix."""
    model = saved(tmp_path)
    target = random_target(model.config, tied=True)
    untied = dataclasses.replace(target, head=target.embedding.clone())
    assert torch.equal(first_logits(tmp_path, target), first_logits(tmp_path, untied))


def test_stored_copies_of_the_targets_matrices_are_dropped(tmp_path: Path) -> None:
    target = random_target(config_of())
    saved(tmp_path / "without")
    saved(tmp_path / "with", embed=target.embedding.clone(), lm_head=target.head.clone())
    assert torch.equal(first_logits(tmp_path / "without", target), first_logits(tmp_path / "with", target))
    assert load_drafter(tmp_path / "with", target)._embed == target.embed


def test_own_matrices_are_kept_when_they_differ(tmp_path: Path) -> None:
    """A stored matrix wins over the target's, scaled and capped as the target's family does."""
    config = config_of()
    facts = {"logit_softcap": 3.0}
    own = dataclasses.replace(random_target(config, **facts), scale=math.sqrt(32))
    other = dataclasses.replace(random_target(config, **facts), scale=math.sqrt(32))
    saved(tmp_path / "without")
    saved(tmp_path / "with", embed=own.embedding, lm_head=own.head)
    expected = first_logits(tmp_path / "without", own)
    torch.testing.assert_close(first_logits(tmp_path / "with", other), expected, atol=1e-4, rtol=0)
    assert not torch.allclose(first_logits(tmp_path / "without", other), expected, atol=1e-2)


@pytest.mark.parametrize("reduced", [False, True])
def test_softcap_bounds_the_base_logits(tmp_path: Path, reduced: bool) -> None:
    """The family's final soft-cap acts on U, not on the sequential head's bias."""
    ids = torch.arange(0, 60, 3)
    model = saved(tmp_path, draft_to_target=ids) if reduced else saved(tmp_path)
    plain = random_target(model.config)
    capped = dataclasses.replace(plain, facts=dataclasses.replace(plain.facts, logit_softcap=0.5))
    with torch.no_grad():
        bias = model.markov_head.markov_w2(model.markov_head.embed(torch.tensor(5)))
    base = first_logits(tmp_path, plain) - bias
    expected = torch.tanh(base / 0.5) * 0.5 + bias
    torch.testing.assert_close(first_logits(tmp_path, capped), expected, atol=1e-5, rtol=0)


def test_reduced_head_equal_to_the_targets_rows_is_dropped(tmp_path: Path) -> None:
    target, ids = random_target(config_of()), torch.arange(0, 60, 3)
    saved(tmp_path / "without", draft_to_target=ids)
    saved(tmp_path / "with", draft_to_target=ids, lm_head=target.head[ids])
    assert torch.equal(first_logits(tmp_path / "without", target), first_logits(tmp_path / "with", target))
