"""Sight: what a run says of pictures, whatever its task is.

sight.see(pixels)                                     one Sighted a picture: its classes, or its sentence
sight.see(pixels, lambda: record(sight.model))        the same, recorded while the model looks
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.decoding.search import Beam
from regard.models.ram import RAM
from regard.recording.recording import Recording
from regard.tasks._image_data import ImageStats, recalled, tensor
from regard.tasks.caption.options import Caption
from regard.tasks.caption.predictor import Captioner
from regard.tasks.classify_image.options import ClassifyImage
from regard.tasks.glimpse import task as glimpsing
from regard.tasks.glimpse.options import Glimpse

Pixels = NDArray[np.uint8]  # "n h w c"
# hypotheses of a sentence that are kept at every step
_BEAM = 5
# entered around the pass in which the model looks
Listen = Callable[[], AbstractContextManager[Any]]


@dataclass(frozen=True)
class Sighted:
    """What was seen in one picture: classes, the likeliest first, or a sentence, whose pieces looked one by one."""

    classes: Sequence[tuple[str, float]] = ()
    places: Sequence[tuple[float, float]] = ()  # (x, y) of glimpses, from (0, 0), the upper left corner, to (1, 1)
    text: str = ""
    pieces: Sequence[str] = ()

    @property
    def said(self) -> str:
        """In a line."""
        return self.text or ", ".join(f"{name} {100 * chance:.1f} %" for name, chance in self.classes[:3])


class Sight(Protocol):
    """A model that looks at pictures of one size."""

    @property
    def name(self) -> str:
        """What it does to a picture: "classify", "glimpse", "caption"."""

    @property
    def facts(self) -> ImageStats:
        """Of the pictures that it learned from."""

    @property
    def model(self) -> nn.Module: ...

    def see(self, pixels: Pixels, listen: Listen = nullcontext) -> list[Sighted]:
        """Of each picture, the same as if it were alone."""


def watched(
    sight: Sight, pixels: Pixels, listen: Callable[[], AbstractContextManager[Recording]]
) -> tuple[list[Sighted], Recording]:
    """What was seen, and what was recorded meanwhile: watched(sight, pixels, lambda: record(sight.model))."""
    tapes: list[Recording] = []

    @contextmanager
    def kept() -> Iterator[None]:
        with listen() as tape:
            yield
        tapes.append(tape)

    seen = sight.see(pixels, kept)
    (tape,) = tapes
    return seen, tape


@dataclass(frozen=True, eq=False)
class Classifying:
    """The sight of a run of classify-image."""

    facts: ImageStats
    model: nn.Module
    name: str = "classify"

    @staticmethod
    def of(task: ClassifyImage, folder: Path) -> "Classifying":
        return Classifying(recalled(folder), task.fresh(folder))

    @torch.no_grad()
    def see(self, pixels: Pixels, listen: Listen = nullcontext) -> list[Sighted]:
        x = tensor(pixels, self.facts).to(next(self.model.parameters()).device)
        with listen():
            logits = self.model(x)
        return [Sighted(likeliest(self.facts.classes, row)) for row in logits.cpu().double().softmax(-1)]


@dataclass(frozen=True, eq=False)
class Glimpsing:
    """The sight of a run of glimpse, at the means of its places."""

    facts: ImageStats
    model: RAM
    name: str = "glimpse"

    @staticmethod
    def of(task: Glimpse, folder: Path) -> "Glimpsing":
        return Glimpsing(glimpsing.seen(task, recalled(folder)), glimpsing.fresh(task, folder))

    @torch.no_grad()
    def see(self, pixels: Pixels, listen: Listen = nullcontext) -> list[Sighted]:
        x = tensor(pixels, self.facts).to(next(self.model.parameters()).device)
        with listen():
            looked = self.model.look(x)
        chances = looked.logits.cpu().double().softmax(-1)
        return [
            Sighted(likeliest(self.facts.classes, row), path)
            for row, path in zip(chances, paths(looked.places), strict=True)
        ]


@dataclass(frozen=True, eq=False)
class Captioning:
    """The sight of a run of caption."""

    captioner: Captioner
    name: str = "caption"

    @staticmethod
    def of(task: Caption, folder: Path) -> "Captioning":
        return Captioning(Captioner.of(task, folder))

    @property
    def facts(self) -> ImageStats:
        return self.captioner.facts

    @property
    def model(self) -> nn.Module:
        return self.captioner.model

    def see(self, pixels: Pixels, listen: Listen = nullcontext) -> list[Sighted]:
        said = [found[0] for found in self.captioner.describe(pixels, Beam(_BEAM))]
        with listen():
            looked = self.captioner.look(pixels, said)
        return [Sighted(text=one.text, pieces=seen.pieces) for one, seen in zip(said, looked, strict=True)]


def paths(places: Tensor) -> list[list[tuple[float, float]]]:  # "b t 2", from -1 to 1
    """(x, y) of the glimpses of each picture, from (0, 0), the upper left corner, to (1, 1)."""
    return [[(x, y) for x, y in one] for one in ((places.cpu().double() + 1) / 2).tolist()]


def likeliest(classes: Sequence[str], chances: Tensor) -> list[tuple[str, float]]:
    """Classes with their probabilities, sorted by them."""
    order = chances.argsort(descending=True, stable=True).tolist()
    return [(classes[n], float(chances[n])) for n in order]
