"""AdaptiveSoftmax: a vocabulary layer whose rare words stand in clusters, with narrow vectors."""

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from regard.common import checks
from regard.losses.linear_cross_entropy import linear_cross_entropy


def cluster_bounds(vocabulary: int, cutoffs: Sequence[int], owner: str) -> list[int]:
    """0, the cutoffs and the size of the vocabulary; raises unless they increase."""
    bounds = [0, *cutoffs, vocabulary]
    checks.positive_ints(owner, vocabulary=vocabulary)
    if any(low >= high for low, high in itertools.pairwise(bounds)):
        raise ValueError(
            f"cutoffs must increase from 1 to below the vocabulary of {vocabulary} words for {owner}, "
            f"got {list(cutoffs)}; try cutoffs=[{max(vocabulary // 10, 1)}]"
        )
    return bounds


def cluster_widths(dim: int, clusters: int, div: int) -> list[int]:
    """The widths of the vectors: `dim` in the shortlist, then d / div, d / div², …"""
    return [max(dim // div**n, 1) for n in range(clusters + 1)]


class AdaptiveSoftmax(nn.Module):
    """log p(w) = log softmax(W h)_w in the shortlist; in cluster n: log softmax(W h)_n + log softmax(T_n P_n h)_w.

    (Grave et al. 2017.) The vocabulary is sorted by frequency: words below cutoffs[0] are the shortlist, cluster n
    holds the words from cutoffs[n] on, with vectors of width d / div^(n+1). The loss of a frequent word costs no
    product with rare ones. `weight` and `bias` of `shortlist` and `tails` are those of plain vocabulary layers.
    """

    def __init__(self, dim: int, vocabulary: int, cutoffs: Sequence[int], *, div: int = 4) -> None:
        super().__init__()
        checks.positive_ints("AdaptiveSoftmax", dim=dim, div=div)
        self.bounds = cluster_bounds(vocabulary, cutoffs, "AdaptiveSoftmax")
        sizes = [high - low for low, high in itertools.pairwise(self.bounds[1:])]
        widths = cluster_widths(dim, len(sizes), div)[1:]
        self.shortlist = nn.Linear(dim, self.bounds[1])
        self.clusters = nn.Linear(dim, len(sizes))
        self.projections = nn.ParameterList(torch.randn(dim, width) * dim**-0.5 for width in widths)  # "d e"
        self.tails = nn.ModuleList(nn.Linear(width, size) for width, size in zip(widths, sizes, strict=True))

    def forward(self, states: Tensor) -> Tensor:  # "… d" -> "… v"
        """log p of all words: logits whose softmax is p."""
        head = torch.cat([self.shortlist(states), self.clusters(states)], dim=-1).log_softmax(-1)
        words, clusters = head.split([self.bounds[1], len(self.tails)], dim=-1)
        log_p = [words]
        for n, (projection, tail) in enumerate(zip(self.projections, self.tails, strict=True)):
            log_p.append(clusters[..., n : n + 1] + tail(states @ projection).log_softmax(-1))
        return torch.cat(log_p, dim=-1)

    def token_loss(
        self, states: Tensor, targets: Tensor, *, smoothing: float = 0.0
    ) -> tuple[Tensor, Tensor]:  # "n d", "n" -> scalar, "n"
        """Σ −log p(target), to be trained, and −log p of each target, without gradient."""
        if smoothing:
            raise ValueError(f"smoothing must be 0 for an adaptive softmax, got {smoothing}; build it without cutoffs")
        # the cluster of each target: 0 is the shortlist
        cluster = torch.bucketize(targets, targets.new_tensor(self.bounds[1:-1]), right=True)
        head_targets = torch.where(cluster == 0, targets, self.bounds[1] - 1 + cluster)
        weight = torch.cat([self.shortlist.weight, self.clusters.weight])
        bias = torch.cat([self.shortlist.bias, self.clusters.bias])
        total, nll = linear_cross_entropy(states, weight, head_targets, bias=bias)
        nll = nll.clone()
        for n, (projection, tail) in enumerate(zip(self.projections, self.tails, strict=True)):
            assert isinstance(tail, nn.Linear)
            rows = (cluster == n + 1).nonzero().squeeze(-1)
            if not len(rows):
                continue
            tail_total, tail_nll = linear_cross_entropy(
                states[rows] @ projection, tail.weight, targets[rows] - self.bounds[n + 1], bias=tail.bias
            )
            total = total + tail_total
            nll[rows] += tail_nll
        return total, nll

    def extra_repr(self) -> str:
        return f"{self.shortlist.in_features}, {self.bounds[-1]}, cutoffs={self.bounds[1:-1]}"
