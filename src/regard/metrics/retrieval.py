"""Metrics of retrieval: the place of the right candidate among all candidates of a query.  No torch here.

A candidate with the same score as the right one counts as better: a model that gives all candidates one score finds
nothing.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from regard.metrics.intervals import Interval, mean_interval, share_interval


def ranks(scores: ArrayLike, right: ArrayLike) -> NDArray[np.int64]:  # "q c", "q" -> "q"
    """The rank, 1 for the best, of the right candidate of every query; ties and NaN count against it."""
    values, columns = np.asarray(scores), np.asarray(right)
    if values.ndim != 2 or columns.shape != values.shape[:1] or not len(columns):
        raise ValueError(
            f"scores must be (queries, candidates) with one right candidate per query, got {values.shape} and "
            f"{columns.shape}; give one row per query, and at least one"
        )
    if not np.issubdtype(columns.dtype, np.integer) or columns.min() < 0 or columns.max() >= values.shape[1]:
        raise ValueError(
            f"right must be candidates from 0 to {values.shape[1] - 1}, got {columns.min()} to {columns.max()}; "
            "give every candidate a column of scores"
        )
    of_right = values[np.arange(len(columns)), columns][:, None]
    return values.shape[1] - (values < of_right).sum(1)


def without_other_right(
    scores: NDArray[np.float64], right: ArrayLike, answers: Sequence[NDArray[np.int64]]
) -> NDArray[np.float64]:  # "q c", "q" -> "q c"
    """The scores with −∞ for the other right candidates of a query, no rivals of it  (filtered; Bordes et al. 2013).

    `answers` are all right candidates of every query, `right` the one that is sought.
    """
    rivals = scores.copy()
    for n, column in enumerate(np.asarray(right)):
        rivals[n, answers[n]] = -np.inf
        rivals[n, column] = scores[n, column]
    return rivals


def recall_at(right_ranks: NDArray[np.int64], k: int) -> float:  # "q"
    """Queries whose right candidate is among the first k, in percent; `right_ranks` are those of `ranks`."""
    return 100.0 * float((right_ranks <= k).mean())


def recall_interval(right_ranks: NDArray[np.int64], k: int) -> Interval:  # "q"
    """The 95 % interval of `recall_at`  (Wilson 1927)."""
    return share_interval(len(right_ranks), float((right_ranks <= k).mean()))


def mean_reciprocal_rank(right_ranks: NDArray[np.int64]) -> float:  # "q"
    """Σ 1 / rank over the queries, divided by their number, in percent  (Voorhees 1999)."""
    return 100.0 * float((1.0 / right_ranks).mean())


def reciprocal_rank_interval(right_ranks: NDArray[np.int64]) -> Interval:  # "q"
    """The 95 % interval of `mean_reciprocal_rank`."""
    return mean_interval(1.0 / right_ranks)
