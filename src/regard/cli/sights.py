"""SIGHTS: how a run that looks at pictures is made ready, by the name of its task's class."""

from collections.abc import Callable
from pathlib import Path

from regard.cli.loading import Weights
from regard.tasks.sight import Classifying, Sight


def _classifying(run: Path, weights: Weights, device: str, threads: int | None) -> tuple[Sight, int]:
    from regard.cli.pictures import load

    loaded = load(run, weights, device, threads)
    return Classifying(loaded.facts, loaded.model), loaded.step


SIGHTS: dict[str, Callable[[Path, Weights, str, int | None], tuple[Sight, int]]] = {
    "ClassifyImage": _classifying,
}
