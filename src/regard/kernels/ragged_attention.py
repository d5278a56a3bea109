"""softmax(s q kᵀ) v within every text of a pack: texts of different lengths one behind the other, without padding.

Without a gradient, in one native call where there is a native library; otherwise one call of torch per length.
"""

import itertools
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.kernels.native_library import call_kernel, resolve_native


def ragged_attention(
    qkv: Tensor,
    lengths: Sequence[int],
    heads: int,
    scale: float,
    *,
    bias: Tensor | None = None,
    native: bool | None = None,
) -> Tensor:  # "n 3·h·d", bias "3·h·d" -> "n h·d"
    """The attention of every token to the tokens of its own text; text i has the next `lengths[i]` rows.

    A row of `qkv` has the queries of all heads, then their keys, then their values; `bias` is added to each row.
    """
    n, columns = qkv.shape
    if bias is not None and (bias.shape != (columns,) or bias.dtype != qkv.dtype):
        raise ValueError(
            f"bias must be one number per column of qkv, {columns} of {qkv.dtype}, got {tuple(bias.shape)} of "
            f"{bias.dtype}; join those of queries, keys and values"
        )
    if min(lengths, default=0) < 0:
        raise ValueError(f"lengths must be 0 or more, got {min(lengths)}; give the number of tokens of every text")
    if columns % (3 * heads) or sum(lengths) != n:
        raise ValueError(
            f"qkv must be (tokens, 3 · heads · width) with heads={heads} and the {sum(lengths)} tokens of lengths, "
            f"got {tuple(qkv.shape)}; join queries, keys and values of all heads"
        )
    out = qkv.new_empty(n, columns // 3)
    if not n:
        return out
    if resolve_native(native, qkv):
        qkv, bias = qkv.contiguous(), qkv.new_zeros(columns) if bias is None else bias.contiguous()
        starts = torch.tensor([0, *itertools.accumulate(lengths)], device="cpu")
        sizes = (len(lengths), heads, columns // (3 * heads), max(lengths))
        call_kernel("regard_ragged", qkv, *sizes, scale, starts, qkv, bias, out)
        return out
    qkv = qkv if bias is None else qkv + bias
    start = 0
    for length, run in itertools.groupby(lengths):
        count = len(list(run))
        rows = slice(start, start + count * length)
        q, k, v = qkv[rows].view(count, length, 3, heads, columns // (3 * heads)).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, scale=scale)  # "b h t d"
        out[rows] = attended.transpose(1, 2).flatten(2).flatten(0, 1)
        start = rows.stop
    return out
