"""SIGHTS: how a run that looks at pictures is made ready, by the name of its task's class."""

from collections.abc import Callable
from pathlib import Path

from regard.cli.loading import Weights
from regard.tasks.sight import Captioning, Classifying, Glimpsing, Sight


def _classifying(run: Path, weights: Weights, device: str, threads: int | None) -> tuple[Sight, int]:
    from regard.cli.pictures import load

    loaded = load(run, weights, device, threads)
    return Classifying(loaded.facts, loaded.model), loaded.step


def _glimpsing(run: Path, weights: Weights, device: str, threads: int | None) -> tuple[Sight, int]:
    from regard.cli.glimpses import load

    loaded = load(run, weights, device, threads)
    return Glimpsing(loaded.facts, loaded.model), loaded.step


def _captioning(run: Path, weights: Weights, device: str, threads: int | None) -> tuple[Sight, int]:
    from regard.cli.captions import load

    loaded = load(run, weights, device, threads)
    return Captioning(loaded.captioner), loaded.step


SIGHTS: dict[str, Callable[[Path, Weights, str, int | None], tuple[Sight, int]]] = {
    "ClassifyImage": _classifying,
    "Glimpse": _glimpsing,
    "Caption": _captioning,
}
