"""Fills a feature store by running the target over conversations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import torch
from torch import Tensor

from dspark.core import InputError, PackedBatch
from dspark.data.conversation import Conversation
from dspark.data.feature_store import FeatureStoreWriter
from dspark.target import PackedTarget, TargetFacts

_HEAD_ROWS = 128


def write_features(
    target: PackedTarget,
    name: str,
    conversations: Iterable[Conversation],
    folder: Path,
    *,
    tap_layers: tuple[int, ...],
    rows_per_forward: int = 2048,
    progress: Callable[[int], None] = lambda tokens: None,
) -> int:
    """Write taps, last hidden states and log softmax denominators of all conversations; returns the token count.

    Args:
        target: the target; its taps and its KV pool are set here.
        name: the target's name, kept in the manifest.
        conversations: what to run.
        folder: the new store.
        tap_layers: layers to tap.
        rows_per_forward: tokens per forward; a longer conversation goes alone.
        progress: called with the number of tokens done since the last call.

    Raises:
        InputError: no conversation was given, or one that the target cannot run.
    """
    target.set_taps(tap_layers)
    conversations = _fitting(conversations, target.facts)
    writer = FeatureStoreWriter(folder, target=name, hidden_size=target.facts.hidden_size, tap_layers=tap_layers)
    total, pages = 0, 0
    for group in _groups(conversations, rows_per_forward):
        needed = sum(_pages(conversation, target.page_size) for conversation in group)
        if needed > pages:
            pages = needed
            target.allocate(pages)
        total += _write_group(target, writer, group)
        progress(sum(len(conversation.ids) for conversation in group))
    writer.close()
    if not total:
        raise InputError("no conversations to run the target over; synthesise some first")
    return total


def _fitting(conversations: Iterable[Conversation], facts: TargetFacts) -> Iterator[Conversation]:
    """The same conversations; one with tokens or a length that the target does not have is an InputError."""
    for number, conversation in enumerate(conversations, start=1):
        largest, length = max(conversation.ids, default=0), len(conversation.ids)
        if largest >= facts.vocab_size or length > facts.max_positions:
            raise InputError(
                f"conversation {number} has {length} tokens with ids up to {largest}, but the target takes "
                f"{facts.max_positions} tokens with ids below {facts.vocab_size}; was it written by another target?"
            )
        yield conversation


def _write_group(target: PackedTarget, writer: FeatureStoreWriter, group: list[Conversation]) -> int:
    """Run one forward and append its sequences."""
    with torch.inference_mode():
        output = target.forward(_prefill(group, target.page_size, target.device), want_hidden=True)
        assert output.features is not None
        assert output.last_hidden is not None
        log_z = _log_denominators(target, output.last_hidden)
    sizes = [len(conversation.ids) for conversation in group]
    parts = (t.cpu().split(sizes) for t in (output.features, output.last_hidden, log_z))
    for conversation, features, hidden, denominators in zip(group, *parts, strict=True):
        writer.append(conversation.ids, conversation.mask, conversation.temperature, features, hidden, denominators)
    return sum(sizes)


def _log_denominators(target: PackedTarget, hidden: Tensor) -> Tensor:
    """Log of the softmax denominator over the full vocabulary for rows [T, D] -> [T] float32."""
    return torch.cat([torch.logsumexp(target.lm_head(rows).float(), dim=-1) for rows in hidden.split(_HEAD_ROWS)])


def _pages(conversation: Conversation, page_size: int) -> int:
    return -(-len(conversation.ids) // page_size)


def _groups(conversations: Iterable[Conversation], rows: int) -> Iterator[list[Conversation]]:
    """Consecutive conversations with at most ``rows`` tokens together."""
    group: list[Conversation] = []
    for conversation in conversations:
        if group and sum(len(c.ids) for c in group) + len(conversation.ids) > rows:
            yield group
            group = []
        group.append(conversation)
    if group:
        yield group


def _prefill(group: list[Conversation], page_size: int, device: torch.device) -> PackedBatch:
    """One batch that prefills whole conversations, each on pages of its own; no logits."""
    sizes = [len(conversation.ids) for conversation in group]
    pages = [_pages(conversation, page_size) for conversation in group]
    table = torch.zeros(len(group), max(pages), dtype=torch.int64)
    slots, first = [], 0
    for row, (size, count) in enumerate(zip(sizes, pages, strict=True)):
        table[row, :count] = torch.arange(first, first + count)
        slots.append(torch.arange(first * page_size, first * page_size + size))
        first += count
    return PackedBatch(
        input_ids=torch.tensor([token for conversation in group for token in conversation.ids], device=device),
        positions=torch.cat([torch.arange(size) for size in sizes]).to(device),
        kv_slots=torch.cat(slots).to(device),
        page_table=table.to(device),
        q_lens=tuple(sizes),
        kv_lens=tuple(sizes),
        logit_rows=torch.zeros(0, dtype=torch.int64, device=device),
        page_size=page_size,
    )
