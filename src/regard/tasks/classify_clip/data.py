"""The clips of a task: splits, the facts that a run keeps of them, batches."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import ClassVar, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.data.clips.files import has_split, read_clips
from regard.data.clips.labelled import Clip, Clips
from regard.data.embedded.clips.moving_digits import camouflage, directions, meetings
from regard.data.embedded.clips.signals import signals
from regard.data.splitting import Split, held_out, relabel
from regard.data.unseen_labels import extend_classes, renumber
from regard.tasks.shared.data_fingerprint import DataFingerprint
from regard.training.protocol import LabelledBatch

EMBEDDED: Mapping[str, Callable[[Split, int], Clips]] = {
    "directions": directions,
    "meetings": meetings,
    "camouflage": camouflage,
    "signals": signals,
}
# shares of the clips that are held out: to test on, where the data has no test split of its own, and to validate on
_TEST, _VALID = 0.2, 0.1
# batches whose clips are sorted by length together, so that a batch has little padding
_POOL = 16


class ClipSource(Protocol):
    """The options of a task that decide its clips."""

    @property
    def dataset(self) -> str:
        """The embedded data set, or "files"."""

    @property
    def train(self) -> Path | None: ...

    @property
    def size(self) -> int | None: ...

    @property
    def seed(self) -> int: ...


class ClipSplits(NamedTuple):
    """Clips to train on, to validate on, and to test."""

    train: Clips
    valid: Clips
    test: Clips


def read_splits(source: ClipSource, classes: Sequence[str] | None = None) -> ClipSplits:
    """The clips of a task; if given, with the numbers of these classes, those of a trained model."""
    if source.train is None:
        make = EMBEDDED[source.dataset]
        return ClipSplits(*(make(split, source.seed) for split in ("train", "valid", "test")))
    train = read_clips(source.train, "train", source.size)
    train, test = _with_part(source, "test", train, _TEST)
    if classes is not None and tuple(classes) != train.classes:
        labels = relabel(train.labels, train.classes, classes, source.train)
        train = Clips(train.clips, labels, tuple(classes), train.intervals)
        test = _with_unseen(test, classes, f"the test split of {source.train}")
    train, valid = _with_part(source, "valid", train, _VALID)
    return ClipSplits(train, valid, test)


def parts_with_files(source: ClipSource) -> list[str]:
    """The parts "valid" and "test" where the folder has separate files of them."""
    return [part for part in ("valid", "test") if source.train is not None and has_split(source.train, part)]


def _with_part(source: ClipSource, split: str, train: Clips, share: float) -> tuple[Clips, Clips]:
    """The training clips, and those of a split: they have files of their own, or this share is held out."""
    assert source.train is not None
    if has_split(source.train, split):
        return train, _read_part(source, split, train)
    return _split(train, share, source.seed)


def _read_part(source: ClipSource, split: str, train: Clips) -> Clips:
    """Clips that have files of their own, with the numbers of the training classes; others stand behind these."""
    assert source.train is not None
    clips, name = read_clips(source.train, split, source.size), f"the {split} split of {source.train}"
    if clips.clips[0].shape[1:] != train.clips[0].shape[1:]:
        raise ValueError(
            f"frames of {name} are {clips.clips[0].shape[1:]}, those to train on {train.clips[0].shape[1:]}; give both "
            "the same, or size"
        )
    return _with_unseen(clips, train.classes, name)


def _with_unseen(clips: Clips, classes: Sequence[str], name: object) -> Clips:
    together = extend_classes((clips.classes[n] for n in np.unique(clips.labels)), classes, name)
    return Clips(clips.clips, renumber(clips.labels, clips.classes, together), together, clips.intervals)


def _split(clips: Clips, share: float, seed: int) -> tuple[Clips, Clips]:
    """Two parts without a common clip."""
    held = held_out(contents(clips), share, seed, labels=clips.labels)
    return clips[np.flatnonzero(~held)], clips[np.flatnonzero(held)]


def contents(clips: Clips) -> Iterator[bytes]:
    """The shape and values of every clip, by which copies are known; their classes may differ."""
    return (f"{clip.shape}".encode() + clip.tobytes() for clip in clips.clips)


@dataclass(frozen=True, kw_only=True)
class ClipFacts(DataFingerprint):
    """Shape, classes, means and standard deviations of the training clips, and the fingerprint of all."""

    file: ClassVar[str] = "clips.json"
    unit: ClassVar[str] = "clips"

    channels: int
    size: tuple[int, int] | None  # height and width of the frames; None for signals
    classes: tuple[str, ...]
    mean: tuple[float, ...]  # one mean per channel
    spread: tuple[float, ...]

    def __post_init__(self) -> None:
        if self.channels < 1 or len(self.mean) != self.channels or len(self.spread) != self.channels:
            raise ValueError(f"mean and spread must be of {self.channels} channels, got {self.mean} and {self.spread}")
        if self.size is not None and (len(self.size) != 2 or min(self.size) < 1):
            raise ValueError(f"size must be a height and a width, got {self.size}")

    @staticmethod
    def digest(clips: Clips) -> str:
        digest = sha256(clips.labels.tobytes())
        for clip in clips.clips:
            digest.update(np.array(clip.shape, np.int64).tobytes())
            digest.update(np.ascontiguousarray(clip).data)
        return digest.hexdigest()

    @staticmethod
    def of(splits: ClipSplits) -> "ClipFacts":
        train = splits.train
        shape = train.clips[0].shape
        mean, spread = _statistics(train)
        return ClipFacts(
            channels=shape[-1],
            size=None if train.is_signal else (shape[1], shape[2]),
            classes=train.classes,
            mean=mean,
            spread=spread,
        ).for_data(splits)

    def tensor(self, clip: Clip) -> Tensor:  # "t h w c" or "t c" -> "t c h w" or "t c"
        """(x − μ) / σ, channel by channel."""
        values = torch.from_numpy(np.ascontiguousarray(clip)).float()
        values = (values - torch.tensor(self.mean)) / torch.tensor(self.spread)
        return values if self.size is None else values.permute(0, 3, 1, 2)


def _statistics(clips: Clips) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of every channel, clip by clip, so that no copy of all in float64 is made."""
    sums = np.zeros((3, clips.clips[0].shape[-1]))
    for clip in clips.clips:
        values = clip.reshape(-1, clip.shape[-1]).astype(np.float64)
        sums += np.stack([np.full(values.shape[1], float(len(values))), values.sum(0), np.square(values).sum(0)])
    mean = sums[1] / sums[0]
    spread = np.sqrt(np.maximum(sums[2] / sums[0] - mean**2, 0))
    # a channel that is constant has nothing to divide by
    return tuple(mean.tolist()), tuple(np.where(spread > 1e-6 * (1 + np.abs(mean)), spread, 1.0).tolist())


def check_trainable(splits: ClipSplits, name: object, is_continued: bool) -> None:
    """Raises if a class has too few clips, or there is one class; a run that starts from another may lack classes."""
    train = splits.train
    if len(train.classes) < 2:
        raise ValueError(
            f"{name} holds one class, {train.classes[0]}, and there is nothing to tell apart; add clips of another"
        )
    counts, held = (np.bincount(part.labels, minlength=len(train.classes)) for part in (train, splits.valid))
    few = [
        train.classes[n]
        for n in range(len(train.classes))
        if min(counts[n], held[n]) < 1 and not (is_continued and not counts[n] + held[n])
    ]
    if few:
        raise ValueError(
            f"every class needs a clip to train on and one to validate on, after the test clips are taken out, and "
            f"{', '.join(few[:5])} of {name} has too few; add clips of it, or take the class out"
        )


@dataclass(frozen=True, eq=False)
class ClipBatch(LabelledBatch):
    """Clips with padding behind their ends, their lengths and their classes."""

    x: Tensor  # "b t c h w" or "b t c"
    lengths: Tensor  # "b"
    labels: Tensor  # "b"


def pad(clips: Sequence[Clip], facts: ClipFacts) -> tuple[Tensor, Tensor]:  # -> "b t …", "b"
    """Clips as a model reads them, zeros behind their ends, and their lengths."""
    lengths = torch.tensor([len(clip) for clip in clips])
    return torch.nn.utils.rnn.pad_sequence([facts.tensor(clip) for clip in clips], batch_first=True), lengths


def plan_batches(lengths: NDArray[np.int64], batch: int, seed: int, epoch: int) -> list[NDArray[np.int64]]:
    """The clips of every batch of an epoch, in random order, clips of similar length together."""
    draw = np.random.default_rng([seed, epoch])
    order = draw.permutation(len(lengths))
    pools = np.split(order, range(_POOL * batch, len(order), _POOL * batch))
    batches = []
    for pool in pools:
        ordered = pool[np.argsort(lengths[pool], kind="stable")]
        batches += np.split(ordered, range(batch, len(ordered), batch))
    # a batch of one clip has few statistics for batch norm
    if len(batches) > 1 and len(batches[-1]) == 1:
        batches[-2:] = [np.concatenate(batches[-2:])]
    return [batches[n] for n in draw.permutation(len(batches))]
