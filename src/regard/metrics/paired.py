"""Tests of the difference between two systems on the same examples.  No torch here."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from regard.metrics.intervals import Interval, bootstrap_sums


def mcnemar(first: ArrayLike, second: ArrayLike) -> float:  # booleans "n", "n"
    """p = min(1, 2 Σ_{k ≤ min(b, c)} C(b + c, k) / 2^(b + c)), the exact test of McNemar (1947).

    b and c are the numbers of examples that only the first and only the second has right.
    """
    right, other = _pairs(first, second, np.bool_)
    b, c = int((right & ~other).sum()), int((other & ~right).sum())
    n = b + c
    logs = [math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1) for k in range(min(b, c) + 1)]
    return min(1.0, 2.0 * math.fsum(math.exp(each - n * math.log(2.0)) for each in logs))


def paired_bootstrap(first: ArrayLike, second: ArrayLike) -> tuple[float, Interval, float]:  # "n", "n"
    """mean(second − first), its 95 % interval over resamples of the examples, and p: twice the smaller share of
    resamples on either side of no difference  (Efron 1979; Koehn 2004)."""
    one, two = _pairs(first, second, np.float64)
    differences = two - one
    means = bootstrap_sums(differences[:, None])[:, 0] / len(differences)
    low, high = np.quantile(means, (0.025, 0.975)).tolist()
    # the data themselves count as one resample, so that p is never 0
    side = min(int((means <= 0).sum()), int((means >= 0).sum()))
    return float(differences.mean()), (low, high), min(1.0, 2.0 * (side + 1) / (len(means) + 1))


def _pairs(first: ArrayLike, second: ArrayLike, dtype: type[np.generic]) -> Sequence[np.ndarray]:
    pair = np.asarray(first, dtype), np.asarray(second, dtype)
    if pair[0].shape != pair[1].shape or pair[0].ndim != 1 or not len(pair[0]):
        raise ValueError(
            f"first and second must be numbers of the same examples, got shapes {pair[0].shape} and {pair[1].shape}; "
            "give one of each per example"
        )
    return pair
