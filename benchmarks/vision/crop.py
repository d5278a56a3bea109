"""What glimpses are compared with: a ConvNet that reads the middle of the same scenes."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from regard.common.dataclass_json import dataclass_from_json
from regard.data.images.labelled import Images
from regard.tasks._image_data import ImageBatch, ImageStats, Planned, recalled
from regard.tasks.classify_image.options import ClassifyImage
from regard.tasks.classify_image.task import ClassifyImageProblem
from regard.tasks.glimpse.options import Glimpse
from regard.tasks.glimpse.task import GlimpseProblem, build
from regard.training.protocol import Loss, ValidationResult

_FIRST, _SECOND = 16, 32


def network(facts: ImageStats, side: int, parameters: int) -> nn.Sequential:
    """Two convolutions that halve the map, and a hidden layer as wide as `parameters` in all allow."""
    flat, classes = _SECOND * ((side + 3) // 4) ** 2, len(facts.classes)
    body = nn.Sequential(
        nn.Conv2d(facts.channels, _FIRST, 5, stride=2, padding=2, bias=False),
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
    """Classify scenes by their middle alone, `side` pixels each way, with as many parameters as what glimpses has."""

    scenes: Glimpse
    side: int

    def __post_init__(self) -> None:
        # a run has written it as JSON
        if isinstance(self.scenes, dict):
            object.__setattr__(self, "scenes", dataclass_from_json(Glimpse, self.scenes))

    @property
    def seed(self) -> int:
        return self.scenes.seed

    @property
    def batch(self) -> int:
        return self.scenes.batch

    def prepare(self, folder: Path, new: bool = True) -> "Cropping":
        scenes = GlimpseProblem.of(self.scenes, folder, new)
        inner = ClassifyImageProblem(ClassifyImage(), scenes.train, self.cropped(scenes.valid), scenes.facts)
        return Cropping(self, scenes, inner)

    def fresh(self, folder: Path) -> nn.Module:
        return self.built(recalled(folder))

    def built(self, facts: ImageStats) -> nn.Module:
        """For scenes of pictures with these facts, as they were read."""
        glimpsing = build(self.scenes, facts)
        return network(facts, self.side, sum(p.numel() for p in glimpsing.parameters()))

    def cropped(self, images: Images) -> Images:
        """The middle of each."""
        _, high, wide, _ = images.pixels.shape
        top, left = (high - self.side) // 2, (wide - self.side) // 2
        cut = images.pixels[:, top : top + self.side, left : left + self.side]
        return Images(cut, images.labels, images.classes)


@dataclass(frozen=True, eq=False)
class Cropping:
    """What training asks: the scenes of a glimpse task, cut, and the loss of a classification."""

    task: Crop
    scenes: GlimpseProblem
    inner: ClassifyImageProblem
    counted: str = "images"

    @property
    def told(self) -> str:
        return f"{self.scenes.told}, the middle of {self.task.side} × {self.task.side}"

    def model(self) -> nn.Module:
        return self.task.built(self.scenes.read)

    def batches(self, epoch: int) -> Sequence[Planned]:
        return self.scenes.batches(epoch)

    def batch(self, planned: Any, rank: int, world: int) -> ImageBatch | None:
        whole = self.scenes.batch(planned, rank, world)
        if whole is None:
            return None
        high, wide = whole.x.shape[2:]
        top, left = (high - self.task.side) // 2, (wide - self.task.side) // 2
        return ImageBatch(whole.x[:, :, top : top + self.task.side, left : left + self.task.side], whole.labels)

    def count(self, batch: ImageBatch) -> int:
        return len(batch.labels)

    def loss(self, model: nn.Module, batch: ImageBatch) -> Loss:
        return self.inner.loss(model, batch)

    def validate(self, model: nn.Module) -> ValidationResult:
        return self.inner.validate(model)
