"""padded: a native kernel for short texts, each with its own interval of keys: padding, causality, or both.

softmax(scale · q kᵀ) v of dot products in float32 or float64 on a CPU. torch's kernel reads a mask as numbers and
computes what it hides; this one never reads a padded key, and stops at the query.
"""

from torch import Tensor

from regard.attn.backends import dot_softmax
from regard.attn.call import Attended, AttentionCall, Terms
from regard.attn.terms.mask import Mask, Not, conjuncts
from regard.attn.terms.sequence_masks import Causal, Lengths
from regard.kernels import native_library
from regard.kernels.dispatch import choose_route, has_values
from regard.kernels.padded_attention import MOST_KEYS, padded_attention, span_table


def unsupported_reason(call: AttentionCall) -> str | None:
    reason = dot_softmax.call_reason(call)
    if reason is not None:
        return reason
    if call.bias is not None or call.dropout:
        return f"its kernel has no {'dropout' if call.bias is None else 'bias'}"
    if call.mask is not None and not is_interval(call.mask):
        return f"it takes causality and lengths of samples, not {call.mask!r}"
    if len(call.batch) != 2 or 0 in (*call.queries.shape, *call.keys.shape, *call.v.shape):
        return "it takes samples and heads as the two leading axes, and no empty tensor"
    if call.explicit_positions is not None:
        return "positions are given, and it counts queries as the last of the keys"
    if call.need.lse and dot_softmax.needs_grad(call):
        return "its lse has no gradient"
    if not has_values(call.q) or choose_route(call.queries, call.keys, call.v) != "direct":
        return "its kernel is called with values alone: not compiled, traced or transformed"
    return native_library.unsupported_reason(call.queries, call.keys, call.v)


def skip_reason(call: AttentionCall) -> str | None:
    if call.mask is None or type(call.mask) is Causal:
        return "there is no padding, without which torch's kernel comes first"
    if call.keys.shape[-2] > MOST_KEYS:
        return f"it is made for at most {MOST_KEYS} keys"
    return None


def describe(call: AttentionCall) -> str:
    return "a native kernel over the keys of each sample" + (", up to the query" if is_causal(call.mask) else "")


def run(call: AttentionCall) -> Attended:
    q, k, v = dot_softmax.kernel_inputs(call)
    spans = key_spans(call.mask, q.shape[0], k.shape[-2])
    return dot_softmax.to_attended(
        call, *padded_attention(q, k, v, spans, dot_softmax.scale(call), is_causal(call.mask))
    )


def keep(call: AttentionCall) -> tuple[float, bool] | None:
    """The scale and the causality of later calls of the same signature."""
    return (dot_softmax.scale(call), is_causal(call.mask)) if dot_softmax.takes_inputs(call) else None


def run_kept(kept: tuple[float, bool], q: Tensor, k: Tensor, v: Tensor, mask: Mask | None, terms: Terms) -> Tensor:
    return padded_attention(q, k, v, key_spans(mask, q.shape[0], k.shape[-2]), *kept)[0]


def is_interval(mask: Mask) -> bool:
    """Whether the mask is made of causality and of lengths, one per sample: padding behind or before the tokens."""
    return all(type(part) is Causal or _ends(part) is not None or _starts(part) is not None for part in conjuncts(mask))


def is_causal(mask: Mask | None) -> bool:
    return any(type(part) is Causal for part in conjuncts(mask))


def _ends(mask: Mask) -> Tensor | None:
    """The ends of the keys, one per sample."""
    return mask.lengths if type(mask) is Lengths and mask.lengths.ndim <= 1 else None


def _starts(mask: Mask) -> Tensor | None:
    """The first keys, one per sample, of padding before the tokens."""
    return _ends(mask.masks[0]) if type(mask) is Not else None


def key_spans(mask: Mask | None, samples: int, keys: int) -> Tensor | None:  # long "b 2"
    """The first key and the end of each sample; None: all keys."""
    ends = [lengths for part in conjuncts(mask) if (lengths := _ends(part)) is not None]
    starts = [lengths for part in conjuncts(mask) if (lengths := _starts(part)) is not None]
    if not ends and not starts:
        return None
    first, end = [0] * samples, [keys] * samples
    for lengths in starts:
        first = [max(a, b) for a, b in zip(first, lengths.expand(samples).tolist(), strict=True)]
    for lengths in ends:
        end = [min(a, b) for a, b in zip(end, lengths.expand(samples).tolist(), strict=True)]
    first = [min(a, keys) for a in first]
    return span_table(tuple((a, max(a, b)) for a, b in zip(first, end, strict=True)))
