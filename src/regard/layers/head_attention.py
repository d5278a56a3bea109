"""The attention of the heads of a Transformer, chosen by names of MECHANISMS."""

from collections.abc import Callable, Sequence
from typing import get_args

from torch import nn

from regard.attn.catalogue import MECHANISMS
from regard.attn.layer import Attention
from regard.attn.terms.bias import Bias
from regard.attn.terms.read import Sample
from regard.attn.terms.score import Location
from regard.attn.terms.score_bias import Selective
from regard.attn.terms.sequence_masks import Causal
from regard.common import checks
from regard.common.position_names import PositionName

# mechanisms with a bias of all heads, by which they differ from the scaled dot product
_BIASED: dict[str, Callable[[int], Bias]] = {"selective": Selective}


def head_attention(
    attention: str | Sequence[str] | None, dim: int, bias: Bias | None = None, heads: int | None = None
) -> Attention | list[Attention] | None:
    """The attention of all heads of width `dim`, or one per head; None is the scaled dot product.

    Several names are a list, or joined by commas, "dot,entmax". `bias` is added to the scores of all heads. An
    attention that adds a bias of all heads itself, such as "selective", is built for their number, `heads`.
    """
    if attention is None:
        return None if bias is None else Attention(bias=bias)
    names = attention.split(",") if isinstance(attention, str) else list(attention)
    if isinstance(attention, str) and len(names) == 1:
        if attention in _BIASED and heads is not None:
            return _biased_attention(attention, heads, bias)
        return _attention_of(attention, dim, bias)
    if bias is not None:
        raise ValueError(
            f"attention={names} cannot be used with {bias!r}, which serves all heads of one attention; "
            "name one attention for all heads, or choose positions without a bias, such as 'rotary'"
        )
    return [_attention_of(name, dim, None) for name in names]


def _biased_attention(name: str, heads: int, bias: Bias | None) -> Attention:
    if bias is not None:
        raise ValueError(
            f"attention={name!r} adds a bias to the scores, and {bias!r} another one; choose positions without a bias, "
            "such as 'rotary'"
        )
    return Attention(bias=_BIASED[name](heads), mask=Causal())


def _attention_of(name: str, dim: int, bias: Bias | None) -> Attention:
    checks.known("attention", name, MECHANISMS)
    if name in _BIASED:
        raise ValueError(
            f"attention={name!r} reads the scores of all heads and of earlier queries, in causal self-attention; take "
            "a model without cross-attention, and one attention for all its heads"
        )
    mechanism = MECHANISMS[name](dim, dim)
    if name in get_args(PositionName):
        raise ValueError(
            f"attention={name!r} encodes positions, beside any attention of the heads; leave it out, and give "
            f"positions={name!r} to a model that has positions"
        )
    if reason := unsupported_reason(mechanism):
        supported = [other for other, make in MECHANISMS.items() if not unsupported_reason(make(dim, dim))]
        raise ValueError(
            f"attention={name!r} cannot be used in the heads of a Transformer: {reason}; "
            f"try one of {', '.join(supported)}"
        )
    assert isinstance(mechanism, Attention)
    if bias is None:
        return mechanism
    return Attention(
        mechanism.score, bias=bias, mask=mechanism.mask, normalize=mechanism.normalize, read=mechanism.read
    )


def unsupported_reason(mechanism: nn.Module) -> str | None:
    """The reason why this cannot be the attention of a head; None if it can."""
    if not isinstance(mechanism, Attention):
        return f"it is a {type(mechanism).__name__}, more than one equation"
    if isinstance(mechanism.read, Sample):
        return "it is trained by REINFORCE, to which the samples of so many heads are noise"
    if isinstance(mechanism.score, Location):
        return "it identifies keys by their index in a cache, which the hypotheses of a beam share"
    return None
