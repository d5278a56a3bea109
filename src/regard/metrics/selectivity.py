"""Selectivity: how much of the weight that a model gives to features lies on those that matter."""

import torch
from torch import Tensor

from regard.common import checks


def selectivity(weights: Tensor, truth: Tensor) -> Tensor:  # "*b n", bool "*b n" -> "*b"
    """Σ_{i true} |w_i| / Σ_i |w_i|, in float64: k/n for equal weights of n features of which k are true, 1 at most.

    Weights may be signed and need not sum to one, as those of gates. Without any weight the selectivity is zero.
    """
    checks.instance_of("weights", weights, Tensor, "attended.weights")
    checks.instance_of("truth", truth, Tensor, "a mask of the true features")
    if truth.dtype != torch.bool:
        raise TypeError(f"truth must be booleans, True at the true features, got {truth.dtype}; pass truth > 0")
    if weights.ndim < 1 or truth.ndim < 1 or weights.shape[-1] != truth.shape[-1]:
        raise ValueError(
            f"weights and truth must have one feature count, got {checks.shape(weights)} and {checks.shape(truth)}; "
            "sum the weights over positions first"
        )
    size = weights.detach().double().abs()
    total = size.sum(-1)
    return torch.where(total > 0, (size * truth).sum(-1) / torch.where(total > 0, total, 1.0), 0.0)
