"""Normalizers without a package of their authors, against their formulas written as loops in float64."""

import math

import pytest
import torch
from tests.for_each import for_each
from torch import Tensor

import regard
from regard.normalizers import ReLU, Softpick, StickBreaking


def stick_breaking(row: list[float]) -> list[float]:
    """Breaks a share σ(s) off what the later keys have left, as fla's naive_stickbreaking_attn defines it."""
    stick, weights = 1.0, [0.0] * len(row)
    for j in reversed(range(len(row))):
        share = 1 / (1 + math.exp(-row[j]))
        weights[j] = share * stick
        stick -= weights[j]
    return weights


def softpick(row: list[float]) -> list[float]:
    total = sum(abs(math.exp(s) - 1) for s in row) + 1e-6
    return [max(math.exp(s) - 1, 0.0) / total for s in row]


def relu(row: list[float]) -> list[float]:
    return [max(s, 0.0) / len(row) for s in row]


def squared_relu(row: list[float]) -> list[float]:
    return [max(s, 0.0) ** 2 / len(row) for s in row]


FORMULAS = {
    "stick-breaking": (StickBreaking(), stick_breaking),
    "softpick": (Softpick(), softpick),
    "relu": (ReLU(), relu),
    "relu-squared": (ReLU(2.0), squared_relu),
}


@for_each("name", FORMULAS)
def test_the_formula_over_the_allowed_keys(name: str) -> None:
    torch.manual_seed(0)
    normalize, formula = FORMULAS[name]
    scores = (3 * torch.randn(7, 11, dtype=torch.float64)).requires_grad_()
    allowed = torch.rand(7, 11) < 0.6
    allowed[3] = False
    want = torch.zeros(7, 11, dtype=torch.float64)
    for i, (row, keep) in enumerate(zip(scores.tolist(), allowed, strict=True)):
        if keep.any():
            kept = torch.tensor(formula([s for s, there in zip(row, keep, strict=True) if there]))
            want[i, keep] = kept.double()
    got = normalize(scores, allowed)
    torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-9)
    assert torch.autograd.gradcheck(lambda s: normalize(s, allowed), scores)


def test_stick_breaking_attention_of_a_causal_layer() -> None:
    """The paper's product, j < i strictly: the first row is 0, every other one sums to one minus its remainder."""
    torch.manual_seed(1)
    q, k, v = (torch.randn(2, 13, 5, dtype=torch.float64) for _ in range(3))
    got = regard.attend(
        q, k, v, normalize=StickBreaking(), mask=~regard.Window(0, None), need=regard.Need(weights=True)
    )
    assert got.weights is not None
    share = torch.sigmoid(q @ k.mT / math.sqrt(5))
    for i in range(13):
        remainder = torch.ones(2, dtype=torch.float64)
        for j in reversed(range(i)):
            torch.testing.assert_close(got.weights[:, i, j], share[:, i, j] * remainder)
            remainder = remainder * (1 - share[:, i, j])
        torch.testing.assert_close(1 - got.weights[:, i].sum(-1), remainder)
    assert not got.weights[:, 0].any()
    torch.testing.assert_close(got.out, got.weights @ v)


@pytest.mark.parametrize("size", [1e-9, 1e-3, 90.0, 1e4])
def test_scores_of_any_size_neither_overflow_nor_lose_their_digits(size: float) -> None:
    scores = torch.tensor([[size, -size, size / 2]])
    wide = scores.double().requires_grad_()
    for normalize in (Softpick(), StickBreaking(), ReLU(), ReLU(2.0)):
        torch.testing.assert_close(normalize(scores), normalize(wide).float(), rtol=1e-5, atol=0)
        assert all(g.isfinite().all() for g in torch.autograd.grad(normalize(wide).sum(), wide))


def test_softpick_of_scores_below_zero_is_zero() -> None:
    assert not Softpick()(-torch.rand(3, 5)).any()
    _assert_share(Softpick()(torch.tensor([[2.0, -1.0]])), (math.e**2 - 1) / (math.e**2 - 1 / math.e))


def _assert_share(weights: Tensor, share: float) -> None:
    torch.testing.assert_close(weights[0, 0].item(), share, rtol=1e-5, atol=0)


def test_powers_and_numbers_that_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^power must be 1 or more for ReLU, got 0.5; try ReLU\(\) or ReLU\(2.0\)$"):
        ReLU(0.5)
    with pytest.raises(TypeError, match="^power must be a number for ReLU, got '2'; try power=2$"):
        ReLU("2")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="^eps must be positive for Softpick, got 0.0"):
        Softpick(0.0)
