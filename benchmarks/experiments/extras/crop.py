"""The baseline of glimpses: a ConvNet that reads the centre of the same scenes."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from torch import nn

from regard.data.images.labelled import Images
from regard.tasks.classify_image.options import ClassifyImage
from regard.tasks.classify_image.task import ClassifyImageProblem
from regard.tasks.glimpse.options import Glimpse
from regard.tasks.glimpse.task import GlimpseProblem, build_ram
from regard.tasks.shared.image_data import ImageBatch, ImageStats, Planned, read_stats
from regard.training.protocol import Loss, TrainingProblem, ValidationResult

_FIRST, _SECOND = 16, 32


def network(stats: ImageStats, side: int, parameters: int) -> nn.Sequential:
    """Two convolutions that halve the map, and a hidden layer whose width gives about `parameters` in total."""
    flat, classes = _SECOND * ((side + 3) // 4) ** 2, len(stats.classes)
    body = nn.Sequential(
        nn.Conv2d(stats.channels, _FIRST, 5, stride=2, padding=2, bias=False),
        nn.BatchNorm2d(_FIRST),
        nn.ReLU(),
        nn.Conv2d(_FIRST, _SECOND, 3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(_SECOND),
        nn.ReLU(),
        nn.Flatten(),
    )
    left = parameters - sum(p.numel() for p in body.parameters()) - classes
    hidden = max(round(left / (flat + 1 + classes)), 1)
    return body.extend([nn.Linear(flat, hidden), nn.ReLU(), nn.Linear(hidden, classes)])


@dataclass(frozen=True)
class Crop:
    """Classifies scenes by their centre, `side` pixels wide and high, with as many parameters as the glimpse model."""

    name: ClassVar[str] = "crop"

    scenes: Glimpse
    side: int

    def __post_init__(self) -> None:
        # options as a run records them
        if isinstance(self.scenes, dict):
            object.__setattr__(self, "scenes", Glimpse.from_json(self.scenes))

    def to_json(self) -> dict[str, Any]:
        return {"scenes": self.scenes.to_json(), "side": self.side}

    @property
    def run_files(self) -> tuple[str, ...]:
        return self.scenes.run_files

    def preparation_notice(self, folder: Path, new: bool) -> str:
        return self.scenes.preparation_notice(folder, new)

    @property
    def seed(self) -> int:
        return self.scenes.seed

    @property
    def batch(self) -> int:
        return self.scenes.batch

    def prepare(self, folder: Path, new: bool = True) -> "CropProblem":
        scenes = self.scenes.prepare(folder, new)
        inner = ClassifyImageProblem(ClassifyImage(), scenes.train, self.cropped(scenes.valid), scenes.stats)
        return CropProblem(self, scenes, inner)

    def load_model(self, folder: Path) -> nn.Module:
        """The model of a run, with initial weights."""
        return self.build(read_stats(folder))

    def build(self, stats: ImageStats) -> nn.Module:
        """The model for scenes of images with these statistics."""
        ram = build_ram(self.scenes, stats)
        return network(stats, self.side, sum(p.numel() for p in ram.parameters()))

    def cropped(self, images: Images) -> Images:
        """The centre of each image."""
        _, high, wide, _ = images.pixels.shape
        top, left = (high - self.side) // 2, (wide - self.side) // 2
        cut = images.pixels[:, top : top + self.side, left : left + self.side]
        return Images(cut, images.labels, images.classes)


@dataclass(frozen=True, eq=False)
class CropProblem(TrainingProblem[nn.Module, ImageBatch]):
    """The scenes of a glimpse task, cropped, and the loss of a classification."""

    task: Crop
    scenes: GlimpseProblem
    inner: ClassifyImageProblem
    unit: str = "images"

    @property
    def summary(self) -> str:
        return f"{self.scenes.summary}, the middle of {self.task.side} × {self.task.side}"

    def build_model(self) -> nn.Module:
        return self.task.build(self.scenes.source_stats)

    def plan_epoch(self, epoch: int) -> Sequence[Planned]:
        return self.scenes.plan_epoch(epoch)

    def load_batch(self, planned: Any, rank: int, world: int) -> ImageBatch | None:
        whole = self.scenes.load_batch(planned, rank, world)
        if whole is None:
            return None
        high, wide = whole.x.shape[2:]
        top, left = (high - self.task.side) // 2, (wide - self.task.side) // 2
        return ImageBatch(whole.x[:, :, top : top + self.task.side, left : left + self.task.side], whole.labels)

    def num_terms(self, batch: ImageBatch) -> int:
        return len(batch.labels)

    def loss(self, model: nn.Module, batch: ImageBatch) -> Loss:
        return self.inner.loss(model, batch)

    def validate(self, model: nn.Module) -> ValidationResult:
        return self.inner.validate(model)
