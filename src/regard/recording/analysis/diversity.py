"""Diversity of heads: how far their weights differ, and how many different heads there are."""

from typing import NamedTuple

import torch
from torch import Tensor

from regard.recording.analysis.derived_maps import normalize_rows
from regard.recording.recorded_map import RecordedMap


class HeadDiversity(NamedTuple):
    """Diversity of the heads of one map, in float64."""

    disagreement: Tensor  # "*b", from 0, all heads are equal, to 1, no two heads share a key
    heads_rank: Tensor  # "*b", the effective number of different heads, from 1 to h
    map_rank: Tensor  # "*b h", the effective number of different rows of each head, from 1 to min(q, k)


def diversity(recorded_map: RecordedMap) -> HeadDiversity:
    """Disagreement and effective ranks of the rows, each normalised to a sum of one."""
    weights = recorded_map.weights.dense().double().cpu()
    if weights.ndim < 3:
        weights = weights.unsqueeze(0)
    weights = normalize_rows(weights)
    return HeadDiversity(disagreement(weights), effective_rank(weights.flatten(-2)), effective_rank(weights))


def disagreement(weights: Tensor) -> Tensor:  # "*b h q k" -> "*b"
    """Mean over pairs of heads a ≠ b and over rows i of ½ Σ_j |P^a_ij − P^b_ij|, the total variation distance.

    Rows without any weight in some head, such as padding, are left out. One head has a disagreement of zero.
    """
    h = weights.shape[-3]
    rows = (weights.sum(-1) > 0).all(-2)  # "*b q"
    total = weights.new_zeros(rows.shape)
    for a in range(h):
        total = total + 0.5 * (weights - weights[..., a : a + 1, :, :]).abs().sum((-1, -3))
    pairs = max(h * (h - 1), 1)
    return (total * rows).sum(-1) / (pairs * rows.sum(-1).clamp_min(1))


def effective_rank(matrix: Tensor) -> Tensor:  # "*b m n" -> "*b"
    """exp(−Σ p log p), p the singular values divided by their sum  (Roy and Vetterli 2007); 0 for a matrix of zeros."""
    values = torch.linalg.svdvals(matrix)
    total = values.sum(-1, keepdim=True)
    shares = values / total.masked_fill(total == 0, 1.0)
    rank = torch.special.entr(shares).sum(-1).exp()
    return rank.masked_fill(total.squeeze(-1) == 0, 0.0)
