"""The options of the task embed and of its models.  No torch here: a command line reads them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from regard.common.options.checks import CheckedOptions
from regard.common.options.construct import construct
from regard.common.options.fields import at_least, left_open, option, positive, share
from regard.common.position_names import PositionName
from regard.inference.evaluation import EXAMPLES
from regard.tasks.base import Budget, ModelOptions
from regard.tasks.shared.encoder_options import ENCODER_FILES, PRETRAINED, EncoderOptions
from regard.tasks.shared.text_options import COSINE, TextFilesConfig

if TYPE_CHECKING:
    from regard.models.bert import BERT

# the nearest lines of a text that are printed
_TOP = 5


@dataclass(frozen=True)
class BERTEmbedderOptions(ModelOptions):
    """A Transformer that reads in both directions, with random weights to start with  (Devlin et al. 2019)."""

    model_class: ClassVar[str] = "regard.models.transfer.text_embedder:TextEmbedder"
    part_classes: ClassVar[tuple[str, ...]] = ("regard.models.bert:BERT",)
    read_by_task: ClassVar[tuple[str, ...]] = ("tokens",)

    tokens: Literal["bpe", "characters"] = left_open()
    """The kind of tokens."""
    vocabulary: int = at_least(1, 8000)
    """The largest number of different tokens."""
    attention: str | None = left_open("the scaled dot product")
    """A mechanism by name (see `regard list`)."""
    width: int = at_least(1, 128)
    """The width of embeddings, layers and vectors."""
    layers: int = at_least(1, 2)
    """The number of layers."""
    heads: int = at_least(1, 4)
    """Heads per layer."""
    positions: PositionName = "rotary"
    """Positions in the embeddings, in the scores, or as a rotation of queries and keys."""
    norm: Literal["pre", "post"] = "pre"
    """Whether a layer is normalized before each sublayer, which trains faster, or behind it, as in the paper."""
    dropout: float = share()
    """The share of activations that dropout sets to zero in training."""
    pooling: Literal["mean", "first", "max"] = "mean"
    """The vector of a text: the mean or the maximum of the states of its tokens, or the state of the first token."""

    def bert(self, vocabulary: int, longest: int) -> BERT:
        """The encoder of texts of up to `longest` tokens."""
        from regard.models.bert import BERT

        return construct(BERT, self, vocabulary, longest=longest, types=1)


@dataclass(frozen=True)
class PretrainedEmbedderOptions(EncoderOptions):
    """A pretrained encoder, whose states of a text become one vector  (Reimers & Gurevych 2019)."""

    model_class: ClassVar[str] = "regard.models.transfer.text_embedder:TextEmbedder"
    read_by_task: ClassVar[tuple[str, ...]] = ("head_rate",)
    training: ClassVar[dict[str, Any]] = {**EncoderOptions.training, "lr": 5e-5}
    task_defaults: ClassVar[dict[str, Any]] = {"batch": 64}

    pooling: Literal["mean", "first", "max"] = "mean"
    """The vector of a text: the mean or the maximum of the states of its tokens, or the state of the first token."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.freeze == "all":
            self.check_trains(0)
        if self.head_rate != 10.0:
            raise ValueError(
                f"head_rate={self.head_rate} is for layers above the encoder, and embed has none; leave it out"
            )

    def check_trains(self, layers: int) -> None:
        """Raises if an encoder of this many layers keeps all of its weights."""
        if self.frozen_parts(layers) > layers:
            raise ValueError(
                f"freeze={self.freeze} leaves nothing to train in embed; use the encoder as it is: "
                f"regard embed {self.encoder} --file FILE --out vectors.npy"
            )


@dataclass(frozen=True)
class PredictVectors(CheckedOptions):
    """Options of `regard predict` and `regard embed` for vectors of texts."""

    neighbours: Path | None = option(None, metavar="FILE")
    """Print the lines of this file that are nearest to each text, with their cosines, instead of its vector."""
    top: int = at_least(1, _TOP)
    """With --neighbours: this many lines per text, the nearest first, separated by tabs."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.neighbours is None and self.top != _TOP:
            raise ValueError(
                f"--top {self.top} is the number of lines of --neighbours; name a file there, or leave it out"
            )


@dataclass(frozen=True)
class Embed(TextFilesConfig):
    """Vectors of texts: pairs of texts that belong together, or an embedded data set, train an encoder."""

    name: ClassVar[str] = "embed"
    task_class: ClassVar[str] = "regard.tasks.embed.task:EmbedTask"
    summary: ClassVar[str] = "vectors of texts, near for texts that belong together: your own pairs, or dates"
    unit: ClassVar[str] = "pairs"
    content: ClassVar[str] = "pairs"
    embedded: ClassVar[str] = "same-day"
    budgets: ClassVar[dict[str, Budget]] = {"same-day": Budget(minutes=3.0), "files": Budget(minutes=10.0)}
    metrics: ClassVar[dict[str, bool]] = {"recall@1": True, "recall@10": True, "mrr": True, "nll": False}
    training: ClassVar[dict[str, Any]] = {**COSINE, "validate_every": 100, "save_every": 200, "weight_decay": 0.01}
    defaults: ClassVar[dict[str, dict[str, Any]]] = {
        "same-day": {"tokens": "characters", "dropout": 0.0, "batch": 64},
        "files": {"tokens": "bpe", "dropout": 0.1, "batch": 64},
    }
    models: ClassVar[dict[str, type[ModelOptions]]] = {
        "bert": BERTEmbedderOptions,
        PRETRAINED: PretrainedEmbedderOptions,
    }
    chosen_by: ClassVar[dict[str, str]] = {"encoder": PRETRAINED}
    run_files: ClassVar[tuple[str, ...]] = ("pairs.json", EXAMPLES, *ENCODER_FILES)
    vocabulary_files: ClassVar[tuple[str, ...]] = ENCODER_FILES
    weight_fields: ClassVar[tuple[str, ...]] = ("max_length",)
    usage: ClassVar[str] = "embed {run} --file FILE --out vectors.npy"
    Predict: ClassVar[type] = PredictVectors

    data: Literal["same-day"] | None = None
    """An embedded data set that needs no file: dates in two of ten languages that name the same day."""
    train: tuple[Path, ...] = ()
    """Your own pairs: one file with a tab between the texts of a pair, or two files, line by line; .gz is unpacked."""

    max_length: int = at_least(3, 128)
    """Longer texts of pairs, in tokens, are cut off; their number is reported."""
    model: BERTEmbedderOptions | PretrainedEmbedderOptions = left_open()
    """An encoder with random weights, or a pretrained one, which --encoder chooses."""
    temperature: float = positive(0.05)
    """The divisor of cosines in the loss: a smaller one separates the nearest wrong texts more."""

    batch: int = at_least(2)
    """Pairs per batch; the other pairs of its batch are the wrong answers of each pair, under torchrun those of its
    process."""
    valid_pairs: int = at_least(1, 1000)
    """Without --valid: one in ten pairs is held out to validate on, at most this many."""
