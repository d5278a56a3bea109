"""Biases without a package of their authors, against the formulas of their papers and code, pair by pair in float64."""

import math

import pytest
import torch
from tests.for_each import for_each
from torch import Tensor

import regard
from regard.biases import FIRE, KerpleLog, KerplePower

H, N, D = 3, 11, 4


def numbers(t: Tensor) -> list[float]:
    return t.detach().double().tolist()


def kerple_log(bias: KerpleLog, h: int, i: int, j: int) -> float:
    """GPT-NeoX's ParallelKerpleLog: -p log(1 + a |m - n|)."""
    p, a = (math.exp(numbers(t)[h]) for t in (bias.log_scale, bias.shape))
    return -p * math.log(1 + a * abs(i - j))


def kerple_power(bias: KerplePower, h: int, i: int, j: int) -> float:
    """ParallelKerplePower: -a |m - n|^p, 0 < p <= 2."""
    a, p = math.exp(numbers(bias.log_scale)[h]), 2 / (1 + math.exp(-numbers(bias.shape)[h]))
    return -a * abs(i - j) ** p


def fire(bias: FIRE, h: int, i: int, j: int) -> float:
    """The class FIRE of the paper's appendix, with its first values of c and of the multiplier of L."""
    c = bias.c.item()
    share = math.log(abs(c * (i - j)) + 1) / (math.log(abs(c * max(i, bias.factor.item() * bias.threshold)) + 1) + 1e-6)
    weights, offsets = numbers(bias.inner.weight[:, 0]), numbers(bias.inner.bias)
    hidden = [max(w * share + b, 0.0) for w, b in zip(weights, offsets, strict=True)]
    return sum(w * x for w, x in zip(numbers(bias.outer.weight[h]), hidden, strict=True)) + numbers(bias.outer.bias)[h]


FORMULAS = {
    "kerple": (lambda: KerpleLog(H), kerple_log),
    "kerple-power": (lambda: KerplePower(H), kerple_power),
    "fire": (lambda: FIRE(H, hidden=7, threshold=5.0), fire),
}


@for_each("name", FORMULAS)
def test_the_formula_for_every_pair(name: str) -> None:
    torch.manual_seed(0)
    make, formula = FORMULAS[name]
    bias, q, i = make().double(), torch.zeros(2, H, N, D, dtype=torch.float64), torch.arange(N)
    got = bias(q, i, i, N).expand(2, H, N, N)
    for h in range(H):
        want = torch.tensor([[formula(bias, h, row, key) for key in range(N)] for row in range(N)]).double()  # type: ignore[operator]
        torch.testing.assert_close(got[1, h], want, rtol=1e-6, atol=1e-9)
    # positions per sample have the same numbers
    batched = bias(q, i.expand(2, N), i.expand(2, N), N)
    torch.testing.assert_close(batched, got)


@for_each("name", FORMULAS)
def test_gradients_and_half_types_at_far_positions(name: str) -> None:
    torch.manual_seed(1)
    bias = FORMULAS[name][0]().double()
    i = torch.arange(3)
    parameters = list(bias.parameters())
    assert torch.autograd.gradcheck(lambda *_: bias(torch.zeros(H, 3, D).double(), i, i, 3), parameters)
    far = torch.tensor([100_000]), torch.tensor([99_998, 99_999, 100_000])
    wide = bias(torch.zeros(H, 1, D).double(), *far, 3)
    half = bias.bfloat16()(torch.zeros(H, 1, D).bfloat16(), *far, 3)
    assert half.dtype == torch.float32
    torch.testing.assert_close(half.double(), wide, rtol=0.05, atol=0.05)


def test_kerple_power_of_one_is_alibi() -> None:
    bias, alibi = KerplePower(4), regard.ALiBi(4)
    with torch.no_grad():
        bias.log_scale.copy_(alibi.slopes.log())
        bias.shape.zero_()
    q, i = torch.zeros(4, N, D), torch.arange(N)
    torch.testing.assert_close(bias(q, i, i, N), alibi(q, i, i, N))


def test_heads_and_thresholds_that_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^threshold must be positive for FIRE, got 0"):
        FIRE(2, threshold=0)
    for bias in (FIRE(2), KerpleLog(2), KerplePower(2)):
        with pytest.raises(ValueError, match="2 heads"):
            regard.attention(torch.randn(1, 3, 5, 4), torch.randn(1, 3, 5, 4), bias=bias)
