"""Scenes: every picture whole at its corner, pieces of others around, the same for the same seed."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from regard.data.images.cluttered import compose
from regard.data.images.labelled import Images


def marked(n: int = 5, high: int = 4, wide: int = 3, channels: int = 2) -> Images:
    """Pixels that tell whose they are: image n has values from 40 n + 1 to 40 n + 40."""
    values = np.arange(high * wide * channels) % 40 + 1
    pixels = np.stack([values.reshape(high, wide, channels) + 40 * k for k in range(n)]).astype(np.uint8)
    return Images(pixels, np.arange(n) % 3, ("a", "b", "c"))


@settings(max_examples=30, deadline=None)
@given(
    canvas=st.tuples(st.integers(4, 13), st.integers(3, 11)),
    clutter=st.integers(0, 3),
    piece=st.integers(1, 3),
    seed=st.integers(0, 9),
    index=st.lists(st.integers(0, 4), max_size=6),
)
def test_a_picture_lies_where_its_corner_says(
    canvas: tuple[int, int], clutter: int, piece: int, seed: int, index: list[int]
) -> None:
    images, which = marked(), np.array(index, np.int64)
    made = compose(images, which, canvas, clutter=clutter, piece=piece, seed=seed)
    again = compose(images, which, canvas, clutter=clutter, piece=piece, seed=seed)
    assert np.array_equal(made.images.pixels, again.images.pixels)
    assert made.images.pixels.shape == (len(index), *canvas, 2)
    assert np.array_equal(made.images.labels, images.labels[which])
    for scene, n, (top, left) in zip(made.images.pixels, which, made.corners, strict=True):
        there = scene[top : top + 4, left : left + 3]
        # brighter pieces may lie upon it
        assert (there >= images.pixels[n]).all()
        around = scene.astype(int).copy()
        around[top : top + 4, left : left + 3] = 0
        assert np.count_nonzero(around.any(-1)) <= clutter * piece**2
        # pieces are of others
        assert not ((around > 40 * n) & (around <= 40 * n + 40)).any()
    if not clutter:
        assert int((made.images.pixels > 0).sum()) == len(index) * 4 * 3 * 2


def test_a_piece_is_cut_whole_out_of_another_image() -> None:
    images = marked(n=2)
    made = compose(images, np.zeros(50, np.int64), (20, 20), clutter=1, piece=2, seed=3)
    cuts = {
        images.pixels[1, y : y + 2, x : x + 2].tobytes() for y in range(3) for x in range(2)
    }  # every piece there is
    for scene in made.images.pixels:
        rows, columns = np.nonzero((scene > 40).any(-1))
        assert (np.ptp(rows), np.ptp(columns)) == (1, 1)
        top, left = rows.min(), columns.min()
        assert np.ascontiguousarray(scene[top : top + 2, left : left + 2]).tobytes() in cuts


def test_places_are_all_that_there_are() -> None:
    made = compose(marked(), np.zeros(400, np.int64), (6, 5), seed=0)
    assert {tuple(corner) for corner in made.corners.tolist()} == {(y, x) for y in range(3) for x in range(3)}
    other = compose(marked(), np.zeros(400, np.int64), (6, 5), seed=1)
    assert not np.array_equal(made.corners, other.corners)


def test_the_images_stay_as_they_are() -> None:
    images = marked()
    kept = images.pixels.copy()
    compose(images, np.arange(5), (9, 9), clutter=4, piece=2)
    assert np.array_equal(images.pixels, kept)


@pytest.mark.parametrize(
    ("images", "canvas", "options", "said"),
    [
        (5, (3, 9), {}, r"canvas must hold pictures of 4 × 3, got 3 × 9; try canvas=\(8, 6\)"),
        (5, (9, 9), {"clutter": -1}, "clutter must be 0 or more, got -1; try clutter=4"),
        (5, (9, 9), {"clutter": 1, "piece": 4}, "piece must be from 1 to 3, as wide as a picture of 4 × 3, got 4; try"),
        (5, (9, 9), {"clutter": 1, "piece": 0}, "piece must be from 1 to 3"),
        (1, (9, 9), {"clutter": 2, "piece": 1}, "clutter=2 takes pieces of other images, got 1 in all; give more"),
    ],
)
def test_bad_input(images: int, canvas: tuple[int, int], options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        compose(marked(images), np.zeros(1, np.int64), canvas, **options)
