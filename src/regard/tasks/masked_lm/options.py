"""The options of the task masked-lm and of its model.  No torch here: a command line reads them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from regard.common.options.checks import CheckedOptions
from regard.common.options.construct import construct
from regard.common.options.fields import at_least, inner_share, left_open, share
from regard.common.position_names import PositionName
from regard.inference.evaluation import EXAMPLES
from regard.tasks.base import Budget, ModelOptions
from regard.tasks.shared.text_options import PRETRAINING, TokenizedTextConfig

if TYPE_CHECKING:
    from regard.models.bert import BERTMaskedLM


@dataclass(frozen=True)
class BERTOptions(ModelOptions):
    """A Transformer that reads in both directions  (Devlin et al. 2019)."""

    model_class: ClassVar[str] = "regard.models.bert:BERTMaskedLM"
    part_classes: ClassVar[tuple[str, ...]] = ("regard.models.bert:BERT",)

    attention: str | None = left_open("the scaled dot product")
    """A mechanism by name (see `regard list`)."""
    width: int = at_least(1)
    """The width of embeddings and layers."""
    layers: int = at_least(1)
    """The number of layers."""
    heads: int = at_least(1, divides="width")
    """Heads per layer."""
    positions: PositionName = left_open()
    """Positions in the embeddings, in the scores, or as a rotation of queries and keys."""
    norm: Literal["pre", "post"] = "pre"
    """Whether a layer is normalized before each sublayer, which trains faster, or behind it, as in the paper."""
    dropout: float = share()
    """The share of activations that dropout sets to zero in training."""

    def build(self, vocabulary: int, *, longest: int) -> BERTMaskedLM:
        """The model for texts of this many tokens; `vocabulary` includes the mask token."""
        from regard.models.bert import BERT, BERTMaskedLM

        return BERTMaskedLM(construct(BERT, self, vocabulary, longest=longest, types=1))


@dataclass(frozen=True)
class PredictMasked(CheckedOptions):
    """Options of `regard predict` for masked language models."""

    top: int = at_least(1, 5)
    """Candidates per mask, the likeliest first, separated by tabs."""


@dataclass(frozen=True)
class MaskedLM(TokenizedTextConfig):
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
    training: ClassVar[dict[str, Any]] = {**PRETRAINING, "warmup": 200, "betas": (0.9, 0.98), "weight_decay": 0.01}
    defaults: ClassVar[dict[str, dict[str, Any]]] = {
        dataset: {"width": 128, "layers": 4, "heads": 4, "positions": "rotary", "dropout": 0.0}
        for dataset in ("manual", "files")
    }
    models: ClassVar[dict[str, type[ModelOptions]]] = {"bert": BERTOptions}
    run_files: ClassVar[tuple[str, ...]] = ("text.json", EXAMPLES, "tokens.json", "baseline.safetensors")
    usage: ClassVar[str] = 'predict {run} "the [MASK] of"'
    Predict: ClassVar[type] = PredictMasked

    data: Literal["manual"] | None = None
    """An embedded text that needs no file: the language manual of the Python that runs this, one document per topic."""
    tokens: Literal["bpe", "characters"] = "bpe"
    """The kind of tokens."""
    vocabulary: int = at_least(1, 4000)
    """The largest number of different tokens."""
    segment: int = at_least(3, 128)
    """Tokens that the model reads at once, its begin and end included."""
    model: BERTOptions = left_open()
    """The architecture."""
    masking: Literal["words", "tokens"] = "words"
    """Whether whole words are masked or single tokens; drawn anew in every epoch."""
    mask_share: float = inner_share(0.15)
    """The share of tokens that the model is asked for."""
