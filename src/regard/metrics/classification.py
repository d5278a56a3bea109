"""Metrics of classification: percentages and −log p, with 95 % intervals.  No torch here."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from regard.metrics.intervals import Interval, nats_interval, share_interval

# resamples of a bootstrap
_RESAMPLES = 2_000
# a probability below this is counted as this, so that −log p is a number
_LEAST = 1e-300


def accuracy(predictions: ArrayLike, references: ArrayLike) -> float:  # "n", "n"
    """Predictions that equal their reference, in percent."""
    predicted, right = _pairs(predictions, references)
    return 100.0 * float((predicted == right).mean())


def macro_f1(predictions: ArrayLike, references: ArrayLike) -> float:  # "n", "n"
    """The mean over classes of 2 tp / (2 tp + fp + fn), in percent; classes are those that occur in either."""
    return float(_macro_f1(_confusion(*_pairs(predictions, references))[None])[0])


def nll(probabilities: ArrayLike, references: ArrayLike) -> float:  # "n k", "n"
    """−log p of the reference, in nats, the mean over examples; `references` are numbers of classes."""
    return float(_nats(probabilities, references).mean())


def nll_interval(probabilities: ArrayLike, references: ArrayLike) -> Interval:  # "n k", "n"
    """The 95 % interval of `nll`."""
    return nats_interval(_nats(probabilities, references))


def _nats(probabilities: ArrayLike, references: ArrayLike) -> NDArray[np.float64]:  # "n k", "n" -> "n"
    p, right = np.asarray(probabilities, np.float64), np.asarray(references)
    if p.ndim != 2 or right.shape != p.shape[:1] or not len(right):
        raise ValueError(
            f"probabilities must be (examples, classes) with one reference each, got {p.shape} and {right.shape}; "
            "give one row per reference"
        )
    if not np.issubdtype(right.dtype, np.integer) or right.min() < 0 or right.max() >= p.shape[1]:
        raise ValueError(
            f"references must be classes from 0 to {p.shape[1] - 1}, got {right.min()} to {right.max()}; "
            "give every class a column of probabilities"
        )
    return -np.log(np.maximum(p[np.arange(len(right)), right], _LEAST))


def accuracy_interval(predictions: ArrayLike, references: ArrayLike) -> Interval:  # "n", "n"
    """The 95 % interval of the accuracy, in percent  (Wilson 1927)."""
    predicted, right = _pairs(predictions, references)
    return share_interval(len(right), float((predicted == right).mean()))


def macro_f1_interval(predictions: ArrayLike, references: ArrayLike, *, seed: int = 0) -> Interval:  # "n", "n"
    """The 2.5 % and 97.5 % quantiles of macro F1 over bootstrap resamples of the examples, in percent  (Efron 1979).

    Classes are those of the whole data; one that a resample lacks has an F1 of 0 there, as scikit-learn counts. If all
    examples are right, or none, every resample scores the same, which would be an interval of one point: then it is the
    mean over the classes of the intervals of their recall (Wilson 1927).
    """
    table = _confusion(*_pairs(predictions, references))
    right = int(np.trace(table))
    if right in (0, table.sum()):
        intervals = [share_interval(int(count), float(right > 0)) for count in table.sum(1) if count]
        low, high = (sum(ends) / len(intervals) for ends in zip(*intervals, strict=True))
        return low, high
    # resampling n examples with replacement is drawing the n cells of the confusion matrix they fall into
    draws = np.random.default_rng(seed).multinomial(int(table.sum()), (table / table.sum()).ravel(), _RESAMPLES)
    low, high = np.quantile(_macro_f1(draws.reshape(-1, *table.shape)), (0.025, 0.975))
    return float(low), float(high)


def _pairs(predictions: ArrayLike, references: ArrayLike) -> tuple[NDArray[np.generic], NDArray[np.generic]]:
    predicted, right = np.asarray(predictions), np.asarray(references)
    if predicted.ndim != 1 or predicted.shape != right.shape or not len(right):
        raise ValueError(
            f"predictions and references must be one class per example, got {predicted.shape} and {right.shape}; "
            "give as many of one as of the other, and at least one"
        )
    return predicted, right


def _confusion(predicted: NDArray[np.generic], right: NDArray[np.generic]) -> NDArray[np.int64]:  # -> "k k"
    """The counts of examples by reference (row) and prediction (column)."""
    classes, numbers = np.unique(np.concatenate([right, predicted]), return_inverse=True)
    count = len(classes)
    cells = numbers[: len(right)] * count + numbers[len(right) :]
    return np.bincount(cells, minlength=count**2).reshape(count, count)


def _macro_f1(tables: NDArray[np.int64]) -> NDArray[np.float64]:  # "m k k" -> "m"
    hits = np.diagonal(tables, axis1=-2, axis2=-1)
    either = tables.sum(-1) + tables.sum(-2)  # 2 tp + fp + fn
    return 100.0 * (2 * hits / np.maximum(either, 1)).mean(-1)


# name -> the metric, and whether more is better
METRICS = {"accuracy": (accuracy, True), "macro f1": (macro_f1, True), "nll": (nll, False)}
