"""Options of `regard train`, `evaluate`, `predict` and `serve` that several image tasks have.  No torch here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from regard.common.options.checks import CheckedOptions, check_radius
from regard.common.options.fields import at_least, left_open, option
from regard.inference.evaluation import EXAMPLES
from regard.inference.limits import Limits
from regard.tasks.base import ModelOptions, TaskConfig

if TYPE_CHECKING:
    from regard.attacks import Attack


class ShiftedImageConfig(TaskConfig):
    """Options of a task of images that are shifted at random; it declares `shift` as a field."""

    shift: int  # the largest shift of a training image, in pixels


@dataclass(frozen=True)
class LabelledImageConfig(ShiftedImageConfig):
    """Options of a task that trains on labelled images."""

    unit: ClassVar[str] = "images"
    content: ClassVar[str] = "images"
    embedded: ClassVar[str] = "digits"
    file_options: ClassVar[tuple[str, ...]] = ("size",)
    run_files: ClassVar[tuple[str, ...]] = ("images.json", EXAMPLES)
    vocabulary_files: ClassVar[tuple[str, ...]] = ("images.json",)
    weight_fields: ClassVar[tuple[str, ...]] = ("size",)

    data: Literal["digits"] | None = None
    """An embedded data set that needs no file: 1,797 handwritten digits of 8 by 8 pixels."""
    train: Path | None = option(None, metavar="FOLDER")
    """Your own images: a folder with IDX files (MNIST), plain or .gz, or with one folder of images per class."""
    size: int | None = at_least(1)
    """Images are resized to this many pixels, wide and high; if left out, they must all have one size."""


@dataclass(frozen=True)
class EvaluateImages(CheckedOptions):
    """Options of `regard evaluate` for images."""

    split: Literal["valid", "test"] = "test"
    """The part of the run's own data: test, or valid, which chose the best weights."""


@dataclass(frozen=True)
class AttackImages(EvaluateImages):
    """Options of `regard attack` for classifiers of images."""

    # the names of `regard attack --attack`, the default first
    attacks: ClassVar[tuple[str, ...]] = ("pgd", "fgsm", "mi-fgsm", "apgd-ce", "apgd-dlr", "square", "worst")
    changes: ClassVar[str] = "changes the pixels of images"
    _with_steps: ClassVar[tuple[str, ...]] = ("pgd", "mi-fgsm", "apgd-ce", "apgd-dlr")

    eps: float = 0.1
    """The largest change of a pixel; the curve goes from 0 to it."""
    points: int = at_least(2, 5)
    """Radii of the curve, 0 and eps included."""
    steps: int | None = left_open("10 of pgd and mi-fgsm, 100 of apgd-ce and apgd-dlr", minimum=1)
    """Steps by the gradient."""
    curve: Path | None = option(None, metavar="FILE")
    """Draw the accuracy against eps; .png, .svg or .pdf."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_radius(self, "eps")

    def build(self, name: str) -> Attack:
        """The attack of this name with these options."""
        from regard.attacks import ATTACKS

        if self.steps is None:
            return ATTACKS[name](self.eps)
        if name not in self._with_steps:
            raise ValueError(
                f"--steps {self.steps} means nothing to --attack {name}; leave it out, or use --attack "
                f"{' or '.join(self._with_steps)}"
            )
        return ATTACKS[name](self.eps, steps=self.steps)


@dataclass(frozen=True)
class PredictImageClasses(CheckedOptions):
    """Options of `regard predict` for classifiers of images."""

    top: int = at_least(1, 1)
    """Classes per image, the likeliest first."""


@dataclass(frozen=True)
class ServeImages(CheckedOptions):
    """Limits of `regard serve` for images."""

    pixels: int | None = left_open(f"{Limits.pixels:,}", minimum=1)
    """Pixels of all images of a request, at most; read from the first bytes of each file, before it is decoded."""
    body: int = at_least(1, 8_000_000)
    """Bytes per request, at most."""

    # no option: bodies may be large, and those of all connections are in memory
    connections: ClassVar[int] = 64


class GatedOptions(ModelOptions):
    """Options of a model whose field `gate` names its gate; "none", as comparisons write it, is without."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.gate == "none":  # type: ignore[attr-defined]
            object.__setattr__(self, "gate", None)
