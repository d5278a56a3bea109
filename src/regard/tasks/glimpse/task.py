"""Glimpsing: the work of a Glimpse task, its images read, parted and composed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import nn

from regard.data.images.cluttered import compose
from regard.data.images.labelled import Images
from regard.losses import reinforce
from regard.models.ram import RAM
from regard.tasks import _image_data as pictures
from regard.tasks._image_data import ImageBatch, ImageStats, Planned, scored, shifted, tensor
from regard.tasks.glimpse.options import Glimpse
from regard.training.protocol import Loss, ValidationResult

# seeds of the scenes that are judged on: no other is composed by them
_SEEDS = {"valid": 1, "test": 2}
# paths that are drawn for each image of a validation
_PATHS = 5
# What REINFORCE weighs beside the answer's loss. No parameter has both, and AdamW takes out a factor: it only keeps
# long gradients of far draws from being what all gradients are clipped by.
_POLICY = 0.05


@dataclass(frozen=True, eq=False)
class GlimpseProblem:
    """What training asks of a glimpse task."""

    task: Glimpse
    train: Images  # as they were read; composed batch by batch
    valid: Images  # composed
    read: ImageStats  # of the images as they were read
    counted: str = "images"

    @staticmethod
    def of(task: Glimpse, folder: Path, new: bool) -> "GlimpseProblem":
        train, valid, facts = pictures.learned(task, folder, new)
        pictures.several(task, facts)
        return GlimpseProblem(task, train, _composed(task, valid, "valid"), facts)

    @property
    def facts(self) -> ImageStats:
        """Of what the model sees."""
        return seen(self.task, self.read)

    @property
    def told(self) -> str:
        where = "" if self.task.scene == "plain" else f", {self.task.scene} on {self.facts.height} × {self.facts.width}"
        return pictures.told(self.train, self.valid) + where

    def model(self) -> nn.Module:
        return build(self.task, self.read)

    def batches(self, epoch: int) -> Sequence[Planned]:
        return pictures.plan(len(self.train), self.task.batch, self.task.seed, epoch)

    def batch(self, planned: Planned, rank: int, world: int) -> ImageBatch | None:
        seed, index = planned
        if self.task.scene == "plain":
            some = self.train[index]
            x = shifted(tensor(some.pixels, self.facts), self.task.shift, seed)
        else:
            some = _scenes(self.task, self.train, index, seed)
            x = tensor(some.pixels, self.facts)
        return pictures.share(x, some.labels, rank, world)

    def count(self, batch: ImageBatch) -> int:
        return len(batch.labels)

    def loss(self, model: nn.Module, batch: ImageBatch) -> Loss:
        """The answer's cross-entropy, REINFORCE on the places, and the squared error of the baseline; each its own."""
        x, labels = batch.x.repeat(self.task.draws, 1, 1, 1), batch.labels.repeat(self.task.draws)
        assert isinstance(model, RAM)
        looked = model.look(x)
        answer = F.cross_entropy(looked.logits.float(), labels, label_smoothing=self.task.smoothing)
        right = (looked.logits.argmax(-1) == labels).float()
        # the answer comes last, and every glimpse has led to it
        reward = right.unsqueeze(-1).expand_as(looked.log_prob)
        policy = self.task.glimpses * reinforce(looked.log_prob, reward, looked.baseline)
        total = answer + _POLICY * policy + F.mse_loss(looked.baseline, reward)
        count = len(batch.labels)
        return Loss(total * count, count, {"accuracy": 100.0 * right.mean() * count, "answer": answer * count})

    def validate(self, model: nn.Module) -> ValidationResult:
        return ValidationResult(evaluate(model, self.valid, self.facts), "nll", higher_is_better=False)


prepare = GlimpseProblem.of


def seen(task: Glimpse, facts: ImageStats) -> ImageStats:
    """What the model sees of images with these facts: the canvas; and black is 0, as all that lies outside is."""
    facts = replace(facts, mean=0.0)
    if task.scene == "plain":
        return facts
    height, width = _canvas(task, facts.height, facts.width)
    return replace(facts, height=height, width=width)


def _canvas(task: Glimpse, height: int, width: int) -> tuple[int, int]:
    if task.canvas is None:
        return 2 * height + 4, 2 * width + 4
    if task.canvas < (side := max(height, width)):
        # as the task is told it: one number, and no height and width
        raise ValueError(f"canvas must hold pictures of {height} × {width}, got {task.canvas}; try canvas={2 * side}")
    return task.canvas, task.canvas


def _scenes(task: Glimpse, images: Images, index: NDArray[np.int64], seed: int) -> Images:
    _, height, width, _ = images.pixels.shape
    clutter = 0 if task.scene == "translated" else 4 if task.clutter is None else task.clutter
    piece = max(min(height, width) * 2 // 7, 3) if task.piece is None else task.piece
    canvas = _canvas(task, height, width)
    return compose(images, index, canvas, clutter=clutter, piece=piece, seed=seed).images


def _composed(task: Glimpse, images: Images, split: str) -> Images:
    """All of a split as it is judged on: the same scenes whenever they are composed."""
    if task.scene == "plain":
        return images
    return _scenes(task, images, np.arange(len(images)), _SEEDS[split])


def split_of(task: Glimpse, split: str) -> Images:
    """The images of "valid", which chose the best weights, or of "test", which nothing was learned from."""
    return _composed(task, pictures.split_of(task, split), split)


def build(task: Glimpse, facts: ImageStats) -> RAM:
    """The model, fresh, for pictures with these facts, as they were read: a digit decides the patch, not its canvas."""
    side = min(facts.height, facts.width)
    return RAM(
        facts.channels,
        len(facts.classes),
        glimpses=task.glimpses,
        patch=task.patch or (max(side * 2 // 7, 4) if task.scene == "plain" else max(side * 3 // 7, 6)),
        scales=(1 if task.scene == "plain" else 3) if task.scales is None else task.scales,
        what=task.what,
        where=task.where,
        glimpse=task.glimpse,
        hidden=task.hidden,
        core=task.core,
        std=task.std,
    )


def fresh(task: Glimpse, folder: Path) -> RAM:
    """The model of a run, without its weights."""
    return build(task, pictures.recalled(folder))


def rehearse(task: Glimpse) -> None:
    """Builds a small one and calls it, so that what cannot be is told before any data is read."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        build(task, ImageStats(1, 8, 8, ["0", "1"], 0.0, 1.0, ""))(torch.zeros(2, 1, 8, 8))


def evaluate(model: nn.Module, images: Images, facts: ImageStats, draws: int = _PATHS) -> dict[str, float]:
    """The scores of a model on images, by the mean of so many drawn paths (Monte Carlo)."""
    drawn = [_path(model, images.pixels, facts, draw=True) for _ in range(draws)]
    return scored(np.mean(drawn, 0), images.labels)


def paths(
    model: nn.Module, pixels: NDArray[np.uint8], facts: ImageStats, draws: int = 0
) -> Iterator[NDArray[np.float64]]:  # "n h w c" -> "n k" each
    """p(class | image) at the means of all places, then of each of so many paths that are drawn."""
    for path in range(draws + 1):
        yield _path(model, pixels, facts, draw=path > 0)


def _path(model: nn.Module, pixels: NDArray[np.uint8], facts: ImageStats, *, draw: bool) -> NDArray[np.float64]:
    assert isinstance(model, RAM)
    return pictures.chances(model, lambda x: model.look(x, draw=draw).logits, pixels, facts)
