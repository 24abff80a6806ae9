"""Experts in place of dense layers: the Qwen3-MoE arithmetic, the same in training and serving, kept and served."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import Qwen3MoeConfig
from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeSparseMoeBlock

from dspark.core import InputError
from dspark.drafters import DSparkDrafter, load_drafter
from dspark.drafters.dspark import DSparkCheckpoint, DSparkConfig, load_checkpoint, save_checkpoint
from dspark.drafters.dspark.experts import MixtureOfExperts, Routing, RoutingLog, mix_experts
from dspark.drafters.dspark.fused import FusedExperts
from dspark.drafters.dspark.objective import DSparkObjective, training_pass
from dspark.drafters.losses import LossWeights

from ..engine.tiny import completions, engine, greedy
from .practice import batch_of, capture, config_for, family_target, fresh, frozen, mean_loss, train
from .standin import PagedUser, RecordingSampler, config_of, random_model, random_target

EXPERTS: dict[str, Any] = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 12}
PRODUCTION: dict[str, Any] = EXPERTS | {"num_hidden_layers": 3, "sliding_window": 128, "block_size": 5}
"""Three expert layers, a sliding window of 128, blocks of 5: the shape of the production drafter, made small."""


def mixture(**changes: Any) -> MixtureOfExperts:
    layer = random_model(config_of(**EXPERTS | changes)).draft_layers()[0].mlp
    assert isinstance(layer, MixtureOfExperts)
    return layer


@pytest.mark.parametrize("normalised", [True, False])
@torch.no_grad()
def test_numbers_of_the_family_whose_names_it_has(normalised: bool) -> None:
    """The same weights in transformers' Qwen3-MoE block."""
    ours = mixture(norm_topk_prob=normalised)
    config = Qwen3MoeConfig(hidden_size=32, norm_topk_prob=normalised, experts_implementation="eager", **EXPERTS)
    block = Qwen3MoeSparseMoeBlock(config)
    up = torch.stack([torch.cat([e.gate_proj.weight, e.up_proj.weight]) for e in ours.experts])
    down = torch.stack([expert.down_proj.weight for expert in ours.experts])
    block.load_state_dict({"gate.weight": ours.gate.weight, "experts.gate_up_proj": up, "experts.down_proj": down})
    x = torch.randn(2, 9, 32)
    theirs = block(x)
    torch.testing.assert_close(ours(x), theirs[0] if isinstance(theirs, tuple) else theirs, atol=1e-5, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rows", [1, 5, 64])
@torch.no_grad()
def test_serving_form_of_a_layer(rows: int, dtype: torch.dtype) -> None:
    layer = mixture().to(dtype)
    x, residual = torch.randn(rows, 32, dtype=dtype), torch.randn(rows, 32, dtype=dtype)
    tolerance = 1e-5 if dtype is torch.float32 else 0.06
    torch.testing.assert_close(FusedExperts(layer)(x, residual), layer(x) + residual, atol=tolerance, rtol=0)


def test_dispatch_groups_rows_and_only_busy_experts_work_in_serving() -> None:
    calls: list[tuple[int, int]] = []

    def expert(number: int) -> Any:
        def run(x: torch.Tensor) -> torch.Tensor:
            calls.append((number, len(x)))
            return x * (number + 1)

        return run

    chosen = torch.tensor([[4, 1], [1, 0], [4, 1]])
    routing = Routing(torch.zeros(3, 6), chosen, torch.tensor([[0.5, 0.5], [1.0, 0.0], [0.25, 0.75]]))
    x = torch.arange(6.0).view(3, 2)
    out = mix_experts(x, routing, [expert(i) for i in range(6)], idle=False)
    torch.testing.assert_close(out, x * torch.tensor([[3.5], [2.0], [2.75]]))
    assert calls == [(0, 1), (1, 3), (4, 2)]
    mix_experts(x, routing, [expert(i) for i in range(6)], idle=True)
    assert len(calls) == 9


def test_every_expert_gets_a_gradient_even_without_rows() -> None:
    """Wrappers for many processes wait for the gradient of every parameter."""
    layer = mixture()
    layer(torch.randn(1, 32)).sum().backward()
    assert all(parameter.grad is not None for parameter in layer.parameters())


@pytest.mark.parametrize("per_row", [1, 2])
def test_balance_loss_is_one_when_even_and_largest_when_all_choose_the_same(per_row: int) -> None:
    count, mask = 6, torch.tensor([True] * 12 + [False])
    even, same = RoutingLog(), RoutingLog()
    spread = (torch.arange(13)[:, None] + torch.arange(per_row)) % count
    even.add(Routing(torch.full((13, count), 1 / count), spread, torch.ones(13, per_row)))
    peaked = torch.zeros(13, count).index_fill_(1, torch.arange(per_row), 1 / per_row)
    same.add(Routing(peaked, torch.arange(per_row).expand(13, -1), torch.ones(13, per_row)))
    assert float(even.balance(mask)) == pytest.approx(1.0)
    assert float(same.balance(mask)) == pytest.approx(count / per_row)


def test_balance_loss_moves_only_routers_and_evens_the_load() -> None:
    """Without other terms, training on the balance brings an uneven load towards an even one."""
    target = family_target("qwen3")
    config = config_for(target, **EXPERTS)
    seen = capture(target, torch.randint(3, 97, (4, 20), generator=torch.Generator().manual_seed(1)))
    objective = DSparkObjective(
        random_model(config), frozen(target, config), LossWeights(ce=0, tv=0, confidence=0, balance=1.0)
    )
    sums = objective(batch_of(seen, torch.tensor([[1, 5]] * 4), 5))
    assert float(sums.loss.detach()) == pytest.approx(float(sums.terms["balance"]))
    sums.loss.backward()
    last = objective.model.draft_layers()[-1].mlp
    assert isinstance(last, MixtureOfExperts)
    assert last.gate.weight.grad.abs().max() > 0
    assert all(not parameter.grad.any() for parameter in last.experts.parameters())
    history = train(objective, seen, 30, lr=1e-2)
    assert mean_loss(history[-3:]) < mean_loss(history[:3])


def test_factor_of_the_balance_loss_is_small_and_dense_drafters_have_none() -> None:
    target = family_target("qwen3")
    seen = capture(target, torch.randint(3, 97, (2, 12)))
    batch = batch_of(seen, torch.tensor([[1, 4], [2, 3]]), 5)
    for experts in ({}, EXPERTS):
        config = config_for(target, **experts)
        model, borrowed = random_model(config), frozen(target, config)
        without = training_pass(model, batch, borrowed, LossWeights(balance=0.0))
        usual = training_pass(model, batch, borrowed, LossWeights())
        assert ("balance" in usual.terms) == bool(experts)
        added = float(usual.loss.detach() - without.loss.detach())
        assert added == pytest.approx(0.01 * float(usual.terms["balance"]) if experts else 0.0, rel=1e-2)


def test_production_shape_from_training_to_greedy_text(tmp_path: Path) -> None:
    """Train a few steps, write, load, serve through the engine: the text of plain decoding, with drafts accepted."""
    target = family_target("qwen3")
    config = config_for(target, **PRODUCTION)
    prompts = torch.randint(3, 97, (6, 150), generator=torch.Generator().manual_seed(3)).tolist()
    options: dict[str, Any] = {"num_pages": 320, "max_batch_rows": 256}
    params = greedy(24, ignore_eos=True)
    plain = [done.token_ids for done in completions(engine(target, **options), prompts, params, check=False)]
    texts = torch.tensor([[*prompt, *text] for prompt, text in zip(prompts, plain, strict=True)])
    objective = DSparkObjective(fresh(config), frozen(target, config), LossWeights(ce=1.0))
    history = train(objective, capture(target, texts), 40, first=149)
    assert mean_loss(history[-4:]) < 0.9 * mean_loss(history[:4])
    save_checkpoint(tmp_path, DSparkCheckpoint(model=objective.model))
    drafter = load_drafter(tmp_path, target)
    served = completions(engine(target, drafter, **options), prompts, params, check=False)
    assert [done.token_ids for done in served] == plain
    assert sum(done.stats.accepted for done in served) > 0


@torch.no_grad()
def test_serving_form_equals_training_form_with_experts_and_window() -> None:
    model = random_model(config_of(**PRODUCTION | {"sliding_window": 7}))
    target = random_target(model.config)
    user, sampler = PagedUser(DSparkDrafter(model, target)), RecordingSampler()
    features, keys = torch.randn(17, model.fc.in_features), torch.arange(17)[None]
    user.commit("a", features[:6])
    user.commit("a", features[6:], start=6)
    proposal = user.propose(["a"], [3], [17], sampler)
    cache = model.context_keys_values(model.context(features[None]), keys)
    embedded = target.embed(model.block_ids(torch.tensor([[3]])))
    hidden = model.blocks(embedded, torch.tensor([[17]]), cache, keys)[0, 0]
    before = torch.cat([torch.tensor([3]), proposal.tokens[0, :-1]])
    logits = target.lm_head(hidden) + model.markov_head.markov_w2(model.markov_head.embed(before))
    torch.testing.assert_close(torch.stack(sampler.logits)[:, 0], logits, atol=2e-5, rtol=0)


def test_file_has_the_names_of_the_family_and_survives(tmp_path: Path) -> None:
    model = random_model(config_of(**PRODUCTION, norm_topk_prob=False))
    save_checkpoint(tmp_path, DSparkCheckpoint(model=model), dtype=torch.float32)
    names = set(load_file(tmp_path / "model.safetensors"))
    assert "layers.2.mlp.gate.weight" in names
    assert {f"layers.0.mlp.experts.5.{part}_proj.weight" for part in ("gate", "up", "down")} <= names
    assert "layers.0.mlp.gate_proj.weight" not in names
    raw = json.loads((tmp_path / "config.json").read_text())
    assert (raw["model_type"], raw["num_experts"], raw["norm_topk_prob"]) == ("qwen3_moe", 6, False)
    stored = load_checkpoint(tmp_path)
    assert stored.config == model.config
    assert all(torch.equal(model.state_dict()[key], value) for key, value in stored.model.state_dict().items())
    assert "num_experts" not in config_of().to_dict()


@pytest.mark.pitfall(33)
@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"num_experts": 5}, "unknown key 'layers.0.mlp.experts.5."),
        ({"num_experts": 7}, "missing key 'layers.0.mlp.experts.6."),
        ({"moe_intermediate_size": 10}, "has shape"),
        ({"num_experts": None}, "needs num_experts"),
        ({"num_experts_per_tok": 7}, "num_experts_per_tok"),
        ({"num_experts_per_tok": None}, "num_experts_per_tok"),
        ({"norm_topk_prob": "yes"}, "norm_topk_prob"),
        ({"decoder_sparse_step": 2}, "decoder_sparse_step"),
        ({"mlp_only_layers": [0]}, "mlp_only_layers"),
    ],
    ids=str,
)
def test_wrong_files_are_refused(tmp_path: Path, changes: dict[str, Any], named: str) -> None:
    save_checkpoint(tmp_path, DSparkCheckpoint(model=random_model(config_of(**EXPERTS))))
    file = tmp_path / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    with pytest.raises(InputError) as caught:
        load_checkpoint(tmp_path)
    assert named in str(caught.value)


def test_dense_file_with_experts_in_its_config(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, DSparkCheckpoint(model=random_model(config_of())))
    file = tmp_path / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | EXPERTS))
    with pytest.raises(InputError, match="unknown key"):
        load_checkpoint(tmp_path)


def test_config_of_a_dense_family_with_unused_expert_fields() -> None:
    """num_experts null or absent is a dense drafter."""
    assert DSparkConfig.from_dict(config_of().to_dict() | {"num_experts": None}).num_experts is None
