"""Random numbers as a pure function of whole numbers: a game does not depend on the games beside it."""

import numpy as np
from numpy.typing import NDArray

_INCREMENT, _FIRST, _SECOND = (np.uint64(n) for n in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
_SHIFTS = np.uint64(30), np.uint64(27), np.uint64(31)


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of SplitMix64  (Steele et al. 2014)."""
    x = (x ^ (x >> _SHIFTS[0])) * _FIRST
    x = (x ^ (x >> _SHIFTS[1])) * _SECOND
    return x ^ (x >> _SHIFTS[2])


def hashed(seed: int, rows: NDArray[np.int64], episodes: NDArray[np.int64]) -> NDArray[np.uint64]:  # "n", "n" -> "n"
    """A number per (seed, row, episode)."""
    keys = _mix(np.full(len(rows), seed % (1 << 64), np.uint64) + _INCREMENT)
    for part in (rows, episodes):
        keys = _mix((keys ^ part.astype(np.uint64)) + _INCREMENT)
    return keys


def uniforms(
    seed: int, rows: NDArray[np.int64], episodes: NDArray[np.int64], count: int
) -> NDArray[np.float64]:  # "n", "n" -> "n count"
    """`count` numbers from 0 to below 1 per (seed, row, episode)."""
    steps = np.arange(1, count + 1, dtype=np.uint64) * _INCREMENT
    drawn = _mix(hashed(seed, rows, episodes)[:, None] + steps)
    return (drawn >> np.uint64(11)).astype(np.float64) * 2.0**-53
