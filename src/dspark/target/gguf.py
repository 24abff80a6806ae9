"""GGUF files: dequantised once into a Hugging Face directory in the cache, which then loads in a second."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, redirect_stderr
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from dspark.core import InputError
from dspark.target.quiet import quiet_transformers
from dspark.target.sources import GGUFFile, cache_dir

_LAYOUT = 1  # part of the cache key; raise it when the contents of a converted directory change


def converted_directory(source: GGUFFile) -> Path:
    """The Hugging Face directory of a GGUF file, made on first use.

    The work happens in a temporary folder beside the final one, which is then renamed: an interrupted conversion leaves
    nothing behind, and of two processes at once the later one uses what the earlier one made.

    Raises:
        InputError: wrong checksum, unreadable file, or no space in the cache folder.
    """
    final = cache_dir() / "targets" / cache_key(source)
    if (final / "config.json").is_file():
        return final
    if source.sha256 is not None:
        check_sha256(source.path, source.sha256)
    print(f"Converting {source.path.name} once into {final} (about ten seconds per 100 MB) ...", file=sys.stderr)
    with _work_folder(final) as folder:
        model, tokenizer = _read(source.path)
        _save(model, tokenizer, folder)
        _publish(folder, final)
    return final


def cache_key(source: GGUFFile) -> str:
    """Folder name of a converted file: its checksum where known, else its path, size and time of change."""
    if source.sha256 is not None:
        return f"{source.path.stem}-{source.sha256[:16]}-{_LAYOUT}"
    stat = source.path.stat()
    text = f"{source.path.resolve()}|{stat.st_size}|{stat.st_mtime_ns}"
    return f"{source.path.stem}-{hashlib.sha256(text.encode()).hexdigest()[:16]}-{_LAYOUT}"


def check_sha256(path: Path, expected: str) -> None:
    """Compare a file's checksum.

    Raises:
        InputError: it differs.
    """
    with path.open("rb") as stream:
        got = hashlib.file_digest(stream, "sha256").hexdigest()
    if got != expected:
        raise InputError(f"{path} has sha256 {got}, expected {expected}; the file is damaged or another version")


@contextmanager
def _work_folder(final: Path) -> Iterator[Path]:
    """A temporary folder beside ``final`` that is gone afterwards, whatever happens."""
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=f".{final.name}-", dir=final.parent))
    except OSError as error:
        raise InputError(f"cannot write to the cache folder {final.parent}: {error}; set DSPARK_CACHE") from error
    try:
        yield folder
    except OSError as error:
        raise InputError(f"cannot write {final}: {error}; free some space or set DSPARK_CACHE") from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _read(path: Path) -> tuple[PreTrainedModel, object]:
    """Dequantise to float32 with the reader of transformers."""
    folder, name = str(path.parent), path.name
    try:
        with quiet_transformers(), _quiet_when_piped():
            model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.float32)
            return model, AutoTokenizer.from_pretrained(folder, gguf_file=name)
    except Exception as error:  # foreign files raise all kinds, plain Exception included
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise InputError(f"transformers cannot read {path}: {reason}") from error


def _quiet_when_piped() -> AbstractContextManager[object]:
    """The reader draws a bar of its own: welcome on a terminal, noise anywhere else."""
    return nullcontext() if sys.stderr.isatty() else redirect_stderr(io.StringIO())


def _save(model: PreTrainedModel, tokenizer: object, folder: Path) -> None:
    """Write an ordinary model directory; save_pretrained would insist on writing the quantised form."""
    config = model.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    tied = "lm_head.weight" if getattr(config, "tie_word_embeddings", False) else None
    tensors = {name: tensor.contiguous() for name, tensor in model.state_dict().items() if name != tied}
    try:
        with quiet_transformers():
            config.save_pretrained(folder)
            model.generation_config.save_pretrained(folder)
            tokenizer.save_pretrained(folder)  # type: ignore[attr-defined]
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        shutil.copymode(folder / "config.json", folder / "model.safetensors")  # else nobody but us could read it
    except Exception as error:  # tokenizers and safetensors raise errors of their own for a full disk
        raise OSError(str(error)) from error


def _publish(folder: Path, final: Path) -> None:
    """Give the finished folder its name; if another process was faster, keep what it made."""
    folder.chmod(0o755)
    try:
        os.rename(folder, final)
    except OSError:
        if not (final / "config.json").is_file():
            raise
