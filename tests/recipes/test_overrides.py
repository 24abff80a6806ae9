"""Changing a recipe by dotted names."""

from __future__ import annotations

from dataclasses import is_dataclass

import pytest

from dspark.core import InputError
from dspark.drafters.dspark import HeadType
from dspark.recipes import find_recipe, override, with_seed
from dspark.recipes.overrides import field_names
from dspark.recipes.registry import RECIPES
from dspark.target import DEFAULT_TARGET, load_target


@pytest.mark.parametrize(
    ("assignment", "path", "value"),
    [
        ("optim.lr=1e-3", "optim.lr", 1e-3),
        ("optim.steps=7", "optim.steps", 7),
        ("optim.muon_lr=none", "optim.muon_lr", None),
        ("optim.muon_lr=3e-3", "optim.muon_lr", 3e-3),
        ("optim.betas=0.8,0.9", "optim.betas", (0.8, 0.9)),
        ("bf16=false", "bf16", False),
        ("drafter.target_layer_ids=1,8", "drafter.target_layer_ids", (1, 8)),
        ("drafter.head_type=gated", "drafter.head_type", HeadType.GATED),
        ("drafter.draft_vocab_size=none", "drafter.draft_vocab_size", None),
        (" loss.kl = 0.5 ", "loss.kl", 0.5),
    ],
)
def test_values(assignment: str, path: str, value: object) -> None:
    config = override(find_recipe("shipped").training, [assignment])
    for name in path.split("."):
        config = getattr(config, name)
    assert config == value
    assert type(config) is type(value)


def test_mappings() -> None:
    plan = override(find_recipe("tiny").writing, ["synthesis.temperatures=0:0.5,1:0.5", "synthesis.domains=chat:1"])
    assert plan.synthesis.temperatures == {0.0: 0.5, 1.0: 0.5}
    assert plan.synthesis.domains == {"chat": 1.0}


@pytest.mark.parametrize(
    ("assignment", "said"),
    [
        ("optim.lrr=1", "did you mean 'optim.lr'?"),
        ("optm.steps=1", "did you mean 'optim.steps'?"),
        ("optim=1", "there is no field 'optim'"),
        ("zzz=1", "known are: "),
        ("optim.lr", "NAME=VALUE"),
        ("optim.lr=fast", "optim.lr must be a number, got 'fast'"),
        ("optim.steps=1.5", "optim.steps must be an integer"),
        ("optim.betas=0.9", "optim.betas must be a list"),
        ("bf16=maybe", "bf16 must be true or false"),
        ("drafter.head_type=lstm", "one of none, vanilla, gated, rnn"),
        ("optim.steps=0", "steps must be"),
        ("drafter.block_size=0", "block_size must be"),
    ],
)
def test_errors(assignment: str, said: str) -> None:
    with pytest.raises(InputError, match=said.replace("?", r"\?")):
        override(find_recipe("shipped").training, [assignment])


@pytest.mark.parametrize("name", RECIPES)
def test_every_field_of_every_recipe_can_be_set(name: str) -> None:
    """Setting a field to what it is, written plainly, gives the same recipe."""
    recipe = find_recipe(name)
    for config in (recipe.writing, recipe.training):
        for field in field_names(config):
            value = config
            for part in field.split("."):
                value = getattr(value, part)
            assert override(config, [f"{field}={written(value)}"]) == config


def written(value: object) -> str:
    if isinstance(value, dict):
        return ",".join(f"{key}:{entry}" for key, entry in value.items())
    if isinstance(value, tuple) and value and is_dataclass(value[0]):
        return ";".join(",".join(f"{name}:{entry}" for name, entry in vars(group).items()) for group in value)
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def test_seed() -> None:
    plan = find_recipe("tiny").writing
    assert with_seed(plan, None) == plan
    assert with_seed(plan, 5).synthesis.seed == 5


def test_unknown_recipe() -> None:
    with pytest.raises(InputError, match="did you mean 'shipped'"):
        find_recipe("shiped")


@pytest.mark.slow
def test_the_shipped_recipe_fits_the_default_target(default_target_dir: object) -> None:
    facts = load_target(DEFAULT_TARGET).target.facts
    drafter = find_recipe("shipped").training.drafter
    assert (drafter.hidden_size, drafter.vocab_size) == (facts.hidden_size, facts.vocab_size)
    assert drafter.num_target_layers == facts.num_layers


def test_groups_of_numbers() -> None:
    config = override(find_recipe("tiny").training, ["phases=share:0.25,kl:1,ce:0.1;share:0.5,tv:1"])
    assert [(phase.share, phase.kl, phase.tv) for phase in config.phases] == [(0.25, 1.0, 0.9), (0.5, 0.0, 1.0)]
    assert override(config, ["phases="]).phases == ()
    for text in ("share:0.25,kk:1", "kl:1", "0.25"):
        with pytest.raises(InputError, match="phases must be groups such as ce:value"):
            override(config, [f"phases={text}"])
    with pytest.raises(InputError, match="between 0 and 1"):
        override(config, ["phases=share:2"])
