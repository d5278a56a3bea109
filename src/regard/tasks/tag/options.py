"""The options of the task tag and of its models.  No torch here: a command line reads them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from regard.common.options.checks import CheckedOptions
from regard.common.options.fields import at_least, left_open, share
from regard.common.position_names import PositionName
from regard.inference.evaluation import EXAMPLES
from regard.tasks.base import Budget, ModelOptions
from regard.tasks.shared.encoder_options import ENCODER_FILES, PRETRAINED, EncoderOptions
from regard.tasks.shared.text_options import COSINE, AttackTextFile, TextFileConfig

WINDOW = "window"
# the search keeps as many paths per word and tag
MAX_PATHS = 100


@dataclass(frozen=True)
class TaggerOptions(ModelOptions):
    """Options of every tagger."""

    embedding: int = at_least(1)
    """The width of word vectors."""
    characters: int = at_least(1, 48)
    """Filters of the convolution over the characters of a word."""
    output: Literal["crf", "softmax"] = "crf"
    """Tags that depend on their neighbours, by the rules of the scheme (crf), or one softmax per word."""
    dropout: float = share()
    """The share of activations that dropout sets to zero in training."""


@dataclass(frozen=True)
class RecurrentTaggerOptions(TaggerOptions):
    """A recurrent encoder with self-attention above it  (Lample et al. 2016; Ma and Hovy 2016)."""

    model_class: ClassVar[str] = "regard.models.tagger:RecurrentTagger"

    attention: str = "multi-head"
    """How every word attends to all words: a mechanism by name (see `regard list`), or none."""
    hidden: int = at_least(1)
    """The width of the recurrent state in each direction."""
    layers: int = at_least(1, 1)
    """Recurrent layers."""
    cell: Literal["lstm", "gru"] = "lstm"
    """The recurrent cell."""


@dataclass(frozen=True)
class TransformerTaggerOptions(TaggerOptions):
    """Layers of self-attention over the words  (Vaswani et al. 2017)."""

    model_class: ClassVar[str] = "regard.models.tagger:TransformerTagger"

    attention: str = "scaled-dot"
    """The attention of all heads: a mechanism by name (see `regard list`)."""
    width: int = at_least(1, 128)
    """The width of the states."""
    layers: int = at_least(1, 2)
    """Layers of self-attention."""
    heads: int = at_least(1, 4, divides="width")
    """Heads per layer."""
    positions: PositionName = "sinusoidal"
    """Positions in the embeddings, in the scores, or as a rotation of queries and keys."""
    longest: int = at_least(1, 2000)
    """learned, half-wave: the number of positions; longer sentences are an error before training."""


@dataclass(frozen=True)
class WindowTaggerOptions(TaggerOptions):
    """A word and its two neighbours, without attention: a baseline  (Collobert et al. 2011)."""

    model_class: ClassVar[str] = "regard.models.tagger:WindowTagger"

    hidden: int = at_least(1)
    """The width of the hidden layer."""


@dataclass(frozen=True)
class PretrainedTaggerOptions(EncoderOptions):
    """A pretrained encoder, whose states of the words have tags  (Devlin et al. 2019)."""

    model_class: ClassVar[str] = "regard.models.transfer.tagger:EncoderTagger"

    subwords: Literal["first", "mean"] = "first"
    """The state of a word: that of its first sub-word, or the mean of all."""
    characters: int = at_least(0, 48)
    """Filters of a convolution over the characters of a word, beside its state; 0 leaves it out."""
    output: Literal["crf", "softmax"] = "crf"
    """Tags that depend on their neighbours, by the rules of the scheme (crf), or one softmax per word."""
    dropout: float = share()
    """The share of activations that dropout sets to zero in training, above the encoder."""


@dataclass(frozen=True)
class PredictTags(CheckedOptions):
    """Options of `regard predict` for taggers."""

    paths: int = at_least(1, 1, maximum=MAX_PATHS)
    """Also give this many best sequences of tags with their probabilities, in JSON."""


@dataclass(frozen=True)
class Tag(TextFileConfig):
    """Tag words: a file of tagged sentences, or an embedded data set, trains a model with any attention and a CRF."""

    name: ClassVar[str] = "tag"
    task_class: ClassVar[str] = "regard.tasks.tag.task:TagTask"
    summary: ClassVar[str] = "tag words and spans: your own CoNLL columns, CoNLL-U or seq.in/seq.out, or fields of CLDR"
    unit: ClassVar[str] = "words"
    content: ClassVar[str] = "sentences"
    embedded: ClassVar[str] = "fields"
    budgets: ClassVar[dict[str, Budget]] = {"fields": Budget(minutes=4.0), "files": Budget(minutes=10.0)}
    metrics: ClassVar[dict[str, bool]] = {
        "strict f1": True,
        "lenient f1": True,
        "precision": True,
        "recall": True,
        "accuracy": True,
        "nll": False,
        "intent accuracy": True,
    }
    training: ClassVar[dict[str, Any]] = {**COSINE, "lr": 3e-3, "validate_every": 200}
    defaults: ClassVar[dict[str, dict[str, Any]]] = {
        "fields": {
            "embedding": 64,
            "hidden": 64,
            "dropout": 0.1,
            "word_dropout": 0.0,
            "batch": 512,
            "words": "punctuation",
        },
        "files": {"embedding": 100, "hidden": 128, "dropout": 0.5, "word_dropout": 0.1, "batch": 512, "words": "file"},
    }
    models: ClassVar[dict[str, type[ModelOptions]]] = {
        "recurrent": RecurrentTaggerOptions,
        "transformer": TransformerTaggerOptions,
        WINDOW: WindowTaggerOptions,
        PRETRAINED: PretrainedTaggerOptions,
    }
    chosen_by: ClassVar[dict[str, str]] = {"encoder": PRETRAINED}
    varies_help: ClassVar[str] = (
        "Mechanisms by name, as `regard list` has them; none leaves the attention of a recurrent tagger out. "
        "A tagger with a window of three words is compared with them, except with --encoder, whose learning rate does "
        "not suit it."
    )
    run_files: ClassVar[tuple[str, ...]] = ("tags.json", EXAMPLES, *ENCODER_FILES)
    vocabulary_files: ClassVar[tuple[str, ...]] = ("tags.json", *ENCODER_FILES)
    weight_fields: ClassVar[tuple[str, ...]] = ("scheme", "words", "vocabulary")
    file_options: ClassVar[tuple[str, ...]] = ("valid", "test", "column")
    Predict: ClassVar[type] = PredictTags
    Attack: ClassVar[type] = AttackTextFile

    data: Literal["fields"] | None = None
    """An embedded data set that needs no file: dates, numbers and currencies whose place decides how to read them."""
    train: Path | None = None
    """Your own sentences: a file of columns, a .conllu, or a folder of seq.in, seq.out and label. .gz is unpacked."""
    column: int | None = None
    """The column of tags, counted from 1, or from the end with -1; if left out, the last, in CoNLL-U the fourth."""
    word_column: int = 1
    """The column of words, counted from 1."""
    scheme: Literal["auto", "IOB1", "IOB2", "BIOES", "BILOU", "none"] = "auto"
    """How tags write spans: auto finds it in the training sentences; none has tags without prefixes."""
    words: Literal["file", "spaces", "punctuation"] = left_open()
    """How `regard predict` splits a text into words: as the training file, which may hold marks as words of their own,
    at spaces, or also before and after punctuation."""

    vocabulary: int = at_least(1, 30_000)
    """The largest number of word vectors; words that occur once share one. A pretrained encoder has its own."""
    max_length: int = at_least(1, 2000)
    """Sentences of more words, or of more tokens than a pretrained encoder reads, are an error: none is cut off."""
    model: TaggerOptions | PretrainedTaggerOptions = left_open()
    """A recurrent or Transformer encoder with attention, a window of three words, or a pretrained encoder."""
    word_dropout: float = share()
    """The share of words whose vector is that of unknown words in training."""

    batch: int = at_least(1)
    """Words per batch, padding included, at most."""

    def variants(self, values: Sequence[str]) -> dict[str, Self]:
        """The same with each of these attentions, and a window of three words unless they are those of an encoder."""
        model = self.model
        if isinstance(model, EncoderOptions):
            return super().variants(values)
        window = WindowTaggerOptions(model.embedding, model.characters, model.output, model.dropout)
        return self.variants_beside(values, replace(self, model=window), "a window")
