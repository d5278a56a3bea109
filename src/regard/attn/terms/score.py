"""Scores: how well a query matches a key, by two projections, `queries(q)` and `keys(k)`, and a comparison of both.

Keys are projected once and may be cached. A score whose comparison is a dot product runs on every dot kernel; one whose
comparison is a tanh runs on the additive kernel; any other comparison runs blocked or eager.

Half types are projected and compared in float32: an exponential would turn the rounding of a score into a factor.
"""

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.attn.terms.learnable import Learnable, format_number, per_head
from regard.attn.terms.tiles import QueryKeyPairs
from regard.common import checks
from regard.kernels.dispatch import autocast_disabled
from regard.kernels.precision import widen

__all__ = [
    "Additive",
    "Bilinear",
    "Concat",
    "Cosine",
    "Dot",
    "Kernel",
    "Location",
    "LocationSensitive",
    "NormedAdditive",
    "Score",
    "Trilinear",
]


class Score(nn.Module):
    """score(q, k) = compare(queries(q), keys(k)).

    To define a score, subclass and implement `compare` (and the projections, if it has any).
    """

    comparison: Literal["dot", "tanh", "own"] = "own"
    # whether the scores of a head depend on those of others
    mixes_heads: bool = False

    @property
    def comparison_noun(self) -> str:
        """The comparison as reports name it."""
        return "a function of its own" if self.comparison == "own" else self.comparison

    def queries(self, q: Tensor) -> Tensor:  # "*b q d" -> "*b q c"
        return q

    def keys(self, k: Tensor) -> Tensor:  # "*b k e" -> "*b k c"
        return k

    def shift_keys(self, keys: Tensor, start: int) -> Tensor:
        """Projected keys that are appended behind `start` others; unchanged, unless the score depends on positions."""
        return keys

    def scale_of(self, width: int) -> float:
        """The factor on a dot product, given the width of the projected queries."""
        return 1.0

    @property
    def dot_score(self) -> "Score | None":
        """The score of dot products that this one is a function of, itself if it is one; None if it is neither."""
        return self if self.comparison == "dot" else None

    def dot_mod(self, pairs: QueryKeyPairs) -> Callable[[Tensor], Tensor]:
        """This score as a function of one number, that of its `dot_score`."""
        return lambda x: x

    def operands(self, queries: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
        """The projected tensors in the form that `compare` and the kernels take; made once both are known."""
        return queries, keys

    @abstractmethod
    def compare(self, queries: Tensor, keys: Tensor) -> Tensor:  # "*b q c", "*b k c" -> "*b q k"
        """The scores of the operands."""

    def check(self, q: Tensor | None, k: Tensor | None) -> None:
        """Raises if q and k cannot be compared; None means that the tensor is not there yet or is already projected."""

    def forward(self, q: Tensor, k: Tensor) -> Tensor:  # "*b q d", "*b k e" -> "*b q k"
        self.check(q, k)
        return self.compare(*self.operands(self.queries(q), self.keys(k)))


def project(linear: nn.Linear, x: Tensor) -> Tensor:  # "*b n d" -> "*b n c"
    """linear(x), of half types in float32."""
    if x.dtype.itemsize >= 4:
        return linear(x)
    x = widen(x)
    return F.linear(x, linear.weight.to(x.dtype), None if linear.bias is None else linear.bias.to(x.dtype))


def compare(score: Score, queries: Tensor, keys: Tensor) -> Tensor:  # "*b q c", "*b k c" -> "*b q k"
    """score.compare(queries, keys), of half types in float32."""
    is_half = queries.dtype.itemsize < 4 or keys.dtype.itemsize < 4
    # a comparison of another author may use parameters of the half type
    if not is_half or (score.comparison == "own" and any(p.dtype.itemsize < 4 for p in score.parameters())):
        return score.compare(queries, keys)
    with autocast_disabled(queries.device):
        return score.compare(widen(queries), widen(keys) if keys.is_floating_point() else keys)


def dot(queries: Tensor, keys: Tensor, scale: float = 1.0) -> Tensor:  # "*b q c", "*b k c" -> "*b q k"
    """scale · queries · keys for every pair."""
    return (queries if scale == 1.0 else queries * scale) @ keys.transpose(-1, -2)


class DotScore(Score):
    """scale · queries(q) · keys(k): the base class of all scores that kernels of dot products can run."""

    comparison = "dot"

    def compare(self, queries: Tensor, keys: Tensor) -> Tensor:
        return dot(queries, keys, self.scale_of(queries.shape[-1]))


class Dot(DotScore):
    """scale · q·k, scale = 1/√d unless given  (Vaswani et al. 2017, eq. 1; scale=1.0 is Luong et al. 2015, dot)."""

    def __init__(self, scale: float | None = None) -> None:
        super().__init__()
        if scale is not None:
            checks.number("scale", scale, "Dot")
        self.scale = scale

    def scale_of(self, width: int) -> float:
        return 1.0 / math.sqrt(max(width, 1)) if self.scale is None else self.scale

    def check(self, q: Tensor | None, k: Tensor | None) -> None:
        checks.same_width(q, k, "Dot")

    def extra_repr(self) -> str:
        return "" if self.scale is None else f"scale={self.scale:g}"


class Bilinear(DotScore):
    """qᵀ W k  (Luong et al. 2015, general)."""

    def __init__(self, query_dim: int, key_dim: int) -> None:
        super().__init__()
        checks.positive_ints("Bilinear", query_dim=query_dim, key_dim=key_dim)
        # the matrix is applied to the keys, so that cached keys include it and a decoding step is a plain dot product
        self.key = nn.Linear(key_dim, query_dim, bias=False)

    def queries(self, q: Tensor) -> Tensor:
        return widen(q)

    def keys(self, k: Tensor) -> Tensor:
        return project(self.key, k)

    def check(self, q: Tensor | None, k: Tensor | None) -> None:
        checks.width("q", q, self.key.out_features, self)
        checks.width("k", k, self.key.in_features, self)

    def __repr__(self) -> str:
        return f"Bilinear({self.key.out_features}, {self.key.in_features})"


class Cosine(DotScore):
    """scale · q·k / (‖q‖ ‖k‖)  (Graves et al. 2014, content addressing; Liu et al. 2022 train the scale)."""

    def __init__(self, scale: float | Learnable = 10.0) -> None:
        super().__init__()
        checks.positive("scale", scale.init if isinstance(scale, Learnable) else scale, "Cosine")
        # a trained scale is stored as its logarithm: it stays positive
        self.log_scale = scale.parameter(math.log(scale.init)) if isinstance(scale, Learnable) else None
        self.scale = None if isinstance(scale, Learnable) else scale

    def queries(self, q: Tensor) -> Tensor:
        unit = F.normalize(widen(q), dim=-1, eps=1e-6)
        return unit if self.log_scale is None else unit * per_head(self.log_scale, unit, self).exp()

    def keys(self, k: Tensor) -> Tensor:
        return F.normalize(widen(k), dim=-1, eps=1e-6)

    def scale_of(self, width: int) -> float:
        return 1.0 if self.scale is None else self.scale

    def check(self, q: Tensor | None, k: Tensor | None) -> None:
        checks.same_width(q, k, "Cosine")

    def extra_repr(self) -> str:
        return "scale=" + format_number(self.scale if self.scale is not None else Learnable(1.0))


def append_columns(t: Tensor, *extra: Tensor) -> Tensor:
    """`t` with further columns, zero-padded to a multiple of 8, for which dot kernels are fastest."""
    missing = -(t.shape[-1] + len(extra)) % 8
    zeros = [t.new_zeros(()).expand(*t.shape[:-1], missing)] if missing else []
    return torch.cat([t, *extra, *zeros], dim=-1)


class Trilinear(DotScore):
    """w · [q; k; q∘k] = w₁·q + w₂·k + (w₃∘q)·k  (Seo et al. 2017, BiDAF), without a (q, k, 3d) tensor."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        checks.positive_ints("Trilinear", dim=dim)
        bound = 1.0 / math.sqrt(3 * max(dim, 1))
        self.query = nn.Parameter(torch.empty(dim).uniform_(-bound, bound))
        self.key = nn.Parameter(torch.empty(dim).uniform_(-bound, bound))
        self.both = nn.Parameter(torch.empty(dim).uniform_(-bound, bound))

    def queries(self, q: Tensor) -> Tensor:
        q = widen(q)
        row = (q * self.query).sum(-1, keepdim=True)
        return append_columns(q * self.both, row, torch.ones_like(row))

    def keys(self, k: Tensor) -> Tensor:
        k = widen(k)
        column = (k * self.key).sum(-1, keepdim=True)
        return append_columns(k, torch.ones_like(column), column)

    def check(self, q: Tensor | None, k: Tensor | None) -> None:
        checks.width("q", q, self.query.numel(), self)
        checks.width("k", k, self.key.numel(), self)

    def __repr__(self) -> str:
        return f"Trilinear({self.query.numel()})"


class TanhScore(Score):
    """energy · tanh(queries(q) + keys(k)): the base class of all scores that the additive kernel can run."""

    comparison = "tanh"
    energy: nn.Parameter

    def compare(self, queries: Tensor, keys: Tensor) -> Tensor:
        # (*b, q, k, hidden): the direct form, which all backends except eager avoid
        return torch.tanh(queries.unsqueeze(-2) + keys.unsqueeze(-3)) @ self.energy.to(queries.dtype)


def _energy(hidden: int) -> nn.Parameter:
    bound = 1.0 / math.sqrt(max(hidden, 1))
    return nn.Parameter(torch.empty(hidden).uniform_(-bound, bound))


class _ProjectedTanhScore(TanhScore):
    """energy · tanh(W q + U k + b), b only with `bias`."""

    def __init__(self, query_dim: int, key_dim: int, hidden: int, *, bias: bool) -> None:
        super().__init__()
        checks.positive_ints(type(self).__name__, query_dim=query_dim, key_dim=key_dim, hidden=hidden)
        self.query = nn.Linear(query_dim, hidden, bias=bias)
        self.key = nn.Linear(key_dim, hidden, bias=False)

    def queries(self, q: Tensor) -> Tensor:
        return project(self.query, q)

    def keys(self, k: Tensor) -> Tensor:
        return project(self.key, k)

    def check(self, q: Tensor | None, k: Tensor | None) -> None:
        checks.width("q", q, self.query.in_features, self)
        checks.width("k", k, self.key.in_features, self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.query.in_features}, {self.key.in_features}, {self.query.out_features})"


class Additive(_ProjectedTanhScore):
    """v · tanh(W q + U k)  (Bahdanau et al. 2015, A.1.2); with `bias`, v · tanh(W q + U k + b)."""

    def __init__(self, query_dim: int, key_dim: int, hidden: int, *, bias: bool = False) -> None:
        super().__init__(query_dim, key_dim, hidden, bias=bias)
        self.energy = _energy(hidden)

    def __repr__(self) -> str:
        return super().__repr__() if self.query.bias is None else f"{super().__repr__()[:-1]}, bias=True)"


class NormedAdditive(_ProjectedTanhScore):
    """g v/‖v‖ · tanh(W q + U k + b), g = 1/√hidden at first  (Raffel et al. 2017, weight-normalized)."""

    def __init__(self, query_dim: int, key_dim: int, hidden: int) -> None:
        super().__init__(query_dim, key_dim, hidden, bias=True)
        self.direction = nn.Parameter(torch.randn(hidden))
        self.gain = nn.Parameter(torch.tensor(1.0 / math.sqrt(hidden)))

    @property
    def energy(self) -> Tensor:  # type: ignore[override]
        return widen(self.gain) * F.normalize(widen(self.direction), dim=0)


class Concat(TanhScore):
    """v · tanh(W [q; k])  (Luong et al. 2015, concat): the additive score with one joint matrix W, as in the paper."""

    def __init__(self, query_dim: int, key_dim: int, hidden: int) -> None:
        super().__init__()
        checks.positive_ints("Concat", query_dim=query_dim, key_dim=key_dim, hidden=hidden)
        self.joined = nn.Linear(query_dim + key_dim, hidden, bias=False)
        self.energy = _energy(hidden)
        self.query_dim = query_dim
        self.key_dim = key_dim

    def queries(self, q: Tensor) -> Tensor:
        return F.linear(widen(q), self._weight(q)[:, : self.query_dim])

    def keys(self, k: Tensor) -> Tensor:
        return F.linear(widen(k), self._weight(k)[:, self.query_dim :])

    def _weight(self, x: Tensor) -> Tensor:
        """W in the dtype in which x is projected."""
        return self.joined.weight.to(checks.accumulate_dtype(x.dtype))

    def check(self, q: Tensor | None, k: Tensor | None) -> None:
        checks.width("q", q, self.query_dim, self)
        checks.width("k", k, self.key_dim, self)

    def __repr__(self) -> str:
        return f"Concat({self.query_dim}, {self.key_dim}, {self.joined.out_features})"


class LocationSensitive(_ProjectedTanhScore):
    """v · tanh(W s + V h + U f + b), f = F ∗ [α_prev; Σα]  (Chorowski et al. 2015; Shen et al. 2018 add Σα).

    `at(keys, previous, cumulative)` adds U f to cached keys before a step. Without it the score is that of the first
    step, which has no previous weights.
    """

    def __init__(self, query_dim: int, key_dim: int, hidden: int, *, filters: int = 32, width: int = 31) -> None:
        super().__init__(query_dim, key_dim, hidden, bias=True)
        checks.positive_ints("LocationSensitive", filters=filters, width=width)
        if width % 2 == 0:
            raise ValueError(
                f"width must be odd for LocationSensitive, so that a filter has a middle, got {width}; try {width + 1}"
            )
        self.filters = nn.Conv1d(2, filters, width, padding=width // 2, bias=False)
        self.location = nn.Linear(filters, hidden, bias=False)
        self.energy = _energy(hidden)

    def at(self, keys: Tensor, previous: Tensor, cumulative: Tensor) -> Tensor:  # "*b k c", "*b k", "*b k" -> "*b k c"
        """The cached keys as this step compares them."""
        if keys.shape[-2] == 0:
            return keys
        width = self.filters.kernel_size[0]
        past = F.pad(
            torch.stack([previous, cumulative], dim=-1).to(keys.dtype), (0, 0, width // 2, width // 2)
        )  # (*b, k + width - 1, 2)
        # the convolution as a matrix product of windows: for one step of a sentence conv1d has more overhead than work
        windows = past.unfold(-2, width, 1).flatten(-2)  # (*b, k, 2 width)
        return keys + F.linear(
            windows @ self.filters.weight.flatten(1).T.to(keys.dtype), self.location.weight.to(keys.dtype)
        )


class Location(Score):
    """(W q)_j: the score of position j from the query alone  (Luong et al. 2015, location)."""

    def __init__(self, query_dim: int, max_keys: int) -> None:
        super().__init__()
        checks.positive_ints("Location", query_dim=query_dim, max_keys=max_keys)
        self.place = nn.Linear(query_dim, max_keys, bias=False)

    def queries(self, q: Tensor) -> Tensor:
        return project(self.place, q)

    def keys(self, k: Tensor) -> Tensor:
        """The positions: this score depends on nothing else of a key."""
        positions = torch.arange(k.shape[-2], device=k.device)
        return positions.unsqueeze(-1).expand(*k.shape[:-1], 1)

    def shift_keys(self, keys: Tensor, start: int) -> Tensor:
        return keys + start

    def compare(self, queries: Tensor, keys: Tensor) -> Tensor:
        self._check_max_keys(keys)
        leading = torch.broadcast_shapes(queries.shape[:-2], keys.shape[:-2])
        index = keys.transpose(-1, -2).expand(*leading, queries.shape[-2], -1)
        return queries.expand(*leading, -1, -1).gather(-1, index)

    def check(self, q: Tensor | None, k: Tensor | None) -> None:
        checks.width("q", q, self.place.in_features, self)
        self._check_max_keys(k)

    def _check_max_keys(self, k: Tensor | None) -> None:
        if k is not None and k.shape[-2] > self.place.out_features:
            raise ValueError(
                f"k must have at most {self.place.out_features} positions for {self!r}, got {checks.shape(k)}; "
                f"shorten k or build Location({self.place.in_features}, {k.shape[-2]})"
            )

    def __repr__(self) -> str:
        return f"Location({self.place.in_features}, {self.place.out_features})"


def _outer(x: Tensor) -> Tensor:
    return (x.unsqueeze(-1) * x.unsqueeze(-2)).flatten(-2)


def _taylor(x: Tensor) -> Tensor:
    x = x * x.shape[-1] ** -0.25
    return torch.cat([torch.ones_like(x[..., :1]), x, _outer(x) / math.sqrt(2)], dim=-1)


FEATURES: dict[str, Callable[[Tensor], Tensor]] = {
    "elu": lambda x: F.elu(x) + 1,  # Katharopoulos et al. 2020
    "square": _outer,  # exactly (q·k)²
    "taylor": _taylor,  # exactly 1 + s + s²/2 with s = q·k/√d  (Arora et al. 2024)
}


class Kernel(DotScore):
    """φ(q)·φ(k); with the normalizer Sum this is linear attention  (Katharopoulos et al. 2020, eq. 4).

    φ is a name of `FEATURES` or a function "*b n d" -> "*b n f" for which φ(q)·φ(k) is never negative.
    """

    def __init__(self, feature: str | Callable[[Tensor], Tensor] = "elu") -> None:
        super().__init__()
        if isinstance(feature, str):
            checks.known("feature", feature, FEATURES)
        self.feature = feature

    def queries(self, q: Tensor) -> Tensor:
        # a function of another author may have parameters of the half type
        return FEATURES[self.feature](widen(q)) if isinstance(self.feature, str) else self.feature(q)

    def keys(self, k: Tensor) -> Tensor:
        return self.queries(k)

    def check(self, q: Tensor | None, k: Tensor | None) -> None:
        checks.same_width(q, k, "Kernel")

    def __repr__(self) -> str:
        feature = repr(self.feature) if isinstance(self.feature, nn.Module) else "custom feature map"
        return f"Kernel({self.feature if isinstance(self.feature, str) else feature})"
