"""The options of the task glimpse and of its model.  No torch here: a command line reads them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from regard.common.input_kind import InputKind
from regard.common.options.checks import check_at_least, check_choices, check_share
from regard.common.options.fields import left_open, resolve
from regard.tasks.base import Budget, LabelledImageConfig, ModelOptions
from regard.tasks.shared.image_options import (
    AttackImages,
    EvaluateImages,
    PredictImageClasses,
    ServeImages,
    gate_factory,
    leave_out_none,
)

if TYPE_CHECKING:
    from regard.models.ram import RAM


@dataclass(frozen=True)
class RAMOptions(ModelOptions):
    """The recurrent attention model."""

    glimpses: int = 6
    """Glimpses per image."""
    patch: int | None = left_open("8 for images of 28 and 4 at least, in a scene 12 and 6 at least")
    """The width and height of a glimpse, in cells."""
    scales: int | None = left_open("1, and 3 in a scene")
    """Patches per glimpse; each covers twice the width of the one before, at half its resolution."""
    what: int = 128
    """The width of the layer that reads the pixels of a glimpse."""
    where: int = 128
    """The width of the layer that reads its location."""
    glimpse: int = 256
    """The width of the layer that joins both."""
    hidden: int = 256
    """The width of the recurrent state."""
    core: Literal["rnn", "lstm"] = "rnn"
    """The recurrent cell: a plain network of rectified units, or an LSTM."""
    std: float = 0.15
    """The standard deviation of sampled locations in training; the image goes from -1 to 1."""
    gate: str | None = None
    """The gate on the image before any glimpse, a name of `regard list gates`; if left out, none."""

    def __post_init__(self) -> None:
        check_choices(self)
        names = ("glimpses", "patch", "scales", "what", "where", "glimpse", "hidden")
        check_at_least(self, 1, dict.fromkeys(names, 8))
        if not self.std > 0:
            raise ValueError(f"std must be positive, got {self.std}; try std=0.15")
        leave_out_none(self)

    def build(self, channels: int, classes: int, *, patch: int) -> RAM:
        """`patch` is the size of a glimpse where it is left open."""
        from regard.models.ram import RAM

        assert self.scales is not None, "the task fills it in"
        return RAM(
            channels,
            classes,
            glimpses=self.glimpses,
            patch=patch if self.patch is None else self.patch,
            scales=self.scales,
            what=self.what,
            where=self.where,
            glimpse=self.glimpse,
            hidden=self.hidden,
            core=self.core,
            std=self.std,
            gate=gate_factory(self.gate),
        )


@dataclass(frozen=True)
class EvaluateGlimpses(EvaluateImages):
    """Options of `regard evaluate` for glimpses."""

    draws: int = 10
    """Paths that are sampled per image and averaged; 0 takes the path at the means of all locations."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.draws < 0:
            raise ValueError(f"--draws must be 0 or more, got {self.draws}; try --draws 10")


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
    is_served: ClassVar[bool] = True
    Evaluate: ClassVar[type] = EvaluateGlimpses
    Attack: ClassVar[type] = AttackImages
    Predict: ClassVar[type] = PredictImageClasses
    Serve: ClassVar[type] = ServeImages

    scene: Literal["plain", "translated", "cluttered"] = "plain"
    """Images as they are; each at a random place of a larger canvas; or there among pieces of other images."""
    canvas: int | None = left_open("4 more than twice the image: 60 for 28")
    """The width and height of the canvas, in pixels."""
    clutter: int | None = left_open("4")
    """Pieces of other images in a cluttered scene."""
    piece: int | None = left_open("two sevenths of the image, 3 at least: 8 for 28")
    """The width and height of a piece, in pixels."""

    model: RAMOptions = left_open()
    """The recurrent attention model."""
    draws: int = 1
    """Paths that are sampled per training image."""
    smoothing: float = 0.0
    """Label smoothing: the share of the target's probability that is spread over all classes."""
    shift: int = 0
    """Plain training images are shifted at random by up to this many pixels each way; scenes are composed anew."""
    batch: int = 128
    """Images per batch."""
    seed: int = 0
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
        check_at_least(self, 1, dict.fromkeys(("size", "canvas", "clutter", "piece", "draws", "batch"), 8))
        check_at_least(self, 0, {"shift": 0, "seed": 0})
        check_share(self, {"smoothing": 0.1})
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

    def next_command(self, run: str) -> str:
        return f"regard predict {run} PICTURE --picture path.png"
