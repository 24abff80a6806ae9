"""What dspark runs on, as named facts; names that end in ``_bytes`` are sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

import torch

from dspark.drafters import Drafter, DSparkDrafter, Eagle3Drafter
from dspark.drafters.dspark import DSparkConfig, DSparkModel
from dspark.drafters.eagle3 import Eagle3Config, Eagle3Model
from dspark.engine import LLM
from dspark.evaluation.machine import this_machine
from dspark.target import LoadedTarget
from dspark.target.sources import cache_dir

Fact = str | int | float | bool | Sequence[str] | Sequence[int] | None
Facts = dict[str, Fact]

_UNITS = ("B", "KB", "MB", "GB", "TB")


def machine_facts() -> Facts:
    """Processor, memory, threads, versions."""
    facts = asdict(this_machine())
    memory = facts.pop("memory")
    return {**facts, "memory_bytes": memory, "transformers": version("transformers"), "dspark": version("dspark")}


def model_facts(llm: LLM) -> dict[str, Facts]:
    """Target, drafter and memory of an engine."""
    return {
        "target": target_facts(llm.loaded),
        "drafter": drafter_facts(llm.drafter, llm.loaded.target.dtype) | calibration_facts(llm),
        "memory": memory_facts(llm),
        "choices": {str(number): note for number, note in enumerate(llm.notes, start=1)},
    }


def target_facts(loaded: LoadedTarget) -> Facts:
    """Sizes of a target."""
    target, facts = loaded.target, loaded.target.facts
    return {
        "name": loaded.name,
        "source": loaded.source,
        "family": facts.model_type,
        "dtype": _short(target.dtype),
        "device": str(target.device),
        "parameters": facts.num_parameters,
        "weights_bytes": target.weight_bytes(),
        "layers": facts.num_layers,
        "width": facts.hidden_size,
        "heads": facts.num_heads,
        "kv_heads": facts.num_kv_heads,
        "vocabulary": facts.vocab_size,
        "positions": facts.max_positions,
        "tapped_layers": target.tap_layers,
    }


def drafter_facts(drafter: Drafter, dtype: torch.dtype) -> Facts:
    """Kind and sizes of a drafter."""
    facts: Facts = {"kind": drafter.name, "block_size": drafter.block_size}
    if isinstance(drafter, DSparkDrafter):
        facts |= _dspark_facts(drafter.config, dtype)
    elif isinstance(drafter, Eagle3Drafter):
        facts |= _eagle3_facts(drafter.config, dtype)
    return facts


def calibration_facts(llm: LLM) -> Facts:
    """Whether the drafter's confidences are probabilities; nothing for a drafter that has none."""
    chosen = llm.calibration
    if not llm.drafter.has_confidence:
        return {}
    if chosen.calibration is None:
        return {"confidence": "uncalibrated"}
    facts: Facts = {"confidence": "calibrated", "temperatures": [f"{t:g}" for t in chosen.calibration.temperatures]}
    if chosen.calibration.offsets is not None:
        facts["offsets"] = [f"{b:g}" for b in chosen.calibration.offsets]
    if chosen.artefact is not None:
        facts |= {"calibrated_on": chosen.artefact.dataset, "calibration_rounds": chosen.artefact.num_samples}
    return facts


def memory_facts(llm: LLM) -> Facts:
    """Keys and values: what a token takes, and how much room there is."""
    target, options = llm.loaded.target, llm.engine.options
    size = target.page_size
    page, context = target.kv_bytes_per_page(), llm.drafter.context_bytes_per_page(size)
    return {
        "page_tokens": size,
        "target_token_bytes": page // size,
        "drafter_token_bytes": context // size,
        "pages": options.num_pages,
        "tokens": options.num_pages * size,
        "pool_bytes": options.num_pages * (page + context),
        "longest_text": llm.engine.max_context,
    }


def folder_facts() -> Facts:
    """Where dspark keeps things."""
    shipped = Path(str(files("dspark.drafters"))) / "shipped"
    names = sorted(path.parent.name for path in shipped.glob("*/config.json"))
    return {
        "cache": str(cache_dir()),
        "cache_bytes": sum(path.stat().st_size for path in cache_dir().rglob("*") if path.is_file()),
        "shipped_drafters": names,
    }


def readable(name: str, fact: Fact) -> tuple[str, str]:
    """A fact's name and value for people."""
    if name.endswith("_bytes") and isinstance(fact, int):
        return name.removesuffix("_bytes").replace("_", " ") + " size", _size(fact)
    return name.replace("_", " "), _value(fact)


def _value(fact: Fact) -> str:
    if isinstance(fact, bool):
        return "yes" if fact else "no"
    if isinstance(fact, int):
        return f"{fact:,}"
    if isinstance(fact, Sequence) and not isinstance(fact, str):
        return ", ".join(map(str, fact)) or "none"
    return "none" if fact is None else str(fact)


def _dspark_facts(config: DSparkConfig, dtype: torch.dtype) -> Facts:
    with torch.device("meta"):
        model = DSparkModel(config)
    return {
        "layers": config.num_hidden_layers,
        "heads": config.num_attention_heads,
        "kv_heads": config.num_key_value_heads,
        "sequential_head": config.head_type.value,
        "rank": config.markov_rank,
        "confidence_head": config.enable_confidence_head,
        **_common_facts(config, model, dtype),
    }


def _eagle3_facts(config: Eagle3Config, dtype: torch.dtype) -> Facts:
    with torch.device("meta"):
        model = Eagle3Model(config)
    return {
        "layers": 1,
        "heads": config.num_attention_heads,
        "kv_heads": config.num_key_value_heads,
        **_common_facts(config, model, dtype),
    }


def _common_facts(config: DSparkConfig | Eagle3Config, model: torch.nn.Module, dtype: torch.dtype) -> Facts:
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return {
        "vocabulary": config.proposal_vocab_size,
        "reads_layers": config.target_layer_ids,
        "parameters": parameters,
        "weights_bytes": parameters * dtype.itemsize,
    }


def _size(count: float) -> str:
    unit = 0
    while count >= 1000 and unit < len(_UNITS) - 1:
        count, unit = count / 1000, unit + 1
    return f"{count:.0f} {_UNITS[unit]}" if unit == 0 or count >= 100 else f"{count:.1f} {_UNITS[unit]}"


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
