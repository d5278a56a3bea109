"""Glimpse: which class is a picture of, seen through a few glimpses?  No torch here: a command line reads this."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

if TYPE_CHECKING:
    from torch import nn

    from regard.tasks.glimpsing import Glimpsing

_SCENES = ("plain", "translated", "cluttered")


@dataclass(frozen=True)
class Glimpse:
    """Classify images through a few small glimpses, and learn where to look: the recurrent attention model (RAM)."""

    # what rates count
    COUNTED: ClassVar[str] = "images"
    # minutes of a training that nothing else ends, by the kind of data
    MINUTES: ClassVar[dict[str, float]] = {"digits": 1.5, "files": 40.0}
    # a small model: it may learn faster than most
    TRAINING: ClassVar[dict[str, Any]] = {"lr": 2e-3, "warmup": 100}

    data: Literal["digits"] | None = None
    """Embedded data that needs no file: 1,797 written digits of 8 by 8 pixels."""
    train: Path | None = None
    """A folder of your own: IDX files as MNIST has them, plain or .gz, or a folder of pictures a class."""
    size: int | None = None
    """Pictures become so many pixels wide and high; left open, they must be of one size already."""
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
        if self.data not in (None, "digits"):
            raise ValueError(f"unknown data {self.data!r}; known are: digits")
        if self.scene not in _SCENES:
            raise ValueError(f"unknown scene {self.scene!r}; known are: {', '.join(_SCENES)}")
        if self.train is not None:
            object.__setattr__(self, "train", Path(self.train))
            if self.data is not None:
                raise ValueError(f"data={self.data!r} and train={self.train} exclude each other; give one of them")
        if self.size is not None and self.train is None:
            raise ValueError(f"size={self.size} belongs to pictures of your own; give train=FOLDER as well")
        if self.canvas is not None and self.scene == "plain":
            raise ValueError(f"canvas={self.canvas} belongs to a scene; give scene='translated' as well")
        for name in ("clutter", "piece"):
            if getattr(self, name) is not None and self.scene != "cluttered":
                raise ValueError(f"{name}={getattr(self, name)} belongs to scene='cluttered'; give that as well")
        if self.shift and self.scene != "plain":
            raise ValueError(f"shift={self.shift} belongs to scene='plain': others are composed anew; leave it out")
        whole = ("size", "canvas", "clutter", "piece", "glimpses", "patch", "scales", "what", "where", "glimpse")
        for name in (*whole, "hidden", "draws", "batch"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be 1 or more, got {value}; try {name}=8")
        for name in ("shift", "seed"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be 0 or more, got {getattr(self, name)}; try {name}=0")
        if not 0 <= self.smoothing < 1:
            raise ValueError(f"smoothing must be 0 or more and below 1, got {self.smoothing}; try smoothing=0.1")
        if not self.std > 0:
            raise ValueError(f"std must be positive, got {self.std}; try std=0.15")

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
        source = self.kind if self.train is None else self.train.name
        return f"glimpses on {'' if self.scene == 'plain' else f'{self.scene} '}{source}"

    def choice(self, name: str) -> Any:
        """An option; "metric" is what decides which weights are best."""
        return "nll" if name == "metric" else getattr(self, name)

    def higher(self, score: str) -> bool:
        """Is more better?"""
        return score == "accuracy"

    def placed(self) -> Glimpse:
        """Files by their full names: a run goes on wherever the command is given."""
        return self if self.train is None else replace(self, train=self.train.absolute())

    def versions(self, names: Sequence[str]) -> dict[str, Glimpse]:
        """The same with each of these numbers of glimpses."""
        if wrong := [name for name in names if not name.isdecimal()]:
            raise ValueError(f"glimpses must be whole numbers, 1 or more, got {wrong[0]!r}; try 1,2,4")
        return {name: replace(self, glimpses=int(name)) for name in names}

    def words(self) -> list[str]:
        """What a command line types to choose this version."""
        return ["--glimpses", str(self.glimpses)]

    def next(self, run: str) -> str:
        """The command that uses a run."""
        return f"regard predict {run} PICTURE --picture path.png"

    def prepare(self, folder: Path, new: bool = True) -> Glimpsing:
        """The images, read and parted."""
        from regard.tasks.glimpsing import Glimpsing

        return Glimpsing.of(self, folder, new)

    def rehearse(self) -> None:
        """Raises if the model cannot be built and called."""
        from regard.tasks.glimpsing import rehearse

        rehearse(self)

    def fresh(self, folder: Path) -> nn.Module:
        """The model of a run, without its weights."""
        from regard.tasks.glimpsing import build
        from regard.tasks.pictures import recalled

        return build(self, recalled(folder))
