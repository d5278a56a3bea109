"""Attention in pieces, out = Σ_n A_n P_n B_n v: blocks, bands and global tokens as one map.

A model that attends within windows cuts, pads and gathers its values, multiplies them by parts of its weights, and puts
the results together. All of this is linear in the values: replayed on columns of the identity, it gives the map,
exactly. Values are those that a module computed last before it rearranged them.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise, permutations
from typing import NamedTuple

import torch
from torch import Tensor

from regard.recording.capture.linear_tape import Combined, ValueProduct, leaves_of, replay

# the share of the greatest output by which that of the right layout may differ
_TOLERANCE = 1e-3


class ValueLayout(NamedTuple):
    """The axes of a tensor of values: heads are blocks of `width` along `feature`, or an axis of their own."""

    token: int
    feature: int
    batch: int | None
    head: int | None
    starts: tuple[int, ...]  # first features of the heads along `feature`
    width: int

    def values(self, t: Tensor) -> Tensor:  # -> "b h k v"
        heads = torch.stack([t.narrow(self.feature, start, self.width) for start in self.starts])  # an axis in front
        order = [self.batch, self.head, self.token, self.feature]
        axes = [0 if axis is None else axis + 1 for axis in order]
        if self.head is not None:
            return heads[0].permute([axis - 1 for axis in axes])
        if self.batch is None:
            return heads.permute(0, axes[2], axes[3]).unsqueeze(0)
        return heads.permute(axes[0], 0, axes[2], axes[3])


class JoinedMap(NamedTuple):
    """The map of a combined result."""

    weights: Tensor  # "b h q k"
    values: Tensor  # "b h k v"
    out: Tensor
    as_rows: Callable[[Tensor], Tensor]  # `out` as "b h q v"
    expected: Tensor  # what weights · values must be


def pieces_of(combined: Combined, groups: Sequence[Combined]) -> list[ValueProduct]:
    """Reads that are a part of the attention, of its values or of the columns of its softmax, and others of these
    values; a softmax may be read in several `groups`."""
    products = combined.node.products
    softmaxes = [id(product.softmax) for group in groups for product in group.node.products]

    def is_piece(product: ValueProduct) -> bool:
        is_shared = softmaxes.count(id(product.softmax)) > 1 and product.keys < product.softmax_keys
        return is_shared or (product.values.is_selection and not _covers_values(product))

    values = {id(leaf) for product in products if is_piece(product) for leaf in leaves_of(product.values)}
    return [product for product in products if any(id(leaf) in values for leaf in leaves_of(product.values))]


def rearranged(combined: Combined) -> tuple[list[ValueProduct], bool]:
    """Reads by weights that were padded to another layout, such as relative positions, and whether some of these
    weights are read in no other way."""
    products = combined.node.products
    plain = {id(product.softmax) for product in products if product.keys <= product.softmax_keys}
    padded = [product for product in products if product.keys > product.softmax_keys]
    return padded, any(id(product.softmax) not in plain for product in padded)


def is_split(combined: Combined, groups: Sequence[Combined]) -> bool:
    """Whether other columns of a softmax were read into another result, so that none of them has the whole map."""
    others = {id(product.softmax) for group in groups if group is not combined for product in group.node.products}
    return any(p.keys < p.softmax_keys and id(p.softmax) in others for p in combined.node.products)


def may_be_in_pieces(combined: Combined) -> bool:
    """Whether several reads of the same values are parts of one result, such as blocks of queries, or heads.

    Reads of one query are steps, which a recording keeps as such.
    """
    products = combined.node.products
    if any(product.queries == 1 for product in products):
        return False
    values = {tuple(id(leaf) for leaf in leaves_of(product.values)) for product in products}
    return len(products) > 1 and len(values) == 1 and all(p.size < combined.out.numel() for p in products)


def join(combined: Combined, check_size: Callable[[int], None]) -> JoinedMap | None:
    """The map of a combined result, of a size that is checked; None where its values have no plain layout."""
    if any(product.has_dropout for product in combined.node.products):
        return None
    leaves = leaves_of(combined.node)
    layouts = [_layout(leaf, combined.node.products) for leaf in leaves]
    if not leaves or any(layout is None for layout in layouts):
        return None
    values = [layout.values(leaf) for layout, leaf in zip(layouts, leaves, strict=True) if layout is not None]
    batch, heads, _, width = values[0].shape
    if any(v.shape[:2] != (batch, heads) or v.shape[-1] != width for v in values):
        return None
    queries = combined.out.numel() // (batch * heads * width)
    check_size(4 * batch * heads * queries * sum(v.shape[-2] for v in values))
    probes = [
        _probe(combined, leaf, layout) for leaf, layout in zip(leaves, layouts, strict=True) if layout is not None
    ]
    # every piece of a half type was rounded by itself
    wide = torch.promote_types(combined.out.dtype, torch.float32)
    tolerance = max(_TOLERANCE, 4 * torch.finfo(combined.out.dtype).eps)
    for as_rows in _row_layouts(combined.out, batch, heads, width):
        out = as_rows(combined.out).detach()
        parts = [
            torch.cat([as_rows(column) for column in columns], -1)[..., : v.shape[-2]]
            for columns, v in zip(probes, values, strict=True)
        ]
        total = sum(p.to(wide) @ v.to(wide) for p, v in zip(parts, values, strict=True))
        atol = tolerance * float(out.abs().max())
        if isinstance(total, Tensor) and torch.allclose(total, out.to(wide), rtol=tolerance, atol=atol):
            return _merge(parts, values, combined.out, as_rows, out)
    return None


def _merge(
    parts: list[Tensor], values: list[Tensor], out: Tensor, as_rows: Callable[[Tensor], Tensor], rows: Tensor
) -> JoinedMap:
    """One map of several tensors of values: of the same tokens if no row reads two of them, else one after another."""
    weights, v, expected = parts[0], values[0], rows
    for part, other in zip(parts[1:], values[1:], strict=True):
        shared = (weights.abs().sum(-1) > 0) & (part.abs().sum(-1) > 0)
        if part.shape == weights.shape and not bool(shared.any()):
            # (P₁ + P₂) V₁ = out − P₂ (V₂ − V₁)
            expected = expected - part @ (other - v)
            weights = weights + part
        else:
            weights, v = torch.cat([weights, part], -1), torch.cat([v, other], -2)
    return JoinedMap(weights, v, out, as_rows, expected)


def _probe(combined: Combined, leaf: Tensor, layout: ValueLayout) -> list[Tensor]:
    """The result for values that are columns of the identity, `width` columns at a time."""
    columns = []
    tokens = leaf.shape[layout.token]
    for first in range(0, tokens, layout.width):
        probe = torch.zeros_like(leaf)
        count = min(layout.width, tokens - first)
        for start in layout.starts:
            block = probe.narrow(layout.feature, start, count).narrow(layout.token, first, count)
            block.diagonal(0, layout.token, layout.feature).fill_(1)
        columns.append(replay(combined.node, {id(leaf): probe}))
    return columns


def _row_layouts(out: Tensor, b: int, h: int, width: int) -> Iterator[Callable[[Tensor], Tensor]]:  # -> "b h q v"
    """The ways to read a result as rows of heads, by its shape."""
    if out.shape[-1] == width and out.ndim == 4:
        for order in permutations(range(3)):
            if out.shape[order[0]] == b and out.shape[order[1]] == h:
                yield lambda t, order=order: t.permute(*order, 3)  # type: ignore[misc]
    if out.shape[-1] == width and out.ndim > 4 and out.shape[:2] == (b, h):
        yield lambda t: t.reshape(b, h, -1, width)
    if out.shape[-1] == width and out.ndim == 3 and out.shape[0] == b * h:
        yield lambda t: t.reshape(b, h, -1, width)
    if out.shape[-1] == h * width and out.ndim == 3:
        if out.shape[0] == b:
            yield lambda t: t.unflatten(-1, (h, width)).transpose(1, 2)
        if out.shape[1] == b:
            yield lambda t: t.unflatten(-1, (h, width)).permute(1, 2, 0, 3)


def _layout(leaf: Tensor, products: tuple[ValueProduct, ...]) -> ValueLayout | None:
    """The axes of a tensor of values, by the places at which its numbers stand when they are read."""
    for product in products:
        ids = _ids(product, leaf)
        if ids is None:
            continue
        layout = _layout_of_ids(ids, leaf)
        if layout is not None:
            return layout
    return None


def _layout_of_ids(ids: Tensor, leaf: Tensor) -> ValueLayout | None:  # "n k v"
    width = ids.shape[-1]
    heads = ids[(ids > 0).all(-1).sum(-1).argmax()]
    heads = heads[(heads > 0).all(-1)]  # keys that are no padding
    if width < 2 or len(heads) < 2:
        return None
    coordinates = torch.stack(torch.unravel_index(heads - 1, leaf.shape))  # "axes k v"
    along_keys = (coordinates[:, :, 0] != coordinates[:, :1, 0]).any(-1).nonzero().flatten().tolist()
    along_features = (coordinates[:, 0] != coordinates[:, 0, :1]).any(-1).nonzero().flatten().tolist()
    if len(along_keys) != 1 or len(along_features) != 1 or along_keys == along_features:
        return None
    token, feature = along_keys[0], along_features[0]
    firsts = ids[..., 0].flatten()
    starts = torch.unravel_index(firsts[firsts > 0] - 1, leaf.shape)[feature].unique().tolist()
    rest = [axis for axis in range(leaf.ndim) if axis not in (token, feature)]
    if len(rest) > 2 or (len(rest) == 2 and len(starts) > 1):
        return None
    # blocks of a batch of heads that are folded into the features, or an axis of heads after the samples
    batch, head = (rest[0] if rest else None), (rest[1] if len(rest) == 2 else None)
    if any(later - earlier < width for earlier, later in pairwise(starts)):
        return None
    return ValueLayout(token, feature, batch, head, tuple(starts), width)


def _covers_values(product: ValueProduct) -> bool:
    """Whether the columns of a read are the same tokens in all heads, or windows of tokens that do not overlap."""
    for leaf in leaves_of(product.values):
        ids = _ids(product, leaf)
        if ids is None:
            continue
        places = ids[..., 0]  # "n k"
        axes = torch.stack(torch.unravel_index((places - 1).clamp(min=0), leaf.shape))  # "axes n k"
        is_leaf = places > 0
        first = is_leaf.int().argmax(-1).view(1, -1, 1).expand(len(axes), -1, 1)
        along_keys = ((axes != axes.gather(-1, first)) & is_leaf).any(-1).any(-1)  # which axes hold tokens
        tokens = torch.where(is_leaf, axes, -1)[along_keys]  # "tokens n k"
        if bool((tokens == tokens[:, :1]).all()):
            continue
        counts = ids.unique(return_counts=True)[1]
        sizes = [size for size, is_token in zip(leaf.shape, along_keys.tolist(), strict=True) if is_token]
        is_partition = bool(is_leaf.all()) and int(counts.min()) == int(counts.max())
        if not is_partition or any(len(t.unique()) < size for t, size in zip(tokens, sizes, strict=True)):
            return False
    return True


def _ids(product: ValueProduct, leaf: Tensor) -> Tensor | None:  # -> "n k v"
    """The places in `leaf` of the numbers that a read takes as values, from 1 on; 0 for numbers from elsewhere."""
    dtype = torch.float64  # holds every number of a place
    places = torch.empty_strided(leaf.shape, leaf.stride(), dtype=dtype, device=leaf.device)
    places.copy_(torch.arange(1, leaf.numel() + 1, dtype=dtype, device=leaf.device).view(leaf.shape))
    read = replay(product.values, {id(leaf): places}, dtype)
    ids = product.as_values(read).round().long()
    return ids.reshape(-1, *ids.shape[-2:]) if ids.ndim >= 2 and bool((ids > 0).any()) else None
