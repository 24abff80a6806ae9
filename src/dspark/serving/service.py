"""All that the routes share."""

from __future__ import annotations

import asyncio
import secrets
import time
from dataclasses import dataclass, field

from dspark.engine import LLM, EngineCore
from dspark.serving.chat_prompt import template_of, thinks
from dspark.serving.engine_loop import EngineLoop
from dspark.serving.errors import ApiError
from dspark.serving.grammar import Grammars
from dspark.serving.metrics import Metrics
from dspark.serving.settings import ServeSettings
from dspark.serving.texts import Texts
from dspark.serving.tools import ToolSyntax
from dspark.serving.tracing import NoTracing, OtelTracing, Tracing


@dataclass(frozen=True, kw_only=True)
class Service:
    """One model behind HTTP.

    Attributes:
        llm: target, drafter and engine; the engine belongs to :attr:`loop`.
        settings: of the server.
        metrics: what happened.
        loop: the engine's thread.
        texts: tokenises.
        grammars: compiles the forms of answers; used on the thread of ``texts``.
        model: name of the model for clients.
        tools: how the model writes tool calls.
        thinks: whether it can begin with thoughts.
        tracing: makes traces of requests.
        started: wall clock, seconds.
    """

    llm: LLM
    settings: ServeSettings
    metrics: Metrics
    loop: EngineLoop
    texts: Texts
    grammars: Grammars
    model: str
    tools: ToolSyntax
    thinks: bool
    tracing: Tracing = field(default_factory=NoTracing)
    started: int = field(default_factory=lambda: int(time.time()))

    @classmethod
    def of(cls, llm: LLM, settings: ServeSettings) -> Service:
        """Put it together; :attr:`loop` is still to be started."""
        core, tokenizer, metrics = llm.engine, llm.loaded.tokenizer, Metrics()
        texts = Texts(tokenizer)
        template = template_of(tokenizer)
        model = settings.served_model_name or llm.loaded.name
        metrics.describe({"model": model, "drafter": core.drafter.name, "policy": core.policy.name})
        if llm.costs is not None:
            metrics.profile(llm.costs, core.options.max_batch_rows, lambda: _context(core))
        return cls(
            llm=llm,
            settings=settings,
            metrics=metrics,
            loop=EngineLoop(core, max_queue=settings.max_queue, metrics=metrics),
            texts=texts,
            grammars=Grammars(texts.tokenizer, core.target.facts.vocab_size, core.eos_ids),
            model=model,
            tools=ToolSyntax.of(template),
            thinks=thinks(template),
            tracing=NoTracing() if settings.otel_endpoint is None else OtelTracing.to_endpoint(settings.otel_endpoint),
        )

    def check_model(self, name: str | None) -> None:
        """See that a request asks for the model that is here.

        Raises:
            ApiError: 404.
        """
        if name is not None and name != self.model:
            message = f"there is no model {name[:80]!r} here; this server has {self.model!r}"
            raise ApiError(404, message, param="model", code="model_not_found")

    async def drain(self) -> None:
        """Let what runs end, within limits, and stop."""
        await self.loop.drain(self.settings.shutdown_seconds)
        self.texts.close()
        await asyncio.to_thread(self.tracing.close)

    async def close(self) -> None:
        """Stop at once."""
        await self.loop.drain(0.0)
        self.texts.close()
        await asyncio.to_thread(self.tracing.close)


def _context(core: EngineCore) -> float:
    """Mean number of keys that a row of the latest step saw."""
    point = core.scheduling().point
    return 0.0 if point is None else point.context


def fresh_id(prefix: str) -> str:
    """A name for an HTTP request."""
    return f"{prefix}-{secrets.token_hex(12)}"
