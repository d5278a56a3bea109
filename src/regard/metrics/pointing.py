"""The pointing game: whether words attend to the objects that they name  (Zhang et al. 2018).  No torch here."""

from collections.abc import Collection, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike


class NamedBox(Protocol):
    """An object in an image."""

    @property
    def name(self) -> str:
        """The word for it."""

    def holds(self, y: float, x: float) -> bool:
        """Whether a point, in pixels, lies in it."""


def pointing(
    tokens: Sequence[Sequence[str]],
    weights: Sequence[ArrayLike],
    boxes: Sequence[Sequence[NamedBox]],
    names: Collection[str],
    grid: tuple[int, int],
    size: tuple[int, int],
    generator: np.random.Generator | None = None,
) -> float:
    """Tokens that attend to the object they name, in percent of the tokens that are one of `names`; 0 if none is.

    tokens[n] is a caption of image n, weights[n] "t n" the attention of its tokens to the patches of a `grid`, row by
    row, over an image of `size`, both (height, width), and boxes[n] the objects of the image in the order of reading. A
    token attends to the center of the patch of its greatest weight, or with a `generator` of a patch sampled by the
    weights. Of two objects of one name the first token means the first one; a token for an object that is not in the
    image attends to nothing.
    """
    named = hits = 0
    for caption, rows, objects in zip(tokens, weights, boxes, strict=True):
        left = list(objects)
        for token, row in zip(caption, np.asarray(rows, np.float64), strict=True):
            word = token.strip("▁,")
            if word not in names:
                continue
            named += 1
            box = next((box for box in left if box.name == word), None)
            if box is None:
                continue
            left.remove(box)
            patch = int(row.argmax()) if generator is None else int(generator.choice(len(row), p=row / row.sum()))
            y, x = (patch // grid[1] + 0.5) * size[0] / grid[0], (patch % grid[1] + 0.5) * size[1] / grid[1]
            hits += box.holds(y, x)
    return 100.0 * hits / named if named else 0.0
