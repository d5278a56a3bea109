"""The options of the task glimpse and of its model.  No torch here: a command line reads them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from regard.common.input_kind import InputKind
from regard.common.options.fields import at_least, left_open, positive, random_seed, resolve, share
from regard.tasks.base import Budget, ModelOptions
from regard.tasks.shared.image_options import (
    AttackImages,
    EvaluateImages,
    GatedOptions,
    LabelledImageConfig,
    PredictImageClasses,
    ServeImages,
)


@dataclass(frozen=True)
class RAMOptions(GatedOptions):
    """The recurrent attention model."""

    model_class: ClassVar[str] = "regard.models.ram:RAM"
    read_by_task: ClassVar[tuple[str, ...]] = ("patch", "scales")

    glimpses: int = at_least(1, 6)
    """Glimpses per image."""
    patch: int | None = left_open("8 for images of 28 and 4 at least, in a scene 12 and 6 at least", minimum=1)
    """The width and height of a glimpse, in cells."""
    scales: int | None = left_open("1, and 3 in a scene", minimum=1)
    """Patches per glimpse; each covers twice the width of the one before, at half its resolution."""
    what: int = at_least(1, 128)
    """The width of the layer that reads the pixels of a glimpse."""
    where: int = at_least(1, 128)
    """The width of the layer that reads its location."""
    glimpse: int = at_least(1, 256)
    """The width of the layer that joins both."""
    hidden: int = at_least(1, 256)
    """The width of the recurrent state."""
    core: Literal["rnn", "lstm"] = "rnn"
    """The recurrent cell: a plain network of rectified units, or an LSTM."""
    std: float = positive(0.15)
    """The standard deviation of sampled locations in training; the image goes from -1 to 1."""
    gate: str | None = None
    """The gate on the image before any glimpse, a name of `regard list gates`; if left out, none."""


@dataclass(frozen=True)
class EvaluateGlimpses(EvaluateImages):
    """Options of `regard evaluate` for glimpses."""

    draws: int = at_least(0, 10)
    """Paths that are sampled per image and averaged; 0 takes the path at the means of all locations."""


@dataclass(frozen=True)
class Glimpse(LabelledImageConfig):
    """Classify images through a few small glimpses, and learn where to attend: the recurrent attention model (RAM)."""

    name: ClassVar[str] = "glimpse"
    task_class: ClassVar[str] = "regard.tasks.glimpse.task:GlimpseTask"
    summary: ClassVar[str] = "classify images through a few glimpses, and learn where to attend (RAM)"
    input_kind: ClassVar[InputKind] = InputKind.IMAGE
    budgets: ClassVar[dict[str, Budget]] = {"digits": Budget(minutes=1.5), "files": Budget(minutes=40.0)}
    metrics: ClassVar[dict[str, bool]] = {"nll": False, "accuracy": True}
    models: ClassVar[dict[str, type[ModelOptions]]] = {"ram": RAMOptions}
    varies: ClassVar[str] = "glimpses"
    varies_help: ClassVar[str] = "Numbers of glimpses per image, such as 1,2,4."
    # a small model bears a higher learning rate than most
    training: ClassVar[dict[str, Any]] = {"lr": 2e-3, "warmup": 100}
    usage: ClassVar[str] = "predict {run} PICTURE --picture path.png"
    is_served: ClassVar[bool] = True
    Evaluate: ClassVar[type] = EvaluateGlimpses
    Attack: ClassVar[type] = AttackImages
    Predict: ClassVar[type] = PredictImageClasses
    Serve: ClassVar[type] = ServeImages

    scene: Literal["plain", "translated", "cluttered"] = "plain"
    """Images as they are; each at a random place of a larger canvas; or there among pieces of other images."""
    canvas: int | None = left_open("4 more than twice the image: 60 for 28", minimum=1)
    """The width and height of the canvas, in pixels."""
    clutter: int | None = left_open(4, minimum=1)
    """Pieces of other images in a cluttered scene."""
    piece: int | None = left_open("two sevenths of the image, 3 at least: 8 for 28", minimum=1)
    """The width and height of a piece, in pixels."""

    model: RAMOptions = left_open()
    """The recurrent attention model."""
    draws: int = at_least(1, 1)
    """Paths that are sampled per training image."""
    smoothing: float = share(0.0)
    """Label smoothing: the share of the target's probability that is spread over all classes."""
    shift: int = at_least(0, 0)
    """Plain training images are shifted at random by up to this many pixels each way; scenes are composed anew."""
    batch: int = at_least(1, 128)
    """Images per batch."""
    seed: int = random_seed(0)
    """Determines initial weights, the order of batches, scenes, sampled paths, and which images are held out."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.canvas is not None and self.scene == "plain":
            raise ValueError(f"canvas={self.canvas} belongs to a scene; give scene='translated' as well")
        for name in ("clutter", "piece"):
            if getattr(self, name) is not None and self.scene != "cluttered":
                raise ValueError(f"{name}={getattr(self, name)} belongs to scene='cluttered'; give that as well")
        if self.shift and self.scene != "plain":
            raise ValueError(f"shift={self.shift} belongs to scene='plain': others are composed anew; leave it out")
        resolve(self, {"clutter": 4} if self.scene == "cluttered" else {})
        object.__setattr__(self, "model", self.model.resolved({"scales": 1 if self.scene == "plain" else 3}))

    @property
    def title(self) -> str:
        return f"glimpses on {'' if self.scene == 'plain' else f'{self.scene} '}{self.dataset_label}"

    def canvas_size(self, height: int, width: int) -> tuple[int, int]:
        """Height and width of the images that the model reads, for images of this size."""
        if self.scene == "plain":
            return height, width
        if self.canvas is None:
            return 2 * height + 4, 2 * width + 4
        if self.canvas < (side := max(height, width)):
            raise ValueError(f"canvas must hold images of {height} × {width}, got {self.canvas}; try canvas={2 * side}")
        return self.canvas, self.canvas

    def piece_size(self, height: int, width: int) -> int:
        """The width and height of a piece of clutter, for images of this size."""
        return max(min(height, width) * 2 // 7, 3) if self.piece is None else self.piece

    def patch_size(self, height: int, width: int) -> int:
        """The width and height of a glimpse, for images of this size: it follows the image, not its canvas."""
        if self.model.patch is not None:
            return self.model.patch
        side = min(height, width)
        return max(side * 2 // 7, 4) if self.scene == "plain" else max(side * 3 // 7, 6)
