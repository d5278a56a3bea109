"""Scenes: what is said is what is there, and what is tested was never seen."""

import numpy as np
import pytest

from regard.data.embedded.scenes import (
    MAX_OFFSET,
    NAMES,
    PITCH,
    PLACES,
    SIDE,
    Box,
    CaptionedImages,
    scenes,
    sentences,
    split_of,
)
from regard.data.images.digit_splits import digit_images
from regard.data.images.labelled import Images
from regard.data.splitting import Split

SPLITS: tuple[Split, ...] = ("train", "valid", "test")


def keys(images: Images) -> set[bytes]:
    return {one.tobytes() for one in images.pixels}


@pytest.mark.parametrize("split", SPLITS)
def test_scenes_are_what_is_said_of_them(split: Split) -> None:
    some = scenes(split, count=60)
    known = {
        one.tobytes(): NAMES[label]
        for images in [digit_images(split, 0)]
        for one, label in zip(images.pixels, images.labels, strict=True)
    }
    counts = set()
    assert some.boxes is not None
    for pixels, captions, boxes in zip(some.pixels, some.captions, some.boxes, strict=True):
        counts.add(len(boxes))
        empty = pixels.copy()
        arrangement = []
        for box in boxes:
            inside = pixels[box.top : box.bottom, box.left : box.right]
            assert known[inside.tobytes()] == box.name
            empty[box.top : box.bottom, box.left : box.right] = 0
            row, column = (round(at / PITCH) for at in (box.top, box.left))
            assert abs(box.top - row * PITCH) <= MAX_OFFSET
            assert abs(box.left - column * PITCH) <= MAX_OFFSET
            arrangement.append((3 * row + column, NAMES.index(box.name)))
        assert not empty.any()
        assert arrangement == sorted(arrangement)
        assert captions == sentences(tuple(arrangement))
        assert split_of(tuple(arrangement)) == split
    assert counts == {1, 2, 3}
    assert some.pixels.shape == (60, SIDE, SIDE, 1)


def test_nothing_that_is_tested_was_seen() -> None:
    digits = {split: keys(digit_images(split, 3)) for split in SPLITS}
    said = {split: {captions[0] for captions in scenes(split, 3, 300).captions} for split in SPLITS}
    for one, other in (("train", "valid"), ("train", "test"), ("valid", "test")):
        assert not digits[one] & digits[other]
        assert not said[one] & said[other]


def test_sentences() -> None:
    assert sentences(((0, 3),)) == ("the three at the top left", "we see the three at the top left")
    assert sentences(((1, 3), (7, 7))) == (
        "the three at the top, the seven at the bottom",
        "we see the three at the top and the seven at the bottom",
        "the three above the seven",
    )
    assert sentences(((3, 2), (4, 2), (5, 9)))[1:] == (
        "we see the two on the left, the two in the middle and the nine on the right",
        "the two left of the two left of the nine",
    )
    assert len(sentences(((0, 1), (4, 1), (5, 2)))) == 2
    assert len(PLACES) == 9


def test_a_box_holds_what_is_in_it() -> None:
    box = Box("one", 2, 3, 10, 11)
    assert box.holds(2, 3)
    assert not box.holds(10, 5)
    assert not box.holds(5, 2.9)


def test_some_of_it() -> None:
    every = scenes("valid", 0, 9)
    assert every[2:5].captions == every.captions[2:5]
    chosen = every[np.array([7, 1])]
    assert chosen.captions == [every.captions[7], every.captions[1]]
    assert chosen.boxes == [every.boxes[7], every.boxes[1]]


def test_what_cannot_be_is_said() -> None:
    with pytest.raises(ValueError, match="split must be 'train', 'valid' or 'test', got 'dev'"):
        scenes("dev")
    grey = np.zeros((2, 4, 4, 1), np.uint8)
    with pytest.raises(ValueError, match=r"width, channels\), captions for each, got \(2, 4, 4\) and 2 captions"):
        CaptionedImages(grey[..., 0], [("a",), ("b",)])
    with pytest.raises(ValueError, match="one tuple of sentences a picture, got 'a b' for picture 1"):
        CaptionedImages(grey, [("a",), "a b"])
