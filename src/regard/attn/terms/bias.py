"""Biases: terms that depend on positions and are added to the scores. A bias may read the query; those of
`score_bias` read the scores and the mask, too.

Its axes before (q, k) are the last axes of the batch, first of all the heads: (h, q, k) serves scores (b, h, q, k).
"""

import math
from abc import abstractmethod
from typing import TypeGuard

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.attn.terms.tiles import PairMod, QueryKeyPairs, insert_head_axes, offsets
from regard.common import checks
from regard.kernels.dispatch import has_values, values_are_readable
from regard.kernels.precision import widen

__all__ = ["ALiBi", "Bias", "FIRE", "KerpleLog", "KerplePower", "LocalGaussian", "RelativeXL", "Shaw", "T5Buckets"]


class Bias(nn.Module):
    """bias(q, i, j) is added to the scores of queries at positions i and keys at positions j."""

    # whether it depends on the query, or on positions alone
    reads_query: bool = True
    # whether it depends on the number of keys of a sample
    reads_total: bool = False
    # whether it reads the scores (`ScoreBias`), and whether a row of it depends on the rows before
    reads_scores: bool = False
    reads_rows: bool = False
    # whether `score_mod` reads a tensor with a number per pair, or computes the number
    loads_pairs: bool = True

    def content(self, q: Tensor) -> Tensor:
        """The query as the score gets it."""
        return q

    @abstractmethod
    def forward(
        self, q: Tensor, i: Tensor, j: Tensor, total: int | Tensor
    ) -> Tensor:  # "*b q d", "*b q", "*b k" -> "*b q k"
        """The numbers added to the scores, in float32 where a half type would round them.

        `total` is the number of keys of the whole call, or per sample, "*b 1 1".
        """

    def score_mod(self, pairs: QueryKeyPairs, q: Tensor, total: int | Tensor) -> PairMod:
        """The number that is added to the score of one pair, for kernels that compute it inside of their loops; by
        default an entry of the whole tensor.
        """
        return pairs.of_heads(self(q, *pairs.positions(), total))

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "forward" in vars(cls) and "score_mod" not in vars(cls):
            cls.score_mod = Bias.score_mod  # type: ignore[method-assign]  # that of a base class is for its own `forward`


def _offsets(i: Tensor, j: Tensor, q: Tensor) -> Tensor:
    """j − i for every pair; if positions differ between samples, with an axis for the heads of q."""
    return insert_head_axes(offsets(i, j), q.ndim)


class ALiBi(Bias):
    """−m_h |i − j|, m_h = 2^(−8h/H)  (Press et al. 2022; for H not a power of two as the authors' code interleaves)."""

    reads_query = False
    loads_pairs = False
    slopes: Tensor

    def __init__(self, heads: int) -> None:
        super().__init__()
        checks.positive("heads", heads, "ALiBi")
        whole = 2 ** math.floor(math.log2(heads))
        slopes = [2.0 ** (-8 * (h + 1) / whole) for h in range(whole)]
        slopes += [2.0 ** (-4 * (2 * h + 1) / whole) for h in range(heads - whole)]
        self.register_buffer("slopes", torch.tensor(slopes), persistent=False)

    def forward(self, q: Tensor, i: Tensor, j: Tensor, total: int | Tensor) -> Tensor:
        checks.heads(q, len(self.slopes), self)
        # half types cannot distinguish far positions
        slopes = self.slopes.to(checks.accumulate_dtype(q.dtype)).neg().view(-1, 1, 1)
        return slopes * _offsets(i, j, q).abs()

    def score_mod(self, pairs: QueryKeyPairs, q: Tensor, total: int | Tensor) -> PairMod:
        checks.heads(q, len(self.slopes), self)
        slope, offset = pairs.of_heads(self.slopes.to(pairs.dtype).neg().view(-1, 1, 1)), pairs.offset()
        return lambda b, h, q, k: slope(b, h, q, k) * offset(b, h, q, k).abs()

    def extra_repr(self) -> str:
        return f"heads={len(self.slopes)}"


class T5Buckets(Bias):
    """table[h, bucket(j − i)]: near distances one by one, far ones by their logarithm  (Raffel et al. 2020, 2.1)."""

    reads_query = False
    loads_pairs = False

    def __init__(self, heads: int, *, buckets: int = 32, max_distance: int = 128, bidirectional: bool = True) -> None:
        super().__init__()
        checks.positive_ints("T5Buckets", heads=heads, buckets=buckets, max_distance=max_distance)
        if buckets < 4 or buckets % 2:
            raise ValueError(f"buckets must be even and at least 4 for T5Buckets, got {buckets}; try 32")
        if max_distance <= buckets:
            raise ValueError(f"max_distance must exceed buckets ({buckets}), got {max_distance}; try {4 * buckets}")
        self.table = nn.Embedding(buckets, heads)
        self.max_distance = max_distance
        self.bidirectional = bidirectional

    def bucket(self, ahead: Tensor) -> Tensor:
        """The bucket of every distance j − i."""
        buckets = self.table.num_embeddings
        offset = torch.zeros_like(ahead)
        if self.bidirectional:
            buckets //= 2
            offset = (ahead > 0).long() * buckets
            back = ahead.abs()
        else:
            back = (-ahead).clamp_min(0)
        near = buckets // 2
        far = torch.log(back.clamp_min(1).float() / near) / math.log(self.max_distance / near) * (buckets - near)
        far = (near + far.long()).clamp_max(buckets - 1)
        return offset + torch.where(back < near, back, far)

    def forward(self, q: Tensor, i: Tensor, j: Tensor, total: int | Tensor) -> Tensor:
        checks.heads(q, self.table.embedding_dim, self)
        bucket = self.bucket(insert_head_axes(offsets(i, j), q.ndim - 1))
        if bucket.ndim < q.ndim:  # the heads' axis comes from the table
            return self.table(bucket).movedim(-1, -3)  # (*b, h, q, k)
        heads = torch.arange(self.table.embedding_dim, device=bucket.device)[:, None, None]
        return self.table.weight[bucket, heads]  # (*b, h, q, k)

    def score_mod(self, pairs: QueryKeyPairs, q: Tensor, total: int | Tensor) -> PairMod:
        checks.heads(q, self.table.embedding_dim, self)
        # from `max_distance` on all distances are in the last bucket
        ahead = torch.arange(-self.max_distance, self.max_distance + 1, device=q.device)
        return pairs.by_offset(self.table(self.bucket(ahead)).T.unsqueeze(-2))  # (h, 1, distances)

    def __repr__(self) -> str:
        direction = "" if self.bidirectional else ", bidirectional=False"
        return f"T5Buckets({self.table.embedding_dim}, buckets={self.table.num_embeddings}{direction})"


class Shaw(Bias):
    """q_i · a[clip(j − i, −c, c)] · scale, scale = 1/√d unless given  (Shaw et al. 2018, eq. 4: relative keys)."""

    loads_pairs = False

    def __init__(self, dim: int, clip: int = 16, *, scale: float | None = None) -> None:
        super().__init__()
        checks.positive_ints("Shaw", dim=dim)
        checks.positive("clip", clip, "Shaw")
        self.table = nn.Parameter(torch.randn(2 * clip + 1, dim) / math.sqrt(dim))
        self.clip = clip
        self.scale = 1.0 / math.sqrt(dim) if scale is None else scale

    def forward(self, q: Tensor, i: Tensor, j: Tensor, total: int | Tensor) -> Tensor:
        index = _offsets(i, j, q).clamp(-self.clip, self.clip) + self.clip
        return _gather_distances(self._by_distance(q), index)

    def score_mod(self, pairs: QueryKeyPairs, q: Tensor, total: int | Tensor) -> PairMod:
        return pairs.by_offset(self._by_distance(q))

    def _by_distance(self, q: Tensor) -> Tensor:  # "*b q d" -> "*b q 2·clip+1"
        checks.width("q", q, self.table.shape[1], self)
        q = widen(q)
        return (q * self.scale) @ self.table.to(q.dtype).T

    def __repr__(self) -> str:
        return f"Shaw({self.table.shape[1]}, clip={self.clip})"


def _gather_distances(by_distance: Tensor, index: Tensor) -> Tensor:  # "*b q n", "*b q k" -> "*b q k"
    """by_distance[..., i, index[..., i, j]] for every pair."""
    leading = torch.broadcast_shapes(by_distance.shape[:-2], index.shape[:-2])
    return by_distance.expand(*leading, -1, -1).gather(-1, index.expand(*leading, -1, -1))


def _is_consecutive(positions: Tensor) -> bool:
    """Whether positions "n" that can be read ascend by one."""
    if positions.ndim != 1 or not values_are_readable(positions):
        return False
    return torch.equal(positions, positions[0] + torch.arange(len(positions), device=positions.device))


def _shift_rows(by_distance: Tensor, keys: int) -> Tensor:  # "*b q q+k-1" -> "*b q k"
    """by_distance[..., i, q − 1 − i + j] for every pair, as a view: row i begins one column before the row above it
    (the relative shift of Dai et al. 2019, appendix B).
    """
    by_distance = by_distance.contiguous()
    *leading, rows, count = by_distance.shape
    strides = (*by_distance.stride()[:-2], count - 1, 1)
    return by_distance.as_strided((*leading, rows, keys), strides, by_distance.storage_offset() + rows - 1)


class RelativeXL(Bias):
    """(q_i + v) · W R_{i−j} · scale, and the score gets q_i + u  (Dai et al. 2019, Transformer-XL, section 3.3).

    R_n = [sin(n ω); cos(n ω)], ω_k = 10000^(−2k/d). Also correct for keys ahead of the query: there is no relative
    shift. `clamp` is the greatest distance: farther keys have R of this distance.
    """

    # u and v are biases of queries
    no_weight_decay = ("u", "v")

    def __init__(
        self, dim: int, heads: int, head_dim: int, *, scale: float | None = None, clamp: int | None = None
    ) -> None:
        super().__init__()
        checks.positive_ints("RelativeXL", dim=dim, heads=heads, head_dim=head_dim)
        if clamp is not None:
            checks.positive_ints("RelativeXL", clamp=clamp)
        if dim % 2:
            raise ValueError(
                f"dim must be even for RelativeXL, a sine and a cosine for every frequency, got {dim}; try {dim + 1}"
            )
        self.position = nn.Linear(dim, heads * head_dim, bias=False)
        self.u = nn.Parameter(torch.empty(heads, 1, head_dim).normal_(std=0.02))
        self.v = nn.Parameter(torch.empty(heads, 1, head_dim).normal_(std=0.02))
        self.scale = 1.0 / math.sqrt(head_dim) if scale is None else scale
        self.clamp = clamp

    def content(self, q: Tensor) -> Tensor:
        checks.width("q", q, self.u.shape[-1], self)
        checks.heads(q, self.u.shape[0], self)
        return q + self.u.to(q.dtype)

    def forward(self, q: Tensor, i: Tensor, j: Tensor, total: int | Tensor) -> Tensor:
        if self.clamp is None and i.numel() and j.numel() and _is_consecutive(i) and _is_consecutive(j):
            # distances descend along the keys of a query
            greatest = int(i[-1] - j[0])
            count = i.shape[-1] + j.shape[-1] - 1
            by_distance = self._by_distance(q, greatest - torch.arange(count, device=i.device))
            return _shift_rows(by_distance, j.shape[-1])
        distance = -_offsets(i, j, q)
        if self.clamp is not None:
            distance = distance.clamp(-self.clamp, self.clamp)
        if distance.numel() == 0:
            return q.new_zeros(1) * distance
        least = distance.amin()
        # positions are assumed to be consecutive if the greatest distance cannot be read
        count = int(distance.amax() - least) + 1 if has_values(distance) else i.shape[-1] + j.shape[-1] - 1
        return _gather_distances(self._by_distance(q, least + torch.arange(count, device=i.device)), distance - least)

    def score_mod(self, pairs: QueryKeyPairs, q: Tensor, total: int | Tensor) -> PairMod:
        if not pairs.are_last or self.clamp is not None:
            return super().score_mod(pairs, q, total)
        # keys from first to last have descending distances; the last query's to the first key is the greatest
        queries, keys = pairs.size
        greatest = keys - 1
        by_distance = self._by_distance(q, greatest - torch.arange(queries + keys - 1, device=q.device))
        return pairs.by_offset(by_distance, pairs.number(greatest))

    def factors(self, q: Tensor, distances: Tensor) -> tuple[Tensor, Tensor]:  # "*b h q d", "n" -> "*b h q d", "h n d"
        """(q + v) · scale and W R: their products are the biases of keys at these distances."""
        heads, _, head_dim = self.u.shape
        q = widen(q)
        waves = sinusoids(distances, self.position.in_features, q.dtype)
        relative = F.linear(waves, self.position.weight.to(q.dtype)).view(distances.shape[0], heads, head_dim)
        return (q + self.v.to(q.dtype)) * self.scale, relative.transpose(0, 1)

    def _by_distance(self, q: Tensor, distances: Tensor) -> Tensor:  # "*b h q d", "n" -> "*b h q n"
        positional, relative = self.factors(q, distances)
        return positional @ relative.transpose(-1, -2)

    def __repr__(self) -> str:
        heads, _, head_dim = self.u.shape
        clamp = "" if self.clamp is None else f", clamp={self.clamp}"
        return f"RelativeXL({self.position.in_features}, heads={heads}, head_dim={head_dim}{clamp})"


def sinusoids(positions: Tensor, dim: int, dtype: torch.dtype = torch.float32) -> Tensor:  # "*p" -> "*p dim"
    """[sin(p ω); cos(p ω)], ω_k = 10000^(−2k/dim), sines before cosines."""
    frequencies = 10000.0 ** (-torch.arange(0, dim, 2, device=positions.device, dtype=dtype) / dim)
    angles = positions.unsqueeze(-1).to(dtype) * frequencies
    return torch.cat([angles.sin(), angles.cos()], dim=-1)


class _Kerple(Bias):
    """The parameters of a kernel of distances, one pair per head, and the distances.

    r₁ starts between 0 and `greatest`; it is stored as its logarithm, so that it stays positive.
    """

    reads_query = False
    greatest: float

    def __init__(self, heads: int) -> None:
        super().__init__()
        checks.positive_ints(type(self).__name__, heads=heads)
        self.log_scale = nn.Parameter(torch.empty(heads).uniform_(0.01, self.greatest).log())
        self.shape = nn.Parameter(self._first_shape(torch.rand(heads)))

    @abstractmethod
    def _first_shape(self, uniform: Tensor) -> Tensor:
        """The parameter behind r₂, from a number between 0 and 1 per head."""

    @abstractmethod
    def _kernel(self, distance: Tensor, shape: Tensor) -> Tensor:  # "*b h q k", "h 1 1" -> "*b h q k"
        """The kernel without its factor −r₁."""

    def forward(self, q: Tensor, i: Tensor, j: Tensor, total: int | Tensor) -> Tensor:
        checks.heads(q, len(self.log_scale), self)
        dtype = checks.accumulate_dtype(q.dtype)
        scale, shape = self.log_scale.to(dtype).exp(), self.shape.to(dtype)
        distance = _offsets(i, j, q).abs().to(dtype)
        return -scale[:, None, None] * self._kernel(distance, shape[:, None, None])

    def extra_repr(self) -> str:
        return f"heads={len(self.log_scale)}"


class KerpleLog(_Kerple):
    """−r₁ log(1 + r₂ |i − j|), r₁ and r₂ positive and trained, one pair per head  (Chi et al. 2022, logarithmic)."""

    greatest = 2.0

    def _first_shape(self, uniform: Tensor) -> Tensor:
        return uniform.clamp_min(0.01).log()

    def _kernel(self, distance: Tensor, shape: Tensor) -> Tensor:
        return torch.log1p(shape.exp() * distance)


class KerplePower(_Kerple):
    """−r₁ |i − j|^r₂, r₁ positive, 0 < r₂ < 2, both trained, one pair per head  (Chi et al. 2022, power).

    ALiBi is r₂ = 1 with fixed r₁.
    """

    greatest = 1.0

    def _first_shape(self, uniform: Tensor) -> Tensor:
        return torch.logit(uniform.clamp(0.01, 0.99))

    def _kernel(self, distance: Tensor, shape: Tensor) -> Tensor:
        return distance ** (2.0 * torch.sigmoid(shape))


class FIRE(Bias):
    """f_h(log(c |i − j| + 1) / log(c max(i, L) + 1)), f a network with one hidden layer  (Li et al. 2024, FIRE).

    Distances are shares of the position of the query, or of the trained threshold L while the query is nearer to the
    beginning: a text of any length has the distances of the training.
    """

    reads_query = False

    def __init__(self, heads: int, *, hidden: int = 32, threshold: float = 512.0) -> None:
        super().__init__()
        checks.positive_ints("FIRE", heads=heads, hidden=hidden)
        checks.positive("threshold", threshold, "FIRE")
        self.inner, self.outer = nn.Linear(1, hidden), nn.Linear(hidden, heads)
        self.c = nn.Parameter(torch.tensor(0.1))
        self.factor = nn.Parameter(torch.tensor(1.0))  # of the threshold
        self.threshold = threshold

    def forward(self, q: Tensor, i: Tensor, j: Tensor, total: int | Tensor) -> Tensor:
        checks.heads(q, self.outer.out_features, self)
        dtype = checks.accumulate_dtype(q.dtype)
        c, threshold = self.c.to(dtype), (self.factor.to(dtype) * self.threshold).abs()
        greatest = torch.maximum(insert_head_axes(i.unsqueeze(-1), q.ndim - 1).to(dtype), threshold)
        distance = insert_head_axes(offsets(i, j), q.ndim - 1).abs().to(dtype)
        share = torch.log1p((c * distance).abs()) / (torch.log1p((c * greatest).abs()) + 1e-6)
        hidden = torch.relu(share.unsqueeze(-1) * self.inner.weight.to(dtype).squeeze(-1) + self.inner.bias.to(dtype))
        return F.linear(hidden, self.outer.weight.to(dtype), self.outer.bias.to(dtype)).movedim(-1, -3)

    def __repr__(self) -> str:
        return f"FIRE({self.outer.out_features}, hidden={self.inner.out_features}, threshold={self.threshold:g})"


class LocalGaussian(Bias):
    """−(j − p)² / 2σ², p = S σ(v · tanh(W q)), σ = D/2  (Luong et al. 2015, local-p, as Yang et al. 2018 add it).

    Added to the scores, the weights sum to one again. Luong multiplies after the softmax: see `regard.layers.Local`.
    """

    reads_total = True
    loads_pairs = False

    def __init__(self, dim: int, hidden: int, window: float = 10.0) -> None:
        super().__init__()
        checks.positive_ints("LocalGaussian", dim=dim, hidden=hidden)
        checks.positive("window", window, "LocalGaussian")
        self.hidden = nn.Linear(dim, hidden, bias=False)
        self.place = nn.Linear(hidden, 1, bias=False)
        self.window = window

    def centre(self, q: Tensor, total: int | Tensor) -> Tensor:  # "*b q d" -> "*b q 1"
        """p: the predicted position of the query, between 0 and `total`."""
        checks.width("q", q, self.hidden.in_features, self)
        # distances are float32 at least: half types cannot distinguish far positions
        q = widen(q)
        hidden = torch.tanh(F.linear(q, self.hidden.weight.to(q.dtype)))
        return total * torch.sigmoid(F.linear(hidden, self.place.weight.to(q.dtype)))

    def log_density(self, centre: Tensor, j: Tensor) -> Tensor:  # "*b q 1", "*b k" -> "*b q k"
        distance = insert_head_axes(j.unsqueeze(-2), centre.ndim).to(centre.dtype) - centre
        return -distance.square() / (2 * (self.window / 2) ** 2)

    def forward(self, q: Tensor, i: Tensor, j: Tensor, total: int | Tensor) -> Tensor:
        return self.log_density(self.centre(q, total), j)

    def score_mod(self, pairs: QueryKeyPairs, q: Tensor, total: int | Tensor) -> PairMod:
        centre, j = pairs.of_heads(self.centre(q, total)), pairs.key_position()
        width = pairs.number(-2.0 * (self.window / 2) ** 2)
        return lambda b, h, q, k: (j(b, h, q, k) - centre(b, h, q, k)).square() / width

    def __repr__(self) -> str:
        return f"LocalGaussian({self.hidden.in_features}, {self.hidden.out_features}, window={self.window:g})"


class TensorBias(Bias):
    """A tensor added to the scores, "*b q k", indexed by the queries and keys of this call."""

    reads_query = False
    loads_pairs = False  # which is there already

    def __init__(self, values: Tensor) -> None:
        super().__init__()
        self.values = values

    def forward(self, q: Tensor, i: Tensor, j: Tensor, total: int | Tensor) -> Tensor:
        return self.values if self.values.dtype.itemsize <= 4 else self.values.to(checks.accumulate_dtype(q.dtype))


def is_score_mask(mask: object) -> TypeGuard[Tensor]:
    """Whether a mask holds numbers to be added to the scores, and not booleans."""
    return isinstance(mask, Tensor) and mask.is_floating_point()
