"""Generate: draw new pictures of the class that is asked for.  No torch here: a command line reads the options."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from regard.tasks.base import LabelledImageConfig, Room

# which map the attention block looks at, by the share of the picture's size
PLACES: dict[str, int | None] = {"none": None, "quarter": 0, "half": 1, "whole": 2}


@dataclass(frozen=True)
class GenerateImage(LabelledImageConfig):
    """Draw new pictures of a class, by a generator and a discriminator with self-attention (SAGAN)."""

    MINUTES: ClassVar[dict[str, float]] = {"digits": 12.0, "files": 240.0}
    # two players that answer each other want short memories and steady steps
    TRAINING: ClassVar[dict[str, Any]] = {
        "lr": 2.5e-4,
        "betas": (0.0, 0.9),
        "schedule": "constant",
        "warmup": 0,
        "clip": None,
    }

    size: int | None = None
    """Pictures become so many pixels wide and high, a multiple of 4; left open, they must be of one such size."""

    attention: Literal["none", "quarter", "half", "whole"] = "whole"
    """Which map the attention block looks at, in both networks: that of a quarter, half or all of the size, or none."""
    width: int = 16
    """Channels of the largest map; those of half the size have twice, those of a quarter four times as many."""
    noise: int = 64
    """How many numbers are drawn for a picture."""
    faster: float = 8.0
    """The discriminator learns at so many times --lr."""
    keep: float = 0.995
    """Pictures are drawn with weights averaged over steps: so much of the average is kept at every step."""
    shift: int = 0
    """Training images are moved by up to so many pixels each way; generated ones will be as well."""
    judge: int = 300
    """Steps in which the classifier learns that recognises what was drawn."""
    batch: int = 32
    """Images of a batch."""
    seed: int = 0
    """Decides initial weights, the order of batches, what is drawn, and which images are held out."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.size is not None and (self.size < 4 or self.size % 4):
            raise ValueError(f"size must be a multiple of 4, got {self.size}; try size={max(4, self.size // 4 * 4)}")
        self._least(1, {"width": 32, "noise": 32, "judge": 32})
        if self.batch < 2:
            raise ValueError(f"batch must be 2 or more: one image has no spread, got {self.batch}; try batch=32")
        self._least(0, {"shift": 0, "seed": 0})
        if not self.faster > 0:
            raise ValueError(f"faster must be positive, got {self.faster}; try faster=8")
        self._share({"keep": 0.995})

    @property
    def title(self) -> str:
        return f"a generator on {self.source}"

    def choice(self, name: str) -> Any:
        return "distance" if name == "metric" else getattr(self, name)

    def higher(self, score: str) -> bool:
        return score != "distance"

    def versions(self, names: Sequence[str]) -> dict[str, Self]:
        """The same with the attention block at each of these places."""
        return {name: replace(self, attention=name) for name in names}  # type: ignore[arg-type]

    def words(self) -> list[str]:
        return ["--attention", self.attention]

    def next(self, run: str) -> str:
        return f"regard predict {run} CLASS --picture drawn.png"

    def ahead(self, folder: Path, new: bool) -> str:
        from regard.tasks.generate_image.task import has_judge

        learns = f"a classifier that is to judge drawings learns first, {self.judge} steps"
        return learns if new or not has_judge(folder) else ""

    def room(self) -> Room:
        from regard.tasks.generate_image import task as generation

        return generation
