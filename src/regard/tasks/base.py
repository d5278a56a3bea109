"""What the options of every task share: what is learned from, how it is told, what cannot be.  No torch here."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, Self, get_args, get_origin, get_type_hints

from regard.common.suggestions import known

if TYPE_CHECKING:
    from torch import nn

    from regard.training.protocol import TrainingProblem


class Room(Protocol):
    """The module that has the work of a task, and torch with it."""

    def prepare(self, task: Any, folder: Path, new: bool, /) -> TrainingProblem: ...

    def rehearse(self, task: Any, /) -> None: ...

    def fresh(self, task: Any, folder: Path, /) -> nn.Module: ...


class TaskConfig(ABC):
    """A frozen dataclass: a command line types its fields, a run records them, and all else is read off them."""

    # what rates count
    COUNTED: ClassVar[str]
    # the embedded data that is taken where nothing is said
    EMBEDDED: ClassVar[str]
    # minutes of a training that nothing else ends, by the kind of data, and steps, where a task counts them instead
    MINUTES: ClassVar[dict[str, float]]
    STEPS: ClassVar[dict[str, int]] = {}
    # how it is trained unless something else is said, where the defaults of all do not suit it
    TRAINING: ClassVar[dict[str, Any]] = {}
    # what an option is where it is left open, by what it depends on
    SUITS: ClassVar[dict[str, dict[str, Any]]] = {}

    # fields of every task
    data: str | None
    train: Path | tuple[Path, ...] | None
    seed: int

    def __post_init__(self) -> None:
        for name, names in choices(type(self)).items():
            if (value := getattr(self, name)) is not None:
                known(name, value, names)
        if self.data is not None and _given(self.train):
            raise ValueError(f"data={self.data!r} and train={_said(self.train)} exclude each other; give one of them")

    @abstractmethod
    def room(self) -> Room:
        """Where the work is done; imported when it is asked for."""

    @property
    @abstractmethod
    def title(self) -> str:
        """What is trained on what."""

    @abstractmethod
    def choice(self, name: str) -> Any:
        """An option, or what suits where it is left open; "metric" is what decides which weights are best."""

    @abstractmethod
    def higher(self, score: str) -> bool:
        """Is more better?"""

    @abstractmethod
    def versions(self, names: Sequence[str]) -> dict[str, Self]:
        """The same with each of these for the option that a comparison is about."""

    @abstractmethod
    def words(self) -> list[str]:
        """What a command line types to choose this version."""

    @abstractmethod
    def next(self, run: str) -> str:
        """The command that uses a run."""

    @property
    def kind(self) -> str:
        """The embedded data, or "files"."""
        return "files" if _given(self.train) else self.data or self.EMBEDDED

    @property
    def named(self) -> bool:
        """Was it said what to learn from?"""
        return self.data is not None or _given(self.train)

    @property
    def source(self) -> str:
        """What is learned from, for people."""
        return " and ".join(path.name for path in _several(self.train)) or self.kind

    @classmethod
    def unsaid(cls, name: str) -> str:
        """What an option is when nobody says it, for a line of help; empty if the option's own help tells."""
        if name == "data":
            return f"{cls.EMBEDDED}, if there is no --train"
        if not all(name in suits for suits in cls.SUITS.values()):
            return ""
        told: dict[Any, list[str]] = {}
        for case, suits in cls.SUITS.items():
            told.setdefault(suits[name], []).append(case)
        return ", ".join(f"{value} for {' and '.join(cases)}" for value, cases in told.items())

    def placed(self) -> Self:
        """Files by their full names: a run goes on wherever the command is given."""
        full = {one.name: _full(getattr(self, one.name)) for one in fields(self)}  # type: ignore[arg-type]
        return replace(self, **full)  # type: ignore[type-var]

    def prepare(self, folder: Path, new: bool = True) -> TrainingProblem:
        """The data, read; what is learned from it is saved in the folder, or if not `new` loaded."""
        return self.room().prepare(self, folder, new)

    def rehearse(self) -> None:
        """Raises if the model cannot be built and called."""
        self.room().rehearse(self)

    def fresh(self, folder: Path) -> nn.Module:
        """The model of a run, without its weights."""
        return self.room().fresh(self, folder)

    def _least(self, least: int, good: Mapping[str, float | None]) -> None:
        """Raises for a number that is too small; `good` is what to try instead, or None."""
        for name, instead in good.items():
            value = getattr(self, name)
            if value is not None and value < least:
                way = "leave it out for a value that suits" if instead is None else f"try {name}={instead}"
                raise ValueError(f"{name} must be {least} or more, got {value}; {way}")

    def _share(self, good: Mapping[str, float]) -> None:
        """Raises for what is no share."""
        for name, instead in good.items():
            value = getattr(self, name)
            if value is not None and not 0 <= value < 1:
                raise ValueError(f"{name} must be 0 or more and below 1, got {value}; try {name}={instead}")

    def _of_files(self, names: Sequence[str], what: str, train: str) -> None:
        """Raises for options that embedded data has no use for."""
        for name in names:
            if _given(value := getattr(self, name)) and not _given(self.train):
                raise ValueError(f"{name}={_said(value)} belongs to {what} of your own; give {train} as well")

    def _of_one(self, option: str, owners: Mapping[str, Sequence[str]]) -> None:
        """Raises for options that belong to another choice than the one that was made."""
        made = getattr(self, option)
        for owner, names in owners.items():
            for name in names:
                if owner != made and (value := getattr(self, name)) is not None:
                    raise ValueError(
                        f"{name}={value!r} belongs to {option}='{owner}', not to '{made}'; "
                        f"leave it out or choose the other {option}"
                    )


@dataclass(frozen=True)
class LabelledImageConfig(TaskConfig):
    """Options of a task that learns from pictures with classes."""

    COUNTED: ClassVar[str] = "images"
    EMBEDDED: ClassVar[str] = "digits"

    data: Literal["digits"] | None = None
    """Embedded data that needs no file: 1,797 written digits of 8 by 8 pixels."""
    train: Path | None = field(default=None, metadata={"metavar": "FOLDER"})
    """A folder of your own: IDX files as MNIST has them, plain or .gz, or a folder of pictures a class."""
    size: int | None = None
    """Pictures become so many pixels wide and high; left open, they must be of one size already."""

    def __post_init__(self) -> None:
        if self.train is not None:
            object.__setattr__(self, "train", Path(self.train))
        super().__post_init__()
        self._of_files(["size"], "pictures", "train=FOLDER")


@cache
def choices(of: type[TaskConfig]) -> dict[str, tuple[str, ...]]:
    """The options that are one of a few words, and these words."""
    hints = get_type_hints(of)
    literals = {
        name: [part for part in (hint, *get_args(hint)) if get_origin(part) is Literal] for name, hint in hints.items()
    }
    return {name: get_args(found[0]) for name, found in literals.items() if found}


def _given(value: object) -> bool:
    """Is it there, and no empty tuple?"""
    return value is not None and value != ()


def _several(paths: Path | tuple[Path, ...] | None) -> tuple[Path, ...]:
    return paths if isinstance(paths, tuple) else () if paths is None else (paths,)


def _said(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _full(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_full, value))
    return value.absolute() if isinstance(value, Path) else value
