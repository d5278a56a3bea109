"""eager: the equation as written. Runs every call; the reference for all other backends."""

from torch import Tensor

from regard.attn.backends import dot_softmax
from regard.attn.call import Attended, AttentionCall, Terms, equation
from regard.attn.terms.read import weighted_sum
from regard.attn.terms.sequence_masks import Window


def unsupported_reason(call: AttentionCall) -> str | None:
    return None


def skip_reason(call: AttentionCall) -> str | None:
    return None


def describe(call: AttentionCall) -> str:
    return "the equation as written, in torch; forms all weights"


def keep(call: AttentionCall) -> tuple[Tensor | None] | None:
    """The pairs that a mask of positions allows, if the equation has no bias, shared heads or projection."""
    if call.bias is not None or call.v.dtype.itemsize < 4 or not dot_softmax.takes_inputs(call):
        return None
    is_small = call.mask is None or (isinstance(call.mask, Window) and call.weights() <= dot_softmax.MOST_KEPT)
    return (call.allowed(),) if is_small else None


def run_kept(kept: tuple[Tensor | None], q: Tensor, k: Tensor, v: Tensor, mask: object, terms: Terms) -> Tensor:
    return weighted_sum(terms.normalize.weights(terms.score.compare(q, k), *kept), v)


def run(call: AttentionCall) -> Attended:
    return equation(call)
