"""The options of the task match and of its models.  No torch here: a command line reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from regard.common.options.fields import at_least, inner_share, left_open, option, share
from regard.data.spreadsheets.input_texts import InputColumn
from regard.data.spreadsheets.pair_columns import KNOWN_COLUMNS, Columns
from regard.inference.evaluation import EXAMPLES
from regard.tasks.base import Budget, ModelOptions
from regard.tasks.shared.encoder_options import ENCODER_FILES, EncoderOptions, LevelEncoderOptions
from regard.tasks.shared.text_options import COSINE, AttackTexts, EvaluateTextFile, PredictTextClasses, TextFileConfig

BAG_OF_WORDS = "bag-of-words"
# the folder of the encoder of the second texts, in that of a run, and its files
SECOND = "second"
SECOND_FILES = tuple(f"{SECOND}/{name}" for name in ENCODER_FILES)


@dataclass(frozen=True)
class PairModelOptions(ModelOptions):
    """Options of models that read pairs of texts."""

    @property
    def keeps_words(self) -> str | None:
        """The reason that the model drops no words in training; None if it drops some."""
        has_encoder = getattr(self, "encoder", None) is not None
        return "a pretrained encoder reads tokens of its own" if has_encoder else None


@dataclass(frozen=True)
class MatcherOptions(PairModelOptions):
    """Options of models that compare the words of two texts in both directions."""

    read_by_task: ClassVar[tuple[str, ...]] = ("encoder", "levels", "embedding", "characters")

    attention: str = "paper"
    """How words of one text attend to the other: that of the paper, or a mechanism by name (see `regard list`)."""
    encoder: Path | None = option(None, metavar="FOLDER")
    """Read tokens by the frozen states of this encoder, a BERT or a run of masked-lm, instead of trained vectors."""
    levels: tuple[int, ...] = ()
    """Layers of the encoder whose states are read side by side, 0 for its embeddings; if left out, the last alone."""
    embedding: int | None = at_least(1)
    """The width of word vectors; an encoder has its own."""
    characters: int | None = at_least(0)
    """Filters of the convolution over the characters of a word; 0 reads words alone."""
    dropout: float = share()
    """The share of activations that dropout sets to zero in training."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.encoder is not None:
            for name in ("embedding", "characters"):
                if (value := getattr(self, name)) is not None:
                    raise ValueError(
                        f"{name}={value} is of trained vectors, and encoder={self.encoder} has its own; "
                        "leave one of them out"
                    )
        elif self.levels:
            raise ValueError(
                f"levels={self.levels} are layers of an encoder, and there is none; give encoder=FOLDER as well"
            )

    def resolved(self, defaults: Mapping[str, Any]) -> Self:
        trained = () if self.encoder is None else ("embedding", "characters")
        return super().resolved({name: value for name, value in defaults.items() if name not in trained})


@dataclass(frozen=True)
class ESIMOptions(MatcherOptions):
    """Recurrent encoders with attention in both directions between them  (Chen et al. 2017)."""

    model_class: ClassVar[str] = "regard.models.matching.esim:ESIM"

    hidden: int = at_least(1)
    """The width of the recurrent state in each direction."""
    cell: Literal["lstm", "gru"] = "lstm"
    """The recurrent cell."""


@dataclass(frozen=True)
class DecomposableOptions(MatcherOptions):
    """Attention in both directions without recurrence  (Parikh et al. 2016)."""

    model_class: ClassVar[str] = "regard.models.matching.decomposable:Decomposable"

    width: int = at_least(1, 200)
    """The width of all layers."""
    intra: bool = True
    """Whether each text attends to itself first; without it the order of words has no effect."""
    distance: int = at_least(1, 10)
    """Words that are farther apart share one bias of the attention within a text."""


@dataclass(frozen=True)
class BagOfPairsOptions(PairModelOptions):
    """Logistic regression on the words of both texts, without attention: a baseline."""

    model_class: ClassVar[str] = "regard.models.matching.word_matcher:BagOfPairs"
    read_by_task: ClassVar[tuple[str, ...]] = ("buckets",)

    buckets: int = at_least(1, 100_000)
    """Buckets for pairs of words across the texts."""

    @property
    def keeps_words(self) -> str:
        return "a bag of words reads all of them"


@dataclass(frozen=True)
class PairEncoderOptions(EncoderOptions, PairModelOptions):
    """A pretrained encoder that reads both texts as one  (Devlin et al. 2019)."""

    model_class: ClassVar[str] = "regard.models.matching.encoded_pair:PairEncoder"

    pooling: Literal["first", "mean", "max"] = "mean"
    """How the states of all tokens become one vector."""
    dropout: float = share()
    """The share of activations that dropout sets to zero in the layers above the encoder."""


@dataclass(frozen=True)
class CoEncoderOptions(LevelEncoderOptions, PairModelOptions):
    """One pretrained encoder per text, or the same for both, joined by attention in both directions."""

    model_class: ClassVar[str] = "regard.models.matching.encoded_pair:EncodedPairModel"
    part_classes: ClassVar[tuple[str, ...]] = ("regard.models.matching.encoded_pair:CoMatcher",)
    read_by_task: ClassVar[tuple[str, ...]] = ("second_encoder",)

    second_encoder: Path | None = option(None, metavar="FOLDER")
    """The encoder of the second texts; if left out, that of the first ones, with the same weights."""
    joint_attention: str = "paper"
    """How the texts attend to each other: by cosines of states, of two encoders by scaled dot products (paper), or a
    mechanism by name."""
    width: int = at_least(1, 200)
    """The width of the layers above the encoders."""
    dropout: float = share()
    """The share of activations that dropout sets to zero in the layers above the encoders."""


@dataclass(frozen=True)
class EvaluatePairs(EvaluateTextFile):
    """Options of `regard evaluate` for pairs of texts."""

    columns: str | None = None
    """The columns or keys of both texts and the label of --test, as A,B,LABEL; if left out, those of the training."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.columns is not None:
            Columns.parse(self.columns)
            if self.test is None:
                raise ValueError(f"columns={self.columns} are columns of other data; give test=FILE as well")


@dataclass(frozen=True)
class AttackPairs(AttackTexts, EvaluatePairs):
    """Options of `regard attack` for pairs of texts."""


@dataclass(frozen=True)
class Match(TextFileConfig):
    """Match pairs of texts: a file of labelled pairs, or an embedded data set, trains a model that reads both."""

    name: ClassVar[str] = "match"
    task_class: ClassVar[str] = "regard.tasks.match.task:MatchTask"
    summary: ClassVar[str] = "match pairs of texts (entailment, paraphrase): your own pairs, or logic with quantifiers"
    unit: ClassVar[str] = "pairs"
    content: ClassVar[str] = "pairs"
    embedded: ClassVar[str] = "quantifiers"
    budgets: ClassVar[dict[str, Budget]] = {"quantifiers": Budget(minutes=2.0), "files": Budget(minutes=5.0)}
    metrics: ClassVar[dict[str, bool]] = {"accuracy": True, "macro f1": True, "nll": False}
    training: ClassVar[dict[str, Any]] = {**COSINE, "lr": 2e-3, "validate_every": 100}
    defaults: ClassVar[dict[str, dict[str, Any]]] = {
        "quantifiers": {
            "embedding": 48,
            "characters": 0,
            "hidden": 64,
            "dropout": 0.1,
            "word_dropout": 0.0,
            "batch": 512,
        },
        "files": {
            "embedding": 100,
            "characters": 32,
            "hidden": 100,
            "dropout": 0.4,
            "word_dropout": 0.1,
            "batch": 1024,
        },
    }
    models: ClassVar[dict[str, type[ModelOptions]]] = {
        "esim": ESIMOptions,
        "decomposable": DecomposableOptions,
        "pair": PairEncoderOptions,
        "co-encoder": CoEncoderOptions,
        BAG_OF_WORDS: BagOfPairsOptions,
    }
    varies_help: ClassVar[str] = (
        "Mechanisms by name, as `regard list` has them, whose score both directions share; paper is that of the "
        "model's paper. A bag of words is always compared with them."
    )
    run_files: ClassVar[tuple[str, ...]] = (
        "pairs.json",
        EXAMPLES,
        "baseline.safetensors",
        *ENCODER_FILES,
        *SECOND_FILES,
    )
    vocabulary_files: ClassVar[tuple[str, ...]] = ("pairs.json",)
    weight_fields: ClassVar[tuple[str, ...]] = ("vocabulary",)
    has_line_breaks: ClassVar[bool] = True
    file_options: ClassVar[tuple[str, ...]] = ("valid", "test", "columns")
    Predict: ClassVar[type] = PredictTextClasses
    Attack: ClassVar[type] = AttackPairs
    Evaluate: ClassVar[type] = EvaluatePairs

    data: Literal["quantifiers"] | None = None
    """An embedded data set that needs no file: sentences with quantifiers -> whether the first entails the second."""
    train: Path | None = None
    """Your own pairs: JSON lines as SNLI, columns with a header as SICK, or label, text, text. .gz is unpacked."""
    columns: str | None = None
    """The columns or keys of both texts and the label, as A,B,LABEL: names, or numbers from 1; if left out, by name."""

    vocabulary: int = at_least(1, 30_000)
    """The largest number of word vectors; words that occur once share one."""
    max_length: int = at_least(1, 400)
    """Texts of more words are an error: none is dropped or cut off."""
    model: PairModelOptions = left_open()
    """Attention between two recurrent encoders, attention alone, pretrained encoders, or a bag of words."""
    smoothing: float = share(0.0)
    """Label smoothing: the share of the probability of the right class that is spread over all classes."""
    word_dropout: float = share()
    """The share of words whose vector is that of unknown words in training."""

    batch: int = at_least(1)
    """Tokens per batch and side, padding included, at most."""
    valid_share: float = inner_share(0.1)
    """Without --valid: the share of the training pairs, of every class, that is held out to validate on."""

    def __post_init__(self) -> None:
        if self.model is not None and (reason := self.model.keeps_words) is not None:
            if self.word_dropout not in (None, 0):
                raise ValueError(f"word_dropout={self.word_dropout} drops words, and {reason}; leave word_dropout out")
            object.__setattr__(self, "word_dropout", 0.0)
        super().__post_init__()
        if self.columns is not None:
            Columns.parse(self.columns)

    @property
    def input_columns(self) -> tuple[InputColumn, ...]:
        recorded = (None, None) if self.columns is None else Columns.parse(self.columns)[:2]
        return tuple(InputColumn(*each) for each in zip(KNOWN_COLUMNS, recorded, strict=False))

    @classmethod
    def replaced(cls, option: str, value: Any, file: Mapping[str, Any]) -> Sequence[str]:
        """Also the word dropout of a file, where a model decides it anew."""
        return ("word_dropout",) if option == "model" else super().replaced(option, value, file)

    def variants(self, values: Sequence[str]) -> dict[str, Self]:
        """The same with each of these attentions, and a bag of words."""
        baseline = replace(self, model=BagOfPairsOptions(), word_dropout=0.0)
        return self.variants_beside(values, baseline, "a bag of words")

    @classmethod
    def join_texts(cls, texts: Sequence[str]) -> Sequence[str]:
        """Two arguments without a tab or a line break are the texts of a pair, in this order."""
        is_even = bool(texts) and len(texts) % 2 == 0
        if not is_even or any(mark in text for text in texts for mark in "\t\n"):
            return texts
        return [f"{first}\t{second}" for first, second in zip(texts[::2], texts[1::2], strict=True)]
