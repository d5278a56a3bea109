"""Span F1: the labelled spans of predicted tags against those of the reference, strict and lenient.

    precision = right / predicted;   recall = right / expected;   F1 = 2 right / (predicted + expected), in percent

Lenient is the reading of conlleval: I- without a beginning begins a span. Strict leaves out malformed spans, so that a
model that breaks its scheme is not rewarded (seqeval's mode "strict").
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.common.tag_schemes import Reading, TagScheme
from regard.metrics.intervals import Interval, bootstrap_sums, share_interval


class SpanScores(NamedTuple):
    """Precision, recall and F1 over all spans, in percent, with the 95 % interval of F1."""

    precision: float
    recall: float
    f1: float
    interval: Interval


def span_scores(
    predictions: Sequence[Sequence[str]],
    references: Sequence[Sequence[str]],
    scheme: TagScheme,
    reading: Reading = "strict",
) -> SpanScores:
    """The scores of predicted tags, one sequence per sentence.

    The interval is by bootstrap over sentences. If every resample scores the same, as those of sentences that are all
    right do, it is that of a share of the sentences with spans (Wilson 1927).
    """
    if len(predictions) != len(references):
        raise ValueError(
            f"predictions and references must be as many sentences, got {len(predictions)} and {len(references)}; "
            "give one of each per sentence"
        )
    counts = np.zeros((len(references), 3), np.int64)  # right, predicted, expected
    for n, (predicted, right) in enumerate(zip(predictions, references, strict=True)):
        if len(predicted) != len(right):
            raise ValueError(
                f"sentence {n} has {len(predicted)} predicted tags and {len(right)} of the reference; give one of each "
                "per word"
            )
        predicted_spans, reference_spans = set(scheme.spans(predicted, reading)), set(scheme.spans(right, reading))
        counts[n] = len(predicted_spans & reference_spans), len(predicted_spans), len(reference_spans)
    right, predicted_count, expected_count = counts.sum(0).tolist()
    return SpanScores(
        100.0 * right / max(predicted_count, 1),
        100.0 * right / max(expected_count, 1),
        float(_f1(counts.sum(0))),
        _interval(counts),
    )


def count_malformed(predictions: Sequence[Sequence[str]], scheme: TagScheme) -> int:
    """The number of sequences that break the scheme."""
    return sum(scheme.violation(tags) is not None for tags in predictions)


def _f1(counts: NDArray[np.int64]) -> NDArray[np.float64]:  # "*b 3" -> "*b"
    return 200.0 * counts[..., 0] / np.maximum(counts[..., 1] + counts[..., 2], 1)


def _interval(counts: NDArray[np.int64]) -> Interval:
    # sentences without spans say nothing about F1, neither in a resample nor in a share
    counts = counts[counts.any(1)]
    n = len(counts)
    if not n:
        return share_interval(0, 0.0)
    low, high = np.quantile(_f1(bootstrap_sums(counts)), (0.025, 0.975)).tolist()
    return share_interval(n, low / 100.0) if low == high else (low, high)
