"""ClassifyImage: which class is a picture of?  No torch here: a command line reads the options below."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

from regard.tasks.base import LabelledImageConfig, Room

# which options belong to one model alone
_OWN = {"convnet": ("gate", "depths"), "rows": ("heads", "stride")}


@dataclass(frozen=True)
class ClassifyImage(LabelledImageConfig):
    """Classify images: folders of pictures, IDX files, or embedded digits, by a network with any gate."""

    MINUTES: ClassVar[dict[str, float]] = {"digits": 1.0, "files": 20.0}
    SUITS: ClassVar[dict[str, dict[str, Any]]] = {
        "convnet": {"width": 32, "depths": (1, 1, 1)},
        "rows": {"width": 16, "heads": 12},
    }

    model: Literal["convnet", "rows"] = "convnet"
    """Residual blocks that may have a gate, or a gated attention cell that reads row by row."""
    gate: str | None = None
    """convnet: stands at the end of every block: a name of `regard list gates`; left open, none."""
    width: int | None = None
    """convnet: channels of the first stage, and every later one has twice as many; rows: numbers of every head."""
    depths: tuple[int, ...] | None = None
    """convnet: residual blocks of each stage; 1 1 1."""
    heads: int | None = None
    """rows: heads of the cell; 12."""
    stride: int | None = None
    """rows: pixels from one row, and from one patch in it, to the next; left open, an eighth of a picture."""
    dropout: float = 0.1
    """Share of features that is dropped before the last layer while training."""
    smoothing: float = 0.0
    """Share of the target's probability that goes to all classes (label smoothing)."""
    shift: int = 1
    """Training images are moved by up to so many pixels each way."""
    batch: int = 64
    """Images of a batch."""
    seed: int = 0
    """Decides initial weights, the order of batches, shifts, what dropout drops, and which images are held out."""

    def __post_init__(self) -> None:
        if self.gate == "none":
            object.__setattr__(self, "gate", None)
        super().__post_init__()
        self._of_one("model", _OWN)
        if self.depths is not None:
            object.__setattr__(self, "depths", tuple(self.depths))
        self._least(1, {"size": 32, "width": 16, "batch": 64, "heads": 12, "stride": 4})
        self._least(0, {"shift": 0, "seed": 0})
        self._share({"dropout": 0.1, "smoothing": 0.1})

    @property
    def title(self) -> str:
        what = "a network" if self.model == "convnet" else "a reader of rows"
        return f"{what} on {self.source}"

    def choice(self, name: str) -> Any:
        if name == "metric":
            return "nll"
        value = getattr(self, name)
        return self.SUITS[self.model].get(name) if value is None else value

    def higher(self, score: str) -> bool:
        return score == "accuracy"

    def versions(self, names: Sequence[str]) -> dict[str, Self]:
        """The same with each of these gates; "none" is without."""
        return {name: replace(self, gate=name) for name in names}

    def words(self) -> list[str]:
        return [] if self.gate is None else ["--gate", self.gate]

    def next(self, run: str) -> str:
        return f"regard predict {run} PICTURE"

    def room(self) -> Room:
        from regard.tasks.classify_image import task as classification

        return classification
