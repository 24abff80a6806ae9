"""What is asked, and in which order: the same for every arm."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import cycle

import numpy as np

Ids = tuple[int, ...]

MIXED = "mixed"
"""Name of the traffic in which the domains alternate."""

LEAST_TOKENS = 4
"""Shortest answer that is asked for."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """A request to come.

    Attributes:
        prompt: token ids.
        max_tokens: length limit of the answer.
    """

    prompt: Ids
    max_tokens: int


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """Prompts of one kind or of several.

    Attributes:
        name: what reports call it.
        domains: prompts by domain, each at least one; with several domains one prompt of each follows another.
    """

    name: str
    domains: tuple[tuple[Ids, ...], ...]

    @property
    def prompts(self) -> tuple[Ids, ...]:
        """All prompts."""
        return tuple(prompt for domain in self.domains for prompt in domain)

    def jobs(self, max_tokens: int, *seed: int) -> Iterator[Job]:
        """Requests without end: every domain is gone through in random order, again and again.

        Args:
            max_tokens: length limit of every answer.
            seed: numbers that decide about the order.
        """
        rng = np.random.default_rng(seed)
        streams = [_shuffled(domain, rng) for domain in self.domains]
        for stream in cycle(streams):
            yield Job(prompt=next(stream), max_tokens=max_tokens)


def traffics(domains: Sequence[tuple[str, Sequence[Ids]]], *, each: bool, mixed: bool) -> tuple[Traffic, ...]:
    """Traffic of all domains mixed, and of every domain by itself; where there is one domain, that is all.

    Args:
        domains: names and prompts.
        each, mixed: what is wanted, at least one of them.
    """
    assert each or mixed, "no traffic"
    alone = tuple(Traffic(name=name, domains=(tuple(prompts),)) for name, prompts in domains)
    if len(alone) == 1:
        return alone
    together = Traffic(name=MIXED, domains=tuple(entry.prompts for entry in alone))
    return (*((together,) if mixed else ()), *(alone if each else ()))


def staggered(jobs: Iterator[Job], users: int) -> Iterator[Job]:
    """The same jobs, the first of every user cut so that they end one after another, as in the middle of a long run.

    Args:
        jobs: without end.
        users: how many start at a time.
    """
    for number, job in enumerate(jobs, start=1):
        cut = -(-job.max_tokens * number // users) if number < users else job.max_tokens
        yield replace(job, max_tokens=max(cut, min(LEAST_TOKENS, job.max_tokens)))


def _shuffled(prompts: Sequence[Ids], rng: np.random.Generator) -> Iterator[Ids]:
    while True:
        for place in rng.permutation(len(prompts)):
            yield prompts[place]
