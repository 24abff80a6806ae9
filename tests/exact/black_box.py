"""Exact laws of a sampler that is only called: it is a step function of its uniforms, so the steps are bisected.

``run(block, accept, emit)`` judges ``n`` copies of blocks, any mixture, with given uniforms: accept [n, G], emit [n].
It returns how many drafts each accepted and which token it emitted, [n] each. Nothing else of the sampler is used, so
the same functions measure a rule, a room or a whole engine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

Run = Callable[[np.ndarray, np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]

NEARLY_ONE = 1.0 - 2.0**-53
STEPS = 36


def supremum(holds: Callable[[np.ndarray], np.ndarray], count: int) -> np.ndarray:
    """Measure of {u in [0, 1): holds(u)} for ``count`` predicates at once, each true on [0, s) or nowhere."""
    low, high = np.zeros(count), np.ones(count)
    never, always = ~holds(low), holds(np.full(count, NEARLY_ONE))
    for _ in range(STEPS):
        middle = (low + high) / 2
        inside = holds(middle)
        low, high = np.where(inside, middle, low), np.where(inside, high, middle)
    return np.where(never, 0.0, np.where(always, 1.0, low))


def acceptance_laws(run: Run, lens: Sequence[int]) -> list[np.ndarray]:
    """Probability that slot k is accepted after the slots before it, for every slot of every block: [l] each."""
    block = np.repeat(np.arange(len(lens)), lens)
    slot = np.concatenate([np.arange(length) for length in lens]).astype(int)

    def accepted(u: np.ndarray) -> np.ndarray:
        accept = np.zeros((len(block), max(lens)))
        accept[np.arange(len(block)), slot] = u
        return run(block, accept, np.full(len(block), 0.5))[0] > slot

    sizes = supremum(accepted, len(block)) if len(block) else np.zeros(0)
    return np.split(sizes, np.cumsum(lens)[:-1])


def block_laws(run: Run, lens: Sequence[int], vocab: int) -> list[np.ndarray]:
    """Joint law of accepted count and emitted token of every block: [l + 1, V] each, summing to one."""
    accept_laws = acceptance_laws(run, lens)
    ends = [(b, n) for b, length in enumerate(lens) for n in range(length + 1) if _mass(accept_laws[b], n) > 0]
    block = np.array([b for b, _ in ends])
    count = np.array([n for _, n in ends])
    accept = np.zeros((len(ends), max(max(lens), 1)))
    for i, (b, n) in enumerate(ends):
        accept[i, n : lens[b]] = NEARLY_ONE
    cells = np.repeat(np.arange(len(ends)), vocab - 1)
    bound = np.tile(np.arange(1, vocab), len(ends))

    def below(u: np.ndarray) -> np.ndarray:
        accepted, token = run(block[cells], accept[cells], u)
        assert (accepted == count[cells]).all(), "the emitted token's uniform must not decide about acceptance"
        return token < bound

    steps = supremum(below, len(cells)).reshape(len(ends), vocab - 1)
    shares = np.diff(np.concatenate([np.zeros((len(ends), 1)), steps, np.ones((len(ends), 1))], 1), axis=1)
    assert (shares >= 0).all(), "tokens must come in the order of the uniform"
    laws = [np.zeros((length + 1, vocab)) for length in lens]
    for (b, n), share in zip(ends, shares, strict=True):
        laws[b][n] = _mass(accept_laws[b], n) * share
    return laws


def _mass(accept_law: np.ndarray, count: int) -> float:
    """Probability of exactly ``count`` accepted drafts."""
    survived = float(np.prod(accept_law[:count]))
    return survived * (1.0 - float(accept_law[count])) if count < len(accept_law) else survived
