"""NativeSparseAttention: three gated reads, of compressed blocks, of selected blocks, and of a window."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.attn.base import AttentionModule
from regard.attn.call import NOTHING, Attended, AttentionInputs, Need, Terms
from regard.attn.functional import attend_inputs, explain_inputs, set_projected_rows_nan
from regard.attn.kv_cache import KVCache, check_cache
from regard.attn.nonfinite import hide_nonfinite_inputs
from regard.attn.terms.block_masks import SelectedBlocks, VisibleBlocks, check_fixed, select_blocks, visible_blocks
from regard.attn.terms.mask import BooleanMask, Mask, as_mask
from regard.attn.terms.position import check_pair, default_positions
from regard.attn.terms.sequence_masks import Causal, Window
from regard.attn.terms.tiles import Positions, insert_head_axes
from regard.common import checks
from regard.kernels.dispatch import values_are_readable

READS = ("compressed", "selected", "window")
# queries whose blocks are selected together: their scores of all compressed blocks are in memory at once
_ROWS = 1024


class NativeSparseAttention(AttentionModule):
    """Σ_c g_c ∘ attention(q, k_c, v_c), g = σ(W_g x), c: compressed, selected, window  (Yuan et al. 2025, NSA).

    Blocks of `block` keys, `stride` apart, are compressed by an MLP into one key and one value each. Their weights,
    summed over the query heads that share a key head, select `count` blocks of `size` keys: the first one, that of the
    query and the one before it always, the best of the others. The third read sees `window` keys. Each read has keys
    and values of its own. A compressed block serves the queries that may attend to all of it, so that a causal mask
    leaks nothing. The selection has no gradient: compression learns by its own read.

    Weights, where they are asked for, are those of the three reads in the shares of their gates; the weight of a
    compressed block is spread evenly over its keys.
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        kv_heads: int | None = None,
        head_dim: int | None = None,
        key_dim: int | None = None,
        block: int = 32,
        stride: int = 16,
        size: int = 64,
        count: int = 16,
        window: int = 512,
    ) -> None:
        super().__init__()
        head_dim = checks.head_width("NativeSparseAttention", dim, heads, head_dim)
        kv_heads = checks.key_heads("NativeSparseAttention", heads, kv_heads)
        checks.positive_ints("NativeSparseAttention", block=block, stride=stride, size=size, count=count, window=window)
        if block % stride or size % stride:
            raise ValueError(
                f"block and size must be multiples of the stride for NativeSparseAttention, got block={block}, "
                f"size={size} and stride={stride}; try stride={math.gcd(block, size)}"
            )
        self.heads, self.kv_heads, self.head_dim = heads, kv_heads, head_dim
        self.block, self.stride, self.size, self.count, self.window = block, stride, size, count, window
        key_dim = dim if key_dim is None else key_dim
        self.query = nn.Linear(dim, heads * head_dim)
        # a bias of keys changes no weight of two of the reads
        self.key = nn.Linear(key_dim, kv_heads * 3 * head_dim, bias=False)
        self.value = nn.Linear(key_dim, kv_heads * 3 * head_dim)
        self.compress_key, self.compress_value = _Compression(head_dim, block), _Compression(head_dim, block)
        self.gate = nn.Linear(dim, 3 * heads)
        self.out = nn.Linear(heads * head_dim, dim)

    def project_kv(self, k: Tensor, v: Tensor | None = None, *, past: KVCache | None = None) -> KVCache:
        """Keys and values of the three reads, side by side, appended to `past`."""  # "*b k e" -> "*b g k 3·d"
        for name, t in (("k", k), ("v", v)):
            checks.width(name, t, self.key.in_features, self)
        keys, values = (
            layer(t).unflatten(-1, (self.kv_heads, -1)).transpose(-2, -3)
            for layer, t in ((self.key, k), (self.value, k if v is None else v))
        )
        check_cache(past)
        return KVCache(keys, values) if past is None else past.extend(keys, values)

    def step(
        self, x: Tensor, past: KVCache | None = None, *, mask: Mask | Tensor | None = None
    ) -> tuple[Tensor, KVCache]:  # "*b n d" -> "*b n d"
        """Self-attention of x to `past` and itself, and `past` with the keys and values of x appended."""
        cache = self.project_kv(x, past=past)
        return self(x, cache, mask=mask), cache

    def attend_inputs(self, inputs: AttentionInputs) -> Attended:
        for name in ("log_prob", "lse", "map", "entropy", "key_index", "scores"):
            if getattr(inputs.need, name):
                raise ValueError(
                    f"{name} is not available from NativeSparseAttention, which reads three times; ask for weights"
                )
        q, k, v, mask, positions, need, _ = inputs
        check_pair(positions)
        checks.width("q", q, self.query.in_features, self)
        check_fixed("NativeSparseAttention", q.shape[-2], (k.keys if isinstance(k, KVCache) else k).shape[-2])
        if q.ndim == 2:
            return self.attend_inputs(_as_samples(inputs)).transform(lambda t: t[0], lambda t: t[0])
        rows = None
        if mask is not None:
            mask = as_mask(mask).over_heads(q.ndim + 1)
            if isinstance(k, Tensor):
                q, k, v, rows = hide_nonfinite_inputs(q, k, v, mask, positions, self.heads)
        memory = k if isinstance(k, KVCache) else self.project_kv(k, v)
        i, j = default_positions(q.shape[-2], len(memory), q.device) if positions is None else positions
        gates = torch.sigmoid(self.gate(q)).unflatten(-1, (3, self.heads)).transpose(-1, -3)  # "*b h 3 q"
        queries = self.query(q).unflatten(-1, (self.heads, -1)).transpose(-2, -3)  # "*b h q d"
        total, weights = torch.zeros_like(queries), []
        for number, read in enumerate(self._reads(queries, memory, mask, (i, j))):
            if read is None:
                continue
            result = attend_inputs(read._replace(need=Need(weights=need.weights)), Terms(), None)
            share = gates[..., number, :].unsqueeze(-1)
            total = total + share * result.out
            if result.weights is not None:
                spread = self._spread(result.weights, len(memory)) if number == 0 else result.weights
                weights.append(share * spread)
        out = self.out(total.transpose(-2, -3).flatten(-2))
        shares = None
        if need.weights:
            shape = (*queries.shape[:-1], len(memory))
            shares = sum(weights, queries.new_zeros(shape)) / gates.sum(-2).unsqueeze(-1)
        return set_projected_rows_nan(Attended(total, weights=shares), out, rows)

    def explain_inputs(self, inputs: AttentionInputs) -> str:
        q, k, v, mask, positions, _, _ = inputs if inputs.q.ndim > 2 else _as_samples(inputs)
        memory = k if isinstance(k, KVCache) else self.project_kv(k, v)
        places = default_positions(q.shape[-2], len(memory), q.device) if positions is None else positions
        queries = self.query(q).unflatten(-1, (self.heads, -1)).transpose(-2, -3)
        mask = None if mask is None else as_mask(mask).over_heads(q.ndim + 1)
        reads = zip(READS, self._reads(queries, memory, mask, places), strict=True)
        return "\n".join(
            f"{name}: " + ("no block is complete" if read is None else explain_inputs(read, Terms(), None))
            for name, read in reads
        )

    def _reads(
        self, q: Tensor, memory: KVCache, mask: Mask | None, positions: Positions
    ) -> tuple[AttentionInputs | None, AttentionInputs | None, AttentionInputs | None]:  # q "*b h q d"
        """The calls of the three reads; None without a key, or without a complete block."""
        if len(memory) == 0:
            return None, None, None
        if mask is not None:
            mask = mask.fit(tuple(q.shape[:-2]), q.shape[-2], len(memory), q.device)
        keys, values = memory.keys.chunk(3, -1), memory.values.chunk(3, -1)
        i, j = positions
        compressed = None
        if len(memory) >= self.block:
            pooled = self.compress_key(keys[0], self.stride), self.compress_value(values[0], self.stride)
            ends = j.unfold(-1, self.block, self.stride).amax(-1)
            whole = self._whole_blocks(mask, positions, ends, q.ndim)
            # a causal mask is one of the greatest positions of blocks, too, and skips tiles
            rule = Causal() if type(mask) is Causal else None if whole is None else BooleanMask(whole)
            compressed = AttentionInputs(q, pooled[0], pooled[1], rule, (i, ends), NOTHING)
            scores = _block_importance(self, q, pooled[0], whole, -(-len(memory) // self.size))
        else:
            scores = q.new_zeros(*q.shape[:-3], self.kv_heads, q.shape[-2], -(-len(memory) // self.size))
        selection: Mask = SelectedBlocks(self._select(scores, mask, positions, q.ndim), self.size)
        near: Mask = Window(self.window - 1, self.window - 1)
        if mask is not None:
            selection, near = selection & mask, near & mask
        return (
            compressed,
            AttentionInputs(q, keys[1], values[1], selection, positions, NOTHING),
            AttentionInputs(q, keys[2], values[2], near, positions, NOTHING),
        )

    def _whole_blocks(
        self, mask: Mask | None, positions: Positions, ends: Tensor, axes: int
    ) -> Tensor | None:  # "*b h q m"
        """Whether a query may attend to all keys of a compressed block, up to position `ends`; None: all may."""
        if mask is None:
            return None
        if type(mask) is Causal:  # their greatest positions decide; the bounds of all strides would take gigabytes
            return insert_head_axes(ends.unsqueeze(-2) <= positions[0].unsqueeze(-1), axes)
        strides = visible_blocks(positions, self.stride, mask, axes).whole
        return strides.unfold(-1, self.block // self.stride, 1).all(-1)[..., : self._count(positions[1].shape[-1])]

    def _count(self, keys: int) -> int:
        """The number of compressed blocks."""
        return max((keys - self.block) // self.stride + 1, 0)

    @torch.no_grad()
    def _select(self, scores: Tensor, mask: Mask | None, positions: Positions, axes: int) -> Tensor:
        """The blocks of every query, "*b h q n", equal for heads that share keys."""
        some, whole, own = (_per_group(t, self, axes) for t in visible_blocks(positions, self.size, mask, axes))
        visible = VisibleBlocks(some.any(-3), whole.all(-3), own.any(-3))
        always = visible.own | F.pad(visible.own[..., 1:], (0, 1))
        always = always | (torch.arange(scores.shape[-1], device=scores.device) == 0)
        selection = select_blocks(scores, visible, always, max(self.count - 3, 0))
        return selection.repeat_interleave(self.heads // self.kv_heads, -3)

    def _spread(self, weights: Tensor, keys: int) -> Tensor:  # "*b h q m" -> "*b h q k"
        """The weights of compressed blocks, evenly over their keys."""
        starts = torch.arange(weights.shape[-1], device=weights.device) * self.stride
        at = torch.arange(keys, device=weights.device)
        inside = (at >= starts.unsqueeze(-1)) & (at < starts.unsqueeze(-1) + self.block)
        return weights @ (inside.to(weights.dtype) / self.block)

    def extra_repr(self) -> str:
        shared = f", kv_heads={self.kv_heads}" if self.kv_heads != self.heads else ""
        return (
            f"heads={self.heads}{shared}, block={self.block}, stride={self.stride}, size={self.size}, "
            f"count={self.count}, window={self.window}"
        )


class _Compression(nn.Module):
    """W₂ gelu(W₁ [k_1 + p_1; …; k_l + p_l]): one vector per block, with positions in the block."""

    def __init__(self, width: int, block: int) -> None:
        super().__init__()
        self.positions = nn.Parameter(torch.randn(block, width) * 0.02)
        self.hidden = nn.Linear(block * width, 2 * width)
        self.outer = nn.Linear(2 * width, width, bias=False)

    def forward(self, t: Tensor, stride: int) -> Tensor:  # "*b k d" -> "*b m d"
        blocks = t.unfold(-2, len(self.positions), stride).transpose(-1, -2) + self.positions
        return self.outer(F.gelu(self.hidden(blocks.flatten(-2))))


def _as_samples(inputs: AttentionInputs) -> AttentionInputs:
    """The inputs of one sample with an axis of samples, which groups of heads need."""
    q, k, v, mask, *_ = inputs
    k = KVCache(k.keys[None], k.values[None]) if isinstance(k, KVCache) else k[None]
    mask = mask[None] if isinstance(mask, Tensor) and mask.ndim > 2 else mask
    return inputs._replace(q=q[None], k=k, v=None if v is None else v[None], mask=mask)


def _per_group(t: Tensor, layer: NativeSparseAttention, axes: int) -> Tensor:  # "*b h q n" -> "*b g h/g q n"
    """With an axis for the heads of a group; a mask of all heads has one head and one group."""
    t = t.expand(*(1,) * (axes - t.ndim), *t.shape)
    return t.unsqueeze(-3) if t.shape[-3] == 1 else t.unflatten(-3, (layer.kv_heads, -1))


@torch.no_grad()
def _block_importance(
    layer: NativeSparseAttention, q: Tensor, keys: Tensor, whole: Tensor | None, blocks: int
) -> Tensor:  # "*b h q d", "*b g m d" -> "*b g q n"
    """The weights of compressed blocks, by the strides that they share with a block of keys  (Yuan et al. 2025, (9)),
    summed over the heads of a group.
    """
    grouped = q.unflatten(-3, (layer.kv_heads, -1))  # "*b g h/g q d"
    visible = None if whole is None else _per_group(whole, layer, q.ndim)
    parts = []
    for start in range(0, max(q.shape[-2], 1), _ROWS):  # once without queries, too
        rows = slice(start, start + _ROWS)
        count = keys.shape[-2]
        if visible is not None and values_are_readable(q):  # no query of these sees the blocks behind
            seen = visible[..., rows, :].flatten(0, -2).any(0).nonzero()
            count = int(seen[-1]) + 1 if len(seen) else 0
        s = grouped[..., rows, :] @ keys[..., :count, :].unsqueeze(-3).transpose(-1, -2) * layer.head_dim**-0.5
        if visible is not None:
            s = s.masked_fill(~visible[..., rows, :count], -torch.inf)
        parts.append(_over_strides(torch.softmax(s, -1).sum(-3), layer, blocks).nan_to_num(0.0))
    return torch.cat(parts, -2)


def _over_strides(weights: Tensor, layer: NativeSparseAttention, blocks: int) -> Tensor:  # "*b q m" -> "*b q n"
    """The sum, per block of keys, of the weights of its strides; a compressed block gives its weight to each of its
    strides.
    """
    width, strides = layer.block // layer.stride, layer.size // layer.stride
    padded = F.pad(weights, (width - 1, max(blocks * strides - weights.shape[-1], 0)))
    by_stride = sum(padded[..., n : n + blocks * strides] for n in range(width))
    assert isinstance(by_stride, Tensor)
    return by_stride.unflatten(-1, (blocks, strides)).sum(-1)
