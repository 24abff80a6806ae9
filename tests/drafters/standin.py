"""A target that is only an embedding and an LM head, random drafters for it, and a paged user of a drafter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor, nn

from dspark.core import CommittedRows, DraftBatch, Proposal
from dspark.drafters import Drafter
from dspark.drafters.dspark import DSparkConfig, DSparkModel, HeadType

M = TypeVar("M", bound=nn.Module)


@dataclass(frozen=True, kw_only=True)
class Facts:
    vocab_size: int
    hidden_size: int
    num_layers: int = 8
    max_positions: int = 512
    logit_softcap: float | None = None


@dataclass(kw_only=True)
class StandInTarget:
    embedding: Tensor
    head: Tensor
    facts: Facts
    scale: float = 1.0

    @property
    def dtype(self) -> torch.dtype:
        return self.embedding.dtype

    @property
    def device(self) -> torch.device:
        return self.embedding.device

    def embed(self, ids: Tensor) -> Tensor:
        return F.embedding(ids, self.embedding) * self.scale

    def embed_weight(self) -> Tensor:
        return self.embedding

    def lm_head_weight(self) -> Tensor:
        return self.head

    def lm_head(self, hidden: Tensor) -> Tensor:
        logits, cap = F.linear(hidden, self.head), self.facts.logit_softcap
        return logits if cap is None else torch.tanh(logits / cap) * cap


def config_of(**changes: Any) -> DSparkConfig:
    sizes: dict[str, Any] = {
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "vocab_size": 61,
        "block_size": 5,
        "mask_token_id": 60,
        "target_layer_ids": (1, 3),
        "num_target_layers": 8,
        "head_type": HeadType.VANILLA,
        "markov_rank": 6,
    }
    return DSparkConfig(**(sizes | changes))


def random_model(config: DSparkConfig, seed: int = 0) -> DSparkModel:
    """A drafter whose weights are all random, norms and biases too."""
    torch.manual_seed(seed)
    return randomised(DSparkModel(config))


def randomised(model: M) -> M:
    """The model with random numbers in all weights."""
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.normal_(
                1.0 if name.endswith("norm.weight") else 0.0, 0.3 if weight.ndim < 2 else weight.shape[1] ** -0.5
            )
    return model


def random_target(config: DSparkConfig, *, tied: bool = False, **facts: Any) -> StandInTarget:
    embedding = torch.randn(config.vocab_size, config.hidden_size)
    head = embedding if tied else torch.randn(config.vocab_size, config.hidden_size)
    sizes = {"vocab_size": config.vocab_size, "hidden_size": config.hidden_size, "num_layers": config.num_target_layers}
    return StandInTarget(embedding=embedding, head=head, facts=Facts(**(sizes | facts)))


def golden_target(golden: Path) -> StandInTarget:
    """Embedding and LM head of the golden target."""
    tensors = load_file(golden / "target" / "model.safetensors")
    embedding = tensors["model.embed_tokens.weight"]
    facts = Facts(vocab_size=embedding.shape[0], hidden_size=embedding.shape[1])
    return StandInTarget(embedding=embedding, head=tensors["lm_head.weight"], facts=facts)


@dataclass
class RecordingSampler:
    """Greedy (temperature 0) or random draws; remembers every call."""

    temperature: float = 0.0
    seed: int = 0
    logits: list[Tensor] = field(default_factory=list)
    probs: list[Tensor] = field(default_factory=list)
    tokens: list[Tensor] = field(default_factory=list)

    def __call__(self, slot: int, logits: Tensor) -> tuple[Tensor, Tensor | None]:
        assert slot == len(self.logits), "slots come in order"
        self.logits.append(logits.float().clone())
        if not self.temperature:
            self.tokens.append(logits.argmax(-1))
            return self.tokens[-1], None
        generator = torch.Generator().manual_seed(self.seed + slot)
        self.probs.append(torch.softmax(logits.float() / self.temperature, -1))
        self.tokens.append(torch.multinomial(self.probs[-1], 1, generator=generator).squeeze(1))
        return self.tokens[-1], self.probs[-1]


class ReplaySampler(RecordingSampler):
    """Draws given tokens [R, G]; remembers the logits."""

    def __init__(self, drawn: Tensor) -> None:
        super().__init__()
        self.drawn = drawn

    def __call__(self, slot: int, logits: Tensor) -> tuple[Tensor, Tensor | None]:
        super().__call__(slot, logits)
        return self.drawn[:, slot], None


@dataclass
class PagedUser:
    """Plays the engine: requests own shuffled pages, commit feature rows and ask for blocks."""

    drafter: Drafter
    page_size: int = 4
    num_pages: int = 64
    seed: int = 0

    def __post_init__(self) -> None:
        self.drafter.allocate(self.num_pages, self.page_size)
        order = torch.randperm(self.num_pages, generator=torch.Generator().manual_seed(self.seed))
        self.free: list[int] = order.tolist()
        self.tables: dict[str, list[int]] = {}

    def commit(self, name: str, features: Tensor, start: int = 0) -> None:
        """Commit feature rows of positions start .. start + n - 1."""
        positions = self._room(name, start, start + len(features))
        slots = self._slots(name, positions)
        self.drafter.observe(CommittedRows(features=features, positions=positions, kv_slots=slots))

    def _room(self, name: str, start: int, end: int) -> Tensor:
        """Positions start .. end - 1, with pages for them."""
        table = self.tables.setdefault(name, [])
        while len(table) * self.page_size < end:
            table.append(self.free.pop())
        return torch.arange(start, end)

    def _slots(self, name: str, positions: Tensor) -> Tensor:
        pages = torch.tensor(self.tables[name])
        return pages[positions // self.page_size] * self.page_size + positions % self.page_size

    def release(self, name: str) -> None:
        self.free.extend(self.tables.pop(name))

    def propose(
        self,
        names: Sequence[str],
        anchors: Sequence[int],
        positions: Sequence[int],
        sampler: RecordingSampler,
        max_lens: Sequence[int] | None = None,
    ) -> Proposal:
        width = max(len(self.tables.get(name, [])) for name in names)
        table = torch.zeros(len(names), width, dtype=torch.int64)
        for row, name in zip(table, names, strict=True):
            pages = self.tables.get(name, [])
            row[: len(pages)] = torch.tensor(pages, dtype=torch.int64)
        batch = DraftBatch(
            anchors=torch.tensor(anchors),
            anchor_positions=tuple(positions),
            page_table=table,
            page_size=self.page_size,
            histories=[()] * len(names),
            max_lens=tuple(max_lens or [self.drafter.block_size] * len(names)),
            sampler=sampler,
        )
        return self.drafter.propose(batch)
