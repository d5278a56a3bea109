"""Half types, far places and extreme parameters do not cost more digits than the type has."""

import pytest
import torch

import regard


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
def test_squared_distances_of_half_types(kind: torch.dtype) -> None:
    q, k = ((torch.randn(1, n, 64) * 3).to(kind) for n in (7, 11))
    got = regard.attend(
        q, k, score=regard.Distance(scale=0.01), need=regard.Need(weights=True), backend="eager"
    ).weights
    want = torch.softmax(-0.01 * torch.cdist(q.double(), k.double()).square(), -1)
    # a dot product of this size rounds as much
    assert (got.double() - want).abs().max() < 0.02


def test_a_great_square_of_float16_stays_finite() -> None:
    q, k = (torch.randn(1, n, 64).half() + 40 for n in (3, 5))  # squares beyond 65504
    assert torch.isfinite(regard.Distance(scale=1e-3)(q, k)).all()


def test_distances_of_what_lies_close_together_but_far_away() -> None:
    q = torch.randn(1, 4, 8) + 800
    k = q + 0.01 * torch.randn(1, 4, 8)
    want = -torch.cdist(q.double(), k.double())
    assert (regard.Distance(1)(q, k).double() - want).abs().max() < 0.05
    with torch.autocast("cpu", torch.bfloat16):
        assert (regard.Distance(1)(q, k).double() - want).abs().max() < 0.05


def test_a_far_place_of_a_half_type() -> None:
    bias = regard.LocalGaussian(4, 3, window=4.0)
    q = torch.randn(1, 2, 4)
    near = bias.bfloat16().centre(q.bfloat16(), 1001)
    assert near.dtype == torch.float32
    alibi = regard.ALiBi(2).bfloat16()
    i, j = torch.tensor([1000]), torch.tensor([0, 1, 2])
    got = alibi(torch.zeros(2, 1, 4, dtype=torch.bfloat16), i, j, 3).double()
    want = -torch.tensor([2.0**-4, 2.0**-8], dtype=torch.float64)[:, None, None] * torch.tensor([1000.0, 999.0, 998.0])
    assert ((got - want) / want).abs().max() < 2**-8


@pytest.mark.parametrize("raw", [-40.0, -18.0, 18.0, 40.0])
def test_a_trained_alpha_never_leaves_its_range(raw: float) -> None:
    normalize = regard.Entmax(regard.Learnable(1.5))
    torch.nn.init.constant_(normalize.raw_alpha, raw)
    scores = torch.randn(3, 7, requires_grad=True)
    weights = normalize(scores)
    torch.testing.assert_close(weights.sum(-1), torch.ones(3), rtol=1e-3, atol=1e-3)
    weights.square().sum().backward()
    assert torch.isfinite(scores.grad).all()
    limit = torch.softmax(scores.detach(), -1) if raw < 0 else regard.Sparsemax()(scores.detach())
    assert (weights - limit).abs().max() < 0.02
