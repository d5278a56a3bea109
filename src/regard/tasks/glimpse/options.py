"""Glimpse: which class is a picture of, seen through a few glimpses?  No torch here: a command line reads this."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

from regard.tasks.base import LabelledImageConfig, Room


@dataclass(frozen=True)
class Glimpse(LabelledImageConfig):
    """Classify images through a few small glimpses, and learn where to look: the recurrent attention model (RAM)."""

    MINUTES: ClassVar[dict[str, float]] = {"digits": 1.5, "files": 40.0}
    # a small model: it may learn faster than most
    TRAINING: ClassVar[dict[str, Any]] = {"lr": 2e-3, "warmup": 100}

    scene: Literal["plain", "translated", "cluttered"] = "plain"
    """Pictures as they are; each somewhere on a larger canvas; or there among pieces of others."""
    canvas: int | None = None
    """The canvas is so many pixels wide and high; left open, 4 more than twice the picture: 60 for 28."""
    clutter: int | None = None
    """Pieces of other pictures that lie around in a cluttered scene; left open, 4."""
    piece: int | None = None
    """Pixels of such a piece each way; left open, two sevenths of the picture, 3 at least: 8 for 28."""

    glimpses: int = 6
    """How often the model looks before it answers."""
    patch: int | None = None
    """Cells of a glimpse each way; left open, 8 for pictures of 28 and 4 at least, in a scene 12 and 6 at least."""
    scales: int | None = None
    """Every scale sees twice as far as the one before, half as sharply; left open, 1, and 3 in a scene."""
    what: int = 128
    """Width of the layer that reads what is seen."""
    where: int = 128
    """Width of the layer that reads where it is."""
    glimpse: int = 256
    """Width of both together."""
    hidden: int = 256
    """Width of the core's state."""
    core: Literal["rnn", "lstm"] = "rnn"
    """What joins the glimpses: a plain network of rectified units, or an LSTM."""
    std: float = 0.15
    """How far places are drawn around their mean while training; the picture goes from -1 to 1."""
    draws: int = 1
    """Paths that are drawn for every training image."""
    smoothing: float = 0.0
    """Share of the target's probability that goes to all classes (label smoothing)."""
    shift: int = 0
    """Plain training images are moved by up to so many pixels each way; a scene is composed anew each time instead."""
    batch: int = 128
    """Images of a batch."""
    seed: int = 0
    """Decides initial weights, the order of batches, scenes, what is drawn, and which images are held out."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.canvas is not None and self.scene == "plain":
            raise ValueError(f"canvas={self.canvas} belongs to a scene; give scene='translated' as well")
        for name in ("clutter", "piece"):
            if getattr(self, name) is not None and self.scene != "cluttered":
                raise ValueError(f"{name}={getattr(self, name)} belongs to scene='cluttered'; give that as well")
        if self.shift and self.scene != "plain":
            raise ValueError(f"shift={self.shift} belongs to scene='plain': others are composed anew; leave it out")
        whole = ("size", "canvas", "clutter", "piece", "glimpses", "patch", "scales", "what", "where", "glimpse")
        self._least(1, dict.fromkeys((*whole, "hidden", "draws", "batch"), 8))
        self._least(0, {"shift": 0, "seed": 0})
        self._share({"smoothing": 0.1})
        if not self.std > 0:
            raise ValueError(f"std must be positive, got {self.std}; try std=0.15")

    @property
    def title(self) -> str:
        return f"glimpses on {'' if self.scene == 'plain' else f'{self.scene} '}{self.source}"

    def choice(self, name: str) -> Any:
        return "nll" if name == "metric" else getattr(self, name)

    def higher(self, score: str) -> bool:
        return score == "accuracy"

    def versions(self, names: Sequence[str]) -> dict[str, Self]:
        """The same with each of these numbers of glimpses."""
        if wrong := [name for name in names if not name.isdecimal()]:
            raise ValueError(f"glimpses must be whole numbers, 1 or more, got {wrong[0]!r}; try 1,2,4")
        return {name: replace(self, glimpses=int(name)) for name in names}

    def words(self) -> list[str]:
        return ["--glimpses", str(self.glimpses)]

    def next(self, run: str) -> str:
        return f"regard predict {run} PICTURE --picture path.png"

    def room(self) -> Room:
        from regard.tasks.glimpse import task as glimpsing

        return glimpsing
