"""The options of the task track and of its models.  No torch here: a command line reads them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from regard.common.options.fields import at_least, left_open, share
from regard.inference.evaluation import EXAMPLES
from regard.tasks.base import Budget, ModelOptions
from regard.tasks.shared.encoder_options import ENCODER_FILES, PRETRAINED, EncoderOptions
from regard.tasks.shared.text_options import COSINE, EvaluateTextFile, TextFileConfig


@dataclass(frozen=True)
class TrackerOptions(ModelOptions):
    """Values asked for by attention over the words of a recurrent encoder, and over the acts of the system
    (after Zhong et al. 2018)."""

    model_class: ClassVar[str] = "regard.models.tracking.slot_tracker:RecurrentSlotTracker"

    attention: str = "scaled-dot"
    """How slots and values attend to the words: a mechanism by name (see `regard list`)."""
    context: Literal["acts", "recurrent", "attention"] = "acts"
    """How a turn reads those before it: by the acts of the system, and also by a GRU, or by attention, over turns."""
    embedding: int = at_least(1, 64)
    """The width of word vectors."""
    hidden: int = at_least(1, 64)
    """The width of the recurrent state in each direction."""
    dropout: float = share()
    """The share of activations that dropout sets to zero in training."""


@dataclass(frozen=True)
class PretrainedTrackerOptions(EncoderOptions):
    """The same attention over the words of a pretrained encoder  (Devlin et al. 2019)."""

    model_class: ClassVar[str] = "regard.models.transfer.slot_tracker:EncoderSlotTracker"
    task_defaults: ClassVar[dict[str, Any]] = {**EncoderOptions.task_defaults, "batch": 16, "dropout": 0.1}

    hidden: int = at_least(1, 128)
    """The width of the states of words above the encoder."""
    context: Literal["acts", "recurrent", "attention"] = "acts"
    """How a turn reads those before it: by the acts of the system, and also by a GRU, or by attention, over turns."""
    dropout: float = share()
    """The share of activations that dropout sets to zero in training, above the encoder."""


@dataclass(frozen=True)
class EvaluateStates(EvaluateTextFile):
    """Options of `regard evaluate` for trackers."""

    ontology: Path | None = None
    """Other values to choose from, a file as that of --ontology of the training; its slots must be those of the run."""


@dataclass(frozen=True)
class Track(TextFileConfig):
    """Track the state of a dialogue: dialogues with slots and values, or embedded ones, train the model."""

    name: ClassVar[str] = "track"
    task_class: ClassVar[str] = "regard.tasks.track.task:TrackTask"
    summary: ClassVar[str] = "track the slots of a dialogue: your own WoZ 2.0, MultiWOZ or columns, or bookings"
    unit: ClassVar[str] = "turns"
    content: ClassVar[str] = "dialogues"
    embedded: ClassVar[str] = "bookings"
    budgets: ClassVar[dict[str, Budget]] = {"bookings": Budget(minutes=4.0), "files": Budget(minutes=10.0)}
    metrics: ClassVar[dict[str, bool]] = {"joint goal": True, "turn inform": True, "turn request": True, "nll": False}
    training: ClassVar[dict[str, Any]] = {**COSINE, "lr": 3e-3, "validate_every": 400}
    defaults: ClassVar[dict[str, dict[str, Any]]] = {
        "bookings": {"dropout": 0.1, "word_dropout": 0.0, "batch": 32},
        "files": {"dropout": 0.3, "word_dropout": 0.1, "batch": 32},
    }
    models: ClassVar[dict[str, type[ModelOptions]]] = {
        "recurrent": TrackerOptions,
        PRETRAINED: PretrainedTrackerOptions,
    }
    chosen_by: ClassVar[dict[str, str]] = {"encoder": PRETRAINED}
    run_files: ClassVar[tuple[str, ...]] = ("ontology.json", EXAMPLES, *ENCODER_FILES)
    vocabulary_files: ClassVar[tuple[str, ...]] = ("ontology.json", *ENCODER_FILES)
    weight_fields: ClassVar[tuple[str, ...]] = ("vocabulary",)
    has_line_breaks: ClassVar[bool] = True
    chats: ClassVar[Literal["reply", "state"] | None] = "state"
    usage: ClassVar[str] = "chat {run}"
    file_options: ClassVar[tuple[str, ...]] = ("valid", "test", "ontology")
    Evaluate: ClassVar[type] = EvaluateStates

    data: Literal["bookings"] | None = None
    """An embedded data set that needs no file: dialogues in which a table is booked."""
    train: Path | None = None
    """Your own dialogues: JSON of WoZ 2.0 or MultiWOZ, or columns with tabs, one turn per line. .gz is unpacked."""
    ontology: Path | None = None
    """The slots and their values, JSON of WoZ 2.0 or MultiWOZ; if left out, the labels of --train and --valid."""

    acts: Literal["words", "labels"] = "words"
    """The acts of the system: values and slots that its words name, or the labels of files, which predictions lack."""
    history: int = at_least(0, 10)
    """Earlier turns whose acts a turn attends to; those of turns before them are left out."""
    vocabulary: int = at_least(1, 20_000)
    """The largest number of word vectors; words that occur once share one. A pretrained encoder has its own."""
    max_length: int = at_least(1, 500)
    """Turns of more words, or of more tokens than a pretrained encoder reads, are an error: none is cut off."""
    model: TrackerOptions | PretrainedTrackerOptions = left_open()
    """A recurrent encoder of words with attention, or a pretrained encoder."""
    word_dropout: float = share()
    """The share of words whose vector is that of unknown words in training."""
    value_dropout: float = share(0.6)
    """The same for the words of values: a model that knows them by their place reads values that it has not seen."""

    batch: int = at_least(1)
    """Turns per batch."""
