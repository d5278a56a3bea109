"""Labelled images of a task: files to splits, batches and tensors; and the statistics that a run keeps of them."""

import json
import reprlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.common import atomic_files, image_files
from regard.common.dataclass_json import dataclass_from_file
from regard.common.options.checks import large_batch_warnings
from regard.common.suggestions import known
from regard.data.embedded.scenes import CaptionedImages
from regard.data.images.cluttered import cluttered_digits, num_valid_scenes
from regard.data.images.digit_splits import HELD_OUT, split_digits
from regard.data.images.labelled import Images, digits, has_split, read_images
from regard.data.splitting import Parts, held_out, relabel
from regard.data.unseen_labels import extend_classes, renumber
from regard.inference.evaluation_split import EvaluationSplit, HeldOutPart, record_folder
from regard.tasks.shared.classification import IMAGE_SCORES, class_scores, known_rows
from regard.tasks.shared.image_options import LabelledImageConfig
from regard.training.protocol import LabelledBatch, Model, TrainingProblem
from regard.training.run_folder import initial_folder

_FILE = "images.json"
_MAX_SIDE = 65_536
# the standard deviation of images of one grey
_LEAST_SPREAD = 1e-6
# shares of the images that are held out: to test on, where the data has no test split of its own, and to validate on
TEST, VALID = HELD_OUT["test"], HELD_OUT["valid"]
# images per forward pass outside of training
_BATCH = 256
# the seed of the random changes of a batch, and the numbers of its images
Planned = tuple[int, NDArray[np.int64]]


@dataclass(frozen=True)
class ImageStats:
    """Shape, classes, mean and standard deviation of the training images, and the fingerprint of these with those that
    are held out from them.

    `valid_sha256` is the fingerprint of validation images that have files of their own. `resample` is the filter that
    images are resized with.
    """

    channels: int
    height: int
    width: int
    classes: list[str]
    mean: float
    spread: float
    sha256: str
    valid_sha256: str = ""
    resample: str = "bilinear"

    def __post_init__(self) -> None:
        for name, most in (("channels", 4), ("height", _MAX_SIDE), ("width", _MAX_SIDE)):
            if not 1 <= getattr(self, name) <= most:
                raise ValueError(f"{name} must be from 1 to {most}, got {reprlib.repr(getattr(self, name))}")
        if not (0 <= self.mean <= 1 and 0 < self.spread <= 1):
            raise ValueError(f"mean and spread must be from 0 to 1, got {self.mean} and {self.spread}")
        known("resample", self.resample, image_files.RESAMPLING)

    @staticmethod
    def of(images: Images, train: Images | None = None) -> "ImageStats":
        """The fingerprint of images, and the mean and spread of those to train on, without those to validate on."""
        digest = sha256(np.ascontiguousarray(images.pixels).data)
        digest.update(images.labels.tobytes())
        _, height, width, channels = images.pixels.shape
        mean, spread = brightness((images if train is None else train).pixels)
        return ImageStats(
            channels, height, width, list(images.classes), mean, max(spread, _LEAST_SPREAD), digest.hexdigest()
        )


def brightness(pixels: NDArray[np.uint8]) -> tuple[float, float]:
    """Mean and standard deviation of pixels from 0 to 1, by the counts of their values: a copy in float64 is larger."""
    counts, values = value_counts(pixels), np.arange(256) / 255
    mean = float((counts * values).sum() / counts.sum())
    return mean, float(np.sqrt((counts * (values - mean) ** 2).sum() / counts.sum()))


def value_counts(pixels: NDArray[np.uint8]) -> NDArray[np.int64]:  # "n h w c" -> "256"
    """The count of each value, image by image: np.bincount makes a copy that is eight times as large."""
    counts = np.zeros(256, np.int64)
    for image in pixels:
        counts += np.bincount(image.ravel(), minlength=256)
    return counts


def read_stats(folder: Path) -> ImageStats:
    """The statistics that a run saved."""
    return dataclass_from_file(ImageStats, folder / _FILE, "images")


def save_or_check_stats(stats: ImageStats, folder: Path, new: bool) -> None:
    """Saves statistics in a new run, unless the folder holds others; raises if those of a resumed run differ."""
    if new and (folder / _FILE).exists() and read_stats(folder) != stats:
        refuse_overwriting(folder / _FILE)
    if new or not (folder / _FILE).exists():
        atomic_files.make_folder(folder)
        atomic_files.write_atomically(folder / _FILE, [json.dumps(asdict(stats)).encode(), b"\n"])
        return
    before = read_stats(folder)
    if before.sha256 != stats.sha256:
        classes = f" of {len(before.classes)} classes" if before.classes else ""
        raise ValueError(
            f"the images of {folder} have changed: they were {before.height} × {before.width}{classes}; "
            "put the files back as they were, or train in another folder"
        )
    if before.valid_sha256 != stats.valid_sha256:
        raise ValueError(
            f"the images that {folder} is validated on have changed, and its best weights were chosen by others; "
            "put the files back as they were, or train in another folder"
        )


def refuse_overwriting(path: Path) -> NoReturn:
    """Raises because a new run would replace a file of another run."""
    raise FileExistsError(
        f"{path} belongs to another run, and a new one would write over it; resume that run, or train in another folder"
    )


def read_pixels(source: Path | bytes, stats: ImageStats, **options: Any) -> NDArray[np.uint8]:  # -> "h w c"
    """The pixels of an image file, or of its bytes, in the size and colours of the training images.

    `options` are those of `image_files.read`.
    """
    mode = "L" if stats.channels == 1 else "RGB"
    size = (stats.width, stats.height)
    return image_files.read(source, size=size, resample=stats.resample, mode=mode, **options)


def initial_stats(folder: Path) -> ImageStats | None:
    """The statistics of the run that this one starts from; None if it starts from none."""
    initial = initial_folder(folder)
    return None if initial is None else read_stats(initial)


def with_initial_stats(stats: ImageStats, folder: Path) -> ImageStats:
    """Statistics with the mean and the spread of the run that this one starts from, whose weights have learned them."""
    initial = initial_stats(folder)
    if initial is None:
        return stats
    shape, trained = ((each.height, each.width, each.channels) for each in (stats, initial))
    if shape != trained:
        way = f"give size={trained[0]}, or resize them" if trained[0] == trained[1] else "resize them"
        raise ValueError(
            f"the images are {shape}, (height, width, channels), those of the run to start from {trained}; {way}, or "
            "train from scratch"
        )
    return replace(stats, mean=initial.mean, spread=initial.spread)


# Splits


def read_train_and_test(source: LabelledImageConfig, classes: Sequence[str] | None = None) -> tuple[Images, Images]:
    """The training images, with those that are held out to validate on, and the test images; if given, with these
    classes. Test images of other classes stand behind them.
    """
    train, test = _read_train_and_test(source)
    if classes is None or tuple(classes) == train.classes:
        return train, test
    labels = relabel(train.labels, train.classes, classes, source.train or "the digits")
    return Images(train.pixels, labels, tuple(classes)), _with_unseen(
        test, classes, f"the test split of {source.train}"
    )


def _read_train_and_test(source: LabelledImageConfig) -> tuple[Images, Images]:
    if source.dataset == "cluttered":
        return cluttered_digits(source.seed)
    if source.train is None:
        return split_digits(digits(), TEST, source.seed)
    train = read_images(source.train, "train", source.size)
    if not has_split(source.train, "test"):
        return _split(source, train, TEST)
    return train, _read_part(source, "test", train)


def _read_part(source: LabelledImageConfig, split: str, train: Images) -> Images:
    """Images that have files of their own, with the numbers of the training classes; others stand behind these."""
    assert source.train is not None
    images, name = read_images(source.train, split, source.size), f"the {split} split of {source.train}"
    if images.pixels.shape[1:] != train.pixels.shape[1:]:
        raise ValueError(
            f"images of {name} are {images.pixels.shape[1:]}, those to train on {train.pixels.shape[1:]}; give both "
            "the same, or size"
        )
    return _with_unseen(images, train.classes, name)


def _with_unseen(images: Images, classes: Sequence[str], name: object) -> Images:
    together = extend_classes((images.classes[n] for n in np.unique(images.labels)), classes, name)
    return Images(images.pixels, renumber(images.labels, images.classes, together), together)


def _train_and_valid(source: LabelledImageConfig, train: Images) -> tuple[Images, Images]:
    """The images to train on, and those to validate on: they have a folder of their own, or are held out."""
    if source.dataset == "cluttered":
        count = num_valid_scenes(source.seed)
        return train[:-count], train[-count:]
    if "valid" in _parts_with_files(source):
        return train, _read_part(source, "valid", train)
    return _split(source, train, VALID)


def _parts_with_files(source: LabelledImageConfig) -> list[str]:
    """The parts "valid" and "test" where the folder has separate files of them."""
    return [part for part in ("valid", "test") if source.train is not None and has_split(source.train, part)]


def _split(source: LabelledImageConfig, images: Images, share: float) -> tuple[Images, Images]:
    """Two parts without a common image, the second with this share of every class."""
    if source.train is None:
        return split_digits(images, share, source.seed)
    held = held_out(contents(images), share, source.seed, labels=images.labels)
    return images[np.flatnonzero(~held)], images[np.flatnonzero(held)]


def contents(images: Images | CaptionedImages) -> Iterator[bytes]:
    """The pixels of every image, by which copies are known; their classes or captions may differ."""
    return (image.tobytes() for image in images.pixels)


def read_split(source: LabelledImageConfig, split: str, classes: Sequence[str] | None = None) -> Images:
    """The images of "valid", which choose the best weights, or of "test", which training does not use.

    With `classes`, those of a trained model, labels have their numbers. `read_held_out` is for a run that is trained.
    """
    train, test = read_train_and_test(source, classes)
    return test if split == "test" else _train_and_valid(source, train)[1]


def read_held_out(source: LabelledImageConfig, split: HeldOutPart, folder: Path) -> EvaluationSplit[Images]:
    """The images of "valid", which chose the best weights of the run, or of "test", which its training did not use.

    Raises if others than before are held out, and the run was trained on some of them.
    """
    images = read_split(source, split, read_stats(folder).classes)
    return EvaluationSplit.of_folder(images, split, source.train, folder, "images", contents, _parts_with_files(source))


def bounded_examples(images: Images, classes: Sequence[str]) -> tuple[Tensor, Tensor]:  # -> "b c h w", "b"
    """Pixels from 0 to 1 and the numbers of their classes; images of other classes are left out."""
    images = images[known_rows(images.labels, len(classes))]
    return pixel_tensor(images.pixels), torch.from_numpy(images.labels)


class TrainingImages(NamedTuple):
    """Images to train on, those to validate on, statistics, and warnings about images that splits share."""

    train: Images
    valid: Images
    stats: ImageStats
    shared: Sequence[str]


def load_training_images(
    source: LabelledImageConfig, folder: Path, new: bool, adapt: Callable[[ImageStats], ImageStats] | None = None
) -> TrainingImages:
    """The images to train on, those to validate on, and their statistics, which the folder keeps.

    `adapt` changes the statistics of a new run, or raises if a model cannot read such images.
    """
    initial = initial_stats(folder)
    images, test = read_train_and_test(source, None if initial is None else initial.classes)
    train, valid = _train_and_valid(source, images)
    separate = _parts_with_files(source)
    valid_sha256 = ImageStats.of(valid).sha256 if "valid" in separate else ""
    stats = replace(ImageStats.of(images, train), valid_sha256=valid_sha256)
    stats = with_initial_stats(stats, folder)
    stats = stats if adapt is None else adapt(stats)
    save_or_check_stats(stats, folder, new)
    if source.shift >= min(stats.height, stats.width):
        raise ValueError(
            f"shift={source.shift} moves images of {stats.width} × {stats.height} pixels out of sight; try shift=1"
        )
    counts = np.bincount(images.labels, minlength=len(train.classes)).tolist()
    # a run that starts from another need not have images of all its classes
    least, needed = 0 if initial is None else 1, 1 if "valid" in separate else 2
    few = [f"{name} has {n}" for name, n in zip(train.classes, counts, strict=True) if least <= n < needed]
    if few:
        raise ValueError(
            f"every class needs an image to train on and one to validate on, but {', '.join(few[:5])} after the "
            "test images are taken out; give more images of it, or take the class out"
        )
    shared = record_folder(source.train, folder, Parts(train, valid, test), "images", contents, new, separate)
    return TrainingImages(train, valid, stats, shared)


def require_two_classes(source: LabelledImageConfig, stats: ImageStats) -> None:
    """Raises if all images are of one class."""
    if len(stats.classes) < 2:
        raise ValueError(
            f"{source.train} holds one class, {stats.classes[0]}, and there is nothing to tell apart; put images of "
            "another into a folder beside it"
        )


def data_summary(train: Images, valid: Images) -> str:
    """The numbers of images and classes, for people."""
    return f"{len(train):,} images to train on, {len(valid):,} to validate, {len(train.classes)} classes"


# Batches


@dataclass(frozen=True, eq=False)
class ImageBatch(LabelledBatch):
    """Images and their classes."""

    x: Tensor  # "b c h w"
    labels: Tensor  # "b"


class ImageProblem(TrainingProblem[Model, ImageBatch]):
    """A problem whose batches are images to train on."""

    config: Any  # the options of the task: its batch and seed
    train: Images
    unit: str = "images"

    def plan_epoch(self, epoch: int) -> Sequence[Planned]:
        return plan_image_batches(len(self.train), self.config.batch, self.config.seed, epoch)

    def warnings(self) -> Sequence[str]:
        return large_batch_warnings(self.config.batch, len(self.train), "images")


def plan_image_batches(count: int, batch: int, seed: int, epoch: int) -> Sequence[Planned]:
    """The batches of an epoch."""
    generator = np.random.default_rng([seed, epoch])
    order = generator.permutation(count)
    parts = np.split(order, range(batch, count, batch))
    # a batch of one image has no statistics for batch norm
    if len(parts) > 1 and len(parts[-1]) == 1:
        parts[-2:] = [np.concatenate(parts[-2:])]
    return [(int(generator.integers(2**31)), part) for part in parts]


def random_shift(x: Tensor, most: int, seed: int) -> Tensor:  # "b c h w"
    """Every image shifted by up to `most` pixels each way; pixels at the edge are repeated."""
    if not most:
        return x
    b, _, h, w = x.shape
    padded = F.pad(x, (most,) * 4, mode="replicate")
    shifts = np.random.default_rng(seed).integers(0, 2 * most + 1, (b, 2))
    rows = torch.from_numpy(shifts[:, :1] + np.arange(h))  # "b h"
    columns = torch.from_numpy(shifts[:, 1:] + np.arange(w))  # "b w"
    images = torch.arange(b)[:, None, None]
    return padded.permute(0, 2, 3, 1)[images, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2).contiguous()


def shifted_batch(
    images: Images, stats: ImageStats, planned: Planned, shift: int, rank: int = 0, world: int = 1
) -> ImageBatch | None:
    """The planned images, each shifted at random by up to `shift` pixels, and of these the rows rank::world."""
    seed, index = planned
    selected = images[index]
    return shard(random_shift(image_tensor(selected.pixels, stats), shift, seed), selected.labels, rank, world)


def shard(x: Tensor, labels: NDArray[np.int64], rank: int, world: int) -> ImageBatch | None:
    """The rows rank::world of a batch; None if there are none."""
    return ImageBatch(x[rank::world], torch.from_numpy(labels)[rank::world]) if rank < len(labels) else None


def image_tensor(pixels: NDArray[np.uint8], stats: ImageStats) -> Tensor:  # "n h w c" -> "n c h w"
    """(x − μ) / σ, with the mean and the standard deviation of the training images."""
    return normalized(pixel_tensor(pixels), stats)


def pixel_tensor(pixels: NDArray[np.uint8]) -> Tensor:  # "n h w c" -> "n c h w"
    """Pixels from 0 to 1."""
    return torch.from_numpy(np.ascontiguousarray(pixels)).permute(0, 3, 1, 2).float() / 255


def normalized(x: Tensor, stats: ImageStats) -> Tensor:
    """(x − μ) / σ of pixels from 0 to 1."""
    return (x - stats.mean) / stats.spread


# Scores


@torch.no_grad()
def class_probabilities(
    model: nn.Module,
    logits: Callable[[Tensor], Tensor],
    pixels: NDArray[np.uint8],
    stats: ImageStats,
    done: Callable[[int], object] | None = None,
) -> NDArray[np.float64]:  # "n h w c" -> "n k"
    """p(class | image), batch by batch; `logits` calls the model, `done` is called with the number of images so far."""
    device = next(model.parameters()).device
    parts = []
    for start in range(0, len(pixels), _BATCH):
        x = image_tensor(pixels[start : start + _BATCH], stats).to(device)
        parts.append(logits(x).cpu().double().softmax(-1).numpy())
        if done is not None:
            done(start + len(x))
    return np.concatenate(parts)


def image_scores(model: nn.Module, images: Images, stats: ImageStats) -> dict[str, float]:
    """The scores of a classifier on images."""
    return class_scores(class_probabilities(model, model, images.pixels, stats), images.labels, IMAGE_SCORES)
