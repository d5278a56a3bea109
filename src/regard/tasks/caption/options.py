"""The options of the task caption and of its model.  No torch here: a command line reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, Literal, Self

from regard.common.input_kind import InputKind
from regard.common.options.checks import CheckedOptions, check_owner
from regard.common.options.construct import construct
from regard.common.options.fields import at_least, left_open, option, random_seed, resolve, share
from regard.inference.evaluation import EXAMPLES
from regard.tasks.base import Budget, ModelOptions, TaskConfig
from regard.tasks.shared.encoder_options import IMAGE_ENCODER_FILES, PRETRAINED, ImageEncoderOptions
from regard.tasks.shared.image_options import GatedOptions, ServeImages
from regard.tasks.shared.text_options import COSINE, EvaluateSearch, check_learnable

# options of one kind of attention, and their values where they are left open
_OF_ATTENTION: dict[str, dict[str, float]] = {"soft": {"doubly": 0.01}, "hard": {"expected": 0.5, "entropy": 0.002}}


@dataclass(frozen=True)
class CaptionDecoderOptions(ModelOptions):
    """A decoder that attends to patches for every word."""

    model_class: ClassVar[str] = "regard.models.show_attend_tell.model:ShowAttendTell"

    attention: Literal["soft", "hard"] = "soft"
    """Mix all patches by their weights (soft), or read one, sampled in training and the likeliest then (hard)."""
    expected: float | None = left_open(0.5, minimum=0, maximum=1)
    """hard: the probability that the patches of a training image are mixed instead of sampled."""
    width: int = at_least(1, 64)
    """The width of embeddings."""
    hidden: int = at_least(1, 96)
    """The width of the decoder's state."""
    dropout: float = share(0.0)
    """The share of embeddings, and of the inputs of the vocabulary layer, that dropout sets to zero in training."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_owner(self, "attention", {"hard": ("expected",)})
        resolve(self, _OF_ATTENTION[self.attention])


@dataclass(frozen=True)
class AnnotationEncoderOptions(GatedOptions):
    """Options of a model whose encoder is convolutional."""

    part_classes: ClassVar[tuple[str, ...]] = ("regard.models.show_attend_tell.encoder:AnnotationEncoder",)

    annotation: int = at_least(1, 64)
    """The width of an annotation vector, which describes one patch."""
    channels: int = at_least(1, 32)
    """Channels of the encoder's first layer; the second has twice as many."""
    gate: str | None = None
    """The gate on the map of the encoder's second layer, a name of `regard list gates`; if left out, none."""

    def build(self, image_channels: int, vocabulary: int) -> Any:
        from regard.models.show_attend_tell.encoder import AnnotationEncoder

        return super().build(construct(AnnotationEncoder, self, image_channels), vocabulary)


@dataclass(frozen=True)
class ShowAttendTellOptions(AnnotationEncoderOptions, CaptionDecoderOptions):
    """A convolutional encoder, and a decoder that attends to patches for every word."""


@dataclass(frozen=True)
class ConvDecoderOptions(ModelOptions):
    """A convolutional decoder that attends to patches in every layer."""

    model_class: ClassVar[str] = "regard.models.conv.captioner:ConvCaptioner"

    attention: str = "dot"
    """A mechanism by name (see `regard list`)."""
    width: int = at_least(1, 64)
    """The width of embeddings."""
    hidden: int = at_least(1, 96)
    """The width of the decoder's convolutions."""
    layers: int = at_least(1, 3)
    """Layers of the decoder."""
    kernel: int = at_least(1, 3)
    """Words that a convolution reads at once."""
    encoder_gradient: float = left_open("1 / (2 layers)", minimum=0)
    """In training the gradient of the encoder's outputs is multiplied by this."""
    dropout: float = share(0.0)
    """The share of embeddings, and of the inputs of layers, that dropout sets to zero in training."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_learnable(self.attention)
        resolve(self, {"encoder_gradient": 1 / (2 * self.layers)})


@dataclass(frozen=True)
class ConvCaptionOptions(AnnotationEncoderOptions, ConvDecoderOptions):
    """A convolutional encoder, and a convolutional decoder that attends to patches in every layer."""


@dataclass(frozen=True)
class PretrainedCaptionOptions(CaptionDecoderOptions, ImageEncoderOptions):
    """A pretrained ViT, and a decoder that attends to the states of its patches for every word."""

    read_by_task: ClassVar[tuple[str, ...]] = ("layer_decay", "head_rate")

    def build(self, encoder: Any, vocabulary: int) -> Any:
        from regard.models.transfer.fine_tuned_encoder import fine_tuning_rates
        from regard.models.transfer.image_encoder import PatchAnnotations

        model = super().build(PatchAnnotations(encoder), vocabulary)
        slow = {name: self.head_rate * rate for name, rate in model.lr_multipliers.items()}
        rates = fine_tuning_rates(model, self.layer_decay, self.head_rate, "encoder.encoder")
        model.lr_multipliers = {**rates, **slow}
        return model


@dataclass(frozen=True)
class PredictCaptions(CheckedOptions):
    """Options of `regard predict` for captions."""

    top: int = at_least(1, 1)
    """Captions per image, the best first."""


@dataclass(frozen=True)
class Caption(TaskConfig):
    """Caption images: files with captions, or embedded scenes, by a decoder that attends to patches for every word."""

    name: ClassVar[str] = "caption"
    task_class: ClassVar[str] = "regard.tasks.caption.task:CaptionTask"
    summary: ClassVar[str] = "describe images in words: your own images with captions, or scenes of handwritten digits"
    unit: ClassVar[str] = "tokens"
    input_kind: ClassVar[InputKind] = InputKind.IMAGE
    embedded: ClassVar[str] = "scenes"
    budgets: ClassVar[dict[str, Budget]] = {"scenes": Budget(steps=1600), "files": Budget(minutes=60.0)}
    metrics: ClassVar[dict[str, bool]] = {
        "bleu": True,
        "exact": True,
        "pointing": True,
        "pointing_drawn": True,
        "nll": False,
    }
    defaults: ClassVar[dict[str, dict[str, Any]]] = {"scenes": {"tokens": "words"}, "files": {"tokens": "bpe"}}
    models: ClassVar[dict[str, type[ModelOptions]]] = {
        "show-attend-tell": ShowAttendTellOptions,
        "conv": ConvCaptionOptions,
        PRETRAINED: PretrainedCaptionOptions,
    }
    chosen_by: ClassVar[dict[str, str]] = {"encoder": PRETRAINED}
    varies: ClassVar[str] = "attention"
    varies_help: ClassVar[str] = (
        "soft, hard: all patches mixed by their weights, or one that is sampled; for conv mechanisms by name."
    )
    run_files: ClassVar[tuple[str, ...]] = ("images.json", EXAMPLES, "tokens.json", *IMAGE_ENCODER_FILES)
    vocabulary_files: ClassVar[tuple[str, ...]] = ("images.json", "tokens.json", *IMAGE_ENCODER_FILES)
    weight_fields: ClassVar[tuple[str, ...]] = ("size", "tokens", "vocabulary")
    training: ClassVar[dict[str, Any]] = {**COSINE, "lr": 4e-3, "warmup": 50, "validate_every": 200, "save_every": 200}
    content: ClassVar[str] = "images"
    file_options: ClassVar[tuple[str, ...]] = ("valid", "test", "size")
    usage: ClassVar[str] = "predict {run} PICTURE --picture words.png"
    is_served: ClassVar[bool] = True
    Evaluate: ClassVar[type] = EvaluateSearch
    Predict: ClassVar[type] = PredictCaptions
    Serve: ClassVar[type] = ServeImages

    data: Literal["scenes"] | None = None
    """An embedded data set that needs no file: scenes of one to three handwritten digits, and sentences about them."""
    train: Path | None = option(None, metavar="FILE")
    """Your own images: a .tsv file with one line per caption: path of an image, tab, caption."""
    valid: Path | None = option(None, metavar="FILE")
    """Images to choose the best weights by, in the format of --train; if left out, a tenth of the training images."""
    test: Path | None = option(None, metavar="FILE")
    """Images that only `regard evaluate` reads; if left out, those of --valid."""
    size: int | None = at_least(1)
    """Images are resized to this many pixels, wide and high; if left out, they must all have one size."""

    tokens: Literal["bpe", "characters", "words"] = left_open()
    """The kind of tokens."""
    vocabulary: int = at_least(1, 8000)
    """The largest number of different tokens."""
    max_length: int = at_least(1, 60)
    """Longer captions, in tokens, are dropped from training; no caption that the model writes is longer."""

    model: ShowAttendTellOptions | ConvCaptionOptions | PretrainedCaptionOptions = left_open()
    """A convolutional encoder or a pretrained ViT, and a recurrent or a convolutional decoder that attends."""
    doubly: float | None = left_open(0.01, minimum=0)
    """soft: λ of Σ_i (1 − Σ_t α_ti)², which makes captions attend to every patch."""
    entropy: float | None = left_open(0.002, minimum=0)
    """hard: the weight of the entropy of the attention, which keeps it undecided while it learns where to attend."""
    smoothing: float = share(0.0)
    """Label smoothing: the share of the target's probability that is spread over the vocabulary."""
    batch: int = at_least(1, 640)
    """Tokens per batch, padding included, at most; short, middling and long captions are in separate batches."""
    bleu: Literal["13a", "char", "zh", "ja-mecab"] | None = left_open("13a; zh or char for captions without spaces")
    """The tokenisation of BLEU."""
    valid_lines: int = at_least(1, 500)
    """Images to validate on, at most."""
    seed: int = random_seed(0)
    """Determines scenes, initial weights, the order of batches, sampled patches, and which images are held out."""

    def __post_init__(self) -> None:
        super().__post_init__()
        chosen = SimpleNamespace(attention=self.attention_kind, doubly=self.doubly, entropy=self.entropy)
        check_owner(chosen, "attention", {"soft": ("doubly",), "hard": ("entropy",)})
        resolve(self, _OF_ATTENTION[self.attention_kind])

    @property
    def attention(self) -> str:
        return self.model.attention

    @property
    def attention_kind(self) -> str:
        """ "hard" if the attention is trained by REINFORCE, "soft" otherwise."""
        return "hard" if self.attention == "hard" else "soft"

    @property
    def title(self) -> str:
        return f"captions of {self.dataset_label}"

    @classmethod
    def replaced(cls, option: str, value: Any, file: Mapping[str, Any]) -> Sequence[str]:
        """Also options of one attention that have their default, where an attention is typed."""
        if option == "attention":
            defaults = _OF_ATTENTION["soft"] | _OF_ATTENTION["hard"]
            return [name for name, default in defaults.items() if file.get(name) == default]
        return super().replaced(option, value, file)

    def variants(self, values: Sequence[str]) -> dict[str, Self]:
        """The same with each of these attentions; options of the other one that have their default are left open."""
        options = {**vars(self), **vars(self.model)}
        defaults = _OF_ATTENTION["soft"] | _OF_ATTENTION["hard"]
        opened = {name: None for name, value in defaults.items() if options.get(name) == value}
        return {value: self.with_options(attention=value, **opened) for value in values}

    def preparation_notice(self, folder: Path, new: bool) -> str:
        return "composing scenes of handwritten digits" if self.dataset == "scenes" else ""
