"""Classification: the work of a ClassifyImage task, its images read and parted."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import nn

from regard.attn import checks
from regard.data.images.labelled import Images
from regard.gates.catalogue import GATES
from regard.models.convnet import ConvNet
from regard.models.row_reader import RowReader
from regard.tasks import _image_data as pictures
from regard.tasks._image_data import ImageBatch, ImageStats, Planned, scored, shifted, tensor
from regard.tasks.classify_image.options import ClassifyImage
from regard.training.protocol import Loss, ValidationResult


@dataclass(frozen=True, eq=False)
class ClassifyImageProblem:
    """What training asks of a classification task."""

    task: ClassifyImage
    train: Images
    valid: Images
    facts: ImageStats
    counted: str = "images"

    @staticmethod
    def of(task: ClassifyImage, folder: Path, new: bool) -> "ClassifyImageProblem":
        train, valid, facts = pictures.learned(task, folder, new)
        pictures.several(task, facts)
        return ClassifyImageProblem(task, train, valid, facts)

    @property
    def told(self) -> str:
        return pictures.told(self.train, self.valid)

    def model(self) -> nn.Module:
        return made(self.task, self.facts)

    def batches(self, epoch: int) -> Sequence[Planned]:
        return pictures.plan(len(self.train), self.task.batch, self.task.seed, epoch)

    def batch(self, planned: Planned, rank: int, world: int) -> ImageBatch | None:
        seed, index = planned
        some = self.train[index]
        x = shifted(tensor(some.pixels, self.facts), self.task.shift, seed)
        return pictures.share(x, some.labels, rank, world)

    def count(self, batch: ImageBatch) -> int:
        return len(batch.labels)

    def loss(self, model: nn.Module, batch: ImageBatch) -> Loss:
        logits = model(batch.x)
        total = F.cross_entropy(logits.float(), batch.labels, label_smoothing=self.task.smoothing, reduction="sum")
        right = (logits.argmax(-1) == batch.labels).sum()
        return Loss(total, len(batch.labels), {"accuracy": 100.0 * right})

    def validate(self, model: nn.Module) -> ValidationResult:
        # few images are held out: their likelihood tells small differences better than how many are right
        return ValidationResult(evaluate(model, self.valid, self.facts), "nll", higher_is_better=False)


prepare = ClassifyImageProblem.of


def made(task: ClassifyImage, facts: ImageStats) -> nn.Module:
    """The model that the task names, fresh."""
    if task.model == "convnet":
        return build(task, facts.channels, len(facts.classes))
    size, width, heads = (facts.height, facts.width), task.choice("width"), task.choice("heads")
    options = {"heads": heads, "width": width, "stride": task.stride, "dropout": task.dropout}
    return RowReader(facts.channels, size, len(facts.classes), **options)


def build(task: ClassifyImage, channels: int, classes: int) -> ConvNet:
    """A ConvNet, fresh."""
    if task.gate is not None:
        checks.known("gate", task.gate, ["none", *GATES])
    gate, width, depths = None if task.gate is None else GATES[task.gate], task.choice("width"), task.choice("depths")
    return ConvNet(channels, classes, width=width, depths=depths, gate=gate, dropout=task.dropout)


def fresh(task: ClassifyImage, folder: Path) -> nn.Module:
    """The model of a run, without its weights."""
    return made(task, pictures.recalled(folder))


def rehearse(task: ClassifyImage) -> None:
    """Builds a small one and calls it, so that what cannot be is told before any data is read."""
    side = max(8, task.stride or 0)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        made(task, ImageStats(1, side, side, ["one", "two"], 0.0, 1.0, ""))(torch.zeros(2, 1, side, side))


def evaluate(model: nn.Module, images: Images, facts: ImageStats) -> dict[str, float]:
    """The scores of a model on images."""
    return scored(probabilities(model, images.pixels, facts), images.labels)


def probabilities(model: nn.Module, pixels: NDArray[np.uint8], facts: ImageStats) -> NDArray[np.float64]:  # -> "n k"
    """p(class | image) of images "n h w c"."""
    return pictures.chances(model, model, pixels, facts)
