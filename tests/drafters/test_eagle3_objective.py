"""Eagle3 in training: the reference's losses, a few rows instead of all, gradients, what counts."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor

from dspark.drafters.eagle3 import Eagle3Model, load_checkpoint
from dspark.drafters.eagle3.objective import EAGLE3_LOSS, Eagle3Objective, step_states, step_weights, training_pass
from dspark.drafters.eagle3.training_batch import Eagle3TrainingBatch, shifted, steps_that_count, tokens_ahead
from dspark.drafters.losses import FrozenTarget, LossWeights

from .eagle3_standin import GOLDEN, config_of, random_model
from .standin import golden_target

TOLERANCE = json.loads((GOLDEN / "meta.json").read_text())["tolerance_abs_fp32"]


@pytest.fixture(scope="module")
def io() -> dict[str, Tensor]:
    return load_file(GOLDEN / "eagle3" / "io.safetensors")


@pytest.fixture(scope="module")
def model() -> Eagle3Model:
    return load_checkpoint(GOLDEN / "eagle3").model


def frozen(width: int, ids: Tensor | None = None) -> FrozenTarget:
    """What is borrowed from the golden target, for a draft vocabulary if one is given."""
    target = golden_target(GOLDEN)
    chosen = torch.arange(len(target.head)) if ids is None else ids
    to_draft = torch.full((len(target.head),), -1)
    to_draft[chosen] = torch.arange(len(chosen))
    return FrozenTarget(
        embedding=target.embedding,
        head=target.head[chosen],
        to_draft=to_draft,
        feature_scale=torch.ones(width),
        full_vocabulary=ids is None,
    )


def batch_of(io: dict[str, Tensor], steps: int, rows: np.ndarray | None = None) -> Eagle3TrainingBatch:
    """The golden batch without padding, all of its rows or some [N, A]; labels are the teacher's most likely tokens."""
    lengths = io["seq_lens"].numpy()
    longest, count = int(lengths.max()), len(lengths)
    inside = torch.arange(longest) < io["seq_lens"][:, None]
    ids, masks = io["input_ids"][inside].numpy(), io["loss_mask"].bool().numpy()
    rows = np.tile(np.arange(longest), (count, 1)) if rows is None else rows
    firsts = np.cumsum(lengths) - lengths
    taught = np.stack([steps_that_count(masks[n, : lengths[n]], rows[n], steps) for n in range(count)])
    ahead = np.minimum(rows[..., None] + 1 + np.arange(steps), lengths[:, None, None] - 1)
    columns = np.arange(longest)
    hidden = io["target_last_hidden"][inside]
    logits = hidden @ golden_target(GOLDEN).head.T
    teacher_rows = torch.from_numpy(firsts[:, None, None] + ahead)
    return Eagle3TrainingBatch(
        features=io["features"][inside],
        following=torch.from_numpy(shifted(ids, lengths)),
        positions=torch.from_numpy(np.concatenate([np.arange(length) for length in lengths])),
        gather=torch.from_numpy(np.where(columns < lengths[:, None], firsts[:, None] + columns, 0)),
        key_positions=torch.from_numpy(np.where(columns < lengths[:, None], columns, 1 << 30)),
        rows=torch.from_numpy(rows),
        packed_rows=torch.from_numpy(firsts[:, None] + np.minimum(rows, lengths[:, None] - 1)),
        read=torch.from_numpy(tokens_ahead(ids, lengths, rows, steps)[0]),
        labels=logits.argmax(-1)[teacher_rows],
        teacher_hidden=hidden,
        log_z=torch.logsumexp(logits, -1),
        teacher_rows=teacher_rows,
        taught=torch.from_numpy(taught),
        judged=torch.from_numpy(taught),
    )


def test_golden_masks_and_shifts(io: dict[str, Tensor], model: Eagle3Model) -> None:
    steps = model.config.ttt_length
    batch = batch_of(io, steps)
    for step in range(steps):
        assert torch.equal(batch.taught[..., step].float(), io[f"step{step}.loss_mask"])
        for row, length in enumerate(io["seq_lens"].tolist()):
            assert torch.equal(batch.read[row, :length, step], io[f"step{step}.input_ids"][row, :length])


def test_golden_losses(io: dict[str, Tensor], model: Eagle3Model) -> None:
    """All rows: loss of every step, their total, accuracies, acceptance, tau."""
    steps, tokens = model.config.ttt_length, io["input_ids"].numel()
    batch = batch_of(io, steps)
    target = frozen(io["features"].shape[-1])
    with torch.no_grad():
        sums = training_pass(model, batch, target, EAGLE3_LOSS)
        assert (sums.loss / tokens - io["loss.total"]).abs() <= TOLERANCE["losses"]
        assert sums.terms["kl"] == sums.loss
        assert sums.weight == pytest.approx(step_weights(batch.taught, 0.8).sum())
        for step in range(steps):
            only = torch.zeros_like(batch.taught)
            only[..., step] = batch.taught[..., step]
            alone = training_pass(model, dataclasses.replace(batch, taught=only, judged=only), target, EAGLE3_LOSS)
            assert (alone.loss / 0.8**step / tokens - io["loss.steps"][step]).abs() <= TOLERANCE["losses"]
    counted = sums.mask.sum(dim=0)
    rates = sums.accept.sum(dim=0) / counted
    assert (rates - io["accept_rate_by_step"]).abs().max() <= TOLERANCE["accept_rates"]
    torch.testing.assert_close(sums.hit.sum(dim=0) / counted, io["accuracy_by_step"], atol=1e-6, rtol=0)
    started = sums.mask[:, 0]
    for values, name in ((sums.hit, "tau_greedy"), (sums.accept, "tau_probabilistic")):
        tau = 1 + values[started].cumprod(dim=1).sum(dim=1).mean()
        assert (tau - io[name]).abs() <= 4 * TOLERANCE["accept_rates"]


def dense_loss(model: Eagle3Model, io: dict[str, Tensor], chosen: Tensor) -> Tensor:
    """The same loss over all rows with full logits and plain attention, one sequence after the other; rows not chosen
    [N, T] do not count."""
    target, total = golden_target(GOLDEN), torch.zeros(())
    decay = model.config.step_loss_decay
    for number, length in enumerate(io["seq_lens"].tolist()):
        mask, ids = io["loss_mask"][number, :length].bool(), io["input_ids"][number, :length]
        positions = torch.arange(length)[None]
        fused = model.fuse(io["features"][number, None, :length])
        reads = [torch.cat([ids[1 + k :], ids.new_zeros(1 + k)])[:length] for k in range(model.config.ttt_length)]
        context = model.context(fused, target.embed(reads[0])[None], positions)
        outputs = model.unroll(fused, target.embed(torch.stack(reads, 1))[None], positions, context, positions)
        teacher = torch.softmax(target.lm_head(io["target_last_hidden"][number]), -1)
        for step, output in enumerate(outputs):
            counts = [i for i in range(length) if chosen[number, i] and i + step < length - 1 and mask[i + step]]
            logits = target.lm_head(model.norm(output[0, counts]))
            total = total + decay**step * F.cross_entropy(
                logits, teacher[[i + 1 + step for i in counts]], reduction="sum"
            )
    return total


@pytest.mark.parametrize("seed", [0, 1])
def test_a_few_rows_are_part_of_all_rows(io: dict[str, Tensor], model: Eagle3Model, seed: int) -> None:
    """Loss and gradients of sampled rows are those of the full computation in which only these rows count."""
    rng = np.random.default_rng(seed)
    rows = np.stack([rng.permutation(length)[:4] for length in io["seq_lens"].tolist()])
    chosen = torch.zeros(io["input_ids"].shape, dtype=torch.bool).scatter_(1, torch.from_numpy(rows), True)
    batch = batch_of(io, model.config.ttt_length, rows)
    objective = Eagle3Objective(model, frozen(io["features"].shape[-1]))
    names = [name for name, _ in objective.named_parameters()]
    sums = objective(batch)
    ours = torch.autograd.grad(sums.loss, list(objective.parameters()))
    expected = dense_loss(model, io, chosen)
    theirs = torch.autograd.grad(expected, list(model.parameters()))
    torch.testing.assert_close(sums.loss, expected, atol=1e-4, rtol=1e-5)
    for name, one, other in zip(names, ours, theirs, strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-3, msg=lambda text, name=name: f"{name}: {text}")
    assert min(grad.abs().max().item() for grad in ours) > 0, "every weight is trained"


def test_the_loss_of_a_reduced_vocabulary(io: dict[str, Tensor], model: Eagle3Model) -> None:
    """Teacher probabilities are those of the full softmax; labels outside the draft vocabulary never hit."""
    ids = torch.arange(0, 211, 2)
    batch, width = batch_of(io, model.config.ttt_length), io["features"].shape[-1]
    with torch.no_grad():
        sums = training_pass(model, batch, frozen(width, ids), LossWeights(ce=0, kl=0, tv=1, confidence=0))
        full = golden_target(GOLDEN)
        teacher = torch.softmax(full.lm_head(batch.teacher_hidden), -1)[batch.teacher_rows]
        logits = step_states(model, batch, frozen(width)) @ full.head[ids].T
    spread = torch.zeros_like(teacher)
    spread[..., ids] = torch.softmax(logits, -1)
    overlap = torch.minimum(spread, teacher).sum(-1).flatten(0, 1)
    assert ((sums.accept - overlap)[sums.mask]).abs().max() < 1e-5
    best = ids[logits.argmax(-1)]
    assert torch.equal(sums.hit[sums.mask], (best == batch.labels).float().flatten(0, 1)[sums.mask])


def test_acceptance_is_that_of_judged_steps(io: dict[str, Tensor], model: Eagle3Model) -> None:
    """A judged step need not be in the loss, and the other way round."""
    batch = batch_of(io, model.config.ttt_length)
    judged = torch.roll(batch.taught, 1, dims=1)
    assert not torch.equal(judged, batch.taught)
    target = frozen(io["features"].shape[-1])
    with torch.no_grad():
        plain = training_pass(model, batch, target, EAGLE3_LOSS)
        everything = training_pass(model, dataclasses.replace(batch, judged=judged | batch.taught), target, EAGLE3_LOSS)
        mixed = training_pass(model, dataclasses.replace(batch, judged=judged), target, EAGLE3_LOSS)
    assert mixed.loss.item() == pytest.approx(plain.loss.item(), rel=1e-6)
    assert torch.equal(mixed.mask, judged.flatten(0, 1))
    torch.testing.assert_close(mixed.accept, everything.accept * mixed.mask, atol=1e-6, rtol=0)
    assert (mixed.accept[~mixed.mask] == 0).all()


def test_rows_that_count() -> None:
    mask = np.array([0, 0, 1, 1, 0, 1, 1], bool)
    expected = [[0, 0, 1], [0, 1, 1], [1, 1, 0], [1, 0, 1], [0, 1, 0], [1, 0, 0], [0, 0, 0]]
    assert steps_that_count(mask, np.arange(7), 3).astype(int).tolist() == expected


def test_tokens_read_and_predicted() -> None:
    ids, lengths = np.array([5, 6, 7, 8, 9, 1, 2], np.int32), np.array([5, 2])
    read, predicted = tokens_ahead(ids, lengths, np.array([[0, 3], [0, 1]]), 3)
    assert read.tolist() == [[[6, 7, 8], [9, 0, 0]], [[2, 0, 0], [0, 0, 0]]]
    assert predicted.tolist() == [[[7, 8, 9], [-1, -1, -1]], [[-1, -1, -1], [-1, -1, -1]]]
    assert shifted(ids, lengths).tolist() == [6, 7, 8, 9, 0, 2, 0]


def test_training_learns_a_text(io: dict[str, Tensor]) -> None:
    """A fresh drafter overfits the batch: the loss approaches the entropy of the teacher, acceptance one."""
    config = dataclasses.replace(load_checkpoint(GOLDEN / "eagle3").config, ttt_length=3)
    objective = Eagle3Objective(random_model(config), frozen(io["features"].shape[-1]))
    batch = batch_of(io, 3)
    optimizer = torch.optim.Adam(objective.parameters(), lr=3e-3)
    first = last = None
    for _ in range(120):
        sums = objective(batch)
        optimizer.zero_grad()
        (sums.loss / sums.weight).backward()
        optimizer.step()
        last = float(sums.accept[sums.mask].mean())
        first = last if first is None else first
    assert first < 0.6 < 0.9 < last


def test_all_weights_of_the_objective_are_the_drafters() -> None:
    """Nothing borrowed is a parameter or a buffer: wrappers for many processes would send it around."""
    model = random_model(config_of())
    objective = Eagle3Objective(model, frozen(64))
    assert list(objective.state_dict()) == [f"model.{name}" for name in model.state_dict()]
