"""Clips: sequences of pictures or of samples, of any length, with one class each.  No torch here."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.data.splitting import check_labels

# a clip of pictures "t h w c" in bytes, or a signal "t c" in float32
Clip = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Clips:
    """Clips of pictures of one size, or signals of one number of channels, and their classes.

    `intervals` are the steps that decide the class, from the first to the one behind the last, where they are known;
    an interval may be empty.
    """

    clips: Sequence[Clip]
    labels: NDArray[np.int64]  # "n"
    classes: tuple[str, ...]
    intervals: NDArray[np.int64] | None = None  # "n 2"

    def __post_init__(self) -> None:
        if len(self.clips) != len(self.labels):
            raise ValueError(
                f"clips must have one label each, got {len(self.clips)} clips and {len(self.labels)} labels; "
                "give as many labels"
            )
        for n, clip in enumerate(self.clips):
            if (clip.ndim, clip.dtype.name) not in ((4, "uint8"), (2, "float32")) or not clip.size:
                raise ValueError(
                    "clips must be pictures (frames, height, width, channels) in uint8, or signals (samples, channels) "
                    f"in float32, got {clip.shape} in {clip.dtype} for clip {n}; convert it"
                )
            if clip.shape[1:] != self.clips[0].shape[1:]:
                raise ValueError(
                    f"the frames of all clips must have one shape, got {clip.shape[1:]} for clip {n} and "
                    f"{self.clips[0].shape[1:]} for clip 0; resize them"
                )
        check_labels(self.labels, self.classes, "clip")

    def __len__(self) -> int:
        return len(self.clips)

    def __getitem__(self, index: NDArray[np.int64]) -> "Clips":
        intervals = None if self.intervals is None else self.intervals[index]
        return Clips([self.clips[n] for n in index.tolist()], self.labels[index], self.classes, intervals)

    @property
    def lengths(self) -> NDArray[np.int64]:  # "n"
        """Frames or samples per clip."""
        return np.array([len(clip) for clip in self.clips], np.int64)

    @property
    def is_signal(self) -> bool:
        """Whether these are signals, not pictures."""
        return self.clips[0].ndim == 2
