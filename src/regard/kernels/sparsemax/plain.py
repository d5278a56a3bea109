"""Sparse normalizers without derivatives, in torch. Scores "n q k", mask "n q k" with any axis of size 1.

Every form searches for the threshold tau at which the row sums to one, in z = (alpha - 1)(s - max s):

    p = (z - tau)+ ^ (1 / (alpha - 1))        alpha = 2 sparsemax, alpha = 1.5 entmax 1.5

For alpha <= 2 the sum is convex in tau and tau = -1 lies left of the root, so Newton's steps go right and never pass
it: no sort. For alpha > 2 the steps are kept inside a bracket that halves when one would leave it.
"""

import torch
from torch import Tensor


def sparse_forward(scores: Tensor, allowed: Tensor | None, squared: bool) -> tuple[Tensor, Tensor]:
    """The weights and thresholds of `compute.sparse_forward`."""
    half = 0.5 if squared else 1.0
    z, top = subtract_max(scores, allowed)
    if squared:
        z = z * half
    tau, moving = torch.full_like(top, -1.0), torch.ones_like(top, dtype=torch.bool)
    for number in range(100):
        x = (z - tau).clamp_(min=0)
        total = x.sum(-1, keepdim=True)
        # a sum of squares is a norm, and counting is fastest as a sum of signs
        value, slope = (
            (x.norm(dim=-1, keepdim=True).square_(), 2 * total) if squared else (total, x.sign_().sum(-1, keepdim=True))
        )
        step = tau + (value - 1) / slope
        # a step to the left corrects the rounding of the step before and is a row's last; an empty row has no slope
        tau, moving = torch.where(moving & (slope > 0), step, tau), moving & (step > tau)
        if _may_read(z, number) and not moving.any():
            break
    weights = (z - tau).clamp_(min=0)
    if squared:
        weights.square_()
    tau = (tau + half * top).masked_fill(top == -torch.inf, torch.inf)
    return weights, tau.squeeze(-1)


def sparse_backward(weights: Tensor, grad: Tensor, squared: bool) -> Tensor:
    """The gradient of `compute.sparse_backward`."""
    slope = weights.sqrt() if squared else weights.sign()
    grad = torch.where(slope == 0, 0, grad).mul_(slope)
    total = slope.sum(-1, keepdim=True)
    return grad.addcmul_(slope, grad.sum(-1, keepdim=True) / total.masked_fill_(total == 0, 1), value=-1)


def _may_read(t: Tensor, step: int) -> bool:
    """Whether to look for convergence after this step: off the CPU, where a look waits for the device, every eighth."""
    return t.device.type == "cpu" or step % 8 == 7


def slopes(weights: Tensor, alpha: float | Tensor) -> Tensor:
    """u = p^(2 - alpha) on the support, zero elsewhere: dp / ds at a fixed threshold. Differentiable."""
    support = weights != 0  # NaN counts: a row of NaN has a gradient of NaN
    if isinstance(alpha, float) and alpha == 2.0:
        return support.to(weights.dtype)
    # ones outside the support, whose powers have finite derivatives
    inside = torch.where(support, weights, 1)
    power = inside.sqrt() if isinstance(alpha, float) and alpha == 1.5 else inside ** (2 - alpha)
    return torch.where(support, power, 0)


def normalize_slopes(slope: Tensor) -> Tensor:
    """Slopes that sum to one over the row; an empty row stays zero."""
    total = slope.sum(-1, keepdim=True)
    return slope / torch.where(total == 0, 1, total)


def project(slope: Tensor, grad: Tensor) -> Tensor:
    """u (g - sum_j u g / sum_j u); g is ignored outside the support. Differentiable."""
    grad = torch.where(slope == 0, 0, grad)
    return slope * (grad - (normalize_slopes(slope) * grad).sum(-1, keepdim=True))


def subtract_max(scores: Tensor, allowed: Tensor | None) -> tuple[Tensor, Tensor]:
    """s - max s with -inf where not allowed, and the max "n q 1"; both NaN for a row that holds NaN or +inf."""
    if allowed is not None:
        scores = scores.masked_fill(~allowed, -torch.inf)
    if scores.shape[-1] == 0:
        return scores, scores.new_full((*scores.shape[:-1], 1), -torch.inf)
    top = scores.detach().amax(-1, keepdim=True)
    top = top.masked_fill(top == torch.inf, torch.nan)
    return scores - top.masked_fill(top == -torch.inf, 0), top


def entmax_forward(scores: Tensor, alpha: Tensor, allowed: Tensor | None, early_stop: bool = True) -> Tensor:
    """Weights for any alpha > 1. `early_stop` stops when no row moves any more; it reads values."""
    difference, top = subtract_max(scores, allowed)
    if scores.shape[-1] == 0:
        return difference
    z = difference * (alpha - 1)
    tau = find_threshold(z, alpha, early_stop)
    weights, _ = powers(z, tau, alpha)
    # near alpha = 1 and beyond 2 a rounding error of tau shows in the sum
    weights = weights / torch.where(top == -torch.inf, 1, weights.sum(-1, keepdim=True))
    return torch.where(top.isnan(), torch.nan, weights)


def powers(z: Tensor, tau: Tensor, alpha: Tensor) -> tuple[Tensor, Tensor]:
    """(z - tau)+ to the power 1 / (alpha - 1), and to one less; differentiable also where they are zero."""
    x = z - tau
    inside = torch.where(x > 0, x, 1)
    less = torch.where(x > 0, inside ** (1 / (alpha - 1) - 1), 0)
    return less * inside, less


def newton_step(z: Tensor, tau: Tensor, alpha: Tensor) -> tuple[Tensor, Tensor]:
    """By how much the row's sum exceeds one, and a Newton step from tau; no step for an empty row."""
    value, slope = powers(z, tau, alpha)
    excess, steepness = value.sum(-1, keepdim=True) - 1, slope.sum(-1, keepdim=True) / (alpha - 1)
    return excess, tau + torch.where(steepness > 0, excess / torch.where(steepness > 0, steepness, 1), 0)


def find_threshold(z: Tensor, alpha: Tensor, early_stop: bool) -> Tensor:
    """tau such that sum_j (z_j - tau)+ ^ (1 / (alpha - 1)) = 1, by Newton's steps inside a bracket."""
    low = torch.full_like(z[..., :1] * alpha, -1.0)
    # the threshold of a row whose scores are all equal; no row has a higher one
    high = -(torch.full_like(low, float(z.shape[-1])) ** (1 - alpha))
    tau, tolerance = low, 8 * torch.finfo(z.dtype).eps
    for number in range(1 if z.is_meta else 60):
        excess, step = newton_step(z, tau, alpha)
        low, high = torch.where(excess >= 0, tau, low), torch.where(excess < 0, tau, high)
        # the excess that rounding leaves disappears when the weights are divided by their sum
        converged = (excess.abs() <= tolerance) | (high - low <= tolerance * low.abs()) | excess.isnan()
        if early_stop and _may_read(z, number) and bool(converged.all()):
            break
        step = torch.where((step > low) & (step < high), step, (low + high) / 2)
        tau = torch.where(converged, tau, step)
    return tau
