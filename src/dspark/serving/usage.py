"""Counting tokens, exactly."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from dspark.engine import CompletionOutput, CompletionStats


@dataclass(slots=True)
class Usage:
    """Tokens of an HTTP request: every prompt once, every answer as it was delivered.

    Attributes:
        prompt_tokens: of all prompts.
        detailed: whether to say what became of drafts.
    """

    prompt_tokens: int
    detailed: bool = False
    _completion_tokens: int = 0
    _cached_tokens: int = 0
    _stats: list[CompletionStats] = field(default_factory=list)

    def add(self, done: CompletionOutput) -> None:
        """Count an answer that has ended."""
        self._completion_tokens += len(done.token_ids)
        if done.index == 0:
            self._cached_tokens += done.stats.cached_tokens
        if self.detailed:
            self._stats.append(done.stats)

    def body(self) -> dict[str, Any]:
        """OpenAI's usage object, with a ``dspark`` block if asked for."""
        found: dict[str, Any] = {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self._completion_tokens,
            "total_tokens": self.prompt_tokens + self._completion_tokens,
            "prompt_tokens_details": {"cached_tokens": self._cached_tokens},
        }
        if self.detailed:
            names = ("rounds", "drafted", "verified", "accepted")
            found["dspark"] = {name: sum(getattr(stats, name) for stats in self._stats) for name in names}
        return found
