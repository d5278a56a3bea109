"""The options of the task respond and of its models.  No torch here: a command line reads them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from regard.common.options.checks import check_beam
from regard.common.options.construct import construct
from regard.common.options.fields import at_least, bounded, left_open, length_exponent, option, positive, share
from regard.common.position_names import PositionName
from regard.inference.evaluation import EXAMPLES
from regard.inference.limits import Limits
from regard.tasks.base import Budget, ModelOptions
from regard.tasks.shared.text_options import COSINE, DialogueConfig, EvaluateTextFile, SearchOptions

if TYPE_CHECKING:
    from regard.decoding.search import Search


# the standard deviation of GPT-2's first weights
_INIT_STD = 0.02
# files that a run with a pretrained decoder has in place of tokens.json
DECODER_FILES = ("decoder.json", "decoder-tokens.json")


@dataclass(frozen=True)
class ResponderOptions(ModelOptions):
    """Options that all models have."""

    attention: str | None = left_open("that of the paper")
    """A mechanism by name (see `regard list`)."""
    width: int = at_least(1)
    """The width of embeddings, and of the layers of a flat model."""
    dropout: float = share()
    """The share of activations that dropout sets to zero in training."""


@dataclass(frozen=True)
class FlatOptions(ResponderOptions):
    """A Transformer that reads all turns as one text and continues it  (Mei et al. 2017, Zhang et al. 2020)."""

    model_class: ClassVar[str] = "regard.models.responding.flat:FlatResponder"
    part_classes: ClassVar[tuple[str, ...]] = ("regard.models.gpt2:GPT2",)
    read_by_task: ClassVar[tuple[str, ...]] = ("init_std",)

    layers: int = at_least(1)
    """The number of layers."""
    heads: int = at_least(1, divides="width")
    """Heads per layer."""
    positions: PositionName = "rotary"
    """Positions in the embeddings, in the scores, or as a rotation of queries and keys."""
    history: Literal["bidirectional", "causal"] = left_open()
    """Whether the words of a turn attend to later turns of the history, too, or to those before alone."""
    init_std: float = positive()
    """The standard deviation of the first weights; a narrow model that copies values learns sooner with more."""
    output: Literal["softmax", "pointer-generator"] = "softmax"
    """The distribution of the next token: a softmax over the vocabulary, or one that also copies words of the history
    (See et al. 2017)."""
    turn_window: int | None = at_least(1, example=3)
    """The turns before its own that a token attends to in the layers; none given: all. A pointer reads all turns."""

    def build(self, vocabulary: int, *, longest: int) -> Any:
        """The model for dialogues that have at most `longest` tokens together with their reply."""
        from regard.models.gpt2 import GPT2
        from regard.models.language_model import init_weights

        decoder = construct(GPT2, self, vocabulary, longest=longest)
        if self.init_std != _INIT_STD:
            init_weights(decoder, std=self.init_std, residual_std=self.init_std / math.sqrt(2 * self.layers))
        return super().build(decoder)


@dataclass(frozen=True)
class HRANOptions(ResponderOptions):
    """Attention over the words of each turn, a GRU over turns, and attention over turns  (Xing et al. 2018)."""

    model_class: ClassVar[str] = "regard.models.responding.hran:HRAN"

    hidden: int = at_least(1)
    """The width of the recurrent states; words have half of it in each direction."""
    cell: Literal["gru", "lstm"] = "gru"
    """The recurrent cell."""

    def build(self, vocabulary: int, *, longest: int) -> Any:
        """The model for dialogues of any length."""
        return super().build(vocabulary)


@dataclass(frozen=True)
class DecoderOptions(ModelOptions):
    """A pretrained language model that reads all turns as one text, trained further  (Zhang et al. 2020)."""

    model_class: ClassVar[str] = "regard.models.responding.flat:FlatResponder"
    training_only: ClassVar[tuple[str, ...]] = ()
    training: ClassVar[dict[str, Any]] = {"lr": 1e-4, "schedule": "linear", "warmup": 50, "weight_decay": 0.01}

    decoder: Path = option(metavar="FOLDER")
    """A run of language-model, or a GPT-2 or Llama in transformers' layout; only a new run reads it."""

    @property
    def run_context(self) -> int | None:
        """The tokens that a run of language-model reads at once; None for other folders, and for those without it."""
        from regard.training.run_folder import RECORD, RunRecord

        folder = Path(self.decoder)
        if not (folder / RECORD).is_file():
            return None
        record = RunRecord.read(folder)
        return record.options.get("segment") if record.task == "language-model" else None


@dataclass(frozen=True)
class EvaluateReplies(EvaluateTextFile):
    """Options of `regard evaluate` for response generation."""

    turns: int | None = at_least(1, example=1)
    """Read at most this many turns before each reply, fewer than the run was trained with; 1 is the last turn alone."""
    beam: int = at_least(1, 1)
    """Hypotheses kept at every step; 1 takes the likeliest token at each."""
    length_penalty: float = length_exponent()
    """α of log p / ((5 + length) / 6)^α: a larger α favours longer replies."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_beam(self)


@dataclass(frozen=True)
class PredictReplies(SearchOptions):
    """Options of `regard predict` for response generation."""

    default_beam: ClassVar[int] = 1

    beam: int = left_open(1, minimum=1)
    """Hypotheses kept at every step; 1 takes the likeliest token at each."""


# bounds of probabilities, temperatures and seeds that a request may ask for; a schema states them
_LEAST_SHARE, _MOST_TEMPERATURE, _MOST_SEED = 0.01, 100.0, 2**63 - 1


@dataclass(frozen=True)
class RequestReplies:
    """Options of a request to `regard serve`: no two of them exclude each other."""

    nbest: ClassVar[None] = None

    beam: int = at_least(1, 1)
    """Hypotheses kept at every step, where the temperature is 0."""
    temperature: float = bounded(0.0, minimum=0.0, maximum=_MOST_TEMPERATURE)
    """0 searches for the best reply; above 0 a reply is sampled, from logits divided by it."""
    top_k: int | None = at_least(1)
    """Sample from this many of the likeliest tokens."""
    top_p: float | None = bounded(minimum=_LEAST_SHARE, maximum=1.0)
    """Sample from the likeliest tokens that have this probability together."""
    seed: int = at_least(0, 0, maximum=_MOST_SEED)
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

    characters: int = left_open(f"{Limits.characters:,}")
    """Characters per dialogue, at most."""
    beam: int = left_open(10)
    """Hypotheses that a request may ask for, at most."""
    body: int = left_open(f"{Limits.body:,}")
    """Bytes per request, at most."""


@dataclass(frozen=True)
class Respond(DialogueConfig):
    """Write the next turn of a dialogue: a file of dialogues, or embedded ones, train the model."""

    name: ClassVar[str] = "respond"
    task_class: ClassVar[str] = "regard.tasks.respond.task:RespondTask"
    summary: ClassVar[str] = "write the next turn of a dialogue: your own dialogues, or bookings"
    unit: ClassVar[str] = "tokens"
    budgets: ClassVar[dict[str, Budget]] = {"bookings": Budget(minutes=8.0), "files": Budget(minutes=10.0)}
    metrics: ClassVar[dict[str, bool]] = {
        "perplexity": False,
        "nll": False,
        "distinct-1": True,
        "distinct-2": True,
        "most common": False,
        "values": True,
    }
    training: ClassVar[dict[str, Any]] = {**COSINE, "validate_every": 200, "betas": (0.9, 0.99), "weight_decay": 0.1}
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
    usage: ClassVar[str] = "chat {run}"
    Evaluate: ClassVar[type] = EvaluateReplies
    Predict: ClassVar[type] = PredictReplies
    Serve: ClassVar[type] = ServeDialogues

    data: Literal["bookings"] | None = None
    """An embedded data set that needs no file: dialogues in which a table is booked."""
    train: Path | None = None
    """Your own dialogues: one per line, turns separated by tabs or by __eou__ (DailyDialog). .gz is unpacked."""

    tokens: Literal["bpe", "words", "characters"] = "bpe"
    """The kind of tokens; a pretrained decoder has its own."""
    vocabulary: int = at_least(1)
    """The largest number of different tokens."""
    turns: int = at_least(1)
    """The turns before a reply that the model reads; earlier ones are left out. Not typed, they are fewer if a run
    that --decoder names reads less at once."""
    words: int = at_least(1)
    """The tokens of a turn that the model reads, the last ones, and the most that a reply has."""
    replies: Literal["all", "second"] = left_open()
    """Which turns are replies: all but the first, or those of the second speaker, as of a system that serves."""
    max_length: int = at_least(1, 1000)
    """Turns of more words are an error."""
    model: ResponderOptions | DecoderOptions = left_open()
    """All turns as one text, attention over words and over turns, or a pretrained language model."""
    smoothing: float = share(0.0)
    """Label smoothing: the share of the probability of the right token that is spread over the vocabulary."""
    staged_epochs: int = at_least(0, 0)
    """With --replies all: the first epochs, in which the history grows from the last turn alone to all --turns; 0
    learns with all turns from the first epoch on  (Press et al. 2021)."""
    history_dropout: float = share(0.0)
    """With --replies all: the share of replies, others in every epoch, that are learned with fewer turns than --turns,
    one at least, so that the model does not learn replies by heart from what was said long before."""

    batch: int = at_least(1, 3000)
    """Tokens per batch, of the turns before the replies and of the replies each, padding included, at most."""

    def __post_init__(self) -> None:
        are_turns_open = self.turns is None
        super().__post_init__()
        if are_turns_open and isinstance(self.model, DecoderOptions) and (context := self.model.run_context):
            # a default is no reason to refuse a decoder that reads less at once
            object.__setattr__(self, "turns", max(min(self.turns, context // (self.words + 1) - 1), 1))
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
