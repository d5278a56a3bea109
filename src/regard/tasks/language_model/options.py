"""The options of the task language-model and of its models.  No torch here: a command line reads them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from regard.common.options.checks import CheckedOptions
from regard.common.options.fields import at_least, bounded, left_open, option, positive, random_seed, resolve, share
from regard.common.position_names import PositionName
from regard.inference.evaluation import EXAMPLES
from regard.inference.limits import Limits
from regard.tasks.base import Budget, ModelOptions
from regard.tasks.shared.text_options import PRETRAINING, RECALL, EvaluateTextFiles, RecallOptions, TokenizedTextConfig

if TYPE_CHECKING:
    from regard.data.text.running_text import TextSplits

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
    width: int = at_least(1)
    """The width of embeddings and layers."""
    layers: int = at_least(1)
    """The number of layers."""
    dropout: float = share()
    """The share of activations that dropout sets to zero in training."""

    @property
    def has_memory(self) -> bool:
        """Whether the model carries a memory from segment to segment."""
        return getattr(self, "memory", 0) > 0

    def build(self, vocabulary: int, segment: int) -> Any:
        """The model for segments of this many tokens."""
        positions = {"longest": segment} if hasattr(self, "positions") else {}
        return super().build(vocabulary, **positions)


@dataclass(frozen=True)
class GPT2Options(LanguageModelOptions):
    """A pre-norm Transformer  (Radford et al. 2019)."""

    model_class: ClassVar[str] = "regard.models.gpt2:GPT2"

    heads: int = at_least(1, divides="width")
    """Heads per layer."""
    positions: PositionName | None = left_open("learned, or transformer-xl with a memory")
    """Positions in the embeddings, in the scores, or as a rotation of queries and keys."""
    memory: int = at_least(0, 0)
    """Tokens before a segment that it attends to, as in Transformer-XL; 0 has none."""

    def __post_init__(self) -> None:
        super().__post_init__()
        resolve(self, {"positions": "transformer-xl" if self.memory else "learned"})


@dataclass(frozen=True)
class TransformerXLOptions(LanguageModelOptions):
    """A Transformer with a memory of the segments before, and relative positions  (Dai et al. 2019)."""

    model_class: ClassVar[str] = "regard.models.transformer_xl:TransformerXL"

    heads: int = at_least(1, divides="width")
    """Heads per layer."""
    memory: int = at_least(0, 128)
    """Tokens before a segment that it attends to; 0 has none."""
    same_length: bool = False
    """Whether every token attends to as many tokens, those of the memory."""
    clamp: int | None = at_least(1, example=400)
    """Longer distances count as this one."""
    norm: Literal["post", "pre"] = "post"
    """Layer norm behind each sublayer, as in the paper, or before it."""


@dataclass(frozen=True)
class RecurrentOptions(LanguageModelOptions):
    """A recurrent network that attends to the keys of its own past  (Daniluk et al. 2017); none does not attend."""

    model_class: ClassVar[str] = "regard.models.recurrent_language_model:RecurrentLanguageModel"

    layers: int = at_least(1, 1)
    """The number of layers."""
    hidden: int | None = left_open("three times the width", minimum=1)
    """The width of the recurrent state: keys, values and predictions have a third each."""
    cell: Literal["lstm", "gru"] = "lstm"
    """The recurrent cell."""
    memory: int = at_least(1, 15)
    """Tokens before each that it attends to."""


@dataclass(frozen=True)
class EvaluateLanguageModel(EvaluateTextFiles):
    """Options of `regard evaluate` for language models."""

    window: int = left_open("the --segment of the training", minimum=1)
    """Tokens that the model reads at once."""
    stride: int = left_open("half of the window, or the window with a memory", minimum=1)
    """Tokens by which the window moves on; the tokens of each window that were not scored before are scored."""
    memory: int | None = at_least(1)
    """Tokens of memory, where the model has one; if left out, as many as in training."""
    picture: Path | None = option(None, metavar="FILE")
    """Draw the loss against the number of tokens before, within a window: .png, .svg or .pdf."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.window is not None and self.stride is not None and self.stride > self.window:
            raise ValueError(
                f"--stride {self.stride} exceeds --window {self.window}, so tokens would be left out; "
                f"try --stride {self.window}"
            )


@dataclass(frozen=True)
class GenerateText(CheckedOptions):
    """Options of `regard generate`."""

    # random numbers are drawn for every token of every text in advance, hence the largest values
    tokens: int = at_least(1, 200, maximum=1_000_000)
    """Tokens to generate, at most."""
    count: int = at_least(1, 1, maximum=1_000)
    """Texts per prompt."""
    temperature: float = at_least(0, 0.8)
    """Divides the logits; below 1 is more certain, 0 takes the likeliest token."""
    top_k: int | None = at_least(1, example=50)
    """Sample from this many likeliest tokens."""
    top_p: float | None = bounded(above=0, maximum=1, example=0.9)
    """Sample from the fewest likeliest tokens that have this probability together."""
    min_p: float | None = bounded(above=0, maximum=1, example=0.05)
    """Sample from tokens with at least this share of the probability of the likeliest."""
    repetition_penalty: float | None = positive(example=1.1)
    """Divides positive logits of tokens that the text has already, and multiplies negative ones; 1 changes nothing."""
    stop: tuple[str, ...] = ()
    """Words that end a text; they are not part of it."""
    seed: int = random_seed(0)
    """Determines, with the number of the prompt, which tokens are sampled."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if "" in self.stop:
            raise ValueError("--stop '' would end every text at once; name a word, or leave it out")


@dataclass(frozen=True)
class ServeLanguageModel:
    """Limits of `regard serve` for language models."""

    tokens: int = left_open("1,000")
    """Tokens per generated text, at most."""
    characters: int = left_open(f"{Limits.characters:,}")
    """Characters per prompt, at most."""
    body: int = left_open(f"{Limits.body:,}")
    """Bytes per request, at most."""


@dataclass(frozen=True)
class LanguageModelConfig(RecallOptions, TokenizedTextConfig):
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
    training: ClassVar[dict[str, Any]] = {**PRETRAINING, "betas": (0.9, 0.99), "weight_decay": 0.1}
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
    usage: ClassVar[str] = 'generate {run} "The "'
    Evaluate: ClassVar[type] = EvaluateLanguageModel
    Predict: ClassVar[type] = GenerateText
    Serve: ClassVar[type] = ServeLanguageModel

    data: Literal["manual", "recall"] | None = None
    """An embedded text that needs no file: the language manual of the Python that runs this, one document per topic,
    or strings with a question and the digit some places back that answers it, one per line."""
    tokens: Literal["characters", "bytes", "bpe"] = left_open()
    """The kind of tokens."""
    vocabulary: int = at_least(1, 8000)
    """The largest number of different tokens; bytes have 260 in any case."""
    segment: int = at_least(1, 128)
    """Tokens per row of a batch, and the longest context of a model without a memory."""
    model: LanguageModelOptions = left_open()
    """The architecture."""
    smoothing: float = share(0.0)
    """Label smoothing: the share of the probability of the right token that is spread over the vocabulary."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_recall(self.dataset, self.tokens, ("characters", "bytes"))

    @property
    def vocabulary_size(self) -> int:
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
