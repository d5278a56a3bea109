"""The hinge loss, against torch's own and by its bounds."""

import pytest
import torch
import torch.nn.functional as F

from regard.losses.hinge import hinge


def test_it_is_two_of_torch_s() -> None:
    real, fake = 2 * torch.randn(7), 2 * torch.randn(7)
    away = -torch.ones(7)
    want = F.hinge_embedding_loss(real, away, reduction="none") + F.hinge_embedding_loss(-fake, away, reduction="none")
    torch.testing.assert_close(hinge(real, fake), want)


def test_what_is_told_apart_well_pulls_no_more() -> None:
    real = torch.tensor([1.5, 0.5], requires_grad=True)
    fake = torch.tensor([-1.5, -0.5], requires_grad=True)
    hinge(real, fake).sum().backward()
    assert real.grad.tolist() == [0.0, -1.0]
    assert fake.grad.tolist() == [0.0, 1.0]


def test_gradient() -> None:
    real, fake = (torch.randn(2, 3, dtype=torch.float64, requires_grad=True) for _ in range(2))
    assert torch.autograd.gradcheck(hinge, (real, fake))


def test_as_many_of_both() -> None:
    with pytest.raises(ValueError, match=r"real \(3\) and fake \(2\) must be scores of as many images; generate one"):
        hinge(torch.zeros(3), torch.zeros(2))
