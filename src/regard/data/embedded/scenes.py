"""Pictures with captions: scenes of written digits and sentences that say what stands where.  No torch here.

    the three above the seven
    we see the two on the left, the zero in the middle and the nine at the bottom right

One to three digits stand at different ones of nine places, a little to the side of their middle. Which digits stand
where is an arrangement: those that are validated and tested on are in no scene that is learned from, and neither are
the images of their digits.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from regard.data.images.labelled import Images, digits
from regard.data.splitting import stratified_split

Split = Literal["train", "valid", "test"]

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
# pixels of a scene, from one place to the next, and how far a digit may lie off its place
SIDE, PITCH, OFF = 32, 12, 2
MOST = 3
# shares of all arrangements, and of the images of digits, that are validated and tested on
_HELD = {"valid": 0.1, "test": 0.2}
_COUNTS: dict[Split, int] = {"train": 20_000, "valid": 500, "test": 1_000}

# arrangements that are drawn at a time
_CHUNK = 1024

Arrangement = tuple[tuple[int, int], ...]  # (place, digit), in the order in which one reads


@dataclass(frozen=True)
class Box:
    """What stands from `top` to before `bottom`, from `left` to before `right`, in pixels, and the word for it."""

    name: str
    top: int
    left: int
    bottom: int
    right: int

    def holds(self, y: float, x: float) -> bool:
        """Does a point lie in it?"""
        return self.top <= y < self.bottom and self.left <= x < self.right


@dataclass(frozen=True, eq=False)
class Captioned:
    """Pictures of one size, what is right to say of each, and, where that is known, what stands where in them."""

    pixels: NDArray[np.uint8]  # "n h w c"
    captions: Sequence[tuple[str, ...]]
    boxes: Sequence[tuple[Box, ...]] | None = None  # in the order in which captions name them

    def __post_init__(self) -> None:
        if self.pixels.ndim != 4 or len(self.pixels) != len(self.captions):
            raise ValueError(
                f"pixels must be (pictures, height, width, channels), captions for each, got {self.pixels.shape} and "
                f"{len(self.captions)} captions; give grey pictures an axis of one channel"
            )
        for n, said in enumerate(self.captions):
            if isinstance(said, str) or not said:
                raise ValueError(f"captions must be one tuple of sentences a picture, got {said!r} for picture {n}")

    def __len__(self) -> int:
        return len(self.captions)

    def __getitem__(self, index: NDArray[np.int64] | slice) -> "Captioned":
        there = range(len(self))[index] if isinstance(index, slice) else index.tolist()
        boxes = None if self.boxes is None else [self.boxes[n] for n in there]
        return Captioned(self.pixels[index], [self.captions[n] for n in there], boxes)


def scenes(split: Split, seed: int = 0, count: int | None = None) -> Captioned:
    """Scenes of a split; a pure function of its arguments, and of less `count` the first of more."""
    if split not in _COUNTS:
        raise ValueError(f"split must be 'train', 'valid' or 'test', got {split!r}; these three are drawn")
    count = _COUNTS[split] if count is None else count
    if count < 1:
        raise ValueError(f"count must be 1 or more, got {count}; try count=1000")
    images = _digits(split, seed)
    of = [np.flatnonzero(images.labels == digit) for digit in range(len(NAMES))]
    high, wide = images.pixels.shape[1:3]
    pixels = np.zeros((count, SIDE, SIDE, 1), np.uint8)
    captions, boxes = [], []
    for canvas, (arrangement, which, off) in zip(pixels, _drawn(split, seed), strict=False):
        here = []
        for (place, digit), chance, (down, right) in zip(arrangement, which, off, strict=True):
            top = min(max(place // 3 * PITCH + down, 0), SIDE - high)
            left = min(max(place % 3 * PITCH + right, 0), SIDE - wide)
            image = images.pixels[of[digit][int(chance * len(of[digit]))]]
            canvas[top : top + high, left : left + wide] = image
            here.append(Box(NAMES[digit], top, left, top + high, left + wide))
        boxes.append(tuple(here))
        captions.append(sentences(arrangement))
    return Captioned(pixels, captions, boxes)


def _digits(split: Split, seed: int) -> Images:
    """The images that a split draws its digits from."""
    rest, test = stratified_split(digits(), _HELD["test"], seed)
    if split == "test":
        return test
    return stratified_split(rest, _HELD["valid"], seed)[split == "valid"]


def _drawn(split: Split, seed: int) -> Iterator[tuple[Arrangement, list[float], list[list[int]]]]:
    """Arrangements of a split without end, as many of one digit as of two and of three; for every digit of each a
    number from 0 up to 1, which decides on its image, and how far it lies off its place.
    """
    draw = np.random.default_rng([seed, sorted(_COUNTS).index(split)])
    while True:
        counts = draw.integers(1, MOST + 1, _CHUNK).tolist()
        places = draw.random((_CHUNK, len(PLACES))).argsort(1).tolist()
        named = draw.integers(0, len(NAMES), (_CHUNK, MOST)).tolist()
        which = draw.random((_CHUNK, MOST)).tolist()
        off = draw.integers(-OFF, OFF + 1, (_CHUNK, MOST, 2)).tolist()
        for n, count in enumerate(counts):
            arrangement = tuple(zip(sorted(places[n][:count]), named[n], strict=False))
            if split_of(arrangement, seed) == split:
                yield arrangement, which[n][:count], off[n][:count]


def split_of(arrangement: Arrangement, seed: int = 0) -> Split:
    """The only split that has scenes of this arrangement."""
    told = ",".join(f"{place}:{digit}" for place, digit in arrangement)
    share = int.from_bytes(sha256(f"{seed};{told}".encode()).digest()[:8], "big") / 2**64
    if share < _HELD["test"]:
        return "test"
    return "valid" if share < _HELD["test"] + _HELD["valid"] else "train"


def sentences(arrangement: Arrangement) -> tuple[str, ...]:
    """All that is said of an arrangement; digits are always named in the order in which one reads."""
    # not "a": "an" would tell of an eight before it is named
    things = [f"the {NAMES[digit]}" for _, digit in arrangement]
    placed = [f"{thing} {PLACES[place]}" for thing, (place, _) in zip(things, arrangement, strict=True)]
    rows, columns = ([way(place, 3) for place, _ in arrangement] for way in (int.__floordiv__, int.__mod__))
    said = [", ".join(placed)]
    said.append("we see " + (", ".join(placed[:-1]) + " and " if placed[:-1] else "") + placed[-1])
    if len(things) > 1 and len(set(columns)) == 1:
        said.append(" above ".join(things))
    if len(things) > 1 and len(set(rows)) == 1:
        said.append(" left of ".join(things))
    return tuple(said)
