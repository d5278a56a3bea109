"""Options of `regard evaluate`, `regard predict` and `regard serve` that several image tasks have.  No torch here."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from regard.common.option_checks import check_choices, check_positive
from regard.common.option_fields import left_open


@dataclass(frozen=True)
class EvaluateImages:
    """Options of `regard evaluate` for images."""

    split: Literal["valid", "test"] = "test"
    """The part of the run's own data: test, or valid, which chose the best weights."""

    def __post_init__(self) -> None:
        check_choices(self)


@dataclass(frozen=True)
class AttackImages(EvaluateImages):
    """Options of `regard attack` for classifiers of images."""


@dataclass(frozen=True)
class PredictImageClasses:
    """Options of `regard predict` for classifiers of images."""

    top: int = 1
    """Classes per image, the likeliest first."""

    def __post_init__(self) -> None:
        check_positive(self, "top")


@dataclass(frozen=True)
class ServeImages:
    """Limits of `regard serve` for images."""

    pixels: int | None = left_open("16,000,000")
    """Pixels of all images of a request, at most; read from the first bytes of each file, before it is decoded."""
    body: int = 8_000_000
    """Bytes per request, at most."""

    # no option: bodies may be large, and those of all connections are in memory
    connections: ClassVar[int] = 64

    def __post_init__(self) -> None:
        check_positive(self, "pixels", "body")
