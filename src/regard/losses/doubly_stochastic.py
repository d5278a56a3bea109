"""Doubly stochastic attention: over all steps every key gets a total weight of about one."""

from torch import Tensor

from regard.common import checks


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
