"""The options of the task select-response and of its models.  No torch here: a command line reads them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from regard.common.options.checks import CheckedOptions
from regard.common.options.fields import at_least, left_open, option, share
from regard.inference.evaluation import EXAMPLES
from regard.tasks.base import Budget, ModelOptions
from regard.tasks.shared.encoder_options import ENCODER_FILES
from regard.tasks.shared.text_options import COSINE, DialogueConfig


@dataclass(frozen=True)
class SelectorOptions(ModelOptions):
    """Options of models that score a response to the turns of a dialogue."""

    read_by_task: ClassVar[tuple[str, ...]] = ("encoder", "embedding", "similarity")

    attention: str = "paper"
    """How texts attend to each other: that of the paper, or a mechanism by name (see `regard list`)."""
    encoder: Path | None = option(None, metavar="FOLDER")
    """Read tokens by the frozen states of this encoder, a BERT or a run of masked-lm, instead of trained vectors."""
    embedding: int | None = at_least(1)
    """The width of trained word vectors; an encoder has its own."""
    similarity: Literal["mean", "none"] = "mean"
    """Add the similarity of the context and the response as wholes to the score: of the means of their vectors."""
    dropout: float = share()
    """The share of activations that dropout sets to zero in training."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.encoder is not None and self.embedding is not None:
            raise ValueError(
                f"embedding={self.embedding} is of trained vectors, and encoder={self.encoder} has its own; "
                "leave one of them out"
            )

    def resolved(self, defaults: Mapping[str, Any]) -> Self:
        excluded = () if self.encoder is None else ("embedding",)
        return super().resolved({name: value for name, value in defaults.items() if name not in excluded})


@dataclass(frozen=True)
class DeepAttentionOptions(SelectorOptions):
    """Self- and cross-attention at several levels, read by 3-D convolutions  (Zhou et al. 2018)."""

    model_class: ClassVar[str] = "regard.models.matching.deep_attention_matching:DeepAttentionMatching"

    width: int = at_least(1, 48)
    """The width of all levels."""
    levels: int = at_least(1, 2)
    """Levels of self-attention above the vectors of words."""
    filters: tuple[int, int] = at_least(1, (16, 16))
    """Filters of the two convolutions over turns, words of a turn and words of the response."""


@dataclass(frozen=True)
class JoinedESIMOptions(SelectorOptions):
    """ESIM on all turns as one text, and the response  (Chen et al. 2017)."""

    model_class: ClassVar[str] = "regard.models.matching.response_selector:JoinedTurns"

    hidden: int = at_least(1, 64)
    """The width of the recurrent state in each direction."""

    def build(self, dim: int, *, turns: int, words: int) -> Any:
        """The model for turns and words of any number."""
        return super().build(dim)


@dataclass(frozen=True)
class PredictResponses(CheckedOptions):
    """Options of `regard predict` for response selection."""

    top: int = at_least(1, 1)
    """Print this many candidates, the best first, separated by tabs; JSON has all of them."""


@dataclass(frozen=True)
class SelectResponse(DialogueConfig):
    """Select the response to a dialogue among candidates: a file of dialogues, or embedded ones, train the model."""

    name: ClassVar[str] = "select-response"
    task_class: ClassVar[str] = "regard.tasks.select_response.task:SelectResponseTask"
    summary: ClassVar[str] = "select the next turn of a dialogue among candidates: your own dialogues, or bookings"
    unit: ClassVar[str] = "contexts"
    budgets: ClassVar[dict[str, Budget]] = {"bookings": Budget(minutes=4.0), "files": Budget(minutes=10.0)}
    metrics: ClassVar[dict[str, bool]] = {
        "recall at 1": True,
        "recall at 2": True,
        "recall at 5": True,
        "mrr": True,
        "nll": False,
    }
    training: ClassVar[dict[str, Any]] = {**COSINE, "validate_every": 200}
    defaults: ClassVar[dict[str, dict[str, Any]]] = {
        "bookings": {"embedding": 32, "dropout": 0.1, "turns": 6, "words": 12},
        "files": {"embedding": 100, "dropout": 0.2, "turns": 5, "words": 30},
    }
    models: ClassVar[dict[str, type[ModelOptions]]] = {
        "deep-attention": DeepAttentionOptions,
        "esim": JoinedESIMOptions,
    }
    varies_help: ClassVar[str] = "Mechanisms by name, as `regard list` has them; paper is that of the model's paper."
    run_files: ClassVar[tuple[str, ...]] = ("dialogues.json", EXAMPLES, *ENCODER_FILES)
    vocabulary_files: ClassVar[tuple[str, ...]] = ("dialogues.json",)
    weight_fields: ClassVar[tuple[str, ...]] = ("vocabulary", "turns", "words")
    has_line_breaks: ClassVar[bool] = True
    Predict: ClassVar[type] = PredictResponses

    data: Literal["bookings"] | None = None
    """An embedded data set that needs no file: dialogues in which a table is booked."""
    train: Path | None = None
    """Your own dialogues: one per line, turns separated by tabs or by __eou__ (DailyDialog). .gz is unpacked."""

    turns: int = at_least(1)
    """The turns before a response that the model reads; earlier ones are left out."""
    words: int = at_least(1)
    """The tokens of a turn that the model reads; those behind them are left out."""
    candidates: int = at_least(2, 10)
    """Responses to choose from in an evaluation: the right one, and wrong ones of other dialogues."""
    negatives: int = at_least(1, 3)
    """Wrong responses per right one in training, drawn anew in every epoch."""
    vocabulary: int = at_least(1, 20_000)
    """The largest number of word vectors; words that occur once share one."""
    max_length: int = at_least(1, 1000)
    """Turns of more words are an error."""
    model: SelectorOptions = left_open()
    """Attention at several levels with convolutions, or ESIM on all turns as one text."""

    batch: int = at_least(1, 16)
    """Contexts per batch; each is read with its right response and the wrong ones."""
