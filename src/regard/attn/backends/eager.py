"""eager: the equation as written. Runs every call; the reference for all other backends."""

from torch import Tensor

from regard.attn.backends import dot_softmax
from regard.attn.call import Attended, AttentionCall, Terms, equation


def unsupported_reason(call: AttentionCall) -> str | None:
    return None


def skip_reason(call: AttentionCall) -> str | None:
    return None


def describe(call: AttentionCall) -> str:
    return "the equation as written, in torch; forms all weights"


def keep(call: AttentionCall) -> bool | None:
    """Whether the equation has no more than its terms: no mask, bias, shared heads or projection."""
    has_more = call.mask is not None or call.bias is not None or call.v.dtype.itemsize < 4
    return None if has_more or not dot_softmax.takes_inputs(call) else True


def run_kept(kept: bool, q: Tensor, k: Tensor, v: Tensor, mask: object, terms: Terms) -> Tensor:
    return terms.read.read(terms.normalize.weights(terms.score.compare(q, k), None), v).out


def run(call: AttentionCall) -> Attended:
    return equation(call)
