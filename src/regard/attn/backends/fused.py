"""fused: torch's scaled_dot_product_attention, for everything that reduces to a dot product with softmax.

It knows the traps: a value width unlike the key width falls off the fast kernel (padded here), causality is counted
from the upper left corner (used only where that is right), a bias that needs a gradient falls to the slow kernel
(refused).
"""

import functools

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.attn.backends._block_plan import BlockSpan
from regard.attn.backends._flash_cpu import Flash, available, widened
from regard.attn.call import Attended, AttentionCall
from regard.attn.terms.bias import Added, Bias
from regard.attn.terms.mask import Causal
from regard.attn.terms.normalizer import Softmax
from regard.attn.terms.read import WeightedSum
from regard.kernels.dispatch import in_functorch_transform

# above this many numbers a bias is worth computing block by block
_DENSE = 1 << 24


def plain(q: Tensor, k: Tensor, v: Tensor) -> Tensor | None:
    """softmax(q kᵀ/√d) v without resolving a call, which takes longer than a small attention; None if not so plain.

    Only what needs no check, no choice and no gradient: one shape, one type, one device.
    """
    if not isinstance(q, Tensor) or not (
        q.shape == k.shape == v.shape and q.dtype == k.dtype == v.dtype and q.device == k.device == v.device
    ):
        return None
    if q.ndim != 4 or not q.is_floating_point() or 0 in q.shape or in_functorch_transform():
        return None
    if torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad):
        return None
    return F.scaled_dot_product_attention(q, k, v)


def not_dot_softmax(call: AttentionCall) -> str | None:
    """Why the call is no softmax of dot products, mixed."""
    if call.score.comparison != "dot":
        return f"{type(call.score).__name__} compares by {call.score.comparison}, not by a dot product"
    if type(call.normalize) is not Softmax:
        return f"its kernel has only softmax, not {type(call.normalize).__name__}"
    if call.normalize.temperature is None:
        return "the temperature is trained, its kernel takes a fixed one"
    if not isinstance(call.read, WeightedSum):
        return f"its kernel only mixes values, {type(call.read).__name__} goes to one place"
    if call.need.drawn:
        return "its kernel never forms the weights that are asked for"
    return None


def scale(call: AttentionCall) -> float:
    assert isinstance(call.normalize, Softmax)
    return call.score.scale_of(call.queries.shape[-1]) / (call.normalize.temperature or 1.0)


def refuse(call: AttentionCall) -> str | None:
    reason = not_dot_softmax(call)
    if reason is not None:
        return reason
    if call.bias is not None and torch.is_grad_enabled() and _bias_needs_grad(call.bias, call.q):
        return "the bias needs a gradient, which its fast kernel does not give"
    if call.need.lse and (call.mask is not None or call.bias is not None):
        return "with a mask or a bias it does not give the rows' constants"
    if call.need.lse and not (_plain(call) and available(call.q) and not _needs_grad(call)):
        return "it gives the rows' constants only on a CPU, without dropout and without gradient"
    if in_functorch_transform():
        return "torch.func has no rule for its kernel"
    if 0 in call.q.shape or 0 in call.keys.shape or 0 in call.v.shape:
        return "there is nothing to look at, and its kernel wants something"
    return None


def _needs_grad(call: AttentionCall) -> bool:
    return torch.is_grad_enabled() and (call.queries.requires_grad or call.keys.requires_grad or call.v.requires_grad)


def _bias_needs_grad(bias: Bias, q: Tensor) -> bool:
    if isinstance(bias, Added):
        return bias.values.requires_grad
    return (bias.reads_query and q.requires_grad) or any(p.requires_grad for p in bias.parameters())


def _plain(call: AttentionCall) -> bool:
    return call.dropout == 0.0 and not torch.compiler.is_compiling()


def pass_over(call: AttentionCall) -> str | None:
    if call.dropout and available(call.q):
        return "with dropout torch's CPU kernel forms all weights"
    if call.bias is not None and call.weights() > _DENSE:
        return f"the bias would be one tensor of {call.weights()} numbers"
    return None


def describe(call: AttentionCall) -> str:
    how = "torch's scaled_dot_product_attention"
    if call.queries.shape[-1] != call.v.shape[-1]:
        how += f", widths made equal ({call.queries.shape[-1]} and {call.v.shape[-1]})"
    if call.mask is not None and not _corner(call):
        how += ", with the mask as a dense tensor"
    return how


def _corner(call: AttentionCall) -> bool:
    """Is the mask the causality that the kernel counts from the upper left corner?"""
    square = call.given is None and call.q.shape[-2] == call.keys.shape[-2]
    return type(call.mask) is Causal and square and call.bias is None


def four(t: Tensor, call: AttentionCall, heads: int) -> Tensor:  # "*b n m" -> "b h n m"
    """Two leading axes, as the kernel wants them; the second keeps `heads` of its own, 1 serves all."""
    batch, last = call.batch, t.shape[-2:]
    if len(batch) == 0:
        return t[None, None]
    if len(batch) == 1:  # one axis: of heads where they share keys, of samples otherwise
        return t.expand(heads, *last).unsqueeze(0) if call.group > 1 else t.expand(*batch, *last).unsqueeze(1)
    t = t.expand(*batch[:-1], heads, *last)
    return t if len(batch) == 2 else t.flatten(0, len(batch) - 2)


def _heads(t: Tensor) -> int:
    return t.shape[-3] if t.ndim > 2 else 1


def prepared(call: AttentionCall) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values of one width and two leading axes."""
    q, k, v = widened(call.queries, call.keys, call.v)
    if len(call.batch) == 2 and q.shape[:-2] == k.shape[:-2] == v.shape[:-2]:
        return q, k, v
    heads = call.batch[-1] if call.batch else 1
    kept = _heads(k) if _heads(k) == _heads(v) else heads
    return four(q, call, heads), four(k, call, kept), four(v, call, kept)


def added(call: AttentionCall) -> Tensor:
    """Bias and mask as the one tensor that the kernel adds: boolean without a bias."""
    allowed = call.allowed()
    if call.bias is None:
        assert allowed is not None
        return allowed
    bias = call.bias(call.q, *call.positions(), call.total).to(call.queries.dtype)
    if isinstance(call.normalize, Softmax) and call.normalize.temperature not in (None, 1.0):
        bias = bias / call.normalize.temperature
    return bias if allowed is None else bias.masked_fill(~allowed, -torch.inf)


def run(call: AttentionCall) -> Attended:
    q, k, v = prepared(call)
    causal = call.mask is not None and _corner(call)
    mask = None
    if not causal and (call.mask is not None or call.bias is not None):
        mask = added(call)
        mask = four(mask, call, _heads(mask))
    if _plain(call) and available(q) and (call.need.lse or _needs_grad(call)):
        spans = [BlockSpan(None, slice(0, q.shape[-2]), slice(0, k.shape[-2]), mask is None)]
        biases = None if mask is None else functools.partial(_whole_bias, _numbers(mask, q, k))
        return finished(call, *Flash.apply(q, k, v, spans, biases, scale(call), causal))
    shared = q.shape[1] != k.shape[1]
    out = F.scaled_dot_product_attention(q, k, v, mask, call.dropout, causal, scale=scale(call), enable_gqa=shared)
    return finished(call, out, None)


def _numbers(mask: Tensor, q: Tensor, k: Tensor) -> Tensor:
    """The mask as the flash kernel takes it: numbers to be added to (b, h, q, k)."""
    if mask.dtype == torch.bool:
        mask = torch.zeros(mask.shape, dtype=q.dtype).masked_fill_(~mask, -torch.inf)
    return mask.expand(*mask.shape[:-2], q.shape[-2], k.shape[-2])


def _whole_bias(numbers: Tensor, span: BlockSpan) -> Tensor:
    return numbers


def finished(call: AttentionCall, out: Tensor, lse: Tensor | None) -> Attended:
    """The kernel's output in the shape that was asked for."""
    if out.shape[-1] != call.v.shape[-1]:
        out = out[..., : call.v.shape[-1]]
    if len(call.batch) != 2:
        out = out.reshape(*call.batch, *out.shape[-2:])
    if lse is None or not call.need.lse:
        return Attended(out)
    return Attended(out, lse=lse.reshape(*call.batch, -1))
