"""SimAM.solve against a numerical minimisation of the energy, and the misprints of its closed form."""

import pytest
import torch
from torch import Tensor

from regard.gates import SimAM

LAM = 0.03


def energy(w: Tensor, b: Tensor, t: Tensor, others: Tensor) -> Tensor:
    """(1 − w t − b)² + mean_i (−1 − w x_i − b)² + λ w²  (Yang et al. 2021, eq. 2); "n", "n", "n", "n m" -> "n"."""
    apart = (-1 - w.unsqueeze(-1) * others - b.unsqueeze(-1)).square().mean(-1)
    return (1 - w * t - b).square() + apart + LAM * w.square()


def minimised(t: Tensor, others: Tensor) -> tuple[Tensor, Tensor]:
    """w and b of the least energy, found by L-BFGS."""
    w, b = (torch.zeros_like(t).requires_grad_() for _ in range(2))
    optimizer = torch.optim.LBFGS(
        [w, b], max_iter=500, tolerance_grad=1e-12, tolerance_change=1e-16, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        optimizer.zero_grad()
        total = energy(w, b, t, others).sum()
        total.backward()
        return total

    optimizer.step(closure)
    return w.detach(), b.detach()


@pytest.fixture
def neurons() -> tuple[Tensor, Tensor, Tensor]:
    """A map "1 1 4 3" with a mean away from zero, its neurons "12", and the others of each, "12 11"."""
    torch.manual_seed(0)
    x = 0.7 + torch.randn(1, 1, 4, 3, dtype=torch.float64)
    t = x.flatten()
    return x, t, torch.stack([torch.cat([t[:n], t[n + 1 :]]) for n in range(12)])


def test_the_closed_form_is_the_minimum(neurons: tuple[Tensor, Tensor, Tensor]) -> None:
    x, t, others = neurons
    w, b = minimised(t, others)
    solved = SimAM(LAM).solve(x, statistics="others")
    torch.testing.assert_close(solved.w.flatten(), w, rtol=0, atol=1e-6)
    torch.testing.assert_close(solved.b.flatten(), b, rtol=0, atol=1e-6)
    torch.testing.assert_close(solved.energy.flatten(), energy(w, b, t, others), rtol=0, atol=1e-6)


def test_shared_statistics_are_those_of_the_gate(neurons: tuple[Tensor, Tensor, Tensor]) -> None:
    """Two points of mean μ and variance v stand for the others of every neuron."""
    x, t, _ = neurons
    deviation = x.var().sqrt()
    pair = torch.stack([x.mean() - deviation, x.mean() + deviation]).expand(12, 2)
    w, b = minimised(t, pair)
    gate = SimAM(LAM)
    solved = gate.solve(x)
    torch.testing.assert_close(solved.w.flatten(), w, rtol=0, atol=1e-6)
    torch.testing.assert_close(solved.b.flatten(), b, rtol=0, atol=1e-6)
    torch.testing.assert_close(solved.energy.flatten(), energy(w, b, t, pair), rtol=0, atol=1e-6)
    torch.testing.assert_close(gate.weights(x), torch.sigmoid(1 / solved.energy), rtol=0, atol=1e-10)


def test_misprints_in_circulation_are_no_minimum(neurons: tuple[Tensor, Tensor, Tensor]) -> None:
    x, t, others = neurons
    solved = SimAM(LAM).solve(x, statistics="others")
    w, _, least = (part.flatten() for part in solved)
    mean = others.mean(-1)
    misprints = {
        "the sign of w": energy(-w, (t + mean) * w / 2, t, others),
        "t − μ in b": energy(w, -(t - mean) * w / 2, t, others),
    }
    for name, value in misprints.items():
        assert (value > least + 1e-5).all(), name
    below = (t - mean).square() + 2 * LAM
    for variance in (others.var(-1, correction=0), mean.square()):  # two prints
        printed = 4 * (mean.square() + LAM) / (below + 2 * variance)
        assert ((printed - least).abs() > 1e-5).all()


def test_half_types_and_one_position() -> None:
    x = torch.randn(2, 3, 5, dtype=torch.bfloat16)
    assert {part.dtype for part in SimAM().solve(x)} == {torch.float32}
    assert SimAM().solve(x[..., :1]).energy.eq(2).all()
    with pytest.raises(ValueError, match=r"needs two positions or more, got \(2, 3, 1\); try statistics='shared'"):
        SimAM().solve(x[..., :1], statistics="others")
    with pytest.raises(ValueError, match="unknown statistics 'other'; did you mean 'others'"):
        SimAM().solve(x, statistics="other")
