"""REINFORCE: the gradient of an expected reward through samples."""

from dataclasses import dataclass

import torch
from torch import Tensor

from regard.common import checks


@dataclass(frozen=True)
class Baseline:
    """b ← (1 − rate) b + rate · mean reward: a moving average that reduces the variance of REINFORCE  (Xu et al.
    2015, 4.1).
    """

    value: float = 0.0
    rate: float = 0.1

    def __post_init__(self) -> None:
        if not 0.0 < self.rate <= 1.0:
            raise ValueError(f"rate must be above 0 and at most 1 for Baseline, got {self.rate}; try 0.1")

    def updated(self, reward: Tensor) -> "Baseline":
        """The baseline after this reward."""
        return Baseline((1 - self.rate) * self.value + self.rate * float(reward.detach().mean()), self.rate)


def reinforce(
    log_prob: Tensor,
    reward: Tensor,
    baseline: Baseline | Tensor | float = 0.0,
    *,
    entropy: Tensor | None = None,
    entropy_weight: float = 0.0,
) -> Tensor:  # "*b", "*b" -> scalar
    """−mean((reward − baseline) · log_prob) − entropy_weight · mean(entropy)  (Williams 1992; Mnih et al. 2014).

    No gradient goes into reward or baseline: a learned baseline is fitted by a loss of its own, such as
    `mse_loss(baseline, reward)`.
    """
    if log_prob.shape[: reward.ndim] != reward.shape:
        raise ValueError(
            f"reward {checks.shape(reward)} must have the first axes of log_prob {checks.shape(log_prob)}; "
            "sum log_prob over the samples of an example, or give a reward to each"
        )
    if entropy_weight and entropy is None:
        raise ValueError(
            f"entropy must be given with entropy_weight={entropy_weight}; ask for it by Need(entropy=True)"
        )
    if isinstance(baseline, Tensor) and baseline.ndim and baseline.shape != reward.shape:
        raise ValueError(
            f"baseline {checks.shape(baseline)} must be one number or have the shape of reward {checks.shape(reward)}; "
            "squeeze it or take its mean"
        )
    baseline_value = baseline.value if isinstance(baseline, Baseline) else baseline
    advantage = (
        (reward - baseline_value).detach() if isinstance(baseline_value, Tensor) else reward.detach() - baseline_value
    )
    advantage = advantage.reshape(*advantage.shape, *[1] * (log_prob.ndim - advantage.ndim))
    loss = -(advantage * log_prob).mean()
    return loss if entropy is None else loss - entropy_weight * torch.mean(entropy)
