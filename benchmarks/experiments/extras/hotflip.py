"""HotFlip beside exhaustive search and random replacements."""

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

import regard
from benchmarks.experiments.runner import TrainedRun
from regard.attacks import TEXT_ATTACKS, HotFlip
from regard.data.embedded import TEXTS
from regard.inference.edited_text import EditedText

# replacements per step, and held-out texts
K, COUNT = 64, 100


def values(run: TrainedRun) -> dict[str, Any]:
    """Successes in percent of those of exhaustive search, CPU time likewise; of seed 0 also every attack."""
    predictor, (texts, labels) = run.predictor, held_out(run.config.data)
    regard.attack(predictor, texts[:2], labels[:2], HotFlip(flips=1, k=K))  # the first calls of a process are slow
    results, seconds = {}, {}
    for name, k in (("best", K), ("all", None)):
        begun = time.process_time()
        results[name] = regard.attack(predictor, texts, labels, HotFlip(flips=1, k=k))
        seconds[name] = time.process_time() - begun
    broken = {name: int((result.broken & ~result.was_broken).sum()) for name, result in results.items()}
    found = {
        "right": int((~results["all"].was_broken).sum()),
        "share": 100 * broken["best"] / max(broken["all"], 1),
        "random share": 100 * at_random(predictor, texts, labels, run.seed) / max(broken["all"], 1),
        "time": 100 * seconds["best"] / seconds["all"],
        "queries": {name: float(result.queries.double().mean()) for name, result in results.items()},
    }
    if run.seed == 0:
        attacked = {name: regard.attack(predictor, texts, labels, attack()) for name, attack in TEXT_ATTACKS.items()}
        found["under"] = {name: result.accuracy for name, result in attacked.items()}
    return found


def held_out(data: str) -> tuple[list[str], list[str]]:
    """Test texts, evenly spaced, and their classes."""
    test = TEXTS[data].splits(0).test
    rows = [n * len(test) // COUNT for n in range(COUNT)]
    return [test.texts[n] for n in rows], [test.classes[test.labels[n]] for n in rows]


def at_random(predictor: Any, texts: Sequence[str], labels: Sequence[str], seed: int) -> int:
    """The successes of K replacements drawn at random per text."""
    rng = np.random.default_rng(seed)
    words = [text for text in predictor.token_texts().texts if text is not None]
    targets, count = predictor.attack_targets(texts, labels), 0
    with torch.no_grad():
        for text, target in zip(texts, targets, strict=True):
            places = predictor.token_places(text)
            chosen = zip(rng.integers(len(places), size=K), rng.integers(len(words), size=K), strict=True)
            drawn = [EditedText(text).replace(places[i].start, places[i].end, words[v]) for i, v in chosen]
            is_wrong = predictor.attack_scores([EditedText(text), *drawn], [target] * (K + 1)).is_wrong
            count += bool(is_wrong[1:].any()) and not bool(is_wrong[0])
    return count
