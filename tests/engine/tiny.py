"""Tiny models, drafters and helpers shared by the engine's tests."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, Qwen3Config

from dspark.core import CommittedRows, DraftBatch, PackedBatch, Proposal, SamplingParams
from dspark.drafters import Drafter, DSparkDrafter, NgramDrafter, NullDrafter
from dspark.drafters.dspark import DSparkConfig, DSparkModel, HeadType
from dspark.engine import CompletionOutput, EngineCore, EngineOptions, StepOutput
from dspark.scheduling import StepPolicy
from dspark.target import PackedTarget, pack_model

PAGE = 4
LAYERS = 2


@lru_cache(maxsize=8)
def tiny_target(
    vocab: int = 64, spread: float = 0.3, positions: int = 96, seed: int = 0, device: str = "cpu"
) -> PackedTarget:
    """A random Qwen3 with small pages. No end-of-text id, so that answers run to their limit unless told otherwise."""
    config = Qwen3Config(
        vocab_size=vocab,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=positions,
        initializer_range=spread,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    return pack_model(model.to(device), page_size=PAGE)


@lru_cache(maxsize=16)
def tiny_drafter(
    target: PackedTarget, head: str = "vanilla", *, block: int = 5, confidence: bool = True, seed: int = 1
) -> DSparkDrafter:
    """A random DSpark drafter (DFlash for head ``none``); it agrees with the target by chance only."""
    facts = target.facts
    config = DSparkConfig(
        hidden_size=facts.hidden_size,
        intermediate_size=48,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        vocab_size=facts.vocab_size,
        block_size=block,
        mask_token_id=facts.vocab_size - 1,
        target_layer_ids=(-1, 0),
        num_target_layers=facts.num_layers,
        head_type=HeadType(head),
        markov_rank=0 if head == "none" else 8,
        enable_confidence_head=confidence,
    )
    torch.manual_seed(seed)
    model = DSparkModel(config)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            middle = 1.0 if name.endswith("norm.weight") else 0.0
            weight.normal_(middle, 0.3 if weight.ndim < 2 else weight.shape[1] ** -0.5)
    return DSparkDrafter(model, target)


class Contextless:
    """What a drafter without a context of its own has to say about it."""

    tap_layers: tuple[int, ...] = ()

    def context_bytes_per_page(self, page_size: int) -> int:
        return 0

    def allocate(self, num_pages: int, page_size: int) -> None:
        pass

    def observe(self, rows: CommittedRows) -> None:
        pass


class Oracle(Contextless):
    """Knows whole texts beforehand, and is wrong where it is told to: every acceptance can be arranged.

    Args:
        texts: complete texts, prompt included.
        block: block size.
        wrong_at: positions of texts where it proposes another token.
        vocab: vocabulary size.
    """

    name = "oracle"
    has_confidence = False

    def __init__(
        self, texts: Sequence[Sequence[int]], vocab: int, block: int = 5, wrong_at: Sequence[int] = ()
    ) -> None:
        self.texts = [list(text) for text in texts]
        self.vocab, self.block_size, self.wrong_at = vocab, block, set(wrong_at)

    def propose(self, batch: DraftBatch) -> Proposal:
        blocks = [self._block(list(h), n) for h, n in zip(batch.histories, batch.max_lens, strict=True)]
        tokens = np.zeros((len(blocks), max(map(len, blocks))), np.int64)
        for row, block in zip(tokens, blocks, strict=True):
            row[: len(block)] = block
        return Proposal(tokens=torch.from_numpy(tokens), lengths=tuple(len(block) for block in blocks))

    def _block(self, history: list[int], limit: int) -> list[int]:
        for text in self.texts:
            if text[: len(history)] == history:
                places = range(len(history), min(len(history) + limit, len(text)))
                return [(text[p] + (p in self.wrong_at)) % self.vocab for p in places]
        return []


def make_drafter(kind: str, target: PackedTarget, **options: Any) -> Drafter:
    """``null``, ``ngram``, ``dflash``, or a sequential head's name."""
    if kind == "null":
        return NullDrafter()
    if kind == "ngram":
        return NgramDrafter(max_ngram=3, min_ngram=1, block_size=options.get("block", 5))
    return tiny_drafter(target, "none" if kind == "dflash" else kind, **options)


def engine(
    target: PackedTarget,
    drafter: Drafter | None = None,
    policy: StepPolicy | None = None,
    *,
    tokenizer: Any = None,
    **options: Any,
) -> EngineCore:
    sizes = {"num_pages": 64, "max_requests": 8, "max_batch_rows": 64, "seed": 7} | options
    return EngineCore(target, drafter, policy, options=EngineOptions(**sizes), tokenizer=tokenizer)


def drain(core: EngineCore, *, check: bool = True, limit: int = 3000) -> dict[str, list[StepOutput]]:
    """Step until nothing is left; outputs per request."""
    outputs: dict[str, list[StepOutput]] = {}
    for _ in range(limit):
        if not core.has_unfinished():
            return outputs
        for output in core.step():
            outputs.setdefault(output.request_id, []).append(output)
        if check:
            core.check_integrity()
    raise AssertionError("the engine does not come to an end")


def completions(
    core: EngineCore,
    prompts: Sequence[Sequence[int]],
    params: SamplingParams | Sequence[SamplingParams],
    *,
    check: bool = True,
) -> list[CompletionOutput]:
    """Run prompts together, one answer each, and check that the pieces make the whole."""
    options = [params] * len(prompts) if isinstance(params, SamplingParams) else list(params)
    names = [core.add_request(prompt, option) for prompt, option in zip(prompts, options, strict=True)]
    outputs = drain(core, check=check)
    return [whole(outputs[name]) for name in names]


def whole(outputs: Sequence[StepOutput]) -> CompletionOutput:
    """The completion that ends the outputs of one answer; they must add up to it."""
    done = outputs[-1].completion
    assert done is not None
    assert all(output.completion is None for output in outputs[:-1])
    assert tuple(token for output in outputs for token in output.token_ids) == done.token_ids
    assert tuple(origin for output in outputs for origin in output.origins) == done.origins
    assert "".join(output.text for output in outputs) == done.text
    for output in outputs:
        assert "".join(piece.text for piece in output.pieces) == output.text
    if done.logprobs is not None:
        assert tuple(entry for output in outputs for entry in output.logprobs or ()) == done.logprobs
        assert tuple(entry.token for entry in done.logprobs) == done.token_ids
    assert len(done.origins) == len(done.token_ids)
    return done


def alone(
    target: PackedTarget, prompt: Sequence[int], params: SamplingParams, drafter: Drafter | None = None, **options: Any
) -> CompletionOutput:
    """One request in an engine of its own."""
    return completions(engine(target, drafter, **options), [prompt], params)[0]


@cache
def _plain(target: PackedTarget, prompt: tuple[int, ...], max_tokens: int) -> tuple[int, ...]:
    return alone(target, prompt, greedy(max_tokens), num_pages=32).token_ids


def plain(target: PackedTarget, prompts: Sequence[Sequence[int]], max_tokens: int) -> list[tuple[int, ...]]:
    """Greedy answers of plain decoding, each prompt alone; computed once per test run."""
    return [_plain(target, tuple(prompt), max_tokens) for prompt in prompts]


def target_logits(target: PackedTarget, texts: Sequence[Sequence[int]]) -> torch.Tensor:
    """Logits after each text, [n, V], from one packed forward of its own; the target's pool is made anew."""
    pages = [-(-len(text) // PAGE) for text in texts]
    first = np.cumsum([0, *pages])
    table = np.zeros((len(texts), max(pages)), np.int64)
    slots: list[int] = []
    for row, start, count, text in zip(table, first, pages, texts, strict=False):
        row[:count] = range(start, start + count)
        slots.extend(range(start * PAGE, start * PAGE + len(text)))
    target.set_taps(())
    target.allocate(int(first[-1]))
    lens = tuple(len(text) for text in texts)
    batch = PackedBatch(
        input_ids=torch.tensor([token for text in texts for token in text]),
        positions=torch.tensor([place for text in texts for place in range(len(text))]),
        kv_slots=torch.tensor(slots),
        page_table=torch.from_numpy(table),
        q_lens=lens,
        kv_lens=lens,
        logit_rows=torch.tensor(np.cumsum(lens) - 1),
        page_size=PAGE,
    )
    return target.forward(batch).logits


def random_prompts(count: int, vocab: int, seed: int = 0, longest: int = 24) -> list[list[int]]:
    generator = np.random.default_rng(seed)
    return [generator.integers(vocab, size=int(generator.integers(1, longest))).tolist() for _ in range(count)]


def greedy(max_tokens: int = 16, **options: Any) -> SamplingParams:
    return SamplingParams(temperature=0.0, max_tokens=max_tokens, **options)


@lru_cache(maxsize=1)
def byte_tokenizer() -> PreTrainedTokenizerFast:
    """256 bytes, a few merged pieces and an end-of-text token: characters span tokens, tokens span words."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("a", "b"), ("ab", "c"), ("Ġ", "t"), ("Ġt", "h"), ("h", "e")]
    words = [*alphabet, *(left + right for left, right in merges)]
    vocab = {word: place for place, word in enumerate(words)}
    raw = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, eos_token="<end>")
    tokenizer.chat_template = (
        "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"
        "{% if add_generation_prompt %}assistant: {% endif %}"
    )
    return tokenizer
