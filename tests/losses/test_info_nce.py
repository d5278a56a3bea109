"""InfoNCE among the pairs of a batch, against its definition, and its errors."""

import math

import pytest
import torch
import torch.nn.functional as F

from regard.losses import info_nce


def vectors(n: int, d: int = 5) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(n)
    a, b = torch.randn(2, n, d, dtype=torch.float64, generator=draw)
    return torch.nn.functional.normalize(a, dim=-1), torch.nn.functional.normalize(b, dim=-1)


def test_it_is_its_definition() -> None:
    a, b = vectors(7)
    losses = info_nce(a, b, 0.1)
    for i in range(7):
        there = [math.exp(float(a[i] @ b[j]) / 0.1) for j in range(7)]
        back = [math.exp(float(a[j] @ b[i]) / 0.1) for j in range(7)]
        expected = -0.5 * math.log(there[i] / sum(there)) - 0.5 * math.log(back[i] / sum(back))
        assert float(losses[i]) == pytest.approx(expected)


def test_it_is_symmetric_and_follows_the_order_of_pairs() -> None:
    a, b = vectors(6)
    order = torch.tensor([3, 1, 5, 0, 2, 4])
    torch.testing.assert_close(info_nce(a, b), info_nce(b, a))
    torch.testing.assert_close(info_nce(a[order], b[order]), info_nce(a, b)[order])


def test_a_pair_with_the_same_text_is_no_negative() -> None:
    a, b = vectors(5)
    same = torch.zeros(5, 5, dtype=torch.bool)
    same[0, 3] = same[3, 0] = True
    kept = [0, 1, 2, 4]
    # pair 0 as if pair 3 were absent
    torch.testing.assert_close(info_nce(a, b, same=same)[0], info_nce(a[kept], b[kept])[0])
    same.fill_(True)
    torch.testing.assert_close(info_nce(a, b, same=same), torch.zeros(5, dtype=torch.float64))


def test_gradients() -> None:
    a, b = vectors(4)
    same = torch.zeros(4, 4, dtype=torch.bool)
    same[1, 2] = same[2, 1] = True
    for mask in (None, same):
        assert torch.autograd.gradcheck(
            lambda x, y, mask=mask: info_nce(x, y, 0.5, same=mask), (a.requires_grad_(), b.requires_grad_())
        )


def test_errors() -> None:
    a, b = vectors(3)
    with pytest.raises(ValueError, match=r"a \(3, 5\) and b \(2, 5\) must be the vectors of as many texts"):
        info_nce(a, b[:2])
    with pytest.raises(ValueError, match=r"temperature must be positive and finite, got 0.0; try temperature=0.05"):
        info_nce(a, b, 0.0)
    with pytest.raises(ValueError, match=r"same must be a boolean tensor of shape \(3, 3\), got .* \(3, 5\)"):
        info_nce(a, b, same=a)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_a_small_temperature_overflows_nothing(dtype: torch.dtype) -> None:
    """Scores of 1e5 are beyond float16, and of 1e40 beyond float32."""
    a, b = (F.normalize(each, dim=-1).to(dtype).requires_grad_() for each in vectors(4))
    precise = info_nce(a.double(), b.double(), 1e-3)
    loss = info_nce(a, b, 1e-3)
    assert loss.dtype is dtype
    torch.testing.assert_close(loss.double(), precise, rtol=2e-2, atol=1e-3)
    loss.sum().backward()
    assert a.grad.isfinite().all()
    for temperature in (1e-5, 1e-40):
        assert not info_nce(a, b, temperature).isnan().any()
