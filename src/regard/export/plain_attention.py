"""check_plain: raises for a model that has more than the Transformer, whose parts other formats have."""

import torch
from torch import Tensor, nn

from regard.attn.layer import Attention
from regard.attn.multihead import MultiHead
from regard.attn.terms.normalizer import Softmax
from regard.attn.terms.position import LearnedPositions, Sinusoidal
from regard.attn.terms.read import WeightedSum
from regard.attn.terms.score import Dot


def check_plain(format: str, model: nn.Module, *places: nn.Module | None) -> None:
    """Raises ValueError unless all heads are those of the Transformer, and `places` add positions to the embeddings."""
    reason = attention_reason(model)
    if reason is None and not all(isinstance(place, Sinusoidal | LearnedPositions) for place in places):
        reason = "its positions are not added to the embeddings, by a table or sinusoids"
    if reason is not None:
        raise ValueError(f"{format} cannot express this {type(model).__name__}: {reason}; train it with other options")


def attention_reason(model: nn.Module) -> str | None:
    """The first heads of a model that have more than softmax(q k / √d) v; None if all have that."""
    for module in model.modules():
        if isinstance(module, MultiHead):
            if module.rotate is not None:
                return "its positions are rotary"
            for part in module.extra_parts:
                return f"its heads have {part!r}"
            if not is_plain(module.attention):
                on_one_line = " ".join(repr(module.attention).split())
                return f"its heads attend by {on_one_line}, not by scaled dot products"
    return None


def is_plain(attention: nn.Module) -> bool:
    """Whether an attention is softmax(q k / √d) v."""
    if not isinstance(attention, Attention) or attention.bias is not None or attention.mask is not None:
        return False
    score, normalize = attention.score, attention.normalize
    is_softmax = type(normalize) is Softmax and normalize.temperature == 1.0
    return type(score) is Dot and score.scale is None and is_softmax and type(attention.read) is WeightedSum


def position_table(place: nn.Module | None, longest: int) -> Tensor:  # -> "t d"
    """The vectors that `place` adds to embeddings: `longest` of sinusoids, which have no table of their own."""
    if isinstance(place, LearnedPositions):
        return place.table.weight.detach()
    assert isinstance(place, Sinusoidal)
    return place.encoding(torch.arange(longest)).float()
