"""Policy gradients: REINFORCE, and the advantages and the clipped objective of PPO."""

import math
from dataclasses import dataclass
from typing import NamedTuple

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


class PPOTerms(NamedTuple):
    """The terms of the objective per step, each to be minimised; the entropy of the policy is a third one."""

    policy: Tensor  # "*b"
    value: Tensor  # "*b"


def generalized_advantages(
    rewards: Tensor,
    values: Tensor,
    next_values: Tensor,
    terminated: Tensor,
    ended: Tensor,
    *,
    discount: float,
    trace: float,
) -> Tensor:  # "b t" each -> "b t"
    """A_t = δ_t + γλ (1 − ended_t) A_{t+1}, δ_t = r_t + γ v_{t+1} (1 − terminated_t) − v_t.

    `next_values` are the values of the observations that followed, in an episode that is cut off that of its last
    observation: only a terminated episode is worth nothing from there on. `ended` is true where an episode is
    terminated or cut off. γ is `discount`, λ is `trace`.
    """
    # chosen, not multiplied: an observation after the end may have no value, NaN
    deltas = rewards + discount * torch.where(terminated, 0.0, next_values) - values
    decay = discount * trace * (~ended).to(deltas.dtype)
    advantages = torch.empty_like(deltas)
    following = deltas.new_zeros(deltas.shape[0])
    for t in reversed(range(deltas.shape[1])):
        following = deltas[:, t] + decay[:, t] * following
        advantages[:, t] = following
    return advantages


def ppo_terms(
    log_probs: Tensor, old_log_probs: Tensor, values: Tensor, advantages: Tensor, returns: Tensor, clip: float
) -> PPOTerms:  # "*b" each -> "*b" each
    """−min(ρ A, clamp(ρ, 1 ± clip) A), and ½ (v − return)², with ρ = π(a) / π_old(a).

    `log_probs` are the logarithms of the probabilities, or densities, of all that was chosen in a step, by the policy
    that learns; `old_log_probs` by the one that played.
    """
    log_ratio = log_probs - old_log_probs
    # Where A ≥ 0 a ratio above 1 + clip has no effect; bounded, since an infinite one makes 0 · ∞ of A = 0 and of its
    # gradient.
    log_ratio = torch.where(advantages >= 0, log_ratio.clamp(max=math.log1p(clip) + 1), log_ratio)
    ratio = log_ratio.exp()
    clipped = ratio.clamp(1.0 - clip, 1.0 + clip)
    policy = -torch.minimum(ratio * advantages, clipped * advantages)
    return PPOTerms(policy, 0.5 * (values - returns).square())
