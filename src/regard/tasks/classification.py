"""Classification: the work of a ClassifyImage task, its images read and parted."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from regard import disk
from regard.data.images import Images, digits, has_split, parted, read_images
from regard.gates.catalogue import GATES
from regard.models.convnet import ConvNet
from regard.parts import checks
from regard.tasks.classify_image import ClassifyImage
from regard.tasks.task import Loss, Score

_FILE = "images.json"
# shares of the images that are held out: to be judged on, where no split is there for it, and to choose the best by
TEST, VALID = 0.2, 0.1
# images of a validation's batch
_AT_ONCE = 256


@dataclass(frozen=True)
class Facts:
    """What a run knows of its images: shape, classes, how bright they are, and their fingerprint."""

    channels: int
    height: int
    width: int
    classes: list[str]
    mean: float
    spread: float
    sha256: str

    @staticmethod
    def of(images: Images) -> "Facts":
        digest = sha256(np.ascontiguousarray(images.pixels).tobytes() + images.labels.tobytes()).hexdigest()
        _, height, width, channels = images.pixels.shape
        mean, spread = float(images.pixels.mean()) / 255, float(images.pixels.std()) / 255
        return Facts(channels, height, width, list(images.classes), mean, max(spread, 1e-6), digest)


def recalled(folder: Path) -> Facts:
    """The facts that a run saved."""
    path = folder / _FILE
    try:
        return Facts(**json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{folder} holds no {_FILE}; name the folder of a training run") from error
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path} does not tell of images ({error}); restore it, or train in another folder") from error


@dataclass(frozen=True, eq=False)
class Batch:
    """Images and their classes."""

    x: Tensor  # "b c h w"
    labels: Tensor  # "b"

    def to(self, device: torch.device) -> "Batch":
        return Batch(self.x.to(device), self.labels.to(device))


@dataclass(frozen=True, eq=False)
class Classification:
    """What training asks of a classification task."""

    task: ClassifyImage
    train: Images
    valid: Images
    facts: Facts
    told: str
    counted: str = "images"

    @staticmethod
    def of(task: ClassifyImage, folder: Path, new: bool) -> "Classification":
        train, _ = read(task)
        facts = Facts.of(train)
        if new or not (folder / _FILE).exists():
            disk.folder(folder)
            disk.write(folder / _FILE, [json.dumps(asdict(facts)).encode(), b"\n"])
        elif (before := recalled(folder)).sha256 != facts.sha256:
            raise ValueError(
                f"the images of {folder} have changed: they were {before.height} × {before.width} of "
                f"{len(before.classes)} classes; put the files back as they were, or train in another folder"
            )
        few = [f"{name} has {n}" for name, n in zip(train.classes, _counts(train), strict=True) if n < 2]
        if few:
            raise ValueError(
                f"every class needs an image to learn from and one to validate on, but {', '.join(few[:5])} after the "
                "test images are taken out; give more pictures of it, or take the class out"
            )
        train, valid = parted(train, VALID, task.seed)
        told = f"{len(train)} images to train on, {len(valid)} to validate, {len(facts.classes)} classes"
        return Classification(task, train, valid, facts, told)

    def model(self) -> nn.Module:
        return build(self.task, self.facts.channels, len(self.facts.classes))

    def batches(self, epoch: int) -> Sequence[tuple[int, NDArray[np.int64]]]:
        """Which images go together, and the seed of their shifts."""
        draw = np.random.default_rng([self.task.seed, epoch])
        order = draw.permutation(len(self.train))
        cuts = range(self.task.batch, len(order), self.task.batch)
        parts = np.split(order, cuts)
        # a lone image has no statistics of a batch
        if len(parts) > 1 and len(parts[-1]) == 1:
            parts[-2:] = [np.concatenate(parts[-2:])]
        return [(int(draw.integers(2**31)), part) for part in parts]

    def batch(self, planned: tuple[int, NDArray[np.int64]], rank: int, world: int) -> Batch | None:
        seed, index = planned
        some = self.train[index]
        x, labels = shifted(_tensor(some.pixels, self.facts), self.task.shift, seed), torch.from_numpy(some.labels)
        return Batch(x[rank::world], labels[rank::world]) if rank < len(index) else None

    def count(self, batch: Batch) -> int:
        return len(batch.labels)

    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        logits = model(batch.x)
        total = F.cross_entropy(logits.float(), batch.labels, label_smoothing=self.task.smoothing, reduction="sum")
        right = (logits.argmax(-1) == batch.labels).sum()
        return Loss(total, len(batch.labels), {"accuracy": 100.0 * right})

    def validate(self, model: nn.Module) -> Score:
        # few images are held out: their likelihood tells small differences better than how many are right
        return Score(evaluate(model, self.valid, self.facts), "nll", higher_is_better=False)


def _counts(images: Images) -> list[int]:
    """How many images each class has."""
    return np.bincount(images.labels, minlength=len(images.classes)).tolist()


def read(task: ClassifyImage) -> tuple[Images, Images]:
    """The images to learn from, and those to be judged on."""
    if task.train is None:
        return parted(digits(), TEST, task.seed)
    train = read_images(task.train, "train", task.size)
    if not has_split(task.train, "test"):
        return parted(train, TEST, task.seed)
    test = read_images(task.train, "test", task.size)
    if test.pixels.shape[1:] != train.pixels.shape[1:] or not set(test.classes) <= set(train.classes):
        raise ValueError(
            f"test images of {task.train} are {test.pixels.shape[1:]} of classes {', '.join(test.classes)}, those to "
            f"train on {train.pixels.shape[1:]} of {', '.join(train.classes)}; give both the same, or size"
        )
    if test.classes != train.classes:
        place = np.array([train.classes.index(name) for name in test.classes])
        test = Images(test.pixels, place[test.labels], train.classes)
    return train, test


def split_of(task: ClassifyImage, split: str) -> Images:
    """The images of "valid", which chose the best weights, or of "test", which nothing was learned from."""
    train, test = read(task)
    return test if split == "test" else parted(train, VALID, task.seed)[1]


def build(task: ClassifyImage, channels: int, classes: int) -> ConvNet:
    """The model, fresh."""
    if task.gate is not None:
        checks.known("gate", task.gate, GATES)
    gate = None if task.gate is None else GATES[task.gate]
    return ConvNet(channels, classes, width=task.width, depths=task.depths, gate=gate, dropout=task.dropout)


def rehearse(task: ClassifyImage) -> None:
    """Builds a small one and calls it, so that what cannot be is told before any data is read."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        build(task, 1, 2)(torch.zeros(2, 1, 8, 8))


def shifted(x: Tensor, most: int, seed: int) -> Tensor:  # "b c h w"
    """Every image moved by up to `most` pixels each way; what comes in repeats the edge's value."""
    if not most:
        return x
    b, _, h, w = x.shape
    wide = F.pad(x, (most,) * 4, mode="replicate")
    draw = np.random.default_rng(seed).integers(0, 2 * most + 1, (b, 2))
    rows = torch.from_numpy(draw[:, :1] + np.arange(h))  # "b h"
    columns = torch.from_numpy(draw[:, 1:] + np.arange(w))  # "b w"
    each = torch.arange(b)[:, None, None]
    return wide.permute(0, 2, 3, 1)[each, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2).contiguous()


def evaluate(model: nn.Module, images: Images, facts: Facts) -> dict[str, float]:
    """The scores of a model on images."""
    return scored(probabilities(model, images.pixels, facts), images.labels)


def scored(chances: NDArray[np.float64], labels: NDArray[np.int64]) -> dict[str, float]:  # "n k", "n"
    """Accuracy in percent, and −log p of the right class."""
    right = chances.argmax(-1) == labels
    picked = np.take_along_axis(chances, labels[:, None], 1)
    return {"accuracy": 100.0 * float(right.mean()), "nll": float(-np.log(np.maximum(picked, 1e-300)).mean())}


@torch.no_grad()
def probabilities(model: nn.Module, pixels: NDArray[np.uint8], facts: Facts) -> NDArray[np.float64]:  # -> "n k"
    """p(class | image) of images "n h w c"."""
    device = next(model.parameters()).device
    found = []
    for at in range(0, len(pixels), _AT_ONCE):
        x = _tensor(pixels[at : at + _AT_ONCE], facts).to(device)
        found.append(model(x).double().softmax(-1).cpu().numpy())
    return np.concatenate(found)


def _tensor(pixels: NDArray[np.uint8], facts: Facts) -> Tensor:  # "n h w c" -> "n c h w"
    """With mean 0 and spread 1 over the training images."""
    x = torch.from_numpy(np.ascontiguousarray(pixels)).permute(0, 3, 1, 2).float()
    return (x / 255 - facts.mean) / facts.spread
