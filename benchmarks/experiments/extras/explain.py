"""Explanations of texts in which the words that decide are known."""

from collections.abc import Sequence
from typing import Any

import regard
from benchmarks.experiments.runner import TrainedRun
from regard.attribution import METHODS
from regard.data.embedded import verdicts

# texts whose truth is compared, and texts of faithfulness
_TEXTS, _MEASURED = 100, 10


def values(run: TrainedRun) -> dict[str, Any]:
    """Per method the share of true words, comprehensiveness and agreement with leave-one-out."""
    test = verdicts.splits(0).test
    texts, topics = test.texts[:_TEXTS], [verdicts.CLASSES[label] for label in test.labels[:_TEXTS].tolist()]
    report = regard.faithfulness(run.predictor, texts[:_MEASURED])
    sizes = [len(verdicts.deciding_words(text, topic)) for text, topic in zip(texts, topics, strict=True)]
    return {
        "truth": {method: truth_share(run.predictor, texts, topics, method) for method in METHODS},
        "comprehensiveness": {method: report.comprehensiveness(method) for method in report.methods},
        "agreement": {method: report.agreement(method, "leave-one-out") or 0.0 for method in report.methods},
        "adversarial": report.adversarial_share or 0.0,
        "random": sum(sizes) / len(sizes) / verdicts.LENGTH,
    }


def truth_share(predictor: Any, texts: Sequence[str], topics: Sequence[str], method: str) -> float:
    """Of as many highest-ranked words as decide, the share that does; the mean over texts."""
    shares = []
    for text, topic in zip(texts, topics, strict=True):
        true = set(verdicts.deciding_words(text, topic))
        ranked = regard.attribute(predictor, text, topic, method).ranking()[: len(true)]
        shares.append(len(true & set(ranked)) / len(true))
    return sum(shares) / len(shares)
