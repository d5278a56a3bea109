"""attention_reason: whether the heads of a model are those of the Transformer, which other formats have."""

from torch import nn

from regard.attn.layer import Attention
from regard.attn.multihead import MultiHead
from regard.attn.terms.normalizer import Softmax
from regard.attn.terms.read import WeightedSum
from regard.attn.terms.score import Dot


def attention_reason(model: nn.Module) -> str | None:
    """The first heads of a model that have more than softmax(q k / √d) v; None if all have that."""
    for module in model.modules():
        if isinstance(module, MultiHead):
            if module.rotate is not None:
                return "its positions are rotary"
            if not is_plain(module.attention):
                return f"its heads attend by {module.attention!r}, not by scaled dot products"
    return None


def is_plain(attention: nn.Module) -> bool:
    """Whether an attention is softmax(q k / √d) v."""
    is_dot = isinstance(attention, Attention) and type(attention.score) is Dot and attention.score.scale is None
    if not is_dot or not isinstance(attention, Attention):
        return False
    is_softmax = type(attention.normalize) is Softmax and attention.normalize.temperature == 1.0
    has_rest = attention.bias is not None or attention.mask is not None or type(attention.read) is not WeightedSum
    return is_softmax and not has_rest
