"""The options of the task read and of its model.  No torch here: a command line reads them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from regard.common.options.checks import CheckedOptions
from regard.common.options.fields import at_least, inner_share, left_open, not_blank, share
from regard.inference.evaluation import EXAMPLES
from regard.tasks.base import Budget, ModelOptions
from regard.tasks.shared.text_options import COSINE, TextFileConfig

MAX_SPANS = 100
# earlier turns of a dialogue that are read, unless an option names another number
DIALOGUE_HISTORY = 2


@dataclass(frozen=True)
class BiDAFOptions(ModelOptions):
    """Attention in both directions between passage and question, and recurrent layers  (Seo et al. 2017)."""

    model_class: ClassVar[str] = "regard.models.reading.bidaf:BiDAF"

    attention: str = "bidaf"
    """How passage and question attend to each other: a mechanism by name (see `regard list`), or none."""
    embedding: int = at_least(1)
    """The width of word vectors."""
    characters: int = at_least(1)
    """Filters of the convolution over the characters of a word."""
    hidden: int = at_least(1)
    """The width of the recurrent states in each direction."""
    highway: int = at_least(0, 2)
    """Highway layers over the vectors of words; 0 leaves them out."""
    modelling: int = at_least(1, 2)
    """Recurrent layers above the attention."""
    cell: Literal["lstm", "gru"] = "lstm"
    """The recurrent cell."""
    dropout: float = share()
    """The share of activations that dropout sets to zero in training."""


@dataclass(frozen=True)
class PredictSpans(CheckedOptions):
    """Options of `regard predict` for readers."""

    spans: int = at_least(1, 3, maximum=MAX_SPANS)
    """Give this many best spans with their probabilities, in JSON."""
    question: str | None = not_blank()
    """A question about every text, which is then the passage alone."""


@dataclass(frozen=True)
class ReadConfig(TextFileConfig):
    """Answer questions with spans of a passage: a file of questions, or embedded data, trains a model that attends."""

    name: ClassVar[str] = "read"
    task_class: ClassVar[str] = "regard.tasks.read.task:ReadTask"
    summary: ClassVar[str] = "answer questions by spans of a passage: your own SQuAD, QuAC or CoQA, or timetables"
    unit: ClassVar[str] = "questions"
    content: ClassVar[str] = "questions"
    embedded: ClassVar[str] = "timetables"
    budgets: ClassVar[dict[str, Budget]] = {"timetables": Budget(steps=3000), "files": Budget(minutes=30.0)}
    metrics: ClassVar[dict[str, bool]] = {"exact match": True, "f1": True, "nll": False}
    training: ClassVar[dict[str, Any]] = {**COSINE, "lr": 4e-3, "validate_every": 200}
    defaults: ClassVar[dict[str, dict[str, Any]]] = {
        "timetables": {
            "embedding": 32,
            "characters": 64,
            "hidden": 32,
            "dropout": 0.0,
            "word_dropout": 0.0,
            "batch": 2048,
            "history": DIALOGUE_HISTORY,
            "limit": 8,
        },
        "files": {
            "embedding": 100,
            "characters": 100,
            "hidden": 100,
            "dropout": 0.2,
            "word_dropout": 0.0,
            "batch": 4096,
            "limit": 20,
        },
    }
    models: ClassVar[dict[str, type[ModelOptions]]] = {"bidaf": BiDAFOptions}
    varies_help: ClassVar[str] = (
        "Mechanisms by name, as `regard list` has them, for both directions; none reads the question's last state."
    )
    run_files: ClassVar[tuple[str, ...]] = (
        "reading.json",
        EXAMPLES,
    )
    vocabulary_files: ClassVar[tuple[str, ...]] = ("reading.json",)
    weight_fields: ClassVar[tuple[str, ...]] = ("vocabulary",)
    has_line_breaks: ClassVar[bool] = True
    usage: ClassVar[str] = "view {run}"
    Predict: ClassVar[type] = PredictSpans

    data: Literal["timetables"] | None = None
    """An embedded data set that needs no file: tables of trains, questions that name two keys, and follow-ups."""
    train: Path | None = None
    """Your own questions: JSON of SQuAD, QuAC or CoQA. .gz is unpacked."""
    history: int | None = left_open(f"{DIALOGUE_HISTORY} where the data has dialogues, else 0", minimum=0)
    """Earlier questions and answers of a dialogue that are read before the question."""
    limit: int = at_least(1)
    """Words of an answer, at most."""

    vocabulary: int = at_least(1, 30_000)
    """The largest number of word vectors; words that occur once share one."""
    max_length: int = at_least(1, 1000)
    """Passages and questions of more words are an error: none is dropped or cut off."""
    model: BiDAFOptions = left_open()
    """Bidirectional attention flow."""
    word_dropout: float = share()
    """The share of words whose vector is that of unknown words in training."""

    batch: int = at_least(1)
    """Words of passages per batch, padding included, at most."""
    valid_share: float = inner_share(0.1)
    """Without --valid: the share of the passages whose questions are held out to validate on."""

    @property
    def num_turns(self) -> int:
        """The earlier turns that are read; as many as a dialogue has by default, while the data has not decided."""
        return DIALOGUE_HISTORY if self.history is None else self.history

    @property
    def title(self) -> str:
        return f"{self.model_name} with {self.model.attention} on {self.dataset_label}"
