"""Sight: what a run says of pictures, whatever its task is.

sight.see(pixels)                                     one Sighted a picture: its classes, or its sentence
sight.see(pixels, lambda: record(sight.model))        the same, recorded while the model looks
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.tasks.pictures import Facts, tensor

Pixels = NDArray[np.uint8]  # "n h w c"
# entered around the pass in which the model looks
Listen = Callable[[], AbstractContextManager[Any]]


@dataclass(frozen=True)
class Sighted:
    """What was seen in one picture: classes, the likeliest first, or the words of a sentence."""

    classes: Sequence[tuple[str, float]] = ()
    words: Sequence[str] = ()


class Sight(Protocol):
    """A model that looks at pictures of one size."""

    @property
    def name(self) -> str:
        """What it does to a picture: "classify"."""

    @property
    def facts(self) -> Facts:
        """Of the pictures that it learned from."""

    @property
    def model(self) -> nn.Module: ...

    def see(self, pixels: Pixels, listen: Listen = nullcontext) -> list[Sighted]:
        """Of each picture, the same as if it were alone."""


@dataclass(frozen=True, eq=False)
class Classifying:
    """The sight of a run of classify-image."""

    facts: Facts
    model: nn.Module
    name: str = "classify"

    @torch.no_grad()
    def see(self, pixels: Pixels, listen: Listen = nullcontext) -> list[Sighted]:
        x = tensor(pixels, self.facts).to(next(self.model.parameters()).device)
        with listen():
            logits = self.model(x)
        return [Sighted(likeliest(self.facts.classes, row)) for row in logits.double().softmax(-1).cpu()]


def likeliest(classes: Sequence[str], chances: Tensor) -> list[tuple[str, float]]:
    """Classes with their probabilities, sorted by them."""
    order = chances.argsort(descending=True, stable=True).tolist()
    return [(classes[n], float(chances[n])) for n in order]
