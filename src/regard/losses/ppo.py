"""PPO: advantages of a segment of steps, and the clipped objective  (Schulman et al. 2016, 2017)."""

import math
from typing import NamedTuple

import torch
from torch import Tensor


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
