"""flex: torch's FlexAttention, for softmax of dot products with any bias, any mask, a bound on the scores, a null slot
and lse, on a GPU.

The terms give functions of one pair (`mask_mod`, `score_mod`, `dot_mod`), which torch compiles into one kernel, and
the bounds of the masks on tiles say which blocks the kernel skips. On a CPU torch's reference runs, which forms all
weights; compiled code has a kernel there, without a gradient.
"""

import functools
import math
from collections.abc import Callable, Hashable
from types import FunctionType
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.attn.backends import dot_softmax
from regard.attn.backends._flex_blocks import BLOCK, block_mask
from regard.attn.call import Attended, AttentionCall
from regard.attn.module_snapshot import has_hooks
from regard.attn.terms.bias import Bias
from regard.attn.terms.mask import Mask
from regard.attn.terms.normalizer import WithNullSlot
from regard.attn.terms.tiles import PairMod, QueryKeyPairs, four_axes
from regard.common import checks
from regard.kernels.dispatch import autocast_disabled, has_values, in_functorch_transform
from regard.kernels.torch_versions import FLEX_SINCE, HAS_FLEX

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask

_DEVICES = ("cpu", "cuda", "xpu")
# the least width of its kernels
_NARROWEST = 16
# below this many weights the equation is done before a kernel is compiled, and for long after that
_SMALL = 1 << 20
# a bias of more numbers than this should be computed block by block: a gigabyte
_DENSE = 1 << 28

ScoreMod = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]


def unsupported_reason(call: AttentionCall) -> str | None:
    device, score = call.q.device.type, call.score.dot_score
    if not HAS_FLEX:
        return f"it needs torch {FLEX_SINCE} or newer, and this is torch {torch.__version__}"
    if device not in _DEVICES:
        return f"torch's FlexAttention does not run on {device}"
    reason = dot_softmax.call_reason(call, takes_null_slot=True, score=score)
    if reason is not None:
        return reason
    if call.dropout:
        return "its kernel has no dropout"
    if in_functorch_transform():
        return "torch.func has no rule for its kernel"
    if 0 in call.q.shape or 0 in call.keys.shape or 0 in call.v.shape:
        return "a tensor is empty, which its kernel does not take"
    if device == "cpu":
        has_more = call.need.lse or isinstance(call.normalize, WithNullSlot) or _needs_grad(call)
        is_refused = torch.compiler.is_compiling() and has_more
        return "its compiled kernel for CPUs has neither a gradient nor lse" if is_refused else None
    if dot_softmax.kernel_dtype(call) == torch.float64:
        return "its kernels compute in float32, and the inputs are float64"
    if not torch.compiler.is_compiling() and not has_values(call.q):
        return "it is compiled when it runs, and the tensors have no values"
    return None


def _needs_grad(call: AttentionCall) -> bool:
    return dot_softmax.needs_grad(call) or dot_softmax.bias_needs_grad(call)


def skip_reason(call: AttentionCall) -> str | None:
    if call.q.device.type == "cpu":
        return "it is for GPUs: here torch's reference would form all weights"
    is_plain = call.score.comparison == "dot" and not isinstance(call.normalize, WithNullSlot) and not call.need.lse
    if is_plain and call.bias is None and (call.mask is None or dot_softmax.is_corner_causal(call)):
        return "torch's scaled_dot_product_attention computes it without a tensor for the mask"
    if call.bias is not None and call.bias.loads_pairs and call.weights() > _DENSE:
        return f"the bias would be one tensor of {call.weights()} numbers"
    if not torch.compiler.is_compiling() and call.weights() < _SMALL:
        return f"only {call.weights()} weights: its kernel takes longer to compile than to save"
    return None


def describe(call: AttentionCall) -> str:
    if _is_reference(call):
        return "torch's FlexAttention as its reference, which forms all weights"
    blocks = "" if call.mask is None else f", masked blocks of {BLOCK} × {BLOCK} are skipped"
    return f"torch's FlexAttention, compiled ({_graphs} graphs so far){blocks}"


def _is_reference(call: AttentionCall) -> bool:
    """Whether torch's reference computes the call."""
    return call.q.device.type == "cpu" and not torch.compiler.is_compiling()


def run(call: AttentionCall) -> Attended:
    q, k, v = _kernel_inputs(call)
    size, wide = (call.q.shape[-2], call.keys.shape[-2]), checks.accumulate_dtype(q.dtype)
    are_last = call.explicit_positions is None
    pairs = QueryKeyPairs(call.batch, size, call.positions, wide, q.device, are_last=are_last)
    mask = None if call.mask is None else call.mask.mask_mod(pairs)
    has_null_slot = isinstance(call.normalize, WithNullSlot)
    needs_lse = call.need.lse or has_null_slot
    with autocast_disabled(q.device):  # the call has the dtype of autocast already
        bias = _bias_mod(call, pairs)
        score = _score_mod(call, pairs, bias, q.shape[-1])
        if _is_reference(call):
            out, lse = _reference(q, k, v, score, mask, bias)
        else:
            blocks = None if mask is None else block_mask(call, mask)
            if torch.compiler.is_compiling():
                out, lse = flex_attention(q, k, v, score, blocks, needs_lse)
            else:
                kernel = _compiled(_kind((score, mask), q, k, v, needs_lse))
                out, lse = kernel(q, k, v, score, blocks, needs_lse)
    if lse is not None and has_null_slot:
        out = out * _share_of_keys(call, lse).unsqueeze(-1)
    out = out[..., : call.v.shape[-1]].to(call.v.dtype).reshape(*call.batch, *call.q.shape[-2:-1], call.v.shape[-1])
    return Attended(out, lse=None if lse is None or not call.need.lse else lse.reshape(*call.batch, -1))


def flex_attention(
    q: Tensor, k: Tensor, v: Tensor, score: ScoreMod | None, blocks: "BlockMask | None", needs_lse: bool
) -> tuple[Tensor, Tensor | None]:
    """The output and its log-sum-exp of torch's kernel, for torch.compile."""
    from torch.nn.attention.flex_attention import AuxRequest, flex_attention

    out, aux = flex_attention(
        q, k, v, score, blocks, enable_gqa=q.shape[1] != k.shape[1], return_aux=AuxRequest(lse=needs_lse)
    )
    return out, aux.lse


def _reference(
    q: Tensor, k: Tensor, v: Tensor, score: ScoreMod | None, mask: PairMod | None, bias: PairMod | None
) -> tuple[Tensor, Tensor | None]:
    """The same by the definition that torch's kernels are compared with, which has a gradient on every device."""
    from torch._higher_order_ops.flex_attention import math_attention
    from torch.nn.attention.flex_attention import _identity, noop_mask

    def visible(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        # a mask of its own for what a bias hides: the gradient of a row without any other number is none
        allowed = (mask or noop_mask)(b, h, i, j)
        return allowed if bias is None else allowed & (bias(b, h, i, j) > -math.inf)

    out, log2, *_ = math_attention(q, k, v, score or _identity, (visible,), 1.0 / math.sqrt(q.shape[-1]), {})
    return out, log2 * math.log(2)


# the graphs that torch has compiled
_graphs = 0


def _count(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> Any:
    """inductor, which counts its graphs."""
    from torch._dynamo import lookup_backend

    global _graphs
    _graphs += 1
    return lookup_backend("inductor")(graph, inputs)


@functools.cache
def _compiled(kind: Hashable) -> Callable[..., Any]:
    """`flex_attention` for calls of one kind; of other lengths and numbers they share their graph.

    torch allows few graphs per code: each kind has a code of its own.
    """
    code = flex_attention.__code__.replace(co_name=f"flex_attention_{_compiled.cache_info().misses}")
    function = FunctionType(code, globals())
    compiled: Callable[..., Any] = torch.compile(function, backend=_count, dynamic=True, fullgraph=True)
    return compiled


def _kind(mods: tuple[object, object], q: Tensor, k: Tensor, v: Tensor, needs_lse: bool) -> Hashable:
    """What a graph is compiled for, beside the lengths."""
    sizes = q.shape[1], k.shape[1], q.shape[-1], v.shape[-1]
    return _codes(mods), needs_lse, q.dtype, q.device, sizes, torch.is_grad_enabled()


def _codes(value: object) -> Hashable:
    """The code of a function and of the functions that it calls from its closure, and masks by their numbers."""
    if isinstance(value, list | tuple):
        return tuple(map(_codes, value))
    if isinstance(value, Mask):
        return repr(value)
    if not isinstance(value, FunctionType):
        return None
    return value.__code__, *[_codes(cell.cell_contents) for cell in value.__closure__ or ()]


def _score_mod(call: AttentionCall, pairs: QueryKeyPairs, bias: PairMod | None, width: int) -> ScoreMod | None:
    """The scores by the products, which the kernel divides by the root of the width; None: they are these."""
    score = call.score.dot_score
    assert score is not None
    factor, temperature = score.scale_of(call.queries.shape[-1]) * math.sqrt(width), dot_softmax.temperature(call)
    if bias is None and score is call.score:
        factor, temperature = factor / temperature, 1.0
        if factor == 1.0:
            return None
    change = call.score.dot_mod(pairs)
    scale, inverse = pairs.number(factor), pairs.number(1.0 / temperature)

    def changed(x: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        s = change(x * scale)
        s = s if bias is None else s + bias(b, h, q, k)
        return (s * inverse).to(x.dtype)

    return changed


def _bias_mod(call: AttentionCall, pairs: QueryKeyPairs) -> PairMod | None:
    bias = call.bias
    if bias is None:
        return None
    # hooks see and change what `forward` returns
    mod = Bias.score_mod if has_hooks(bias) or "forward" in vars(bias) else type(bias).score_mod
    return mod(bias, pairs, call.q, call.total)


def _kernel_inputs(call: AttentionCall) -> tuple[Tensor, Tensor, Tensor]:  # "b h q d", "b g k d", "b g k v"
    dtype, batch = dot_softmax.kernel_dtype(call), call.batch
    q, k, v = (four_axes(t.to(dtype), batch) for t in (call.queries, call.keys, call.v))
    samples = math.prod(batch[:-1])
    kv_heads = max(k.shape[1], v.shape[1])
    if call.q.device.type != "cpu":
        q, k, v = (F.pad(t, (0, max(0, _NARROWEST - t.shape[-1]))) for t in (q, k, v))
    q = q.expand(samples, batch[-1] if batch else 1, -1, -1)
    return q, k.expand(samples, kv_heads, -1, -1), v.expand(samples, kv_heads, -1, -1)


def _share_of_keys(call: AttentionCall, lse: Tensor) -> Tensor:  # "b h q"
    """The weight that the null slot leaves to the keys."""
    sink = dot_softmax.null_score(call)
    assert sink is not None
    # finite: the lse of a row without a key is −inf, and so may be the null slot
    return torch.sigmoid(lse.clamp_min(torch.finfo(lse.dtype).min) - sink.reshape(-1, 1))
