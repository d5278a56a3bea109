"""Held-out images of a run for an attack, and the accuracy that an attack leaves of them."""

from pathlib import Path
from typing import Any

from torch import Tensor

from regard.attacks import ATTACKS
from regard.attacks.attack import attack
from regard.inference.bounded_classifier import BoundedClassifier
from regard.tasks.loading import LoadedRun, load_run

# images per run of a comparison
_COUNT = 500


def held_out_images(
    loaded: LoadedRun, options: Any, count: int
) -> tuple[BoundedClassifier, Tensor, Tensor, str]:  # "b c h w", "b"
    """The predictor, at most `count` images evenly spaced in a split, their classes, and the name of the split.

    `options` are those of the task's `Attack`.
    """
    assert isinstance(loaded.predictor, BoundedClassifier)
    x, labels, split = loaded.bounded_examples(options)
    count = min(count, len(x))
    rows = [n * len(x) // count for n in range(count)]
    return loaded.predictor, x[rows], labels[rows], split


def robust_accuracy(run: Path, name: str, eps: float) -> float:
    """The accuracy of the best weights of a run on its test images under an attack, in percent."""
    loaded = load_run(run)
    predictor, x, labels, _ = held_out_images(loaded, loaded.config.Attack(), _COUNT)
    return attack(predictor, x, labels, ATTACKS[name](eps)).accuracy
