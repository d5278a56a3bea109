"""The options of the task masked-lm and of its model.  No torch here: a command line reads them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from regard.common.options.checks import (
    check_at_least,
    check_choices,
    check_even_heads,
    check_inner_share,
    check_positive,
    check_share,
)
from regard.common.options.fields import at_least, left_open
from regard.common.position_names import PositionName
from regard.inference.evaluation import EXAMPLES
from regard.tasks.base import Budget, ModelOptions
from regard.tasks.shared.text_options import RunningTextConfig

if TYPE_CHECKING:
    from regard.models.bert import BERTMaskedLM


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
    positions: PositionName = left_open()
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
class PredictMasked:
    """Options of `regard predict` for masked language models."""

    top: int = at_least(1, 5)
    """Candidates per mask, the likeliest first, separated by tabs."""

    def __post_init__(self) -> None:
        check_positive(self, "top")


@dataclass(frozen=True)
class MaskedLM(RunningTextConfig):
    """Guess masked tokens: files of text, or the Python manual, train an encoder that reads in both directions."""

    name: ClassVar[str] = "masked-lm"
    task_class: ClassVar[str] = "regard.tasks.masked_lm.task:MaskedLMTask"
    summary: ClassVar[str] = "guess the masked tokens of running text: your own files, or the Python manual"
    unit: ClassVar[str] = "masked tokens"
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
    run_files: ClassVar[tuple[str, ...]] = ("text.json", EXAMPLES, "tokens.json", "baseline.safetensors")
    Predict: ClassVar[type] = PredictMasked

    data: Literal["manual"] | None = None
    """An embedded text that needs no file: the language manual of the Python that runs this, one document per topic."""
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

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(self, 1, {"vocabulary": 4000})
        check_at_least(self, 3, {"segment": 128})
        check_inner_share(self, {"mask_share": 0.15})

    @property
    def vocabulary_size(self) -> int:
        """The largest number of tokens, special ones included; the mask token is one more."""
        return self.vocabulary

    def next_command(self, run: str) -> str:
        return f'regard predict {run} "the [MASK] of"'
