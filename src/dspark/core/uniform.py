"""Counter-based uniforms: the same (seed, counter, stream) gives the same number, alone or in any batch.

A request draws all its randomness from here. The counter is the request's round number, so numbers are never reused in
a later round: a draft that was dropped leaves no trace in the draws that replace it.
"""

from __future__ import annotations

import numpy as np

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


def _mix(state: np.ndarray) -> np.ndarray:
    """Finaliser of SplitMix64 (Steele, Lea, Flood 2014), element-wise on uint64."""
    state = (state ^ (state >> np.uint64(30))) * _MIX_1
    state = (state ^ (state >> np.uint64(27))) * _MIX_2
    return state ^ (state >> np.uint64(31))


def uniforms(seeds: np.ndarray, counters: np.ndarray, stream: int, count: int) -> np.ndarray:
    """Draw uniforms in [0, 1).

    Args:
        seeds: [R] uint64, one per request.
        counters: [R] uint64, the request's round number.
        stream: small integer naming the purpose (draft, accept, emit), so that purposes never share numbers.
        count: numbers per request.

    Returns:
        [R, count] float64 with 53 random bits each.
    """
    with np.errstate(over="ignore"):
        key = _mix(np.asarray(seeds, np.uint64) + _GOLDEN)
        key = _mix(key ^ _mix((np.asarray(counters, np.uint64) + np.uint64(1)) * _GOLDEN))
        key = _mix(key + np.uint64(stream + 1) * _MIX_2)
        lanes = (np.arange(1, count + 1, dtype=np.uint64) * _GOLDEN)[None, :]
        bits = _mix(_mix(key[:, None] + lanes))
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53
