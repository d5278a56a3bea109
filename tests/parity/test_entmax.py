"""Parity with the authors' entmax."""

import entmax
import pytest
import torch

import regard
from regard import Learnable


def scores() -> torch.Tensor:
    return (torch.randn(3, 4, 11, dtype=torch.float64) * 2).requires_grad_()


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (regard.Sparsemax(), lambda s: entmax.sparsemax(s, dim=-1)),
        (regard.Entmax(1.5), lambda s: entmax.entmax15(s, dim=-1)),
        (regard.Entmax(1.3), lambda s: entmax.entmax_bisect(s, alpha=1.3, n_iter=80)),
        (regard.Entmax(1.8), lambda s: entmax.entmax_bisect(s, alpha=1.8, n_iter=80)),
        (regard.Entmax(2.5), lambda s: entmax.entmax_bisect(s, alpha=2.5, n_iter=80)),
    ],
    ids=["sparsemax", "entmax15", "entmax1.3", "entmax1.8", "entmax2.5"],
)
def test_weights_and_gradients(ours: regard.Normalizer, theirs) -> None:
    s = scores()
    got, want = ours(s), theirs(s)
    torch.testing.assert_close(got, want, atol=1e-9, rtol=1e-6)
    g = torch.randn_like(s)
    slope, wanted = torch.autograd.grad(got, s, g)[0], torch.autograd.grad(want, s, g)[0]
    torch.testing.assert_close(slope, wanted, atol=1e-7, rtol=1e-5)


def test_gradient_of_alpha() -> None:
    s = scores().detach()
    ours = regard.Entmax(Learnable(1.3, heads=4)).double()
    raw = ours.raw_alpha
    low, high = 1.001, 1.999  # between which a trained alpha moves
    alpha = (low + (high - low) * torch.sigmoid(raw.detach())).requires_grad_()
    g = torch.randn(3, 4, 2, 11, dtype=torch.float64)
    s = s.unsqueeze(-2).expand(3, 4, 2, 11)
    want = entmax.entmax_bisect(s, alpha=alpha, n_iter=80)
    got = ours(s)
    torch.testing.assert_close(got, want, atol=1e-9, rtol=1e-6)
    by_alpha = torch.autograd.grad(want, alpha, g)[0]
    by_raw = torch.autograd.grad(got, raw, g)[0]
    torch.testing.assert_close(by_raw, by_alpha * (alpha - low) * (high - alpha) / (high - low), atol=1e-7, rtol=1e-5)
