"""The options of the task classify-image and of its models.  No torch here: a command line reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

from regard.common.input_kind import InputKind
from regard.common.options.checks import check_radius
from regard.common.options.fields import at_least, left_open, random_seed, resolve, share
from regard.inference.evaluation import EXAMPLES
from regard.tasks.base import Budget, ModelOptions
from regard.tasks.shared.encoder_options import IMAGE_ENCODER_FILES, PRETRAINED, ImageEncoderOptions
from regard.tasks.shared.image_options import (
    AttackImages,
    EvaluateImages,
    GatedOptions,
    LabelledImageConfig,
    PredictImageClasses,
    ServeImages,
)


@dataclass(frozen=True)
class ImageClassifierOptions(ModelOptions):
    """Options of a model that classifies images."""

    # the names of the rows and columns of its attention maps, for figures; empty if they are patches or channels
    map_axes: ClassVar[Mapping[str, str]] = {}

    def resolved_by(self, size: tuple[int, int]) -> dict[str, Any]:
        """The open fields as images of this height and width decide them."""
        return {}


@dataclass(frozen=True)
class ConvNetOptions(ImageClassifierOptions, GatedOptions):
    """Residual blocks, each with a gate at its end."""

    model_class: ClassVar[str] = "regard.models.convnet:ConvNet"

    gate: str | None = None
    """The gate at the end of every block, a name of `regard list gates`; if left out, none."""
    width: int = at_least(1, 32)
    """Channels of the first stage; every later stage has twice as many as the one before."""
    depths: tuple[int, ...] = (1, 1, 1)
    """Residual blocks of each stage."""
    stem_stride: int = at_least(1, 1)
    """Pixels from one place of the first map to the next; 2 makes a training about four times as quick."""
    dropout: float = share(0.1)
    """The share of features that dropout sets to zero before the last layer in training."""

    def build(self, channels: int, size: tuple[int, int], classes: int) -> Any:
        return super().build(channels, classes)


@dataclass(frozen=True)
class MLPOptions(ImageClassifierOptions, GatedOptions):
    """A multilayer perceptron of the pixels; a gate may weight the rows of the image before it."""

    model_class: ClassVar[str] = "regard.models.mlp:MLP"

    gate: str | None = None
    """The gate on the rows of the image before the first layer, a name of `regard list gates`; if left out, none."""
    hidden: tuple[int, ...] = (128, 64)
    """The widths of the hidden layers."""
    dropout: float = share(0.1)
    """The share of features that dropout sets to zero before the last layer in training."""


@dataclass(frozen=True)
class RowReaderOptions(ImageClassifierOptions):
    """A recurrent gated attention cell that reads an image row by row."""

    model_class: ClassVar[str] = "regard.models.row_reader:RowReader"
    map_axes: ClassVar[Mapping[str, str]] = {
        "queries": "rows of the picture, from the top",
        "keys": "patches of a row, from the left",
    }

    width: int = at_least(1, 16)
    """The width of every head."""
    heads: int = at_least(1, 12)
    """Heads of the cell."""
    stride: int | None = left_open("an eighth of the image", minimum=1)
    """Pixels from one row to the next, and from one patch of a row to the next."""
    dropout: float = share(0.1)
    """The share of features that dropout sets to zero before the last layer in training."""

    def resolved_by(self, size: tuple[int, int]) -> dict[str, Any]:
        return {"stride": max(round(min(size) / 8), 1) if self.stride is None else self.stride}


@dataclass(frozen=True)
class SpatialTransformerOptions(ImageClassifierOptions):
    """Residual blocks that read a crop of the image, whose place the network finds itself  (Jaderberg et al. 2015)."""

    model_class: ClassVar[str] = "regard.models.vision.spatial_transformer:SpatialTransformerNetwork"

    transform: Literal["attention", "affine"] = "attention"
    """The crop is a square of any place and size (attention), or any parallelogram (affine)."""
    crop: int | None = left_open("half of the image", minimum=1)
    """The height and width of the sampled grid, in cells."""
    hidden: int = at_least(1, 32)
    """Units of the hidden layer that finds the place."""
    width: int = at_least(1, 32)
    """Channels of the first stage; every later stage has twice as many as the one before."""
    depths: tuple[int, ...] = (1, 1, 1)
    """Residual blocks of each stage."""
    dropout: float = share(0.1)
    """The share of features that dropout sets to zero before the last layer in training."""


@dataclass(frozen=True)
class PretrainedImageOptions(ImageEncoderOptions, ImageClassifierOptions):
    """A pretrained ViT, whose class token or patches become the vector of an image  (Dosovitskiy et al. 2021)."""

    model_class: ClassVar[str] = "regard.models.transfer.image_encoder:ImageEncoderClassifier"

    attention: str | None = left_open("that of the encoder")
    """Another mechanism in all heads of the encoder, by name (see `regard list`)."""
    pooling: Literal["first", "mean"] = "first"
    """The vector of an image: the state of the class token, or the mean of the states of its patches."""
    dropout: float = share(0.1)
    """The share of features that dropout sets to zero in training, above the encoder."""


@dataclass(frozen=True)
class ClassifyImage(LabelledImageConfig):
    """Classify images: folders of images, IDX files, or embedded digits, by a network with any gate, or a ViT."""

    name: ClassVar[str] = "classify-image"
    task_class: ClassVar[str] = "regard.tasks.classify_image.task:ClassifyImageTask"
    summary: ClassVar[str] = "classify images: folders of images, IDX files, or handwritten digits"
    input_kind: ClassVar[InputKind] = InputKind.IMAGE
    budgets: ClassVar[dict[str, Budget]] = {
        "digits": Budget(minutes=1.0),
        "cluttered": Budget(minutes=2.0),
        "files": Budget(minutes=20.0),
    }
    # few images are held out, and their likelihood shows smaller differences than their accuracy
    metrics: ClassVar[dict[str, bool]] = {"nll": False, "accuracy": True, "robust_nll": False, "robust_accuracy": True}
    models: ClassVar[dict[str, type[ModelOptions]]] = {
        "convnet": ConvNetOptions,
        "rows": RowReaderOptions,
        "mlp": MLPOptions,
        "stn": SpatialTransformerOptions,
        PRETRAINED: PretrainedImageOptions,
    }
    chosen_by: ClassVar[dict[str, str]] = {"encoder": PRETRAINED}
    run_files: ClassVar[tuple[str, ...]] = ("images.json", EXAMPLES, *IMAGE_ENCODER_FILES)
    vocabulary_files: ClassVar[tuple[str, ...]] = ("images.json", *IMAGE_ENCODER_FILES)
    varies: ClassVar[str] = "gate"
    varies_help: ClassVar[str] = (
        "Gates by name, as `regard list gates` has them, also with options (se:reduction=4); none is a network without "
        "gates."
    )
    usage: ClassVar[str] = "predict {run} PICTURE"
    is_served: ClassVar[bool] = True
    Evaluate: ClassVar[type] = EvaluateImages
    Attack: ClassVar[type] = AttackImages
    Predict: ClassVar[type] = PredictImageClasses
    Serve: ClassVar[type] = ServeImages

    data: Literal["digits", "cluttered"] | None = None  # type: ignore[assignment]
    """An embedded data set that needs no file: 1,797 handwritten digits of 8 by 8 pixels, or these on 24 by 24 pixels
    among pieces of others."""
    model: ImageClassifierOptions = left_open()
    """Residual blocks or a perceptron, which may have a gate, a gated attention cell that reads row by row, a spatial
    transformer before residual blocks, or a pretrained ViT."""
    smoothing: float = share(0.0)
    """Label smoothing: the share of the target's probability that is spread over all classes."""
    shift: int = at_least(0, 1)
    """Training images are shifted at random by up to this many pixels each way."""
    adversary: Literal["pgd", "fgsm"] | None = None
    """Attack every training image first: by pgd, or by fgsm, one step from a random start, which is quicker."""
    eps: float | None = left_open("0.1 with --adversary")
    """The largest change of a pixel, from 0 to 1, by the adversary."""
    attack_steps: int | None = left_open("5 with --adversary pgd", minimum=1)
    """Steps of the adversary pgd."""
    batch: int = at_least(1, 64)
    """Images per batch."""
    seed: int = random_seed(0)
    """Determines initial weights, the order of batches, shifts, dropout, and which images are held out."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_adversary()

    def _check_adversary(self) -> None:
        """Raises for options of an adversary that is not there; fills in those that are open."""
        if self.adversary is None and self.eps is not None:
            raise ValueError(f"eps={self.eps:g} belongs to an adversary; give adversary=pgd as well")
        if self.adversary != "pgd" and self.attack_steps is not None:
            raise ValueError(f"attack_steps={self.attack_steps} belongs to adversary=pgd; give it, or leave this out")
        check_radius(self, "eps")
        if self.adversary is not None:
            resolve(self, {"eps": 0.1, **({"attack_steps": 5} if self.adversary == "pgd" else {})})

    @property
    def metric(self) -> str:
        return "nll" if self.adversary is None else "robust_nll"

    @property
    def title(self) -> str:
        names = {
            "convnet": "a network",
            "rows": "a reader of rows",
            "mlp": "a perceptron",
            "stn": "a spatial transformer",
        }
        return f"{names.get(self.model_name, 'a pretrained ViT')} on {self.dataset_label}"

    def variants(self, values: Sequence[str]) -> dict[str, Self]:
        """The same with each of these gates; "none" is without."""
        if not isinstance(self.model, ConvNetOptions | MLPOptions):
            raise ValueError(f"--gate belongs to --model convnet or mlp, not to {self.model_name}; leave --model out")
        return super().variants(values)
