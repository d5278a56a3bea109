"""Decomposable: attention between two sentences that ignores the order of words, unless each attends to itself."""

import torch
from torch import Tensor, nn

from regard.attn.layer import Attention
from regard.attn.mechanisms.coattention import CoAttention
from regard.attn.terms.bias import Bias
from regard.attn.terms.score import Score, dot
from regard.attn.terms.sequence_masks import Lengths
from regard.attn.terms.tiles import offsets
from regard.common import checks
from regard.kernels.precision import widen
from regard.layers.dropout import Dropout
from regard.layers.lengths import inside_lengths
from regard.models.matching.pair_matcher import PairMatcher, cross_attend, named_coattention


class TwoLayers(nn.Sequential):
    """relu(W₂ relu(W₁ x + b₁) + b₂), with dropout before each matrix."""

    def __init__(self, dim: int, hidden: int, dropout: float) -> None:
        super().__init__(
            Dropout(dropout),
            nn.Linear(dim, hidden),
            nn.ReLU(),
            Dropout(dropout),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
        )


class TransformedDot(Score):
    """F(q)·F(k), F two relu layers that both sides share  (Parikh et al. 2016, eq. 1)."""

    comparison = "dot"

    def __init__(self, dim: int, hidden: int, dropout: float = 0.0) -> None:
        super().__init__()
        checks.positive_ints("TransformedDot", dim=dim, hidden=hidden)
        self.dim = dim
        self.transform = TwoLayers(dim, hidden, dropout)

    def queries(self, q: Tensor) -> Tensor:
        return self.transform(widen(q))

    def keys(self, k: Tensor) -> Tensor:
        return self.transform(widen(k))

    def compare(self, queries: Tensor, keys: Tensor) -> Tensor:
        return dot(queries, keys)

    def check(self, q: Tensor | None, k: Tensor | None) -> None:
        checks.width("q", q, self.dim, self)
        checks.width("k", k, self.dim, self)

    def __repr__(self) -> str:
        return f"TransformedDot({self.dim})"


class DistanceBias(Bias):
    """d[clip(j − i, −c − 1, c + 1)]: one learned number per distance, and one per side beyond c."""

    reads_query = False

    def __init__(self, limit: int = 10) -> None:
        super().__init__()
        checks.positive_ints("DistanceBias", limit=limit)
        self.limit = limit
        self.table = nn.Parameter(torch.zeros(2 * limit + 3))

    def forward(self, q: Tensor, i: Tensor, j: Tensor, total: int | Tensor) -> Tensor:
        farthest = self.limit + 1
        return self.table[offsets(i, j).clamp(-farthest, farthest) + farthest]


class Decomposable(PairMatcher):
    """y = H([Σ_i G([a_i; β_i]); Σ_j G([b_j; α_j])]), β_i = Σ_j softmax_j(F(a_i)·F(b_j)) b_j  (Parikh et al. 2016).

    α_j is the same in the other direction. F, G and H are two relu layers each. The vectors are projected to `width`;
    a learned null token stands before both texts, which a word without a partner may attend to. A permutation of the
    words of a text changes nothing. With `intra` it does: every text first attends to itself,
    a'_i = [a_i; Σ_j softmax_j(F'(a_i)·F'(a_j) + d_{j−i}) a_j], and distances beyond `distance` share one bias per side.
    `attention` is a name of MECHANISMS whose score replaces F(a)·F(b); "paper" keeps it.
    """

    num_prepended = 1

    def __init__(
        self,
        dim: int,
        classes: int,
        *,
        width: int = 200,
        intra: bool = True,
        distance: int = 10,
        attention: str = "paper",
        dropout: float = 0.4,
    ) -> None:
        super().__init__()
        checks.positive_ints("Decomposable", dim=dim, classes=classes, width=width)
        self.project = nn.Linear(dim, width, bias=False)
        self.null = nn.Parameter(torch.randn(width) / width**0.5)
        self.intra = Attention(TransformedDot(width, width, dropout), bias=DistanceBias(distance)) if intra else None
        wide = width * (2 if intra else 1)
        self.attention = (
            CoAttention(TransformedDot(wide, width, dropout))
            if attention == "paper"
            else named_coattention(attention, wide)
        )
        self.compare = TwoLayers(2 * wide, width, dropout)
        self.aggregate = TwoLayers(2 * width, width, dropout)
        self.output = nn.Linear(width, classes)

    def forward(
        self, first: Tensor, second: Tensor, first_lengths: Tensor, second_lengths: Tensor
    ) -> Tensor:  # "b n d", "b m d", "b", "b" -> "b k"
        lengths = first_lengths + 1, second_lengths + 1
        a, b = (self._prepare(x, length) for x, length in zip((first, second), lengths, strict=True))
        beta, alpha = cross_attend(self.attention, a, b, *lengths)
        sums = [
            (self.compare(torch.cat([x, read], -1)) * inside_lengths(length, x.shape[1]).unsqueeze(-1)).sum(1)
            for x, read, length in ((a, beta, lengths[0]), (b, alpha, lengths[1]))
        ]
        return self.output(self.aggregate(torch.cat(sums, -1)))

    def _prepare(self, x: Tensor, lengths: Tensor) -> Tensor:  # "b n d", "b" -> "b n+1 e"
        x = self.project(x)
        x = torch.cat([self.null.to(x.dtype).expand(len(x), 1, -1), x], 1)
        return x if self.intra is None else torch.cat([x, self.intra(x, mask=Lengths(lengths))], -1)
