"""Translated and cluttered images: each at a random position of a canvas, among patches of others  (Mnih et al.
2014, 4.1).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from regard.common import memory
from regard.data.images.digit_splits import digit_images
from regard.data.images.labelled import Images
from regard.data.splitting import Split

# the embedded data set: height and width of its canvas, pieces on it, their height and width, and scenes per digit
CANVAS, CLUTTER, PIECE = 24, 6, 4
SCENES: dict[Split, int] = {"train": 6, "valid": 2, "test": 4}


@dataclass(frozen=True, eq=False)
class Scenes:
    """Images on their canvases, and the position of each."""

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
    """The images `index`, each at a random position of a black canvas (height, width).

    `clutter` patches of `piece` × `piece` pixels, cut at random from other images, are drawn around and over each; of
    overlapping pixels the brighter one is kept. The same arguments compose the same scenes.
    """
    n, (height, width, channels) = len(images), images.pixels.shape[1:]
    if canvas[0] < height or canvas[1] < width:
        raise ValueError(
            f"canvas must hold pictures of {height} × {width}, got {canvas[0]} × {canvas[1]}; "
            f"try canvas=({2 * height}, {2 * width})"
        )
    if clutter < 0:
        raise ValueError(f"clutter must be 0 or more, got {clutter}; try clutter=4")
    if clutter and not 1 <= piece <= min(height, width):
        raise ValueError(
            f"piece must be from 1 to {min(height, width)}, as wide as a picture of {height} × {width}, got {piece}; "
            f"try piece={max(1, min(height, width) // 4)}"
        )
    if clutter and n < 2:
        raise ValueError(f"clutter={clutter} takes pieces of other images, got {n} in all; give more images")
    rng = np.random.default_rng(seed)
    count = len(index)

    def places(area: tuple[int, int], box: tuple[int, int], *shape: int) -> NDArray[np.int64]:
        """Random upper left corners of boxes that lie inside an area."""
        return np.stack([rng.integers(0, a - b + 1, shape) for a, b in zip(area, box, strict=True)], -1)

    corners = places(canvas, (height, width), count)
    others = (index[:, None] + rng.integers(1, max(n, 2), (count, clutter))) % n
    patch = (piece, piece)
    patch_sources = places((height, width), patch, count, clutter) if clutter else np.zeros((count, 0, 2), np.int64)
    patch_targets = places(canvas, patch, count, clutter) if clutter else patch_sources
    area = f"canvas={max(canvas)} for {count:,} images"
    memory.check_fits(count * canvas[0] * canvas[1] * channels, area, f"try canvas={2 * max(height, width)}")
    pixels = np.zeros((count, *canvas, channels), np.uint8)
    for scene, image, (top, left), patches in zip(
        pixels, index, corners, np.concatenate([others[..., None], patch_sources, patch_targets], -1), strict=True
    ):
        scene[top : top + height, left : left + width] = images.pixels[image]
        for other, y, x, y_target, x_target in patches:
            target = scene[y_target : y_target + piece, x_target : x_target + piece]
            np.maximum(target, images.pixels[other, y : y + piece, x : x + piece], out=target)
    return Scenes(Images(pixels, images.labels[index], images.classes), corners)


def cluttered_digits(seed: int) -> tuple[Images, Images]:
    """Scikit-learn's digits on canvases, among pieces of others of the same part: those to train on and behind them
    those to validate on, and those to test on. No digit is in two parts.
    """
    train, valid, test = (_scenes_of(split, seed) for split in SCENES)
    pixels, labels = np.concatenate([train.pixels, valid.pixels]), np.concatenate([train.labels, valid.labels])
    return Images(pixels, labels, train.classes), test


def num_valid_scenes(seed: int) -> int:
    """The number of scenes to validate on."""
    return SCENES["valid"] * len(digit_images("valid", seed))


def _scenes_of(split: Split, seed: int) -> Images:
    images = digit_images(split, seed)
    index = np.tile(np.arange(len(images)), SCENES[split])
    scenes_seed = len(SCENES) * seed + [*SCENES].index(split)
    return compose(images, index, (CANVAS, CANVAS), clutter=CLUTTER, piece=PIECE, seed=scenes_seed).images
