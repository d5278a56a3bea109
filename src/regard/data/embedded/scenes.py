"""Captioned images: scenes of handwritten digits and sentences that describe their positions.  No torch here.

    the three above the seven
    we see the two on the left, the zero in the middle and the nine at the bottom right

One to three digits are drawn at different ones of nine positions, with a small offset. An arrangement says which digits
are where: the arrangements of validation and test are in no training scene, and neither are the images of their digits.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from regard.data.embedded._generated import hashed_split, split_generator
from regard.data.images.digit_splits import digit_images
from regard.data.splitting import Split

NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
PLACES = (
    "at the top left",
    "at the top",
    "at the top right",
    "on the left",
    "in the middle",
    "on the right",
    "at the bottom left",
    "at the bottom",
    "at the bottom right",
)
# size of a scene, distance between positions, and greatest offset of a digit, in pixels
SIDE, PITCH, MAX_OFFSET = 32, 12, 2
MAX_DIGITS = 3
_COUNTS: dict[Split, int] = {"train": 20_000, "valid": 500, "test": 1_000}

# arrangements sampled at a time
_CHUNK = 1024

Arrangement = tuple[tuple[int, int], ...]  # (position, digit), in reading order


@dataclass(frozen=True)
class Box:
    """A box from `top` up to `bottom` and from `left` up to `right`, in pixels, and the name of its content."""

    name: str
    top: int
    left: int
    bottom: int
    right: int

    def holds(self, y: float, x: float) -> bool:
        """Whether the box contains a point."""
        return self.top <= y < self.bottom and self.left <= x < self.right


@dataclass(frozen=True, eq=False)
class CaptionedImages:
    """Images of one size, the correct captions of each and, if known, the objects in them."""

    pixels: NDArray[np.uint8]  # "n h w c"
    captions: Sequence[tuple[str, ...]]
    boxes: Sequence[tuple[Box, ...]] | None = None  # in the order of the captions

    def __post_init__(self) -> None:
        if self.pixels.ndim != 4 or len(self.pixels) != len(self.captions):
            raise ValueError(
                f"pixels must be (pictures, height, width, channels), captions for each, got {self.pixels.shape} and "
                f"{len(self.captions)} captions; give grey pictures an axis of one channel"
            )
        for n, alternatives in enumerate(self.captions):
            if isinstance(alternatives, str) or not alternatives:
                raise ValueError(
                    f"captions must be one tuple of sentences a picture, got {alternatives!r} for picture {n}"
                )

    def __len__(self) -> int:
        return len(self.captions)

    def __getitem__(self, index: NDArray[np.int64] | slice) -> "CaptionedImages":
        indices = range(len(self))[index] if isinstance(index, slice) else index.tolist()
        boxes = None if self.boxes is None else [self.boxes[n] for n in indices]
        return CaptionedImages(self.pixels[index], [self.captions[n] for n in indices], boxes)


def scenes(split: Split, seed: int = 0, count: int | None = None) -> CaptionedImages:
    """The scenes of a split; a pure function of its arguments: a smaller `count` gives the first scenes of a larger
    one.
    """
    if split not in _COUNTS:
        raise ValueError(f"split must be 'train', 'valid' or 'test', got {split!r}; these three are drawn")
    rng, count = split_generator(seed, split, count, _COUNTS)
    images = digit_images(split, seed)
    by_digit = [np.flatnonzero(images.labels == digit) for digit in range(len(NAMES))]
    height, width = images.pixels.shape[1:3]
    pixels = np.zeros((count, SIDE, SIDE, 1), np.uint8)
    captions, boxes = [], []
    for canvas, (arrangement, chances, offsets) in zip(pixels, _sample_arrangements(rng, split, seed), strict=False):
        scene_boxes = []
        for (place, digit), chance, (down, right) in zip(arrangement, chances, offsets, strict=True):
            top = min(max(place // 3 * PITCH + down, 0), SIDE - height)
            left = min(max(place % 3 * PITCH + right, 0), SIDE - width)
            image = images.pixels[by_digit[digit][int(chance * len(by_digit[digit]))]]
            canvas[top : top + height, left : left + width] = image
            scene_boxes.append(Box(NAMES[digit], top, left, top + height, left + width))
        boxes.append(tuple(scene_boxes))
        captions.append(sentences(arrangement))
    return CaptionedImages(pixels, captions, boxes)


def _sample_arrangements(
    rng: np.random.Generator, split: Split, seed: int
) -> Iterator[tuple[Arrangement, list[float], list[list[int]]]]:
    """Endless arrangements of a split, equally many of one, two and three digits; with every digit a number from 0 up
    to 1, which selects its image, and its offset.
    """
    while True:
        counts = rng.integers(1, MAX_DIGITS + 1, _CHUNK).tolist()
        places = rng.random((_CHUNK, len(PLACES))).argsort(1).tolist()
        digit_rows = rng.integers(0, len(NAMES), (_CHUNK, MAX_DIGITS)).tolist()
        chances = rng.random((_CHUNK, MAX_DIGITS)).tolist()
        offsets = rng.integers(-MAX_OFFSET, MAX_OFFSET + 1, (_CHUNK, MAX_DIGITS, 2)).tolist()
        for n, count in enumerate(counts):
            arrangement = tuple(zip(sorted(places[n][:count]), digit_rows[n], strict=False))
            if split_of(arrangement, seed) == split:
                yield arrangement, chances[n][:count], offsets[n][:count]


def split_of(arrangement: Arrangement, seed: int = 0) -> Split:
    """The only split with scenes of this arrangement."""
    description = ",".join(f"{place}:{digit}" for place, digit in arrangement)
    return hashed_split(f"{seed};{description}")


def sentences(arrangement: Arrangement) -> tuple[str, ...]:
    """All captions of an arrangement; digits are always named in reading order."""
    # the article is never "a": "an" would reveal an eight before it is named
    phrases = [f"the {NAMES[digit]}" for _, digit in arrangement]
    placed = [f"{phrase} {PLACES[place]}" for phrase, (place, _) in zip(phrases, arrangement, strict=True)]
    rows, columns = ([divide(place, 3) for place, _ in arrangement] for divide in (int.__floordiv__, int.__mod__))
    captions = [", ".join(placed)]
    captions.append("we see " + (", ".join(placed[:-1]) + " and " if placed[:-1] else "") + placed[-1])
    if len(phrases) > 1 and len(set(columns)) == 1:
        captions.append(" above ".join(phrases))
    if len(phrases) > 1 and len(set(rows)) == 1:
        captions.append(" left of ".join(phrases))
    return tuple(captions)
