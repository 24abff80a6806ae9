"""A tiny random model behind the real server, on a port of its own."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, Qwen3Config

from dspark import LLM, SamplingParams
from dspark.core import DraftBatch, Proposal
from dspark.serving.run import DrainingServer, make_server
from dspark.serving.service import Service
from dspark.serving.settings import ServeSettings
from dspark.target import LoadedTarget, pack_model

from ..engine.tiny import Oracle

TEMPLATE = (
    "{% if tools %}tools: {{ tools | tojson }} in <tool_call>\n{% endif %}"
    "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}"
    "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% if enable_thinking %}<think>\n{% endif %}{% endif %}"
)
VOCAB = 264


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """256 bytes, a few merged pieces and an end-of-text token."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("a", "b"), ("ab", "c"), ("Ġ", "t"), ("Ġt", "h"), ("h", "e")]
    words = [*alphabet, *(left + right for left, right in merges)]
    raw = Tokenizer(models.BPE(vocab={word: place for place, word in enumerate(words)}, merges=merges))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    raw.add_special_tokens([AddedToken("<|end|>", special=True)])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, eos_token="<|end|>")
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def tiny_llm(drafter: Any = "ngram", *, positions: int = 512, seed: int = 0, **options: Any) -> LLM:
    """A random Qwen3 whose weights depend on the seed only."""
    config = Qwen3Config(
        vocab_size=VOCAB, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=8, max_position_embeddings=positions, initializer_range=0.3,
        bos_token_id=None, eos_token_id=None, pad_token_id=None,
    )  # fmt: skip
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    target = pack_model(model, page_size=8)
    loaded = LoadedTarget(target=target, tokenizer=tiny_tokenizer(), name="tiny", source="memory", notes=())
    sizes = {"max_requests": 16, "max_batch_rows": 128, "kv_tokens": 8192, "seed": 7} | options
    return LLM(loaded, drafter=drafter, **sizes)


class SureOracle(Oracle):
    """Is wrong at every seventh position, and a little less sure there."""

    has_confidence = True

    def propose(self, batch: DraftBatch) -> Proposal:
        found = super().propose(batch)
        steps = torch.arange(found.tokens.shape[1])
        places = torch.tensor(batch.anchor_positions)[:, None] + 1 + steps
        sure = torch.where(places % 7 == 0, 0.4, 0.9)
        return Proposal(tokens=found.tokens, lengths=found.lengths, confidence=sure.float())


def confident_llm(*conversations: list[Any], max_tokens: int = 120, **options: Any) -> LLM:
    """A model whose drafter knows what it answers to these conversations at temperature 0, and how sure to be."""
    plain = tiny_llm("none")
    texts = [
        [*answer.prompt_token_ids, *answer.outputs[0].token_ids]
        for answer in plain.chat(list(conversations), SamplingParams(temperature=0, max_tokens=max_tokens))
    ]
    longest = max(map(len, texts))
    return tiny_llm(SureOracle(texts, VOCAB, wrong_at=range(0, longest, 7)), **{"policy": "fixed"} | options)


class Live:
    """A server that runs in a thread."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.server: DrainingServer = make_server(service)
        self._thread = threading.Thread(target=lambda: asyncio.run(self.server.serve()), daemon=True)

    @property
    def port(self) -> int:
        return self.server.servers[0].sockets[0].getsockname()[1]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        self._thread.start()
        wait_for(lambda: self.server.started)

    def stop(self) -> None:
        self.server.should_exit = True
        self._thread.join(30)
        assert not self._thread.is_alive(), "the server does not stop"


def wait_for(condition: Any, seconds: float = 20.0) -> None:
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit, "it does not happen"
        time.sleep(0.01)


def settings(**options: Any) -> ServeSettings:
    return ServeSettings(**{"port": 0, "log_level": "warning", "shutdown_seconds": 5.0} | options)


@contextmanager
def live(llm: LLM, **options: Any) -> Iterator[Live]:
    """A server for the length of the body."""
    running = Live(Service.of(llm, settings(**options)))
    running.start()
    try:
        yield running
    finally:
        running.stop()
