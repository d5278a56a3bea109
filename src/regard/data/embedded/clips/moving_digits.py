"""Clips of moving digits; no single frame shows the class.  No torch here.

    directions    one digit moves in one of eight directions: which one
    meetings      two digits, lit in turn, one per frame, are at the same place at some moment, or never are near
    camouflage    a digit of random dots moves over random dots: which digit

Frames are a torus: what leaves at one side comes back at the other. The first place is drawn uniformly, so a digit is
anywhere in any frame with the same probability, whatever its direction, and wherever the digit of the other frames is:
a frame of directions or meetings has the same distribution in all classes. A frame of camouflage is independent dots.
The images of the digits of validation and test are in no training clip.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from regard.data.clips.labelled import Clips
from regard.data.embedded._generated import split_generator
from regard.data.images.digit_splits import digit_images
from regard.data.splitting import Split

DIRECTIONS = {
    "north": (-1, 0),
    "north-east": (-1, 1),
    "east": (0, 1),
    "south-east": (1, 1),
    "south": (1, 0),
    "south-west": (1, -1),
    "west": (0, -1),
    "north-west": (-1, -1),
}
MEETINGS = ("apart", "met")
# pixels of a frame, high and wide; frames of a clip; pixels per frame that a digit moves
SIDE, FRAMES, SPEEDS = 24, (8, 12), (1, 2)
# pixels between two digits that meet, at most, and between two that stay apart, at least, in the direction in which
# they are farther from each other
TOUCHING, APART = 1, 6
_COUNTS: dict[Split, int] = {"train": 6_000, "valid": 600, "test": 1_000}
_VELOCITIES = np.array(list(DIRECTIONS.values()))  # "8 2"

Draw = np.random.Generator


def directions(split: Split, seed: int = 0, count: int | None = None) -> Clips:
    """One digit that moves in one of eight directions."""
    images = digit_images(split, seed).pixels[..., 0]

    def clip(draw: Draw, label: int) -> tuple[NDArray[np.uint8], tuple[int, int]]:
        length = int(draw.integers(FRAMES[0], FRAMES[1] + 1))
        places = _places(draw, draw.integers(0, SIDE, 2), _VELOCITIES[label], length)
        return _frames(places, images[draw.integers(len(images), size=1)].repeat(length, 0)), (0, 0)

    return _clips(clip, split, seed, count, tuple(DIRECTIONS), has_intervals=False)


def meetings(split: Split, seed: int = 0, count: int | None = None) -> Clips:
    """Two digits in turn: at the same place at some moment, or never near.

    The interval is the frame of the meeting with its neighbours; it is empty where they do not meet.
    """
    images = digit_images(split, seed).pixels[..., 0]

    def clip(draw: Draw, label: int) -> tuple[NDArray[np.uint8], tuple[int, int]]:
        length = int(draw.integers(FRAMES[0], FRAMES[1] + 1))
        times = np.arange(length)[:, None]
        while True:
            velocities = _VELOCITIES[draw.integers(8, size=2)] * draw.integers(SPEEDS[0], SPEEDS[1] + 1, (2, 1))
            apart = _offsets_apart((velocities[1] - velocities[0]) * times)
            if len(apart):  # clips of both classes need it, so that velocities do not show the class
                break
        moment = int(draw.integers(1, length - 1))
        met = label == MEETINGS.index("met")
        if met:
            offset = draw.integers(-TOUCHING, TOUCHING + 1, 2) - (velocities[1] - velocities[0]) * moment
        else:
            offset = apart[draw.integers(len(apart))]
        first = draw.integers(0, SIDE, 2)
        both = [start + velocity * times for start, velocity in zip((first, first + offset), velocities, strict=True)]
        # whichever of them is lit first, so that the first frame is of neither in particular
        lit = (np.arange(length) + draw.integers(2)) % 2
        pair = images[draw.integers(len(images), size=2)]
        return _frames(np.where(lit[:, None] == 0, *both) % SIDE, pair[lit]), (
            (moment - 1, moment + 2) if met else (0, 0)
        )

    return _clips(clip, split, seed, count, MEETINGS, has_intervals=True)


def camouflage(split: Split, seed: int = 0, count: int | None = None) -> Clips:
    """A digit of random dots that moves over random dots."""
    images = digit_images(split, seed)
    by_digit = [np.flatnonzero(images.labels == digit) for digit in range(len(images.classes))]

    def clip(draw: Draw, label: int) -> tuple[NDArray[np.uint8], tuple[int, int]]:
        length = int(draw.integers(FRAMES[0], FRAMES[1] + 1))
        image = images.pixels[draw.choice(by_digit[label]), ..., 0]
        shape = np.zeros((SIDE, SIDE), bool)
        enlarged = image.repeat(2, 0).repeat(2, 1) > 127
        shape[: len(enlarged), : len(enlarged)] = enlarged
        dots, background = draw.integers(0, 2, (2, SIDE, SIDE), np.uint8) * 255
        velocity = _VELOCITIES[draw.integers(8)]
        places = draw.integers(0, SIDE, 2) + velocity * np.arange(length)[:, None]
        moved = [[np.roll(each, place, (0, 1)) for each in (shape, dots)] for place in places]
        return np.stack([np.where(where, digit, background) for where, digit in moved])[..., None], (0, 0)

    return _clips(clip, split, seed, count, images.classes, has_intervals=False)


def _clips(
    make: Callable[[Draw, int], tuple[NDArray[np.uint8], tuple[int, int]]],
    split: Split,
    seed: int,
    count: int | None,
    classes: tuple[str, ...],
    has_intervals: bool,
) -> Clips:
    """The clips of a split, of the classes in turn; a smaller `count` gives the first clips of a larger one."""
    draw, count = split_generator(seed, split, count, _COUNTS)
    labels = np.arange(count, dtype=np.int64) % len(classes)
    clips, intervals = zip(*(make(draw, label) for label in labels.tolist()), strict=True)
    return Clips(clips, labels, classes, np.array(intervals, np.int64) if has_intervals else None)


def _places(draw: Draw, first: NDArray[np.int64], direction: NDArray[np.int64], length: int) -> NDArray[np.int64]:
    """The upper left corner of a digit in every frame, "t 2"."""
    speed = draw.integers(SPEEDS[0], SPEEDS[1] + 1)
    return (first + direction * speed * np.arange(length)[:, None]) % SIDE


def _offsets_apart(moves: NDArray[np.int64]) -> NDArray[np.int64]:  # "t 2" -> "n 2"
    """The offsets of a second digit at the start that keep it far from the first, which it moves by `moves`."""
    offsets = np.stack(np.meshgrid(np.arange(SIDE), np.arange(SIDE), indexing="ij"), -1).reshape(-1, 2)
    distances = (offsets[:, None] + moves) % SIDE  # "n t 2"
    farther = np.minimum(distances, SIDE - distances).max(-1)
    return offsets[(farther >= APART).all(1)]


def _frames(places: NDArray[np.int64], images: NDArray[np.uint8]) -> NDArray[np.uint8]:  # "t 2", "t a b" -> "t h w 1"
    """One image per frame, at its place on the torus."""
    frames = np.zeros((len(places), SIDE, SIDE), np.uint8)
    times = np.arange(len(places))[:, None, None]
    rows, columns = ((places[:, axis, None] + np.arange(images.shape[1 + axis])) % SIDE for axis in (0, 1))
    frames[times, rows[:, :, None], columns[:, None, :]] = images
    return frames[..., None]
