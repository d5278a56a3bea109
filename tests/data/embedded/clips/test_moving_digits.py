"""Moving digits: the class is in the motion, and in no frame."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from tests.for_each import for_each

from regard.data.clips.labelled import Clips
from regard.data.embedded.clips.moving_digits import (
    APART,
    DIRECTIONS,
    FRAMES,
    MEETINGS,
    SIDE,
    SPEEDS,
    TOUCHING,
    camouflage,
    directions,
    meetings,
)
from regard.data.images.digit_splits import digit_images


@for_each("make", [directions, meetings, camouflage])
def test_clips_have_their_sizes_and_classes_in_turn(make: Callable[..., Clips]) -> None:
    data = make("valid", 3, 23)
    assert data.labels.tolist() == [n % len(data.classes) for n in range(23)]
    assert {clip.shape[1:] for clip in data.clips} == {(SIDE, SIDE, 1)}
    assert {len(clip) for clip in data.clips} <= set(range(FRAMES[0], FRAMES[1] + 1))


def place(frame: NDArray[np.uint8], images: NDArray[np.uint8]) -> tuple[int, int, int]:
    """Row, column and number of the image that the frame shows; found by trying all."""
    wanted = frame[..., 0]
    for number in np.flatnonzero(images.sum((1, 2)) == wanted.sum()):
        canvas = np.zeros((SIDE, SIDE), np.uint8)
        canvas[:8, :8] = images[number]
        for row in range(SIDE):
            for column in range(SIDE):
                if np.array_equal(np.roll(canvas, (row, column), (0, 1)), wanted):
                    return row, column, int(number)
    raise AssertionError


def wrapped(move: NDArray[np.int64]) -> NDArray[np.int64]:
    """The shorter way around the torus."""
    return (move + SIDE // 2) % SIDE - SIDE // 2


def test_a_digit_keeps_its_direction() -> None:
    clips, images = directions("test", 1, 8), digit_images("test", 1).pixels[..., 0]
    for clip, label in zip(clips.clips, clips.labels.tolist(), strict=True):
        places = np.array([place(frame, images)[:2] for frame in clip])
        (move,) = {tuple(move) for move in wrapped(np.diff(places, axis=0)).tolist()}
        assert max(map(abs, move)) in SPEEDS
        assert tuple(np.sign(move).tolist()) == DIRECTIONS[clips.classes[label]]


def test_two_digits_meet_or_stay_apart() -> None:
    clips, images = meetings("test", 1, 12), digit_images("test", 1).pixels[..., 0]
    for clip, label, (start, end) in zip(clips.clips, clips.labels.tolist(), clips.intervals.tolist(), strict=True):
        shown = [place(frame, images) for frame in clip]
        # frames show the two in turn; the places between two frames of one lie halfway
        paths = []
        for parity in (0, 1):
            times = np.arange(parity, len(clip), 2)
            corners = np.array([shown[t][:2] for t in times])
            step = wrapped(corners[1] - corners[0]) // 2
            paths.append(corners[0] + step * (np.arange(len(clip))[:, None] - parity))
        distances = np.abs(wrapped(paths[0] - paths[1])).max(1)
        if clips.classes[label] == "met":
            assert distances[start + 1] <= TOUCHING
            assert end == start + 3
        else:
            assert distances.min() >= APART
            assert start == end
    assert clips.classes == MEETINGS


def test_a_frame_of_moving_digits_is_as_likely_in_every_class() -> None:
    """By the mean picture of a class: that of every class is flat, as places are uniform."""
    for make in (directions, meetings):
        clips = make("train", 0, 1600)
        means = [
            np.concatenate([clips.clips[n] for n in np.flatnonzero(clips.labels == label)]).mean(0)[..., 0]
            for label in range(len(clips.classes))
        ]
        levels = [mean.mean() for mean in means]
        assert max(levels) / min(levels) < 1.03
        assert max(float(mean.std() / mean.mean()) for mean in means) < 0.4


def test_a_frame_of_camouflage_is_independent_dots() -> None:
    clips = camouflage("train", 0, 600)
    frames = np.stack([clip[3, ..., 0] for clip in clips.clips]) / 255
    assert set(np.unique(frames).tolist()) == {0.0, 1.0}
    for label in range(10):
        dots = frames[clips.labels == label] - 0.5
        deviations = 3.3 / np.sqrt(dots.size)
        for shift in ((0, 0, 0), (0, 0, 1), (0, 1, 0), (0, 2, 2)):
            product = dots.mean() if shift == (0, 0, 0) else (dots * np.roll(dots, shift, (0, 1, 2))).mean()
            assert abs(product) < deviations


def test_dots_of_camouflage_move_inside_the_digit_alone() -> None:
    clips, images = camouflage("test", 2, 20), digit_images("test", 2)
    for clip, label in zip(clips.clips, clips.labels.tolist(), strict=True):
        changed = (clip[0] != clip[1])[..., 0]
        sizes = [int((image[..., 0] > 127).sum()) * 4 for image in images.pixels[images.labels == label]]
        assert 0 < changed.sum() <= 2 * max(sizes)
