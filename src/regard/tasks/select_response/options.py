"""The options of the task select-response and of its models.  No torch here: a command line reads them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from regard.common.options.checks import check_at_least, check_choices, check_positive, check_share
from regard.common.options.fields import at_least, left_open
from regard.inference.evaluation import EXAMPLES
from regard.tasks.base import Budget, ModelOptions
from regard.tasks.shared.encoder_options import ENCODER_FILES
from regard.tasks.shared.text_options import TextFileConfig

if TYPE_CHECKING:
    from torch import nn


# the attention of a model's own paper; the other names are mechanisms
PAPER = "paper"


@dataclass(frozen=True)
class SelectorOptions(ModelOptions):
    """Options of models that score a response to the turns of a dialogue."""

    attention: str = PAPER
    """How texts attend to each other: that of the paper, or a mechanism by name (see `regard list`)."""
    encoder: Path | None = field(default=None, metadata={"metavar": "FOLDER"})
    """Read tokens by the frozen states of this encoder, a BERT or a run of masked-lm, instead of trained vectors."""
    embedding: int | None = left_open()
    """The width of trained word vectors; an encoder has its own."""
    similarity: Literal["mean", "none"] = "mean"
    """Add the similarity of the context and the response as wholes to the score: of the means of their vectors."""
    dropout: float = left_open()
    """The share of activations that dropout sets to zero in training."""

    def __post_init__(self) -> None:
        check_choices(self)
        if self.encoder is not None:
            object.__setattr__(self, "encoder", Path(self.encoder))
            if self.embedding is not None:
                raise ValueError(
                    f"embedding={self.embedding} is of trained vectors, and encoder={self.encoder} has its own; "
                    "leave one of them out"
                )
        check_at_least(self, 1, {"embedding": 100})
        check_share(self, {"dropout": 0.2})

    def resolved(self, defaults: Mapping[str, Any]) -> Self:
        own = () if self.encoder is None else ("embedding",)
        return super().resolved({name: value for name, value in defaults.items() if name not in own})

    @property
    def mechanism(self) -> str | None:
        """The name of the mechanism, None for that of the paper."""
        return None if self.attention == PAPER else self.attention

    @abstractmethod
    def build(self, dim: int, turns: int, words: int) -> nn.Module: ...


@dataclass(frozen=True)
class DeepAttentionOptions(SelectorOptions):
    """Self- and cross-attention at several levels, read by 3-D convolutions  (Zhou et al. 2018)."""

    width: int = 48
    """The width of all levels."""
    levels: int = 2
    """Levels of self-attention above the vectors of words."""
    filters: tuple[int, int] = (16, 16)
    """Filters of the two convolutions over turns, words of a turn and words of the response."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(self, 1, {"width": 48, "levels": 2})
        if min(self.filters) < 1:
            raise ValueError(f"filters must be 1 or more, got {self.filters}; try filters=(16, 16)")

    def build(self, dim: int, turns: int, words: int) -> nn.Module:
        from regard.models.matching.deep_attention_matching import DeepAttentionMatching

        return DeepAttentionMatching(
            dim,
            width=self.width,
            levels=self.levels,
            turns=turns,
            words=words,
            filters=self.filters,
            attention=self.mechanism,
            dropout=self.dropout,
        )


@dataclass(frozen=True)
class JoinedESIMOptions(SelectorOptions):
    """ESIM on all turns as one text, and the response  (Chen et al. 2017)."""

    hidden: int = 64
    """The width of the recurrent state in each direction."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(self, 1, {"hidden": 64})

    def build(self, dim: int, turns: int, words: int) -> nn.Module:
        from regard.models.matching.esim import ESIM
        from regard.models.matching.response_selector import JoinedTurns

        return JoinedTurns(ESIM(dim, 1, hidden=self.hidden, attention=self.mechanism, dropout=self.dropout))


@dataclass(frozen=True)
class PredictResponses:
    """Options of `regard predict` for response selection."""

    top: int = at_least(1, 1)
    """Print this many candidates, the best first, separated by tabs; JSON has all of them."""

    def __post_init__(self) -> None:
        check_positive(self, "top")


@dataclass(frozen=True)
class SelectResponse(TextFileConfig):
    """Select the response to a dialogue among candidates: a file of dialogues, or embedded ones, train the model."""

    name: ClassVar[str] = "select-response"
    task_class: ClassVar[str] = "regard.tasks.select_response.task:SelectResponseTask"
    summary: ClassVar[str] = "select the next turn of a dialogue among candidates: your own dialogues, or bookings"
    unit: ClassVar[str] = "contexts"
    content: ClassVar[str] = "dialogues"
    embedded: ClassVar[str] = "bookings"
    budgets: ClassVar[dict[str, Budget]] = {"bookings": Budget(minutes=4.0), "files": Budget(minutes=10.0)}
    metrics: ClassVar[dict[str, bool]] = {
        "recall at 1": True,
        "recall at 2": True,
        "recall at 5": True,
        "mrr": True,
        "nll": False,
    }
    training: ClassVar[dict[str, Any]] = {
        "lr": 1e-3,
        "schedule": "cosine",
        "warmup": 100,
        "validate_every": 200,
        "save_every": 500,
    }
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

    turns: int = left_open()
    """The turns before a response that the model reads; earlier ones are left out."""
    words: int = left_open()
    """The tokens of a turn that the model reads; those behind them are left out."""
    candidates: int = 10
    """Responses to choose from in an evaluation: the right one, and wrong ones of other dialogues."""
    negatives: int = 3
    """Wrong responses per right one in training, drawn anew in every epoch."""
    vocabulary: int = 20_000
    """The largest number of word vectors; words that occur once share one."""
    max_length: int = 1000
    """Turns of more words are an error."""
    model: SelectorOptions = left_open()
    """Attention at several levels with convolutions, or ESIM on all turns as one text."""

    batch: int = 16
    """Contexts per batch; each is read with its right response and the wrong ones."""

    def __post_init__(self) -> None:
        super().__post_init__()
        examples = {"turns": 5, "words": 30, "negatives": 3, "vocabulary": 20_000, "max_length": 1000, "batch": 16}
        check_at_least(self, 1, examples)
        check_at_least(self, 2, {"candidates": 10})
