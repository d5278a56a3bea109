"""RecordedRun: a recording of one input together with the prediction of the model, its alignment and its image."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.recording.record import NO_ATTENTION, record
from regard.recording.recording import Recording

# key of Recording.about: width and height of the image that the model was given
PIXELS = "pixels"


@dataclass(frozen=True, eq=False)
class TextAlignment:
    """weights[i, j]: the share of the attention of target token i that source token j received."""

    source: Sequence[str]
    target: Sequence[str]
    weights: Tensor  # "t s"
    text: tuple[str, str]  # the source and the translation as people write them
    hard: bool = False  # whether a target token reads the position of its greatest weight alone


@dataclass(frozen=True, eq=False)
class RecordedRun:
    """The recording; of a model that translates or classifies also its prediction, of one that translates also the
    alignment, of one that reads images also the image, "h w 3"."""

    recording: Recording
    prediction: str | None = None
    alignment: TextAlignment | None = None
    image: Tensor | None = None


@contextmanager
def recorded(model: nn.Module, layers: Sequence[str] = (), *, gates: bool = False) -> Iterator[Recording]:
    """Records a forward pass without gradients: all modules, or those whose names match `layers`; with `gates` also
    those of recurrent cells.

    A recording without maps raises no warning: see `check_not_empty`.
    """
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=NO_ATTENTION)
            with record(model, layers=list(layers) or None, gates=gates) as recording:
                yield recording
    except MemoryError as error:
        raise ValueError(f"{error}; a shorter text, a smaller image or --layers needs less memory") from error


def check_not_empty(recording: Recording, folder: Path, layers: Sequence[str] = ()) -> None:
    """Raises if no module of the model in `folder`, or none that matches `layers`, attended."""
    if not len(recording):
        modules = f"none of {', '.join(layers)}" if layers else "nothing"
        raise ValueError(f"{modules} in {folder} attended, so there is nothing to show; name another one")


def pixel_size(pixels: NDArray[np.uint8]) -> str:  # "h w c"
    """Width × height of an image, as `about[PIXELS]` holds it."""
    return f"{pixels.shape[1]} × {pixels.shape[0]}"
