"""Labelled pictures of a task: read, parted, remembered in the run, put into batches and made tensors."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.common import atomic_files
from regard.common.dataclass_json import dataclass_from_file
from regard.data.images.labelled import Images, digits, has_split, read_images
from regard.data.splitting import stratified_split

_FILE = "images.json"
# shares of the images that are held out: to be judged on, where no split is there for it, and to choose the best by
TEST, VALID = 0.2, 0.1
# images that a model looks at together where it is not trained
_AT_ONCE = 256
# which images go together, and the seed of what is drawn for them
Planned = tuple[int, NDArray[np.int64]]


class Pictured(Protocol):
    """What a task says of its pictures."""

    @property
    def train(self) -> Path | None:
        """A folder of them; None are the embedded digits."""

    @property
    def size(self) -> int | None:
        """What they are made, wide and high."""

    @property
    def shift(self) -> int:
        """By how many pixels they are moved, at most."""

    @property
    def seed(self) -> int:
        """Decides which are held out."""


@dataclass(frozen=True)
class ImageStats:
    """What a run knows of its images: shape, classes, how bright they are, and their fingerprint.

    Of images that come with others to validate on, also the fingerprint of those.
    """

    channels: int
    height: int
    width: int
    classes: list[str]
    mean: float
    spread: float
    sha256: str
    valid_sha256: str = ""

    @staticmethod
    def of(images: Images) -> "ImageStats":
        digest = sha256(np.ascontiguousarray(images.pixels).data)
        digest.update(images.labels.tobytes())
        _, height, width, channels = images.pixels.shape
        mean, spread = brightness(images.pixels)
        return ImageStats(channels, height, width, list(images.classes), mean, max(spread, 1e-6), digest.hexdigest())


def brightness(pixels: NDArray[np.uint8]) -> tuple[float, float]:
    """Mean and spread, pixels going from 0 to 1; by how often each value is there, not by a copy in float64."""
    counts, values = counted(pixels), np.arange(256) / 255
    mean = float((counts * values).sum() / counts.sum())
    return mean, float(np.sqrt((counts * (values - mean) ** 2).sum() / counts.sum()))


def counted(pixels: NDArray[np.uint8]) -> NDArray[np.int64]:  # "n h w c" -> "256"
    """How often each value is there, image by image: counting makes whole numbers eight times as wide."""
    counts = np.zeros(256, np.int64)
    for image in pixels:
        counts += np.bincount(image.ravel(), minlength=256)
    return counts


def recalled(folder: Path) -> ImageStats:
    """The facts that a run saved."""
    return dataclass_from_file(ImageStats, folder / _FILE, "images")


@dataclass(frozen=True, eq=False)
class ImageBatch:
    """Images and their classes."""

    x: Tensor  # "b c h w"
    labels: Tensor  # "b"

    def to(self, device: torch.device) -> "ImageBatch":
        return ImageBatch(self.x.to(device), self.labels.to(device))


def read(task: Pictured) -> tuple[Images, Images]:
    """The images to learn from, and those to be judged on."""
    if task.train is None:
        return stratified_split(digits(), TEST, task.seed)
    train = read_images(task.train, "train", task.size)
    if not has_split(task.train, "test"):
        return stratified_split(train, TEST, task.seed)
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


def split_of(task: Pictured, split: str) -> Images:
    """The images of "valid", which chose the best weights, or of "test", which nothing was learned from."""
    train, test = read(task)
    return test if split == "test" else stratified_split(train, VALID, task.seed)[1]


def _counts(images: Images) -> list[int]:
    """How many images each class has."""
    return np.bincount(images.labels, minlength=len(images.classes)).tolist()


def remember(facts: ImageStats, folder: Path, new: bool) -> None:
    """Facts into a new run; those of a run that goes on must be the same."""
    if new or not (folder / _FILE).exists():
        atomic_files.make_folder(folder)
        atomic_files.write_atomically(folder / _FILE, [json.dumps(asdict(facts)).encode(), b"\n"])
        return
    before = recalled(folder)
    if before.sha256 != facts.sha256:
        classes = f" of {len(before.classes)} classes" if before.classes else ""
        raise ValueError(
            f"the images of {folder} have changed: they were {before.height} × {before.width}{classes}; "
            "put the files back as they were, or train in another folder"
        )
    # runs of before have none
    if before.valid_sha256 and before.valid_sha256 != facts.valid_sha256:
        raise ValueError(
            f"the images that {folder} is validated on have changed, and its best weights were chosen by others; "
            "put the files back as they were, or train in another folder"
        )


def learned(task: Pictured, folder: Path, new: bool) -> tuple[Images, Images, ImageStats]:
    """The images to learn from, those that choose the best weights, and the facts, which the folder remembers."""
    train, _ = read(task)
    facts = ImageStats.of(train)
    remember(facts, folder, new)
    if task.shift >= min(facts.height, facts.width):
        raise ValueError(
            f"shift={task.shift} moves images of {facts.width} × {facts.height} pixels out of sight; try shift=1"
        )
    few = [f"{name} has {n}" for name, n in zip(train.classes, _counts(train), strict=True) if n < 2]
    if few:
        raise ValueError(
            f"every class needs an image to learn from and one to validate on, but {', '.join(few[:5])} after the "
            "test images are taken out; give more pictures of it, or take the class out"
        )
    train, valid = stratified_split(train, VALID, task.seed)
    return train, valid, facts


def several(task: Pictured, facts: ImageStats) -> None:
    """Raises if there is one class alone."""
    if len(facts.classes) < 2:
        raise ValueError(
            f"{task.train} holds one class, {facts.classes[0]}, and there is nothing to tell apart; put pictures of "
            "another into a folder beside it"
        )


def told(train: Images, valid: Images) -> str:
    """What was read, for people."""
    return f"{len(train):,} images to train on, {len(valid):,} to validate, {len(train.classes)} classes"


def plan(count: int, batch: int, seed: int, epoch: int) -> Sequence[Planned]:
    """The batches of an epoch."""
    draw = np.random.default_rng([seed, epoch])
    order = draw.permutation(count)
    parts = np.split(order, range(batch, count, batch))
    # a lone image has no statistics of a batch
    if len(parts) > 1 and len(parts[-1]) == 1:
        parts[-2:] = [np.concatenate(parts[-2:])]
    return [(int(draw.integers(2**31)), part) for part in parts]


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


def share(x: Tensor, labels: NDArray[np.int64], rank: int, world: int) -> ImageBatch | None:
    """This process's rows of a batch; None if it has none."""
    return ImageBatch(x[rank::world], torch.from_numpy(labels)[rank::world]) if rank < len(labels) else None


def scored(chances: NDArray[np.float64], labels: NDArray[np.int64]) -> dict[str, float]:  # "n k", "n"
    """Accuracy in percent, and −log p of the right class."""
    right = chances.argmax(-1) == labels
    picked = np.take_along_axis(chances, labels[:, None], 1)
    return {"accuracy": 100.0 * float(right.mean()), "nll": float(-np.log(np.maximum(picked, 1e-300)).mean())}


@torch.no_grad()
def chances(
    model: nn.Module, logits: Callable[[Tensor], Tensor], pixels: NDArray[np.uint8], facts: ImageStats
) -> NDArray[np.float64]:  # "n h w c" -> "n k"
    """p(class | image), by what a model says of images as tensors, some at once."""
    device = next(model.parameters()).device
    some = (tensor(pixels[at : at + _AT_ONCE], facts).to(device) for at in range(0, len(pixels), _AT_ONCE))
    return np.concatenate([logits(x).cpu().double().softmax(-1).numpy() for x in some])


def tensor(pixels: NDArray[np.uint8], facts: ImageStats) -> Tensor:  # "n h w c" -> "n c h w"
    """With mean 0 and spread 1 over the training images."""
    x = torch.from_numpy(np.ascontiguousarray(pixels)).permute(0, 3, 1, 2).float()
    return (x / 255 - facts.mean) / facts.spread
