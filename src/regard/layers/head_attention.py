"""The attention of the heads of a Transformer, chosen by names of MECHANISMS."""

from collections.abc import Sequence
from typing import Any, get_args

from torch import nn

from regard.attn.catalogue import MECHANISMS
from regard.attn.heads.named_parts import NAMED_PARTS, head_arguments
from regard.attn.layer import Attention
from regard.attn.mechanisms.native_sparse import NativeSparseAttention
from regard.attn.terms.bias import Bias
from regard.attn.terms.mask import Mask
from regard.attn.terms.read import Sample
from regard.attn.terms.score import Location
from regard.common import checks
from regard.common.position_names import PositionName

# mechanisms for models of one text alone, and what they need
_NOT_ACROSS = {
    "selective": "it reads the scores of earlier queries, in causal self-attention",
    "latent": "it rotates keys by positions in one text",
}


def head_parts(
    attention: str | Sequence[str] | None, width: int, heads: int, dim: int, bias: Bias | None = None, layer: int = 1
) -> dict[str, Any]:
    """Arguments of MultiHead for an attention of self-attending heads of width `dim`, by name.

    None is the scaled dot product; several names are one per head, a list or joined by commas, "dot,entmax". `bias` is
    added to the scores of all heads. `layer` is the number of the layer, from 1.
    """
    if not isinstance(attention, str) or attention not in NAMED_PARTS:
        return {"attention": head_attention(attention, dim, bias)}
    arguments = head_arguments(attention, width, heads, dim, layer, **({} if bias is None else {"bias": bias}))
    if bias is not None and arguments["attention"].bias is not bias:
        raise ValueError(
            f"attention={attention!r} adds a bias to the scores, and {bias!r} another one; choose positions without a "
            "bias, such as 'rotary'"
        )
    return arguments


def check_cross_attention(attention: str | Sequence[str] | None) -> None:
    """Raises if heads that attend to another sequence cannot have this attention."""
    if isinstance(attention, str) and attention in _NOT_ACROSS:
        raise ValueError(
            f"attention={attention!r} is for models of one text, such as gpt2, bert and the tagger: "
            f"{_NOT_ACROSS[attention]}; choose another attention"
        )


def cross_parts(attention: str | Sequence[str] | None, width: int, heads: int, layer: int = 1) -> dict[str, Any]:
    """The same for heads that attend to another sequence, or to one that is not causal."""
    check_cross_attention(attention)
    return head_parts(attention, width, heads, width // heads, layer=layer)


def head_attention(
    attention: str | Sequence[str] | None, dim: int, bias: Bias | None = None
) -> Attention | list[Attention] | None:
    """The attention of all heads of width `dim`, or one per head, of names that need no other part of MultiHead."""
    if attention is None:
        return None if bias is None else Attention(bias=bias)
    names = attention.split(",") if isinstance(attention, str) else list(attention)
    if isinstance(attention, str) and len(names) == 1:
        return _attention_of(attention, dim, bias)
    if bias is not None:
        raise ValueError(
            f"attention={names} cannot be used with {bias!r}, which serves all heads of one attention; "
            "name one attention for all heads, or choose positions without a bias, such as 'rotary'"
        )
    return [_attention_of(name, dim, None) for name in names]


def _attention_of(name: str, dim: int, bias: Bias | None) -> Attention:
    checks.known("attention", name, MECHANISMS)
    if name in get_args(PositionName):
        raise ValueError(
            f"attention={name!r} encodes positions, beside any attention of the heads; leave it out, and give "
            f"positions={name!r} to a model that has positions"
        )
    if name in NAMED_PARTS:
        raise ValueError(
            f"attention={name!r} is made of all heads of a layer: name it alone, for a model of self-attention"
        )
    mechanism = MECHANISMS[name](dim, dim)
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
    mask = getattr(getattr(mechanism, "attention", None), "mask", None)
    if isinstance(mechanism, NativeSparseAttention) or (isinstance(mask, Mask) and mask.reads_keys):
        return "it selects blocks of keys by their index in a cache, which the hypotheses of a beam share"
    if not isinstance(mechanism, Attention):
        return f"{type(mechanism).__name__} is more than one equation"
    if isinstance(mechanism.read, Sample):
        return "it is trained by REINFORCE, to which the samples of so many heads are noise"
    if isinstance(mechanism.score, Location):
        return "it identifies keys by their index in a cache, which the hypotheses of a beam share"
    return None
