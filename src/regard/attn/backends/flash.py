"""flash: torch's flash kernel for CPUs on blocks of queries, each with the keys that they may attend to.

It skips what a mask empties, and adds a bias block by block, so that memory stays linear.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from regard.attn.backends import _selected, dot_softmax
from regard.attn.backends._block_plan import BlockSpan, describe_blocks, loop_reason, mean_share, spans
from regard.attn.backends._flash_cpu import Flash, available, float_mask, hidden_scores
from regard.attn.backends._span_groups import SpanGroup, group_spans
from regard.attn.backends._tile_order import run_in_tiles, without_features
from regard.attn.call import Attended, AttentionCall
from regard.attn.call_tensors import take_tensors

# queries per span
_ROWS = 64
# below this many weights the whole matrix is faster than its parts; fewer where a bias need not be computed for most
_SMALL, _SMALL_BIASED = 1 << 20, 1 << 18
# a bias of more numbers than this is computed block by block
_LARGE_BIAS = 1 << 24


def unsupported_reason(call: AttentionCall) -> str | None:
    if not available(call.q):
        return "it is torch's kernel for CPUs"
    reason = dot_softmax.call_reason(call, takes_null_slot=True) or loop_reason(call)
    if reason is not None:
        return reason
    if call.dropout:
        return "its kernel has no dropout"
    if dot_softmax.bias_needs_grad(call):
        return "the bias needs a gradient, which its kernel does not compute"
    if call.need.lse and dot_softmax.needs_grad(call):
        return "its lse has no gradient"
    if 0 in call.q.shape or 0 in call.keys.shape or 0 in call.v.shape:
        return "a tensor is empty, which its kernel does not take"
    return None


def skip_reason(call: AttentionCall) -> str | None:
    if dot_softmax.is_corner_causal(call) and not call.need.lse:
        return "one kernel computes it whole, and supports causality"
    is_sparse = call.mask is not None and call.mask.sparse
    is_large = call.bias is not None and call.weights() > _LARGE_BIAS
    if not is_sparse and not is_large and not call.need.lse:
        return "one kernel computes it whole: no block is known to be masked"
    is_skipping = call.bias is not None and mean_share(call, _ROWS) <= 0.6
    if call.weights() < (_SMALL_BIASED if is_skipping else _SMALL):
        return f"only {call.weights()} weights: the whole matrix is faster than its parts"
    return None


def describe(call: AttentionCall) -> str:
    blocks = _selected.describe(call) if _selected.takes(call) else describe_blocks(call, _ROWS)
    return f"torch's flash kernel {blocks}"


def run(call: AttentionCall) -> Attended:
    return _selected.run(call) if _selected.takes(call) else run_in_tiles(call, _run)


def _run(call: AttentionCall) -> Attended:
    q, k, v = dot_softmax.kernel_inputs(call)
    block_spans = spans(call, _ROWS)
    bare = without_features(call)
    numbers = _SpanNumbers(replace(bare, q=call.q) if call.bias is not None and call.bias.reads_query else bare)
    template, tensors = take_tensors(numbers)
    sink = dot_softmax.null_score(call)
    is_grouped = call.bias is None and not call.need.lse
    parts = group_spans(block_spans, q.shape[0]) if is_grouped else block_spans
    out, lse = Flash.apply(q, k, v, sink, parts, template, dot_softmax.scale(call), False, *tensors)
    if call.need.lse:
        for span in block_spans:
            added = numbers(span)
            if added is not None:  # the kernel returns 0 for a row without an allowed key
                lse[span.queries].masked_fill_((added == -torch.inf).all(-1), -torch.inf)
    return dot_softmax.to_attended(call, out, lse)


@dataclass
class _SpanNumbers:
    """The bias, and −inf for the masked pairs, of a span; None if there is neither."""

    call: AttentionCall

    def __call__(self, span: BlockSpan | SpanGroup) -> Tensor | None:
        if isinstance(span, SpanGroup):
            return hidden_scores(span.allowed, self.call.queries.dtype).repeat(span.samples, 1, 1, 1)
        if self.call.bias is None and (span.full or self.call.mask is None):
            return None
        part = span.part_of(self.call)
        return float_mask(dot_softmax.kernel_mask(part), part.queries, part.keys)
