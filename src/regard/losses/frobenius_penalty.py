"""The penalty that makes the hops of a structured self-attention differ."""

import torch
from torch import Tensor

from regard.common import checks


def frobenius_penalty(weights: Tensor) -> Tensor:  # "*b r t" -> "*b"
    """‖A Aᵀ − I‖²_F of the weights A of every example  (Lin et al. 2017, eq. 8).

    It is 0 where every hop reads one token and no two hops the same.
    """
    if weights.ndim < 2:
        raise ValueError(
            f"weights must be (…, hops, tokens), got {checks.shape(weights)}; ask for them by Need(weights=True)"
        )
    overlap = weights @ weights.mT
    identity = torch.eye(weights.shape[-2], dtype=weights.dtype, device=weights.device)
    return (overlap - identity).square().sum((-2, -1))
