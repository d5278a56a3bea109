"""Options of models around a pretrained encoder of texts or images.  No torch here: a command line reads them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from regard.common.options.fields import bounded, left_open, option, positive
from regard.tasks.base import ModelOptions

# the name of these models in every task, which --encoder chooses
PRETRAINED = "pretrained"
# files that they leave in the folder of a run
ENCODER_FILES = ("encoder.json", "encoder-tokens.json")
IMAGE_ENCODER_FILES = ("encoder.json",)


@dataclass(frozen=True)
class FineTuningOptions(ModelOptions):
    """The options by which a pretrained encoder and new layers above it are trained together."""

    read_by_task: ClassVar[tuple[str, ...]] = ("encoder", "freeze", "attention", "levels")
    training_only: ClassVar[tuple[str, ...]] = ("dropout", "freeze", "layer_decay", "head_rate")
    training: ClassVar[dict[str, Any]] = {
        "lr": 1e-4,
        "schedule": "linear",
        "warmup": 50,
        "weight_decay": 0.01,
        "validate_every": 100,
        "save_every": 200,
        "betas": (0.9, 0.999),
    }

    encoder: Path = option(metavar="FOLDER")
    """The folder of the encoder; only a new run reads it."""
    freeze: str = "none"
    """Parts that keep their weights: none, embeddings, all, or a number of lowest layers with the embeddings."""
    layer_decay: float = bounded(0.9, above=0, maximum=1)
    """The factor from the learning rate of one layer of the encoder to that of the layer below it."""
    head_rate: float = positive(10.0)
    """The learning rate of the new layers above the encoder, in multiples of --lr."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.freeze not in ("none", "embeddings", "all") and not (self.freeze.isascii() and self.freeze.isdigit()):
            raise ValueError(
                f"freeze must be none, embeddings, all or a number of layers, got {self.freeze!r}; "
                "try freeze=embeddings"
            )

    def frozen_parts(self, layers: int) -> int:
        """The parts of an encoder of this many layers that keep their weights; the embeddings are the first."""
        if self.freeze.isdigit():
            if int(self.freeze) > layers:
                raise ValueError(
                    f"freeze={self.freeze} is more than the {layers} layers of {self.encoder}; try freeze=all"
                )
            return 1 + int(self.freeze) if int(self.freeze) else 0
        return {"none": 0, "embeddings": 1, "all": 1 + layers}[self.freeze]


@dataclass(frozen=True)
class EncoderOptions(FineTuningOptions):
    """A pretrained encoder of texts and new layers above it, trained together  (Devlin et al. 2019)."""

    task_defaults: ClassVar[dict[str, Any]] = {"word_dropout": 0.0, "dropout": 0.1, "batch": 512}

    encoder: Path = option(metavar="FOLDER")
    """A run of masked-lm, a run with an encoder, or a BERT in transformers' layout; only a new run reads it."""
    attention: str | None = left_open("that of the encoder")
    """Another mechanism in all heads of the encoder, by name (see `regard list`)."""


@dataclass(frozen=True)
class LevelEncoderOptions(EncoderOptions):
    """A pretrained encoder of which the states of several layers may be read."""

    levels: tuple[int, ...] = ()
    """Layers of the encoder whose states are read side by side, 0 for its embeddings; if left out, the last alone."""


@dataclass(frozen=True)
class FrozenEncoderOptions(LevelEncoderOptions):
    """An encoder whose states are the vectors of tokens."""

    freeze: str = "all"


@dataclass(frozen=True)
class ImageEncoderOptions(FineTuningOptions):
    """A pretrained encoder of images and new layers above it, trained together  (Dosovitskiy et al. 2021)."""

    encoder: Path = option(metavar="FOLDER")
    """A ViT in transformers' layout, or a run of classify-image or caption with one; only a new run reads it."""
