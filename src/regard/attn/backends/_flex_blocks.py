"""Blocks of a mask as FlexAttention takes them, from the bounds that masks have for tiles: no pair is evaluated.

They are kept for the tensors that they were made of, as long as nobody writes to these: the layers of a model share
them.
"""

import copy
import weakref
from collections import OrderedDict
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from regard.attn.call import AttentionCall
from regard.attn.terms.mask import Mask
from regard.attn.terms.tiles import PairMod, four_axes, insert_head_axes, tiles

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask

# queries and keys per block
BLOCK = 128
_MOST_KEPT = 64


class _KeptBlocks(NamedTuple):
    tensors: list[weakref.ref[Tensor]]
    block_mask: "BlockMask"


_kept: OrderedDict[Hashable, _KeptBlocks] = OrderedDict()


def block_mask(call: AttentionCall, mask: PairMod) -> "BlockMask":
    """The mask of the call, with its function of the pairs in blocks that are allowed in part."""
    if torch.compiler.is_compiling():
        return _make(call, mask)
    tensors: list[Tensor] = []
    try:
        parts = _signature((call.mask, call.explicit_positions), tensors)
    except TypeError:
        return _make(call, mask)
    key = (parts, call.batch, call.q.shape[-2], call.keys.shape[-2], call.q.device)
    kept = _kept.get(key)
    if kept is None or any(ref() is not t for ref, t in zip(kept.tensors, tensors, strict=True)):
        # not the function: it holds the tensors of the mask
        kept = _kept[key] = _KeptBlocks([weakref.ref(t) for t in tensors], _make(call))
        if len(_kept) > _MOST_KEPT:
            _kept.popitem(last=False)
    made = copy.copy(kept.block_mask)
    made.mask_mod = mask
    return made


def _make(call: AttentionCall, mask: PairMod | None = None) -> "BlockMask":
    from torch.nn.attention.flex_attention import BlockMask, noop_mask

    some, every = (t.int() for t in _blocks(call))
    tensors: dict[str, Any] = {}
    for name, blocks in (("", some), ("full_", every)):
        tensors[f"{name}kv_num_blocks"], tensors[f"{name}kv_indices"] = _counted(blocks)
        tensors[f"{name}q_num_blocks"], tensors[f"{name}q_indices"] = _counted(blocks.transpose(-1, -2))
    size = call.q.shape[-2], call.keys.shape[-2]
    return BlockMask(size, **tensors, BLOCK_SIZE=(BLOCK, BLOCK), mask_mod=noop_mask if mask is None else mask)


def _counted(blocks: Tensor) -> tuple[Tensor, Tensor]:  # "b h n m", 0 or 1 -> "b h n", "b h n m", int32
    """The number of ones per row, and all indices, those of ones first."""
    indices = torch.argsort(blocks, dim=-1, descending=True, stable=True)
    return blocks.sum(-1, dtype=torch.int32), indices.int()


def _blocks(call: AttentionCall) -> tuple[Tensor, Tensor]:  # 2 of "b h nq nk", b and h may be 1
    """The blocks with some allowed pairs, and those with allowed pairs alone."""
    assert call.mask is not None
    rows, columns = (tiles(positions, BLOCK) for positions in call.positions())
    shape = rows.low.shape[-1], columns.low.shape[-1]
    some, every = (
        four_axes(insert_head_axes(t.expand(*t.shape[:-2], *shape), len(call.batch) + 2), call.batch)
        for t in call.mask.tile_coverage(rows, columns)
    )
    some, every = torch.broadcast_tensors(some, every)
    # a block beyond the last query or key has pairs that are none
    row, column = (
        torch.arange(BLOCK, t.length + BLOCK, BLOCK, device=call.q.device) <= t.length for t in (rows, columns)
    )
    every = every & row.unsqueeze(-1) & column
    return some & ~every, every


def _signature(value: Any, tensors: list[Tensor]) -> Hashable:
    """What decides about a mask, its tensors by their identity and version; raises TypeError of what may change."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple | list):
        return tuple([_signature(part, tensors) for part in value])
    if isinstance(value, Mask):
        return type(value), *[(name, _signature(part, tensors)) for name, part in vars(value).items()]
    if not isinstance(value, Tensor) or value.is_inference():
        raise TypeError(f"changes of {value!r} are not counted")
    owner = value if value._base is None else value._base
    tensors.append(owner)
    return id(owner), owner._version, value.dtype, value.shape, value.stride(), value.storage_offset()
