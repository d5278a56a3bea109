"""Translated and cluttered pictures: each somewhere on a canvas, among pieces of others  (Mnih et al. 2014, 4.1)."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from regard.data.images.labelled import Images


@dataclass(frozen=True, eq=False)
class Scenes:
    """Pictures on their canvases, and where each of them lies."""

    images: Images
    corners: NDArray[np.int64]  # "n 2": row and column of the upper left pixel


def compose(
    images: Images,
    index: NDArray[np.int64],
    canvas: tuple[int, int],
    *,
    clutter: int = 0,
    piece: int = 8,
    seed: int = 0,
) -> Scenes:
    """Those of the images that `index` names, each at a random place of a black canvas (height, width).

    `clutter` pieces, `piece` pixels wide and high, cut at random out of other images, lie around and upon each; where
    things meet, the brighter one is seen. The same arguments compose the same scenes.
    """
    n, (high, wide, channels) = len(images), images.pixels.shape[1:]
    if canvas[0] < high or canvas[1] < wide:
        raise ValueError(
            f"canvas must hold pictures of {high} × {wide}, got {canvas[0]} × {canvas[1]}; "
            f"try canvas=({2 * high}, {2 * wide})"
        )
    if clutter < 0:
        raise ValueError(f"clutter must be 0 or more, got {clutter}; try clutter=4")
    if clutter and not 1 <= piece <= min(high, wide):
        raise ValueError(
            f"piece must be from 1 to {min(high, wide)}, as wide as a picture of {high} × {wide}, got {piece}; "
            f"try piece={max(1, min(high, wide) // 4)}"
        )
    if clutter and n < 2:
        raise ValueError(f"clutter={clutter} takes pieces of other images, got {n} in all; give more images")
    draw = np.random.default_rng(seed)
    count = len(index)

    def places(room: tuple[int, int], thing: tuple[int, int], *shape: int) -> NDArray[np.int64]:
        """Upper left corners of things that lie in a room as a whole."""
        return np.stack([draw.integers(0, a - b + 1, shape) for a, b in zip(room, thing, strict=True)], -1)

    corners = places(canvas, (high, wide), count)
    others = (index[:, None] + draw.integers(1, max(n, 2), (count, clutter))) % n
    small = (piece, piece)
    cuts = places((high, wide), small, count, clutter) if clutter else np.zeros((count, 0, 2), np.int64)
    drops = places(canvas, small, count, clutter) if clutter else cuts
    pixels = np.zeros((count, *canvas, channels), np.uint8)
    for scene, which, (top, left), more in zip(
        pixels, index, corners, np.concatenate([others[..., None], cuts, drops], -1), strict=True
    ):
        scene[top : top + high, left : left + wide] = images.pixels[which]
        for other, y, x, down, right in more:
            under = scene[down : down + piece, right : right + piece]
            np.maximum(under, images.pixels[other, y : y + piece, x : x + piece], out=under)
    return Scenes(Images(pixels, images.labels[index], images.classes), corners)
