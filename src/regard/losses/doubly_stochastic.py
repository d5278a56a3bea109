"""Doubly stochastic attention: over all steps every place is looked at about once."""

from torch import Tensor

from regard.attn import checks


def doubly_stochastic(weights: Tensor, keep: Tensor | None = None) -> Tensor:  # "b t s", "b t" -> "b"
    """Σ_i (1 − Σ_t α_ti)²  (Xu et al. 2015, eq. 14): what keeps a decoder from looking at one place for ever.

    `keep` is false at steps that are padding, which look at nothing.
    """
    if weights.ndim < 2:
        raise ValueError(
            f"weights must be (…, steps, places), got {checks.shape(weights)}; ask for them by Need(weights=True)"
        )
    if keep is not None:
        if keep.shape != weights.shape[:-1]:
            raise ValueError(
                f"keep must be one for each step of weights {checks.shape(weights)}, got {checks.shape(keep)}; "
                "try keep=targets != PAD"
            )
        weights = weights * keep.unsqueeze(-1).to(weights.dtype)
    return (1 - weights.sum(-2)).square().sum(-1)
