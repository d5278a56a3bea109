"""The splits of scikit-learn's digits, in which no image of validation or test is a training image."""

import numpy as np

from regard.data.images.labelled import Images, digits
from regard.data.splitting import Split

# shares for validation and test
HELD_OUT = {"valid": 0.1, "test": 0.2}


def digit_images(split: Split, seed: int) -> Images:
    """The images of digits of a split."""
    rest, test = split_digits(digits(), HELD_OUT["test"], seed)
    if split == "test":
        return test
    return split_digits(rest, HELD_OUT["valid"], seed)[split == "valid"]


def split_digits(images: Images, share: float, seed: int) -> tuple[Images, Images]:
    """Two parts of digits, no two of which are equal; the second is drawn from every class, this share of it.

    Published scores depend on these draws. Files are divided by `regard.data.splitting.held_out`.
    """
    rng = np.random.default_rng(seed)
    held = np.zeros(len(images), bool)
    for label in range(len(images.classes)):
        members = np.flatnonzero(images.labels == label)
        held[rng.permutation(members)[: max(round(share * len(members)), 1)]] = True
    return images[np.flatnonzero(~held)], images[np.flatnonzero(held)]
