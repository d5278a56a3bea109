"""The images of scikit-learn's digits for generated data: those of validation and test are in no training example."""

from typing import Literal

from regard.data.images.labelled import Images, digits
from regard.data.splitting import stratified_split

Split = Literal["train", "valid", "test"]

# shares for validation and test
HELD_OUT = {"valid": 0.1, "test": 0.2}


def digit_images(split: Split, seed: int) -> Images:
    """The images of digits of a split."""
    rest, test = stratified_split(digits(), HELD_OUT["test"], seed)
    if split == "test":
        return test
    return stratified_split(rest, HELD_OUT["valid"], seed)[split == "valid"]
