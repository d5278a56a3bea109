"""ClassifyImage: which class is a picture of?  No torch here: a command line reads the options below."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

if TYPE_CHECKING:
    from torch import nn

    from regard.tasks.classification import Classification


# which options belong to one model alone
_OWN = {"convnet": ("gate", "depths"), "rows": ("heads", "stride")}
# what an option is where it is left open
_SUITS: dict[str, dict[str, Any]] = {"convnet": {"width": 32, "depths": (1, 1, 1)}, "rows": {"width": 16, "heads": 12}}


@dataclass(frozen=True)
class ClassifyImage:
    """Classify images: folders of pictures, IDX files, or embedded digits, by a network with any gate."""

    # what rates count
    COUNTED: ClassVar[str] = "images"
    # minutes of a training that nothing else ends, by the kind of data
    MINUTES: ClassVar[dict[str, float]] = {"digits": 1.0, "files": 20.0}

    data: Literal["digits"] | None = None
    """Embedded data that needs no file: 1,797 written digits of 8 by 8 pixels."""
    train: Path | None = None
    """A folder of your own: IDX files as MNIST has them, plain or .gz, or a folder of pictures a class."""
    size: int | None = None
    """Pictures become so many pixels wide and high; left open, they must be of one size already."""

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
        if self.data not in (None, "digits"):
            raise ValueError(f"unknown data {self.data!r}; known are: digits")
        if self.train is not None:
            object.__setattr__(self, "train", Path(self.train))
            if self.data is not None:
                raise ValueError(f"data={self.data!r} and train={self.train} exclude each other; give one of them")
        if self.size is not None and self.train is None:
            raise ValueError(f"size={self.size} belongs to pictures of your own; give train=FOLDER as well")
        if self.model not in _OWN:
            raise ValueError(f"unknown model {self.model!r}; known are: {', '.join(_OWN)}")
        for model, names in _OWN.items():
            for name in names:
                if model != self.model and getattr(self, name) is not None:
                    raise ValueError(
                        f"{name}={getattr(self, name)!r} belongs to model='{model}', not to '{self.model}'; "
                        "leave it out or choose the other model"
                    )
        if self.depths is not None:
            object.__setattr__(self, "depths", tuple(self.depths))
        for name, good in (("size", 32), ("width", 16), ("batch", 64), ("heads", 12), ("stride", 4)):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be 1 or more, got {value}; try {name}={good}")
        for name in ("shift", "seed"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be 0 or more, got {getattr(self, name)}; try {name}=0")
        for name in ("dropout", "smoothing"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} must be 0 or more and below 1, got {getattr(self, name)}; try {name}=0.1")

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
        suits = {"width": ", ".join(f"{suits['width']} for {model}" for model, suits in _SUITS.items())}
        return {"data": "digits, if there is no --train", **suits}.get(name, "")

    @property
    def title(self) -> str:
        """What is trained on what."""
        what = "a network" if self.model == "convnet" else "a reader of rows"
        return f"{what} on {self.kind if self.train is None else self.train.name}"

    def choice(self, name: str) -> Any:
        """An option, or what suits the model where it is left open; "metric" is what decides which weights are best."""
        if name == "metric":
            return "nll"
        value = getattr(self, name)
        return _SUITS[self.model].get(name) if value is None else value

    def higher(self, score: str) -> bool:
        """Is more better?"""
        return score == "accuracy"

    def placed(self) -> ClassifyImage:
        """Files by their full names: a run goes on wherever the command is given."""
        return self if self.train is None else replace(self, train=self.train.absolute())

    def versions(self, names: Sequence[str]) -> dict[str, ClassifyImage]:
        """The same with each of these gates; "none" is without."""
        return {name: replace(self, gate=name) for name in names}

    def words(self) -> list[str]:
        """What a command line types to choose this version."""
        return [] if self.gate is None else ["--gate", self.gate]

    def next(self, run: str) -> str:
        """The command that uses a run."""
        return f"regard predict {run} PICTURE"

    def prepare(self, folder: Path, new: bool = True) -> Classification:
        """The images, read and parted."""
        from regard.tasks.classification import Classification

        return Classification.of(self, folder, new)

    def rehearse(self) -> None:
        """Raises if the model cannot be built and called."""
        from regard.tasks.classification import rehearse

        rehearse(self)

    def fresh(self, folder: Path) -> nn.Module:
        """The model of a run, without its weights."""
        from regard.tasks.classification import made
        from regard.tasks.pictures import recalled

        return made(self, recalled(folder))
