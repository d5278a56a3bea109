"""The options of the task classify-text and of its models.  No torch here: a command line reads them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from regard.common.options.fields import at_least, inner_share, left_open, positive, share
from regard.data.spreadsheets.input_texts import InputColumn
from regard.data.spreadsheets.label_columns import TEXT_NAMES, TextColumns
from regard.inference.evaluation import EXAMPLES
from regard.tasks.base import Budget, ModelOptions
from regard.tasks.shared.encoder_options import ENCODER_FILES, PRETRAINED, EncoderOptions
from regard.tasks.shared.text_options import (
    RECALL,
    AttackLabelledTexts,
    EvaluateLabelledTexts,
    PredictTextClasses,
    RecallOptions,
    TextFileConfig,
)

BAG_OF_WORDS = "bag-of-words"
# the kinds of tokens that are words
WORD_KINDS = ("words", "folded-words")
_MIN_COUNT = 2


class TextModelOptions(ModelOptions):
    """Options of models that classify texts."""

    reads_sentences: ClassVar[bool] = False  # whether the model reads a text sentence by sentence


@dataclass(frozen=True)
class AttentiveOptions(TextModelOptions):
    """Options of models that attend to the states of a recurrent encoder."""

    read_by_task: ClassVar[tuple[str, ...]] = ("initial_embeddings",)

    attention: str = "paper"
    """That of the model's paper (paper), or a mechanism by name (see `regard list`)."""
    width: int = at_least(1)
    """The width of embeddings."""
    hidden: int = at_least(1, 64)
    """The width of the recurrent state in each direction."""
    layers: int = at_least(1, 1)
    """Recurrent layers per encoder."""
    dropout: float = share()
    """The share of activations that dropout sets to zero in training."""
    initial_embeddings: Literal["random", "log-ratios"] = "random"
    """Initial embeddings: random vectors, or these and the log-count ratio of each token, how much more frequent it is
    in the texts of a class than in the others, along one direction per class  (Wang and Manning 2012)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.attention == "hard-argmax":
            raise ValueError(
                "attention='hard-argmax' cannot be learned, since no gradient goes through its choice; "
                "try attention='hard', which learns by its rewards, 'gumbel' or 'straight-through'"
            )


@dataclass(frozen=True)
class SelfAttentiveOptions(AttentiveOptions):
    """Several hops of attention over the states of a text  (Lin et al. 2017)."""

    model_class: ClassVar[str] = "regard.models.self_attentive:SelfAttentive"
    read_by_task: ClassVar[tuple[str, ...]] = ("penalty",)

    cell: Literal["lstm", "gru", "rnn", "none"] = "lstm"
    """The recurrent cell; none attends to the embeddings themselves."""
    embedding_std: float = positive(1.0)
    """The standard deviation of initial embeddings; for few texts a small one, such as 0.05, so that words that are
    rare in training say little."""
    hops: int = at_least(1, 4)
    """Rows of attention: the vectors that a text becomes."""
    attention_hidden: int = at_least(1, 64)
    """The width of tanh(W h) in the attention of the paper."""
    feed: int = at_least(1, 128)
    """The width of the layer before the classes."""
    penalty: float = at_least(0, 0.1)
    """The weight of ‖A Aᵀ − I‖², which keeps hops apart."""


@dataclass(frozen=True)
class HierarchicalOptions(AttentiveOptions):
    """Attention to the words of each sentence, and to the sentences of a text  (Yang et al. 2016)."""

    model_class: ClassVar[str] = "regard.models.hierarchical:HierarchicalAttention"
    reads_sentences: ClassVar[bool] = True

    cell: Literal["gru", "lstm", "rnn"] = "gru"
    """The recurrent cell."""


@dataclass(frozen=True)
class BagOfWordsOptions(TextModelOptions):
    """Logistic regression on the counts of tokens, without attention."""

    model_class: ClassVar[str] = "regard.models.bag_of_words:BagOfWords"

    bigrams: int = at_least(0, 20_000)
    """Buckets for pairs of neighbouring tokens; 0 counts single tokens alone."""


@dataclass(frozen=True)
class PretrainedTextOptions(EncoderOptions, TextModelOptions):
    """A pretrained encoder, whose states of a text become one vector  (Devlin et al. 2019)."""

    model_class: ClassVar[str] = "regard.models.transfer.classifier:EncoderClassifier"

    pooling: Literal["mean", "first", "max"] = "mean"
    """The vector of a text: the mean or the maximum of the states of its tokens, or the state of the first token."""
    dropout: float = share()
    """The share of activations that dropout sets to zero in training, above the encoder."""


@dataclass(frozen=True)
class ClassifyText(RecallOptions, TextFileConfig):
    """Classify texts: a file of labelled lines, or an embedded data set, trains a model with any attention."""

    name: ClassVar[str] = "classify-text"
    task_class: ClassVar[str] = "regard.tasks.classify_text.task:ClassifyTextTask"
    summary: ClassVar[str] = "classify texts: your own labelled lines, phrases in twelve languages, or documents"
    unit: ClassVar[str] = "texts"
    content: ClassVar[str] = "texts"
    embedded: ClassVar[str] = "phrases"
    budgets: ClassVar[dict[str, Budget]] = {
        "phrases": Budget(minutes=3.0),
        "documents": Budget(minutes=3.0),
        "verdicts": Budget(minutes=1.0),
        RECALL: Budget(minutes=2.0),
        "files": Budget(minutes=5.0),
    }
    metrics: ClassVar[dict[str, bool]] = {"accuracy": True, "macro f1": True, "nll": False}
    training: ClassVar[dict[str, Any]] = {
        "lr": 2e-3,
        "schedule": "constant",
        "warmup": 200,
        "validate_every": 100,
        "save_every": 500,
    }
    defaults: ClassVar[dict[str, dict[str, Any]]] = {
        "phrases": {"tokens": "characters", "width": 64, "dropout": 0.2, "word_dropout": 0.0, "batch": 2048},
        "documents": {"tokens": "words", "width": 64, "dropout": 0.1, "word_dropout": 0.0, "batch": 1024},
        "verdicts": {"tokens": "words", "width": 64, "dropout": 0.1, "word_dropout": 0.0, "batch": 1024},
        RECALL: {
            "tokens": "characters",
            "width": 64,
            "dropout": 0.0,
            "word_dropout": 0.0,
            "batch": 2048,
            **RecallOptions.recall_defaults,
        },
        "files": {"tokens": "folded-words", "width": 128, "dropout": 0.3, "word_dropout": 0.2, "batch": 1024},
    }
    models: ClassVar[dict[str, type[ModelOptions]]] = {
        "self-attentive": SelfAttentiveOptions,
        "hierarchical": HierarchicalOptions,
        BAG_OF_WORDS: BagOfWordsOptions,
        PRETRAINED: PretrainedTextOptions,
    }
    chosen_by: ClassVar[dict[str, str]] = {"encoder": PRETRAINED}
    reads_empty_texts: ClassVar[bool] = False
    varies_help: ClassVar[str] = (
        "Mechanisms by name, as `regard list` has them; paper is that of the model's paper. "
        "A bag of words is compared with them, except with --encoder, whose learning rate does not suit it."
    )
    run_files: ClassVar[tuple[str, ...]] = (
        "texts.json",
        EXAMPLES,
        "tokens.json",
        "baseline-tokens.json",
        "baseline.safetensors",
        "naive-bayes.safetensors",
        *ENCODER_FILES,
    )
    vocabulary_files: ClassVar[tuple[str, ...]] = ("texts.json", "tokens.json", *ENCODER_FILES)
    weight_fields: ClassVar[tuple[str, ...]] = ("tokens", "vocabulary", "min_count")
    file_options: ClassVar[tuple[str, ...]] = ("valid", "test", "text_column", "label_column")
    Evaluate: ClassVar[type] = EvaluateLabelledTexts
    Attack: ClassVar[type] = AttackLabelledTexts
    Predict: ClassVar[type] = PredictTextClasses

    data: Literal["phrases", "documents", "verdicts", "recall"] | None = None
    """An embedded data set that needs no file: phrases -> their language, reports -> the outcome in one sentence,
    sixteen words -> the topic that two or three of them decide, strings with a question -> the digit some places
    back."""
    train: Path | None = None
    """Your own texts: label, tab or space, text per line; CSV or TSV of a spreadsheet; JSON lines, or JSON with parts.
    .gz is unpacked."""
    text_column: str | None = None
    """The column of the texts in CSV and TSV, or their key in JSON lines: a name, or its number from 1; if left out, by
    name."""
    label_column: str | None = None
    """The column or key of the labels, likewise."""

    tokens: Literal["words", "folded-words", "characters", "bpe"] = left_open()
    """The kind of tokens: words between spaces, as they are written; words and marks in lower case; characters; or byte
    pairs. A pretrained encoder has its own, and these are those of the baseline."""
    vocabulary: int = at_least(1, 8000)
    """The largest number of different tokens."""
    min_count: int = at_least(1, _MIN_COUNT)
    """With tokens of words: those that occur less often in the training texts are unknown."""
    max_length: int = at_least(1, 400)
    """Longer texts, in tokens, are cut off; their number is reported."""
    model: TextModelOptions = left_open()
    """Hops of attention over a text, attention to words and sentences, a bag of words, or a pretrained encoder."""
    smoothing: float = share(0.0)
    """Label smoothing: the share of the probability of the right class that is spread over all classes."""
    word_dropout: float = share()
    """The share of tokens that are replaced by the unknown token in training."""

    batch: int = at_least(1)
    """Tokens per batch, padding included, at most."""
    valid_share: float = inner_share(0.1)
    """Without --valid: the share of the training texts, of every class, that is held out to validate on."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_recall(self.dataset, self.tokens, ("characters",))
        if self.min_count != _MIN_COUNT and self.tokens not in WORD_KINDS:
            raise ValueError(
                f"min_count={self.min_count} counts words, and tokens={self.tokens!r} are none; leave it out, or "
                "choose tokens='words'"
            )

    @property
    def columns(self) -> TextColumns:
        return TextColumns(self.text_column, self.label_column)

    @property
    def input_columns(self) -> tuple[InputColumn, ...]:
        return (InputColumn(TEXT_NAMES, self.text_column),)

    def variants(self, values: Sequence[str]) -> dict[str, Self]:
        """The same with each of these attentions, and a bag of words unless they are those of an encoder."""
        if isinstance(self.model, EncoderOptions):
            return super().variants(values)
        return self.variants_beside(values, replace(self, model=BagOfWordsOptions()), "a bag of words")

    def preparation_notice(self, folder: Path, new: bool) -> str:
        size = 0.0 if self.train is None or not self.train.is_file() else self.train.stat().st_size / 1e6
        # two seconds or so per megabyte
        notice = f"reading {self.dataset_label}, {size:,.0f} megabytes, and training a bag of words on it"
        return notice if size >= 2 else ""
