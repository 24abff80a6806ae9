"""How many pages an engine gets."""

from __future__ import annotations

import os

import torch

from dspark.core import InputError
from dspark.drafters import Drafter
from dspark.kvcache import pages_for
from dspark.target import PackedTarget

_GIB = 1 << 30
_CPU_SHARE, _CUDA_SHARE = 0.125, 0.6


def default_kv_memory(device: torch.device) -> int:
    """Bytes for keys and values if the user names no number.

    On a CPU an eighth of the machine's memory, at most 1 GiB; on CUDA six tenths of what is free now.
    """
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0] * _CUDA_SHARE)
    try:
        installed = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not every system tells
        return _GIB
    return min(_GIB, int(installed * _CPU_SHARE))


def bytes_per_page(target: PackedTarget, drafter: Drafter) -> int:
    """Bytes of one page: keys and values of the target, and the drafter's context beside them."""
    return target.kv_bytes_per_page() + drafter.context_bytes_per_page(target.page_size)


def count_pages(
    target: PackedTarget,
    drafter: Drafter,
    *,
    max_requests: int,
    context: int,
    kv_tokens: int | None,
    kv_memory: int | None,
) -> int:
    """Pages of the pool.

    Args:
        target: the model.
        drafter: shares the pages.
        max_requests: answers in progress at a time.
        context: most tokens of each; by default no more pages are made than all of them together can use.
        kv_tokens: tokens the pool must hold, or None.
        kv_memory: bytes it may take, or None. At most one of the two may be given.

    Raises:
        InputError: both were given, or the memory is less than one page.
    """
    if kv_tokens is not None and kv_memory is not None:
        raise InputError("give kv_tokens or kv_memory, not both")
    if kv_tokens is not None:
        return pages_for(_positive("kv_tokens", kv_tokens), target.page_size)
    page = bytes_per_page(target, drafter)
    if kv_memory is not None:
        pages = _positive("kv_memory", kv_memory) // page
        if pages == 0:
            raise InputError(f"kv_memory must be at least one page of {page} bytes, got {kv_memory}")
        return pages
    usable = max_requests * pages_for(context, target.page_size)
    return max(1, min(usable, default_kv_memory(target.device) // page))


def _positive(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InputError(f"{name} must be an integer >= 1, got {value!r}")
    return value
