"""The options of the task language-model and of its models.  No torch here: a command line reads them."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from regard.common.options.checks import (
    check_at_least,
    check_choices,
    check_even_heads,
    check_positive,
    check_seed,
    check_share,
)
from regard.common.options.fields import left_open, option, resolve
from regard.common.position_names import PositionName
from regard.inference.evaluation import EXAMPLES
from regard.tasks.base import Budget, ModelOptions
from regard.tasks.shared.text_options import RECALL, EvaluateTextFiles, RecallOptions, RunningTextConfig

if TYPE_CHECKING:
    from regard.data.text.running_text import TextSplits
    from regard.models.language_model import LanguageModel

# the number of different bytes, and of special tokens
_BYTES, _SPECIAL = 256, 4
# strings of the data set recall, those to validate on included
_STRINGS = 20_000
# values of open fields with most data
_SIZES: dict[str, Any] = {"tokens": "characters", "width": 128, "layers": 4, "heads": 4, "dropout": 0.0}


@dataclass(frozen=True)
class LanguageModelOptions(ModelOptions):
    """Options that all language models have."""

    # no weight depends on how many tokens are kept from segment to segment
    training_only: ClassVar[tuple[str, ...]] = (*ModelOptions.training_only, "memory")

    attention: str | None = left_open("that of the paper")
    """A mechanism by name (see `regard list`)."""
    width: int = left_open()
    """The width of embeddings and layers."""
    layers: int = left_open()
    """The number of layers."""
    dropout: float = left_open()
    """The share of activations that dropout sets to zero in training."""

    def __post_init__(self) -> None:
        check_choices(self)
        check_at_least(self, 1, {"width": 128, "layers": 4})
        check_share(self, {"dropout": 0.1})

    @property
    @abstractmethod
    def has_memory(self) -> bool:
        """Whether the model carries a memory from segment to segment."""

    @abstractmethod
    def build(self, vocabulary: int, segment: int) -> LanguageModel:
        """The model for segments of this many tokens."""


@dataclass(frozen=True)
class GPT2Options(LanguageModelOptions):
    """A pre-norm Transformer  (Radford et al. 2019)."""

    heads: int = left_open()
    """Heads per layer."""
    positions: PositionName | None = left_open("learned, or transformer-xl with a memory")
    """Positions in the embeddings, in the scores, or as a rotation of queries and keys."""
    memory: int = 0
    """Tokens before a segment that it attends to, as in Transformer-XL; 0 has none."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(self, 1, {"heads": 4})
        check_even_heads(self.width, self.heads)
        check_at_least(self, 0, {"memory": 128})
        resolve(self, {"positions": "transformer-xl" if self.memory else "learned"})

    @property
    def has_memory(self) -> bool:
        return self.memory > 0

    def build(self, vocabulary: int, segment: int) -> LanguageModel:
        from regard.models.gpt2 import GPT2

        return GPT2(
            vocabulary,
            width=self.width,
            layers=self.layers,
            heads=self.heads,
            longest=segment,
            positions=self.positions,
            memory=self.memory,
            attention=self.attention,
            dropout=self.dropout,
        )


@dataclass(frozen=True)
class TransformerXLOptions(LanguageModelOptions):
    """A Transformer with a memory of the segments before, and relative positions  (Dai et al. 2019)."""

    heads: int = left_open()
    """Heads per layer."""
    memory: int = 128
    """Tokens before a segment that it attends to; 0 has none."""
    same_length: bool = False
    """Whether every token attends to as many tokens, those of the memory."""
    clamp: int | None = None
    """Longer distances count as this one."""
    norm: Literal["post", "pre"] = "post"
    """Layer norm behind each sublayer, as in the paper, or before it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(self, 1, {"heads": 4, "clamp": 400})
        check_even_heads(self.width, self.heads)
        check_at_least(self, 0, {"memory": 128})

    @property
    def has_memory(self) -> bool:
        return self.memory > 0

    def build(self, vocabulary: int, segment: int) -> LanguageModel:
        from regard.models.transformer_xl import TransformerXL

        return TransformerXL(
            vocabulary,
            width=self.width,
            layers=self.layers,
            heads=self.heads,
            memory=self.memory,
            same_length=self.same_length,
            clamp=self.clamp,
            norm=self.norm,
            attention=self.attention,
            dropout=self.dropout,
        )


@dataclass(frozen=True)
class RecurrentOptions(LanguageModelOptions):
    """A recurrent network that attends to the keys of its own past  (Daniluk et al. 2017); none does not attend."""

    layers: int = 1
    """The number of layers."""
    hidden: int | None = left_open("three times the width")
    """The width of the recurrent state: keys, values and predictions have a third each."""
    cell: Literal["lstm", "gru"] = "lstm"
    """The recurrent cell."""
    memory: int = 15
    """Tokens before each that it attends to."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(self, 1, {"hidden": 384, "memory": 15})

    @property
    def has_memory(self) -> bool:
        return True

    def build(self, vocabulary: int, segment: int) -> LanguageModel:
        from regard.models.recurrent_language_model import RecurrentLanguageModel

        return RecurrentLanguageModel(
            vocabulary,
            width=self.width,
            hidden=self.hidden,
            layers=self.layers,
            cell=self.cell,
            memory=self.memory,
            attention=self.attention,
            dropout=self.dropout,
        )


@dataclass(frozen=True)
class EvaluateLanguageModel(EvaluateTextFiles):
    """Options of `regard evaluate` for language models."""

    window: int = left_open("the --segment of the training")
    """Tokens that the model reads at once."""
    stride: int = left_open("half of the window, or the window with a memory")
    """Tokens by which the window moves on; the tokens of each window that were not scored before are scored."""
    memory: int | None = None
    """Tokens of memory, where the model has one; if left out, as many as in training."""
    picture: Path | None = option(None, metavar="FILE")
    """Draw the loss against the number of tokens before, within a window: .png, .svg or .pdf."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "window", "stride", "memory")
        if self.window is not None and self.stride is not None and self.stride > self.window:
            raise ValueError(
                f"--stride {self.stride} exceeds --window {self.window}, so tokens would be left out; "
                f"try --stride {self.window}"
            )


# random numbers are drawn for every token of every text in advance
_MAX_GENERATED, _MAX_TEXTS = 1_000_000, 1_000


@dataclass(frozen=True)
class GenerateText:
    """Options of `regard generate`."""

    tokens: int = 200
    """Tokens to generate, at most."""
    count: int = 1
    """Texts per prompt."""
    temperature: float = 0.8
    """Divides the logits; below 1 is more certain, 0 takes the likeliest token."""
    top_k: int | None = None
    """Sample from this many likeliest tokens."""
    top_p: float | None = None
    """Sample from the fewest likeliest tokens that have this probability together."""
    min_p: float | None = None
    """Sample from tokens with at least this share of the probability of the likeliest."""
    repetition_penalty: float | None = None
    """Divides positive logits of tokens that the text has already, and multiplies negative ones; 1 changes nothing."""
    stop: tuple[str, ...] = ()
    """Words that end a text; they are not part of it."""
    seed: int = 0
    """Determines, with the number of the prompt, which tokens are sampled."""

    def __post_init__(self) -> None:
        check_positive(self, "tokens", "count", "top_k")
        for name, most in (("tokens", _MAX_GENERATED), ("count", _MAX_TEXTS)):
            if getattr(self, name) > most:
                raise ValueError(f"--{name} must be at most {most:,}, got {getattr(self, name):,}; try --{name} {most}")
        check_seed(self)
        if not 0 <= self.temperature < float("inf"):
            raise ValueError(f"--temperature must be 0 or more and finite, got {self.temperature}; try 0.8")
        for name, example in (("top_p", 0.9), ("min_p", 0.05)):
            value = getattr(self, name)
            if value is not None and not 0 < value <= 1:
                dashed = name.replace("_", "-")
                raise ValueError(f"--{dashed} must be above 0 and at most 1, got {value}; try --{dashed} {example}")
        if self.repetition_penalty is not None and not 0 < self.repetition_penalty < float("inf"):
            raise ValueError(
                f"--repetition-penalty must be above 0 and finite, got {self.repetition_penalty}; "
                "try --repetition-penalty 1.1"
            )
        if "" in self.stop:
            raise ValueError("--stop '' would end every text at once; name a word, or leave it out")


@dataclass(frozen=True)
class ServeLanguageModel:
    """Limits of `regard serve` for language models."""

    tokens: int = left_open("1,000")
    """Tokens per generated text, at most."""
    characters: int = left_open("4,000")
    """Characters per prompt, at most."""
    body: int = left_open("1,000,000")
    """Bytes per request, at most."""


@dataclass(frozen=True)
class LanguageModelConfig(RecallOptions, RunningTextConfig):
    """Model running text: files of text, or the Python manual, train a model that continues a prompt."""

    name: ClassVar[str] = "language-model"
    task_class: ClassVar[str] = "regard.tasks.language_model.task:LanguageModelTask"
    summary: ClassVar[str] = (
        "predict the next token of running text: your own files, the Python manual, or recall strings"
    )
    unit: ClassVar[str] = "tokens"
    budgets: ClassVar[dict[str, Budget]] = {
        "manual": Budget(minutes=5.0),
        RECALL: Budget(minutes=3.0),
        "files": Budget(minutes=5.0),
    }
    metrics: ClassVar[dict[str, bool]] = {"nll": False, "perplexity": False, "bits per character": False}
    training: ClassVar[dict[str, Any]] = {
        "lr": 1e-3,
        "schedule": "cosine",
        "warmup": 100,
        "validate_every": 250,
        "save_every": 250,
        "betas": (0.9, 0.99),
        "weight_decay": 0.1,
    }
    defaults: ClassVar[dict[str, dict[str, Any]]] = {
        "manual": _SIZES,
        RECALL: {**_SIZES, "width": 64, "layers": 2, **RecallOptions.recall_defaults},
        "files": _SIZES,
    }
    models: ClassVar[dict[str, type[ModelOptions]]] = {
        "gpt2": GPT2Options,
        "transformer-xl": TransformerXLOptions,
        "recurrent": RecurrentOptions,
    }
    run_files: ClassVar[tuple[str, ...]] = ("text.json", EXAMPLES, "tokens.json")
    has_line_breaks: ClassVar[bool] = True
    chats: ClassVar[Literal["reply", "state"] | None] = "reply"
    Evaluate: ClassVar[type] = EvaluateLanguageModel
    Predict: ClassVar[type] = GenerateText
    Serve: ClassVar[type] = ServeLanguageModel

    data: Literal["manual", "recall"] | None = None
    """An embedded text that needs no file: the language manual of the Python that runs this, one document per topic,
    or strings with a question and the digit some places back that answers it, one per line."""
    tokens: Literal["characters", "bytes", "bpe"] = left_open()
    """The kind of tokens."""
    vocabulary: int = 8000
    """The largest number of different tokens; bytes have 260 in any case."""
    segment: int = 128
    """Tokens per row of a batch, and the longest context of a model without a memory."""
    model: LanguageModelOptions = left_open()
    """The architecture."""
    smoothing: float = 0.0
    """Label smoothing: the share of the probability of the right token that is spread over the vocabulary."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(self, 1, {"vocabulary": 8000, "segment": 128})
        check_share(self, {"smoothing": 0.1})
        self._check_recall(self.dataset, self.tokens, ("characters", "bytes"))

    @property
    def vocabulary_size(self) -> int:
        """The largest number of tokens, special ones included."""
        return _BYTES + _SPECIAL if self.tokens == "bytes" else self.vocabulary

    @property
    def context(self) -> int | None:
        """The tokens that the model reads at once, as many as in training; None: any, as it has a memory."""
        return None if self.model.has_memory else self.segment

    def embedded_splits(self) -> TextSplits:
        if self.dataset != RECALL:
            return super().embedded_splits()
        from regard.data.embedded import recall

        valid = max(round(self.valid_share * _STRINGS), 1)
        return recall.documents(recall.splits(self.seed, max(_STRINGS - valid, 1), valid, 1, **self.recall_sizes))

    def next_command(self, run: str) -> str:
        return f'regard generate {run} "The "'
