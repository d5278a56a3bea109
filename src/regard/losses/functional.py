"""Losses and penalties as functions of scores, vectors and weights."""

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.common import checks
from regard.kernels.precision import widen


def span_nll(start: Tensor, end: Tensor, spans: Tensor) -> Tensor:  # "b t", "b t", "b 2" -> "b"
    """−(log p1_k + log p2_l) of the span from k to l, both included, p1 = softmax(start)  (Seo et al. 2017, 2).

    Scores of −∞ are places that do not exist.
    """
    first, last = spans.unbind(-1)
    return _nll(start, first) + _nll(end, last)


def _nll(scores: Tensor, places: Tensor) -> Tensor:  # "b t", "b" -> "b"
    # half types would overflow before the softmax
    return F.cross_entropy(widen(scores), places, reduction="none")


def hinge(real: Tensor, fake: Tensor) -> Tensor:  # "*b", "*b" -> "*b"
    """relu(1 − D(x)) + relu(1 + D(G(z))), the loss of the discriminator  (Lim & Ye 2017; Zhang et al. 2019, eq. 4).

    The generator minimises −D(G(z)).
    """
    if real.shape != fake.shape:
        raise ValueError(
            f"real {checks.shape(real)} and fake {checks.shape(fake)} must be scores of as many images; "
            "generate one per real image"
        )
    return (1 - real).relu() + (1 + fake).relu()


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
    forward, backward = (F.cross_entropy(each, right, reduction="none") for each in shifted)
    return ((forward + backward) / 2).to(a.dtype)


def doubly_stochastic(weights: Tensor, keep: Tensor | None = None) -> Tensor:  # "b t s", "b t" -> "b"
    """Σ_i (1 − Σ_t α_ti)²  (Xu et al. 2015, eq. 14): penalizes decoders that attend to the same keys at every step.

    `keep` is false at padded steps.
    """
    if weights.ndim < 2:
        raise ValueError(
            f"weights must be (…, steps, keys), got {checks.shape(weights)}; ask for them by Need(weights=True)"
        )
    if keep is not None:
        if keep.shape != weights.shape[:-1]:
            raise ValueError(
                f"keep must be one per step of weights {checks.shape(weights)}, got {checks.shape(keep)}; "
                "try keep=targets != PAD"
            )
        weights = weights * keep.unsqueeze(-1).to(weights.dtype)
    return (1 - weights.sum(-2)).square().sum(-1)


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
