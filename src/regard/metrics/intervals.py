"""95 % intervals of shares and means.  No torch here.

None is a single point: examples that are all alike do not prove that others are.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

# the quantile of a normal distribution that leaves 2.5 % on either side
_Z = 1.959963984540054
# a share below this is counted as this, so that −log p is a number
_LEAST = 1e-300

# resamples of a bootstrap, numbers that are drawn at once, and values above which a normal distribution is as good
_RESAMPLES, _MAX_DRAWN, _MAX_BOOTSTRAP = 1000, 1 << 22, 10_000

Interval = tuple[float, float]


def share_interval(n: int, p: float) -> Interval:
    """(p + z²/2n ± z √(p(1 − p)/n + z²/4n²)) / (1 + z²/n), z = 1.96: the interval of a share p of n  (Wilson 1927).

    In percent. Of no examples it is all that a share can be.
    """
    if not n:
        return 0.0, 100.0
    center = p + _Z**2 / (2 * n)
    half = _Z * math.sqrt(p * (1 - p) / n + _Z**2 / (4 * n**2))
    low, high = ((center + side * half) / (1 + _Z**2 / n) for side in (-1, 1))
    # rounding must not put the share itself outside, nor an end beyond all shares
    return 100.0 * max(min(low, p), 0.0), 100.0 * min(max(high, p), 1.0)


def mean_interval(values: ArrayLike) -> Interval:  # "n", from 0 to 1
    """mean ± z s / √n, z = 1.96, within 0 to 100 percent: the interval of a mean by the central limit theorem.

    Values that are all alike have no spread: then it is the interval of a share of that size, which has the largest
    spread of all values from 0 to 1.
    """
    numbers = np.asarray(values, np.float64)
    mean = float(numbers.mean())
    if _are_alike(numbers):
        return share_interval(len(numbers), mean)
    half = _half_width(numbers)
    return 100.0 * max(mean - half, 0.0), 100.0 * min(mean + half, 1.0)


def nats_interval(nats: ArrayLike) -> Interval:  # "n", 0 or more
    """The 2.5 % and 97.5 % quantiles of the mean of −log p over bootstrap resamples, never below 0  (Efron 1979).

    Of more than ten thousand values it is mean ± z s / √n, z = 1.96. Values that are all alike have no spread: then it
    is −log of the interval of the share exp(−mean).
    """
    numbers = np.asarray(nats, np.float64)
    mean = float(numbers.mean())
    if _are_alike(numbers):
        low, high = (max(end / 100.0, _LEAST) for end in share_interval(len(numbers), math.exp(-mean)))
        return min(-math.log(high), mean), max(-math.log(low), mean)
    if len(numbers) > _MAX_BOOTSTRAP:
        half = _half_width(numbers)
        return max(mean - half, 0.0), mean + half
    low, high = np.quantile(bootstrap_sums(numbers[:, None])[:, 0] / len(numbers), (0.025, 0.975)).tolist()
    return min(low, mean), max(high, mean)


def bootstrap_sums(rows: NDArray[Any]) -> NDArray[Any]:  # "n k" -> "m k"
    """The sums of the rows in resamples with replacement, as many rows in each as there are."""
    n = len(rows)
    random, shares = np.random.default_rng(0), np.full(n, 1 / n)
    sums = []
    # a part of the draws at a time: all of them would be a thousand numbers per row
    for start in range(0, _RESAMPLES, size := max(1, _MAX_DRAWN // n)):
        sums.append(random.multinomial(n, shares, min(size, _RESAMPLES - start)) @ rows)
    return np.concatenate(sums)


def _are_alike(values: NDArray[np.float64]) -> bool:
    return len(values) == 1 or float(np.ptp(values)) <= 1e-12 * float(np.abs(values).max())


def _half_width(values: NDArray[np.float64]) -> float:
    return _Z * float(values.std(ddof=1)) / math.sqrt(len(values))
