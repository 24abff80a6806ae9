"""Loading a target by name, path or hub id."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from dspark.core import InputError
from dspark.target.dtype import choose_device, choose_dtype
from dspark.target.facts import check_config
from dspark.target.gguf import converted_directory
from dspark.target.hub import must_stay_local
from dspark.target.packed import PackedTarget
from dspark.target.packing import pack_model
from dspark.target.quiet import quiet_transformers
from dspark.target.sources import DEFAULT_TARGET, Directory, GGUFFile, Source, resolve


@dataclass(frozen=True, kw_only=True)
class LoadedTarget:
    """A target ready to run.

    Attributes:
        target: the packed model.
        tokenizer: its tokenizer, chat template included.
        name: short name for people.
        source: where it was read from.
        notes: what was decided on the user's behalf, one sentence each.
    """

    target: PackedTarget
    tokenizer: PreTrainedTokenizerBase
    name: str
    source: str
    notes: tuple[str, ...]


def load_target(spec: str = DEFAULT_TARGET, *, dtype: str = "auto", device: str = "auto") -> LoadedTarget:
    """Load a target.

    Args:
        spec: the default target's name, a Hugging Face directory, a GGUF file, or a hub id (needs a network or the
            hub's local cache).
        dtype: ``auto`` (bfloat16 where the device has it, else float32), ``float32``, ``bfloat16``, ``float16``.
        device: ``auto`` (CUDA where there is one), ``cpu``, ``cuda``, ``cuda:1`` ...

    Raises:
        InputError: anything the user can mend: missing or foreign files, an unsupported architecture, no network.
    """
    chosen_device = choose_device(device)
    chosen_dtype, note = choose_dtype(dtype, chosen_device)
    source = resolve(spec)
    place, local = _place(source)
    model = read_model(place, chosen_dtype, chosen_device, local_only=local)
    tokenizer = read_tokenizer(place, local_only=local)
    target = pack_model(model)
    check_vocabulary(tokenizer, target.facts.vocab_size, place)
    notes = (note,) if target.facts.proven else (note, _unproven(target.facts.model_type))
    return LoadedTarget(target=target, tokenizer=tokenizer, name=_name(spec, source), source=place, notes=notes)


def read_model(place: str, dtype: torch.dtype, device: torch.device, *, local_only: bool) -> PreTrainedModel:
    """Read configuration and weights; every weight must be there with its shape.

    Raises:
        InputError: not a supported model, or weights missing.
    """
    with quiet_transformers():
        try:
            config = AutoConfig.from_pretrained(place, local_files_only=local_only)
        except Exception as error:  # whatever a foreign file makes the reader raise
            raise _unreadable(place, local_only, error) from error
        check_config(config)
        try:
            loaded: Any = AutoModelForCausalLM.from_pretrained(
                place,
                config=config,
                dtype=dtype,
                attn_implementation="eager",
                local_files_only=local_only,
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # check_weights names them
            )
        except Exception as error:  # safetensors has an error type of its own
            raise _unreadable(place, local_only, error) from error
    model, info = loaded
    check_weights(info, place)
    moved: PreTrainedModel = model.to(device)
    return moved


def read_tokenizer(place: str, *, local_only: bool) -> PreTrainedTokenizerBase:
    """Read the tokenizer.

    Raises:
        InputError: there is none.
    """
    try:
        with quiet_transformers():
            tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(place, local_files_only=local_only)
            return tokenizer
    except Exception as error:  # the tokenizers library raises plain Exception
        raise InputError(f"{place} has no readable tokenizer: {_first_line(error)}") from error


def check_weights(info: dict, place: str) -> None:
    """transformers fills missing weights with random numbers and only warns; refuse instead.

    Raises:
        InputError: names the first weight that is missing or has another shape.
    """
    missing = sorted(info.get("missing_keys") or ())
    if missing:
        raise InputError(f"{place} lacks {len(missing)} weights, the first is {missing[0]!r}; the files are incomplete")
    mismatched = sorted(str(entry) for entry in info.get("mismatched_keys") or ())
    if mismatched:
        raise InputError(f"{place} holds weights of another shape than its config.json says: {mismatched[0]}")


def check_vocabulary(tokenizer: PreTrainedTokenizerBase, vocab_size: int, place: str) -> None:
    """Every ordinary token must have an embedding (the matrix may be padded beyond that).

    Special tokens added on top may lack one: some families ship markers of their image models.

    Raises:
        InputError: the tokenizer is of another model.
    """
    if tokenizer.vocab_size > vocab_size:
        raise InputError(
            f"the tokenizer in {place} has {tokenizer.vocab_size} tokens but the model only {vocab_size}; "
            "tokenizer and weights belong to different models"
        )


def _place(source: Source) -> tuple[str, bool]:
    """Directory or hub id to read from, and whether the network must not be asked."""
    if isinstance(source, GGUFFile):
        return str(converted_directory(source)), True
    if isinstance(source, Directory):
        return str(source.path), True
    return source.repo_id, must_stay_local(source.repo_id)


def _name(spec: str, source: Source) -> str:
    """Short name for people."""
    if isinstance(source, GGUFFile) and source.sha256 is None:
        return source.path.stem
    return Path(spec).resolve().name if isinstance(source, Directory) else spec


def _unreadable(place: str, local_only: bool, error: Exception) -> InputError:
    if local_only:
        return InputError(f"cannot load a causal language model from {place}: {_first_line(error)}")
    return InputError(f"{place!r} is no local path, and as a hub id it could not be loaded: {_first_line(error)}")


def _unproven(model_type: str) -> str:
    return f"model type {model_type!r} is not in the proven list; a probe at load found packed and plain logits equal"


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
