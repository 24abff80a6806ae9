"""Which number type and device a target runs in, and why."""

from __future__ import annotations

import torch

from dspark.core import InputError

DTYPES = {
    "float32": torch.float32,
    "fp32": torch.float32,
    "bfloat16": torch.bfloat16,
    "bf16": torch.bfloat16,
    "float16": torch.float16,
    "fp16": torch.float16,
}
"""Names a user may give."""

_BF16_INSTRUCTIONS = ("amx_bf16", "avx512_bf16", "sve_bf16", "bf16")


def choose_device(name: str) -> torch.device:
    """The device for ``auto`` (CUDA where there is one), or the named one.

    Raises:
        InputError: the name is unknown or the device is not there.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise InputError(f"device must be auto, cpu or cuda, got {name!r}") from error
    if device.type not in ("cpu", "cuda"):
        raise InputError(f"device must be auto, cpu or cuda, got {name!r}")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise InputError(f"device {name!r} was asked for, but torch sees {torch.cuda.device_count()} CUDA devices")
    return device


def choose_dtype(name: str, device: torch.device) -> tuple[torch.dtype, str]:
    """The type for ``auto`` or the named one, and one sentence that says which and why.

    Raises:
        InputError: the name is unknown.
    """
    if name != "auto":
        if name not in DTYPES:
            raise InputError(f"dtype must be auto, float32, bfloat16 or float16, got {name!r}")
        dtype = DTYPES[name]
        slow = "; float16 has no fast kernels on CPUs" if dtype == torch.float16 and device.type == "cpu" else ""
        return dtype, f"dtype {_short(dtype)}, as asked{slow}"
    if device.type == "cuda":
        return torch.bfloat16, "dtype bfloat16, the default on CUDA"
    if found := cpu_bf16_instructions():
        return torch.bfloat16, f"dtype bfloat16, as this processor has {found}"
    return torch.float32, "dtype float32, as this processor has no bfloat16 instructions"


def cpu_bf16_instructions() -> str | None:
    """The processor's bfloat16 instructions by name, None without any."""
    capabilities = torch.cpu.get_capabilities()
    return next((name for name in _BF16_INSTRUCTIONS if capabilities.get(name)), None)


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
