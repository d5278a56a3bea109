"""Sorts the queries of a call so that those with common keys share the tiles of a loop over blocks.

Row by row, 64 queries of a grid are a line, and their neighbourhoods many whole rows; sorted into squares, their
neighbourhoods are little more than the square itself.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from regard.attn.call import Attended, AttentionCall


def tiling(call: AttentionCall) -> str | None:
    """The tiles into which the tokens are sorted, for `explain`; None: they stay in their order."""
    if call.mask is None or (call.explicit_positions is not None and any(t.ndim > 1 for t in call.explicit_positions)):
        return None  # one order serves all samples
    if call.normalize.reads_order or (call.bias is not None and call.bias.reads_scores):
        return None
    return call.mask.tiling


def run_in_tiles(call: AttentionCall, run: Callable[[AttentionCall], Attended]) -> Attended:
    """Runs the call on sorted queries and puts the results back into their order. Keys keep theirs, which some
    normalizers read.
    """
    if tiling(call) is None:
        return run(call)
    assert call.mask is not None
    rows = call.mask.tile_order(call.positions()[0]).argsort(stable=True)
    back = rows.argsort()
    queries = _Permute.apply(call.queries, rows, back)
    sorted_call = replace(
        without_features(call).slice(rows, slice(None)),
        q=queries if call.q is call.queries else _Permute.apply(call.q, rows, back),
        queries=queries,
        keys=call.keys,
        v=call.v,
    )
    return run(sorted_call).transform(lambda t: _Permute.apply(t, back, rows), lambda t: t[..., back])


def without_features(call: AttentionCall) -> AttentionCall:
    """The call with queries, keys and values of width 0, and positions: all that its mask reads."""
    empty = {name: getattr(call, name)[..., :0] for name in ("q", "queries", "keys", "v")}
    return replace(call, **empty, explicit_positions=call.positions())


class _Permute(torch.autograd.Function):
    """t[..., order, :], whose gradient is the inverse order: that of an index would be added entry by entry."""

    @staticmethod
    def forward(ctx: Any, t: Tensor, order: Tensor, inverse: Tensor) -> Tensor:
        ctx.save_for_backward(order, inverse)
        return t[..., order, :]

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None, None]:
        order, inverse = ctx.saved_tensors
        return _Permute.apply(g, inverse, order), None, None
