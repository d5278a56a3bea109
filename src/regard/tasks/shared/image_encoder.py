"""A pretrained encoder of images in a task: read from the folder that --encoder names, kept by the run, restored.

    encoder = PretrainedImageEncoder.prepare(options, run, new)     in `prepare` of a task
    stats = encoder.adapt(stats)                                    raises if images have another size or channels
    model = SomeModel(encoder.build(options), …)                    in `build_model`: initial weights of the folder
    encoder = PretrainedImageEncoder.of_run(run)                    in `predictor`: the folder is not needed any more

A run has encoder.json, the sizes of the encoder, the numbers by which it normalizes images and the fingerprint of its
first weights; its checkpoints have all weights.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import NamedTuple

from torch import Tensor

from regard.common import atomic_files
from regard.common.dataclass_json import dataclass_from_file
from regard.layers.transformer import EncoderLayer
from regard.models.pretrained import load_pretrained
from regard.models.pretrained.architecture import ACTIVATIONS, activation_name
from regard.models.pretrained.folder import CONFIG, read_config
from regard.models.pretrained.image_processor import ImageProcessor, load_image_processor
from regard.models.transfer.image_encoder import ImageEncoder
from regard.models.vit import ViT
from regard.tasks.shared.encoder import load_initial_weights, prepare_encoder, weights_fingerprint
from regard.tasks.shared.encoder_options import IMAGE_ENCODER_FILES, FineTuningOptions
from regard.tasks.shared.image_data import ImageStats
from regard.training import checkpoint
from regard.training.run_folder import BEST, LAST, RECORD, RunRecord

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
        layer = vit.layers[0]
        assert isinstance(layer, EncoderLayer)
        return ImageEncoderFacts(
            source=folder.name,
            weights_sha256=weights_fingerprint(weights),
            height=vit.image[0],
            width_of_images=vit.image[1],
            patch=vit.patches.kernel_size[0],
            channels=vit.patches.in_channels,
            width=vit.width,
            layers=len(vit.layers),
            heads=layer.attention.heads,
            feed=layer.feed.inner.out_features,  # type: ignore[union-attr, arg-type]
            attention=None,
            activation=activation_name(layer.feed.activation),  # type: ignore[arg-type]
            eps=vit.norm.eps,
            dropout=vit.dropout.p,
            scale=processor.scale,
            mean=list(processor.mean),
            std=list(processor.std),
        )

    def build(self, attention: str | None, frozen: int) -> ImageEncoder:
        """The encoder with random weights; `attention` replaces that of its heads."""
        vit = ViT(
            (self.height, self.width_of_images),
            patch=self.patch,
            channels=self.channels,
            width=self.width,
            layers=self.layers,
            heads=self.heads,
            feed=self.feed,
            attention=self.attention if attention is None else attention,
            activation=ACTIVATIONS[self.activation](),
            eps=self.eps,
            dropout=self.dropout,
        )
        return ImageEncoder(vit, frozen=frozen, scale=self.scale, mean=self.mean, std=self.std)


# sizes for a first call of a model, before the folder is read
SMALLEST = ImageEncoderFacts("", "", 8, 8, 4, 1, 8, 1, 1, 8, None, "gelu", 1e-12, 0.0, 1.0, [0.0], [1.0])


def smallest_image_encoder(options: FineTuningOptions, attention: str | None = None) -> ImageEncoder:
    """An encoder with random weights, which shows whether the options of a model fit together."""
    return SMALLEST.build(attention, 0 if options.freeze == "none" else 1)


class _ReadImageEncoder(NamedTuple):
    facts: ImageEncoderFacts
    weights: dict[str, Tensor]  # by the names of ViT


@dataclass(frozen=True, eq=False)
class PretrainedImageEncoder:
    """An encoder; `folder` has the weights to start with, None if a checkpoint of the run has all."""

    facts: ImageEncoderFacts
    folder: Path | None = None

    @staticmethod
    def of_folder(folder: Path) -> "PretrainedImageEncoder":
        """The encoder of a run with one, or of a folder in transformers' layout."""
        return PretrainedImageEncoder(_read(folder).facts, folder)

    @staticmethod
    def of_run(run: Path) -> "PretrainedImageEncoder":
        """The encoder that a run has written; its weights are in the checkpoints of the run."""
        return PretrainedImageEncoder(dataclass_from_file(ImageEncoderFacts, run / _FACTS, "an encoder of images"))

    @staticmethod
    def prepare(options: FineTuningOptions, run: Path, new: bool) -> "PretrainedImageEncoder":
        """The encoder of a training: a new run reads its folder and writes what it needs later; others load that."""
        return prepare_encoder(PretrainedImageEncoder, options, run, new)

    def write(self, run: Path) -> None:
        """Writes the files of IMAGE_ENCODER_FILES."""
        atomic_files.write_atomically(run / _FACTS, [json.dumps(asdict(self.facts)).encode(), b"\n"])

    def build(self, options: FineTuningOptions, attention: str | None = None) -> ImageEncoder:
        """The encoder of a model, with the weights of the folder if the run has none yet.

        `attention` is another mechanism for all of its heads.
        """
        encoder = self.facts.build(attention, options.frozen_parts(self.facts.layers))
        if self.folder is not None and not encoder.vit.class_token.is_meta:
            load_initial_weights(encoder.vit, _read(self.folder).weights, attention, options.freeze)
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


def _read(folder: Path) -> _ReadImageEncoder:
    if (folder / RECORD).exists():
        return _read_run(folder)
    if (folder / CONFIG).exists():
        return _read_pretrained(folder)
    found = "holds neither" if folder.is_dir() else "is no folder with"
    raise FileNotFoundError(
        f"{folder} {found} {CONFIG} and weights nor a run ({RECORD}); "
        "name a ViT in transformers' layout, or a run of classify-image with one"
    )


def _read_run(folder: Path) -> _ReadImageEncoder:
    record = RunRecord.read(folder)
    record.check_files(folder)
    if record.task not in _PREFIXES or not (folder / _FACTS).exists():
        raise ValueError(
            f"{folder} is a run of {record.task} without an encoder of images; "
            "name a ViT in transformers' layout, or a run of classify-image with one"
        )
    path = folder / (BEST if (folder / BEST).exists() else LAST)
    if not path.exists():
        raise FileNotFoundError(f"{folder} has no {BEST} yet; train it: regard train --resume {folder}")
    weights = checkpoint.read(path).under(_PREFIXES[record.task])
    facts = PretrainedImageEncoder.of_run(folder).facts
    attention = record.options["model"].get("attention") if record.task == "classify-image" else None
    digest, attention = weights_fingerprint(weights), attention or facts.attention
    return _ReadImageEncoder(replace(facts, source=folder.name, weights_sha256=digest, attention=attention), weights)


def _read_pretrained(folder: Path) -> _ReadImageEncoder:
    config = read_config(folder)
    names = config.values.get("architectures")
    name = str(names[0]) if isinstance(names, list) and names else str(config.values.get("model_type", "vit"))
    if not name.lower().startswith("vit"):
        raise ValueError(
            f"{folder} holds a {name}, and an encoder of images is a ViT; name a folder with one, or a run of "
            "classify-image with one"
        )
    vit = load_pretrained(folder, architecture="ViTModel").model
    assert isinstance(vit, ViT)
    vit.pooler = None
    processor = load_image_processor(config, (vit.image[0], vit.image[1]), vit.patches.in_channels)
    weights = {name: p.detach() for name, p in vit.named_parameters()}
    return _ReadImageEncoder(ImageEncoderFacts.of(vit, processor, folder, weights), weights)
