"""The options of the task masked-lm and of its model.  No torch here: a command line reads them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from regard.common.option_checks import (
    check_at_least,
    check_choices,
    check_even_heads,
    check_positive,
    check_share,
    check_split,
)
from regard.common.option_fields import at_least, left_open
from regard.tasks.base import Budget, ModelOptions, TaskConfig, as_paths

if TYPE_CHECKING:
    from regard.models.bert import BERTMaskedLM
    from regard.tasks.masked_lm.task import MaskedLMTask


@dataclass(frozen=True)
class BERTOptions(ModelOptions):
    """A Transformer that reads in both directions  (Devlin et al. 2019)."""

    attention: str | None = left_open("the scaled dot product")
    """A mechanism by name (see `regard list`)."""
    width: int = left_open()
    """The width of embeddings and layers."""
    layers: int = left_open()
    """The number of layers."""
    heads: int = left_open()
    """Heads per layer."""
    positions: Literal["learned", "sinusoidal", "relative", "alibi", "t5", "rotary", "none"] = left_open()
    """Positions in the embeddings, in the scores, or as a rotation of queries and keys."""
    norm: Literal["pre", "post"] = "pre"
    """Whether a layer is normalized before each sublayer, which trains faster, or behind it, as in the paper."""
    dropout: float = left_open()
    """The share of activations that dropout sets to zero in training."""

    def __post_init__(self) -> None:
        check_choices(self)
        check_at_least(self, 1, {"width": 128, "layers": 4, "heads": 4})
        check_even_heads(self.width, self.heads)
        check_share(self, {"dropout": 0.1})

    def build(self, vocabulary: int, longest: int) -> BERTMaskedLM:
        """The model for texts of this many tokens; `vocabulary` includes the mask token."""
        from regard.models.bert import BERT, BERTMaskedLM

        encoder = BERT(
            vocabulary,
            width=self.width,
            layers=self.layers,
            heads=self.heads,
            longest=longest,
            types=1,
            positions=self.positions,
            norm=self.norm,
            attention=self.attention,
            dropout=self.dropout,
        )
        return BERTMaskedLM(encoder)


@dataclass(frozen=True)
class EvaluateMaskedLM:
    """Options of `regard evaluate` for masked language models."""

    split: Literal["valid", "test"] = left_open("test")
    """The part of the run's own text; without a test file, test is the same as valid."""
    test: tuple[Path, ...] = ()
    """Other text files."""

    def __post_init__(self) -> None:
        check_choices(self)
        check_split(self)


@dataclass(frozen=True)
class PredictMasked:
    """Options of `regard predict` for masked language models."""

    top: int = at_least(1, 5)
    """Candidates per mask, the likeliest first, separated by tabs."""

    def __post_init__(self) -> None:
        check_positive(self, "top")


@dataclass(frozen=True)
class MaskedLM(TaskConfig):
    """Guess masked tokens: files of text, or the Python manual, train an encoder that reads in both directions."""

    name: ClassVar[str] = "masked-lm"
    summary: ClassVar[str] = "guess the masked tokens of running text: your own files, or the Python manual"
    unit: ClassVar[str] = "masked tokens"
    input_kind: ClassVar[Literal["text", "image", "class"]] = "text"
    embedded: ClassVar[str] = "manual"
    budgets: ClassVar[dict[str, Budget]] = {"manual": Budget(minutes=5.0), "files": Budget(minutes=5.0)}
    metrics: ClassVar[dict[str, bool]] = {
        "accuracy": True,
        "nll": False,
        "unigram": True,
        "bigram": True,
        "two-sided bigram": True,
    }
    training: ClassVar[dict[str, Any]] = {
        "lr": 1e-3,
        "schedule": "cosine",
        "warmup": 200,
        "validate_every": 250,
        "save_every": 250,
        "betas": (0.9, 0.98),
        "weight_decay": 0.01,
    }
    defaults: ClassVar[dict[str, dict[str, Any]]] = {
        dataset: {"width": 128, "layers": 4, "heads": 4, "positions": "rotary", "dropout": 0.0}
        for dataset in ("manual", "files")
    }
    models: ClassVar[dict[str, type[ModelOptions]]] = {"bert": BERTOptions}
    varies: ClassVar[str] = "attention"
    varies_help: ClassVar[str] = "Mechanisms by name, as `regard list` has them."
    run_files: ClassVar[tuple[str, ...]] = ("text.json", "tokens.json", "baseline.safetensors")
    vocabulary_files: ClassVar[tuple[str, ...]] = ("tokens.json",)
    weight_fields: ClassVar[tuple[str, ...]] = ("tokens", "vocabulary", "segment")
    is_served: ClassVar[bool] = True
    Evaluate: ClassVar[type] = EvaluateMaskedLM
    Predict: ClassVar[type] = PredictMasked

    data: Literal["manual"] | None = None
    """An embedded text that needs no file: the language manual of the Python that runs this, one document per topic."""
    train: tuple[Path, ...] = ()
    """Your own text: one or more files, each a document; .gz is unpacked."""
    valid: tuple[Path, ...] = ()
    """Text to choose the best checkpoint by; if left out, the end of the training text."""
    test: tuple[Path, ...] = ()
    """Text that only `regard evaluate` reads; if left out, that of --valid."""

    tokens: Literal["bpe", "characters"] = "bpe"
    """The kind of tokens."""
    vocabulary: int = 4000
    """The largest number of different tokens."""
    segment: int = 128
    """Tokens that the model reads at once, its begin and end included."""
    model: BERTOptions = left_open()
    """The architecture."""
    masking: Literal["words", "tokens"] = "words"
    """Whether whole words are masked or single tokens; drawn anew in every epoch."""
    mask_share: float = 0.15
    """The share of tokens that the model is asked for."""

    batch: int = 16
    """Rows of text per batch."""
    valid_share: float = 0.1
    """Without --valid: the share of the text, at its end, that is held out to validate on."""
    valid_tokens: int = 20_000
    """Tokens of the held-out text that validations in training read; `regard evaluate` reads all."""
    seed: int = 0
    """Determines initial weights, the order of batches, the masks and dropout."""

    def __post_init__(self) -> None:
        for name in ("train", "valid", "test"):
            object.__setattr__(self, name, as_paths(getattr(self, name)))
        super().__post_init__()
        self._check_files_given(["valid", "test"], "text", "train")
        check_at_least(self, 1, {"vocabulary": 4000, "batch": 16, "valid_tokens": 20_000})
        check_at_least(self, 3, {"segment": 128})
        check_at_least(self, 0, {"seed": 0})
        for name, example in (("mask_share", 0.15), ("valid_share", 0.1)):
            if not 0 < getattr(self, name) < 1:
                raise ValueError(f"{name} must be above 0 and below 1, got {getattr(self, name)}; try {name}={example}")

    @property
    def vocabulary_size(self) -> int:
        """The largest number of tokens, special ones included; the mask token is one more."""
        return self.vocabulary

    @property
    def title(self) -> str:
        return f"{self.model_name} on {self.dataset_label}"

    def next_command(self, run: str) -> str:
        return f'regard predict {run} "the [MASK] of"'

    def preparation_notice(self, folder: Path, new: bool) -> str:
        size = sum(path.stat().st_size for path in self.train if path.is_file()) / 1e6
        # a second or so per megabyte
        return f"reading {self.dataset_label}, {size:,.0f} megabytes" if size >= 5 else ""

    def load(self) -> MaskedLMTask:
        from regard.tasks.masked_lm.task import MaskedLMTask

        return MaskedLMTask(self)
