"""The options of the task respond and of its models.  No torch here: a command line reads them."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from regard.common.options.checks import (
    check_at_least,
    check_beam,
    check_choices,
    check_even_heads,
    check_positive,
    check_share,
)
from regard.common.options.fields import at_least, left_open
from regard.common.position_names import PositionName
from regard.inference.evaluation import EXAMPLES
from regard.tasks.base import Budget, ModelOptions
from regard.tasks.shared.text_options import EvaluateTextFile, SearchOptions, TextFileConfig

if TYPE_CHECKING:
    from regard.decoding.search import Search
    from regard.models.responding.responder import Responder
    from regard.tasks.respond.decoder import PretrainedDecoder


# the standard deviation of GPT-2's first weights
_INIT_STD = 0.02
# files that a run with a pretrained decoder has in place of tokens.json
DECODER_FILES = ("decoder.json", "decoder-tokens.json")


@dataclass(frozen=True)
class ResponderOptions(ModelOptions):
    """Options that all models have."""

    attention: str | None = left_open("that of the paper")
    """A mechanism by name (see `regard list`)."""
    width: int = left_open()
    """The width of embeddings, and of the layers of a flat model."""
    dropout: float = left_open()
    """The share of activations that dropout sets to zero in training."""

    def __post_init__(self) -> None:
        check_choices(self)
        check_at_least(self, 1, {"width": 128})
        check_share(self, {"dropout": 0.1})

    @abstractmethod
    def build(self, vocabulary: int, longest: int) -> Responder:
        """The model for dialogues that have at most `longest` tokens together with their reply."""


@dataclass(frozen=True)
class FlatOptions(ResponderOptions):
    """A Transformer that reads all turns as one text and continues it  (Mei et al. 2017, Zhang et al. 2020)."""

    layers: int = left_open()
    """The number of layers."""
    heads: int = left_open()
    """Heads per layer."""
    positions: PositionName = "rotary"
    """Positions in the embeddings, in the scores, or as a rotation of queries and keys."""
    history: Literal["bidirectional", "causal"] = left_open()
    """Whether the words of a turn attend to later turns of the history, too, or to those before alone."""
    init_std: float = left_open()
    """The standard deviation of the first weights; a narrow model that copies values learns sooner with more."""
    output: Literal["softmax", "pointer-generator"] = "softmax"
    """The distribution of the next token: a softmax over the vocabulary, or one that also copies words of the history
    (See et al. 2017)."""
    turn_window: int | None = None
    """The turns before its own that a token attends to in the layers; none given: all. A pointer reads all turns."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(self, 1, {"layers": 2, "heads": 4, "turn_window": 1})
        if self.init_std is not None and not 0 < self.init_std < float("inf"):
            raise ValueError(f"init_std must be above 0 and finite, got {self.init_std}; try init_std={_INIT_STD}")
        check_even_heads(self.width, self.heads)

    def build(self, vocabulary: int, longest: int) -> Responder:
        from regard.layers.pointer_generator import PointerGenerator
        from regard.models.gpt2 import GPT2
        from regard.models.language_model import init_weights
        from regard.models.responding.flat import FlatResponder

        decoder = GPT2(
            vocabulary,
            width=self.width,
            layers=self.layers,
            heads=self.heads,
            longest=longest,
            positions=self.positions,
            attention=self.attention,
            dropout=self.dropout,
        )
        if self.init_std != _INIT_STD:
            init_weights(decoder, std=self.init_std, residual_std=self.init_std / math.sqrt(2 * self.layers))
        pointer = PointerGenerator(self.width) if self.output == "pointer-generator" else None
        bidirectional = self.history == "bidirectional"
        return FlatResponder(decoder, bidirectional=bidirectional, pointer=pointer, turn_window=self.turn_window)


@dataclass(frozen=True)
class HRANOptions(ResponderOptions):
    """Attention over the words of each turn, a GRU over turns, and attention over turns  (Xing et al. 2018)."""

    hidden: int = left_open()
    """The width of the recurrent states; words have half of it in each direction."""
    cell: Literal["gru", "lstm"] = "gru"
    """The recurrent cell."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(self, 1, {"hidden": 128})

    def build(self, vocabulary: int, longest: int) -> Responder:
        from regard.models.responding.hran import HRAN

        return HRAN(
            vocabulary,
            width=self.width,
            hidden=self.hidden,
            cell=self.cell,
            attention=self.attention,
            dropout=self.dropout,
        )


@dataclass(frozen=True)
class DecoderOptions(ModelOptions):
    """A pretrained language model that reads all turns as one text, trained further  (Zhang et al. 2020)."""

    training_only: ClassVar[tuple[str, ...]] = ()
    training: ClassVar[dict[str, Any]] = {"lr": 1e-4, "schedule": "linear", "warmup": 50, "weight_decay": 0.01}

    decoder: Path = field(metadata={"metavar": "FOLDER"})
    """A run of language-model, or a GPT-2 or Llama in transformers' layout; only a new run reads it."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "decoder", Path(self.decoder))

    def build(self, decoder: PretrainedDecoder) -> Responder:
        return decoder.build()


@dataclass(frozen=True)
class EvaluateReplies(EvaluateTextFile):
    """Options of `regard evaluate` for response generation."""

    turns: int | None = None
    """Read at most this many turns before each reply, fewer than the run was trained with; 1 is the last turn alone."""
    beam: int = 1
    """Hypotheses kept at every step; 1 takes the likeliest token at each."""
    length_penalty: float = left_open(1)
    """α of log p / ((5 + length) / 6)^α: a larger α favours longer replies."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "turns")
        check_beam(self)


@dataclass(frozen=True)
class PredictReplies(SearchOptions):
    """Options of `regard predict` for response generation."""

    default_beam: ClassVar[int] = 1

    beam: int = left_open(1)
    """Hypotheses kept at every step; 1 takes the likeliest token at each."""


# of probabilities, temperatures and seeds that a request may ask for; a schema states them
_LEAST_SHARE, _MOST_TEMPERATURE, _MOST_SEED = 0.01, 100.0, 2**63 - 1


@dataclass(frozen=True)
class RequestReplies:
    """Options of a request to `regard serve`: no two of them exclude each other."""

    nbest: ClassVar[None] = None

    beam: int = at_least(1, 1)
    """Hypotheses kept at every step, where the temperature is 0."""
    temperature: float = field(default=0.0, metadata={"minimum": 0.0, "maximum": _MOST_TEMPERATURE})
    """0 searches for the best reply; above 0 a reply is sampled, from logits divided by it."""
    top_k: int | None = field(default=None, metadata={"minimum": 1})
    """Sample from this many of the likeliest tokens."""
    top_p: float | None = field(default=None, metadata={"minimum": _LEAST_SHARE, "maximum": 1.0})
    """Sample from the likeliest tokens that have this probability together."""
    seed: int = field(default=0, metadata={"minimum": 0, "maximum": _MOST_SEED})
    """Determines what is sampled."""
    stream: bool = False
    """Whether to send server-sent events: {"text": …} for every piece, in the end {"answers": …}; for one text."""

    @property
    def search(self) -> Search:
        from regard.decoding.search import Beam, Greedy, Sampling

        if self.temperature:
            return Sampling(1, self.temperature, self.top_k, self.top_p, self.seed)
        return Greedy() if self.beam == 1 else Beam(self.beam)


@dataclass(frozen=True)
class ServeDialogues:
    """Limits of `regard serve` for response generation."""

    characters: int = left_open("4,000")
    """Characters per dialogue, at most."""
    beam: int = left_open(10)
    """Hypotheses that a request may ask for, at most."""
    body: int = left_open("1,000,000")
    """Bytes per request, at most."""


@dataclass(frozen=True)
class Respond(TextFileConfig):
    """Write the next turn of a dialogue: a file of dialogues, or embedded ones, train the model."""

    name: ClassVar[str] = "respond"
    task_class: ClassVar[str] = "regard.tasks.respond.task:RespondTask"
    summary: ClassVar[str] = "write the next turn of a dialogue: your own dialogues, or bookings"
    unit: ClassVar[str] = "tokens"
    content: ClassVar[str] = "dialogues"
    embedded: ClassVar[str] = "bookings"
    budgets: ClassVar[dict[str, Budget]] = {"bookings": Budget(minutes=8.0), "files": Budget(minutes=10.0)}
    metrics: ClassVar[dict[str, bool]] = {
        "perplexity": False,
        "nll": False,
        "distinct-1": True,
        "distinct-2": True,
        "most common": False,
        "values": True,
    }
    training: ClassVar[dict[str, Any]] = {
        "lr": 1e-3,
        "schedule": "cosine",
        "warmup": 100,
        "validate_every": 200,
        "save_every": 500,
        "betas": (0.9, 0.99),
        "weight_decay": 0.1,
    }
    data_training: ClassVar[dict[str, dict[str, Any]]] = {"bookings": {"lr": 4e-3, "warmup": 50, "weight_decay": 0.01}}
    defaults: ClassVar[dict[str, dict[str, Any]]] = {
        "bookings": {
            "vocabulary": 600,
            "turns": 12,
            "words": 48,
            "replies": "second",
            "width": 64,
            "layers": 3,
            "history": "bidirectional",
            "init_std": 0.125,
            "heads": 4,
            "hidden": 128,
            "dropout": 0.0,
        },
        "files": {
            "vocabulary": 4000,
            "turns": 5,
            "words": 40,
            "replies": "all",
            "width": 128,
            "layers": 2,
            "history": "causal",
            "init_std": _INIT_STD,
            "heads": 4,
            "hidden": 128,
            "dropout": 0.2,
        },
    }
    models: ClassVar[dict[str, type[ModelOptions]]] = {
        "flat": FlatOptions,
        "hierarchical": HRANOptions,
        "pretrained": DecoderOptions,
    }
    chosen_by: ClassVar[dict[str, str]] = {"decoder": "pretrained"}
    run_files: ClassVar[tuple[str, ...]] = ("dialogues.json", EXAMPLES, "tokens.json", *DECODER_FILES)
    vocabulary_files: ClassVar[tuple[str, ...]] = ("tokens.json", *DECODER_FILES)
    weight_fields: ClassVar[tuple[str, ...]] = ("tokens", "vocabulary", "words")
    chats: ClassVar[Literal["reply", "state"] | None] = "reply"
    Evaluate: ClassVar[type] = EvaluateReplies
    Predict: ClassVar[type] = PredictReplies
    Serve: ClassVar[type] = ServeDialogues

    data: Literal["bookings"] | None = None
    """An embedded data set that needs no file: dialogues in which a table is booked."""
    train: Path | None = None
    """Your own dialogues: one per line, turns separated by tabs or by __eou__ (DailyDialog). .gz is unpacked."""

    tokens: Literal["bpe", "words", "characters"] = "bpe"
    """The kind of tokens; a pretrained decoder has its own."""
    vocabulary: int = left_open()
    """The largest number of different tokens."""
    turns: int = left_open()
    """The turns before a reply that the model reads; earlier ones are left out."""
    words: int = left_open()
    """The tokens of a turn that the model reads, the last ones, and the most that a reply has."""
    replies: Literal["all", "second"] = left_open()
    """Which turns are replies: all but the first, or those of the second speaker, as of a system that serves."""
    max_length: int = 1000
    """Turns of more words are an error."""
    model: ResponderOptions | DecoderOptions = left_open()
    """All turns as one text, attention over words and over turns, or a pretrained language model."""
    smoothing: float = 0.0
    """Label smoothing: the share of the probability of the right token that is spread over the vocabulary."""
    staged_epochs: int = 0
    """With --replies all: the first epochs, in which the history grows from the last turn alone to all --turns; 0
    learns with all turns from the first epoch on  (Press et al. 2021)."""
    history_dropout: float = 0.0
    """With --replies all: the share of replies, others in every epoch, that are learned with fewer turns than --turns,
    one at least, so that the model does not learn replies by heart from what was said long before."""

    batch: int = 3000
    """Tokens per batch, of the turns before the replies and of the replies each, padding included, at most."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(self, 1, {"vocabulary": 4000, "turns": 5, "words": 40, "max_length": 1000, "batch": 3000})
        check_at_least(self, 0, {"staged_epochs": 4})
        check_share(self, {"smoothing": 0.1, "history_dropout": 0.5})
        if self.smoothing and getattr(self.model, "output", None) == "pointer-generator":
            raise ValueError(
                f"smoothing={self.smoothing} is for output='softmax', and copied tokens are not smoothed; leave it out"
            )
        for name in ("staged_epochs", "history_dropout"):
            if (value := getattr(self, name)) and self.replies != "all":
                raise ValueError(
                    f"{name}={value} is for replies='all', and with replies={self.replies!r} one pass may learn "
                    "several replies of a dialogue; leave it out"
                )

    def turns_in(self, epoch: int) -> int:
        """The turns before a reply that are read in an epoch of the training, counted from 0."""
        if epoch >= self.staged_epochs:
            return self.turns
        return 1 + epoch * (self.turns - 1) // self.staged_epochs

    def turns_kept(self, most: int, draw: float) -> int:
        """The turns of `most` that are read before a reply with this random number in [0, 1)."""
        return most if draw >= self.history_dropout else 1 + int(draw / self.history_dropout * max(most - 1, 1))

    @property
    def is_flat(self) -> bool:
        """Whether the model reads all turns as one text."""
        return not isinstance(self.model, HRANOptions)

    @property
    def is_bidirectional(self) -> bool:
        """Whether the words of a flat model attend to later turns of the history."""
        return isinstance(self.model, FlatOptions) and self.model.history == "bidirectional"

    @property
    def longest(self) -> int:
        """The most tokens that a flat model reads: the turns with their ends, and a reply behind its begin."""
        return (self.turns + 1) * (self.words + 1)
