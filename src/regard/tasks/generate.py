"""Generate: draw new pictures of the class that is asked for.  No torch here: a command line reads the options."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

if TYPE_CHECKING:
    from torch import nn

    from regard.tasks.generation import Generation

# which map the attention block looks at, by the share of the picture's size
PLACES: dict[str, int | None] = {"none": None, "quarter": 0, "half": 1, "whole": 2}


@dataclass(frozen=True)
class Generate:
    """Draw new pictures of a class, by a generator and a discriminator with self-attention (SAGAN)."""

    # what rates count
    COUNTED: ClassVar[str] = "images"
    # minutes of a training that nothing else ends, by the kind of data
    MINUTES: ClassVar[dict[str, float]] = {"digits": 12.0, "files": 240.0}
    # two players that answer each other want short memories and steady steps
    TRAINING: ClassVar[dict[str, Any]] = {
        "lr": 2.5e-4,
        "betas": (0.0, 0.9),
        "schedule": "constant",
        "warmup": 0,
        "clip": None,
    }

    data: Literal["digits"] | None = None
    """Embedded data that needs no file: 1,797 written digits of 8 by 8 pixels."""
    train: Path | None = None
    """A folder of your own: IDX files as MNIST has them, plain or .gz, or a folder of pictures a class."""
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
        if self.data not in (None, "digits"):
            raise ValueError(f"unknown data {self.data!r}; known are: digits")
        if self.attention not in PLACES:
            raise ValueError(f"unknown attention {self.attention!r}; known are: {', '.join(PLACES)}")
        if self.train is not None:
            object.__setattr__(self, "train", Path(self.train))
            if self.data is not None:
                raise ValueError(f"data={self.data!r} and train={self.train} exclude each other; give one of them")
        if self.size is not None:
            if self.train is None:
                raise ValueError(f"size={self.size} belongs to pictures of your own; give train=FOLDER as well")
            if self.size < 4 or self.size % 4:
                raise ValueError(
                    f"size must be a multiple of 4, got {self.size}; try size={max(4, self.size // 4 * 4)}"
                )
        for name in ("width", "noise", "judge"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be 1 or more, got {getattr(self, name)}; try {name}=32")
        if self.batch < 2:
            raise ValueError(f"batch must be 2 or more: one image has no spread, got {self.batch}; try batch=32")
        for name in ("shift", "seed"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be 0 or more, got {getattr(self, name)}; try {name}=0")
        if not self.faster > 0:
            raise ValueError(f"faster must be positive, got {self.faster}; try faster=8")
        if not 0 <= self.keep < 1:
            raise ValueError(f"keep must be 0 or more and below 1, got {self.keep}; try keep=0.995")

    @property
    def kind(self) -> str:
        """The embedded data, or "files"."""
        return "digits" if self.train is None else "files"

    @property
    def named(self) -> bool:
        """Was it said what to learn from?"""
        return self.data is not None or self.train is not None

    @staticmethod
    def unsaid(name: str) -> str:
        """What an option is when nobody says it, for a line of help; empty if the option's own help tells."""
        return {"data": "digits, if there is no --train"}.get(name, "")

    @property
    def title(self) -> str:
        """What is trained on what."""
        return f"a generator on {self.kind if self.train is None else self.train.name}"

    def choice(self, name: str) -> Any:
        """An option; "metric" is what decides which weights are best."""
        return "distance" if name == "metric" else getattr(self, name)

    def higher(self, score: str) -> bool:
        """Is more better?"""
        return score != "distance"

    def placed(self) -> Generate:
        """Files by their full names: a run goes on wherever the command is given."""
        return self if self.train is None else replace(self, train=self.train.absolute())

    def versions(self, names: Sequence[str]) -> dict[str, Generate]:
        """The same with the attention block at each of these places."""
        return {name: replace(self, attention=name) for name in names}  # type: ignore[arg-type]

    def words(self) -> list[str]:
        """What a command line types to choose this version."""
        return ["--attention", self.attention]

    def next(self, run: str) -> str:
        """The command that uses a run."""
        return f"regard predict {run} CLASS --picture drawn.png"

    def prepare(self, folder: Path, new: bool = True) -> Generation:
        """The images, read and parted, and the classifier that recognises them."""
        from regard.tasks.generation import Generation

        return Generation.of(self, folder, new)

    def rehearse(self) -> None:
        """Raises if the model cannot be built and called."""
        from regard.tasks.generation import rehearse

        rehearse(self)

    def fresh(self, folder: Path) -> nn.Module:
        """The model of a run, without its weights."""
        from regard.tasks.generation import build
        from regard.tasks.pictures import recalled

        return build(self, recalled(folder))
