"""A pretrained encoder of images in a task.

    stats = encoder.adapt(stats)     raises if images have another size or channels

A run has encoder.json, the sizes of the encoder, the numbers by which it normalizes images and the fingerprint of its
first weights; its checkpoints have all weights.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Self

from torch import Tensor

from regard.common.dataclass_json import dataclass_from_file
from regard.common.options.construct import construct
from regard.models.pretrained.architecture import ACTIVATIONS
from regard.models.pretrained.folder import CheckpointConfig
from regard.models.pretrained.image_processor import ImageProcessor, load_image_processor
from regard.models.pretrained.loading import PretrainedModel
from regard.models.transfer.image_encoder import ImageEncoder
from regard.models.vit import ViT
from regard.tasks.shared.encoder_options import IMAGE_ENCODER_FILES, FineTuningOptions
from regard.tasks.shared.image_data import ImageStats
from regard.tasks.shared.pretrained_part import (
    FolderContent,
    FolderEncoder,
    best_checkpoint,
    layer_facts,
    weights_fingerprint,
)
from regard.training import checkpoint
from regard.training.run_folder import RunRecord

(_FACTS,) = IMAGE_ENCODER_FILES
# where the checkpoints of a run have the weights of its encoder, by task
_PREFIXES = {"classify-image": "model.encoder.vit.", "caption": "model.encoder.encoder.vit."}


@dataclass(frozen=True)
class ImageEncoderFacts:
    """The arguments of a ViT and of its images, its folder, and the fingerprint of its weights there."""

    source: str
    weights_sha256: str
    height: int
    width_of_images: int
    patch: int
    channels: int
    width: int
    layers: int
    heads: int
    feed: int
    attention: str | None
    activation: str
    eps: float
    dropout: float
    scale: float
    mean: list[float]
    std: list[float]

    @staticmethod
    def of(vit: ViT, processor: ImageProcessor, folder: Path, weights: Mapping[str, Tensor]) -> "ImageEncoderFacts":
        return ImageEncoderFacts(
            source=folder.name,
            weights_sha256=weights_fingerprint(weights),
            height=vit.image[0],
            width_of_images=vit.image[1],
            patch=vit.patches.kernel_size[0],
            channels=vit.patches.in_channels,
            attention=None,
            eps=vit.norm.eps,
            scale=processor.scale,
            mean=list(processor.mean),
            std=list(processor.std),
            **layer_facts(vit),
        )

    def build(self, attention: str | None, frozen: int) -> ImageEncoder:
        """The encoder with random weights; `attention` replaces that of its heads."""
        size, chosen = (self.height, self.width_of_images), self.attention if attention is None else attention
        vit = construct(ViT, self, size, attention=chosen, activation=ACTIVATIONS[self.activation]())
        return ImageEncoder(vit, frozen=frozen, scale=self.scale, mean=self.mean, std=self.std)


# sizes for a first call of a model, before the folder is read
SMALLEST = ImageEncoderFacts("", "", 8, 8, 4, 1, 8, 1, 1, 8, None, "gelu", 1e-12, 0.0, 1.0, [0.0], [1.0])


def smallest_image_encoder(options: FineTuningOptions, attention: str | None = None) -> ImageEncoder:
    """An encoder with random weights, which shows whether the options of a model fit together."""
    return SMALLEST.build(attention, 0 if options.freeze == "none" else 1)


@dataclass(frozen=True, eq=False)
class PretrainedImageEncoder(FolderEncoder):
    """An encoder; `folder` has the weights to start with, None if a checkpoint of the run has all."""

    facts_file: ClassVar[str] = _FACTS
    model_name: ClassVar[str] = "ViT"
    architecture: ClassVar[str] = "ViTModel"
    inputs: ClassVar[str] = "images"
    suitable_runs: ClassVar[str] = "a run of classify-image with one"

    facts: ImageEncoderFacts
    folder: Path | None = None

    @classmethod
    def of_folder(cls, folder: Path) -> Self:
        return cls(cls.read(folder).facts, folder)

    @classmethod
    def of_run(cls, run: Path) -> Self:
        return cls(dataclass_from_file(ImageEncoderFacts, run / _FACTS, "an encoder of images"))

    def build(self, options: FineTuningOptions, attention: str | None = None) -> ImageEncoder:
        """The encoder of a model, with the weights of the folder if the run has none yet.

        `attention` is another mechanism for all of its heads.
        """
        encoder = self.facts.build(attention, options.frozen_parts(self.facts.layers))
        self.load_initial_weights(encoder.vit, attention, options.freeze)
        return encoder

    def adapt(self, stats: ImageStats) -> ImageStats:
        """Statistics by which pixels stay from 0 to 1, since the encoder normalizes them itself."""
        facts = self.facts
        size, read = (stats.height, stats.width), (facts.height, facts.width_of_images)
        if size != read:
            way = f"give --size {read[0]}" if read[0] == read[1] else f"resize them to {read[0]} × {read[1]}"
            raise ValueError(
                f"the images have {size[0]} × {size[1]} pixels, (height, width), and the encoder {facts.source} reads "
                f"{read[0]} × {read[1]}; {way}, or name another encoder"
            )
        if stats.channels != facts.channels:
            way = "save them in colour" if facts.channels == 3 else "save them in grey"
            raise ValueError(
                f"the images have {stats.channels} channels and the encoder {facts.source} reads {facts.channels}; "
                f"{way}, or name another encoder"
            )
        return replace(stats, mean=0.0, spread=1.0)

    @classmethod
    def read_run(cls, folder: Path, record: RunRecord) -> FolderContent:
        if record.task not in _PREFIXES or not (folder / _FACTS).exists():
            raise ValueError(
                f"{folder} is a run of {record.task} without an encoder of images; "
                "name a ViT in transformers' layout, or a run of classify-image with one"
            )
        weights = checkpoint.read(best_checkpoint(folder)).under(_PREFIXES[record.task])
        facts = cls.of_run(folder).facts
        attention = record.options["model"].get("attention") if record.task == "classify-image" else None
        digest, attention = weights_fingerprint(weights), attention or facts.attention
        return FolderContent(replace(facts, source=folder.name, weights_sha256=digest, attention=attention), weights)

    @classmethod
    def read_released(cls, folder: Path, config: CheckpointConfig, loaded: PretrainedModel) -> FolderContent:
        vit = loaded.model
        assert isinstance(vit, ViT)
        processor = load_image_processor(config, (vit.image[0], vit.image[1]), vit.patches.in_channels)
        weights = {name: p.detach() for name, p in vit.named_parameters()}
        return FolderContent(ImageEncoderFacts.of(vit, processor, folder, weights), weights)
