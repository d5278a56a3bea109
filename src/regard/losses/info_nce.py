"""The contrastive loss of pairs, each with the other pairs of its batch as negatives."""

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.common import checks


def info_nce(
    a: Tensor, b: Tensor, temperature: float = 0.05, *, same: Tensor | None = None
) -> Tensor:  # "n d", "n d", same "n n" -> "n"
    """−½ log softmax_j(aᵢ·bⱼ / τ)[i] − ½ log softmax_j(aⱼ·bᵢ / τ)[i], the mean of both directions, per pair i.

    InfoNCE (van den Oord et al. 2018, eq. 4) with the other pairs of the batch as negatives (Henderson et al. 2017, 4),
    in both directions (Radford et al. 2021). Unit vectors make aᵢ·bⱼ a cosine. `same` is true at [i, j] where pair j is
    no negative of pair i, such as one with the same text; the diagonal is always the right answer.
    """
    if a.ndim != 2 or a.shape != b.shape:
        raise ValueError(
            f"a {checks.shape(a)} and b {checks.shape(b)} must be the vectors of as many texts, (pairs, width); "
            "give one of each per pair"
        )
    if not 0 < temperature < float("inf"):
        raise ValueError(f"temperature must be positive and finite, got {temperature}; try temperature=0.05")
    # half types would overflow before the softmax
    scores = a.to(precise := torch.promote_types(a.dtype, torch.float32)) @ b.to(precise).t()
    if same is not None:
        if same.shape != scores.shape or same.dtype != torch.bool:
            raise ValueError(
                f"same must be a boolean tensor of shape {tuple(scores.shape)}, got {same.dtype} {checks.shape(same)}; "
                "compare every pair with every pair"
            )
        others = same & ~torch.eye(len(a), dtype=torch.bool, device=a.device)
        scores = scores.masked_fill(others, -torch.inf)
    right = torch.arange(len(a), device=a.device)
    # the greatest score is 0, so that no temperature makes two of them infinite
    shifted = ((each - each.detach().amax(-1, keepdim=True)) / temperature for each in (scores, scores.t()))
    there, back = (F.cross_entropy(each, right, reduction="none") for each in shifted)
    return ((there + back) / 2).to(a.dtype)
