"""Dropout: the law of what is drawn, and that nothing is drawn where nothing should be."""

import pytest
import torch
from tests.for_each import for_each

from regard.layers.dropout import Dropout, dropout


@pytest.fixture(autouse=True, params=[True, False], ids=["native", "torch"])
def _ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if not request.param:
        monkeypatch.setattr("regard.layers.dropout.can_run_native", lambda _: False)


@for_each("p", [0.1, 0.5, 0.77])
def test_the_share_and_the_mean_are_right(p: float) -> None:
    n = 200_003
    got = dropout(torch.ones(n), p, True)
    dropped = float((got == 0).float().mean())
    # five standard deviations of a share
    assert abs(dropped - p) < 5 * (p * (1 - p) / n) ** 0.5
    assert abs(float(got.double().mean()) - 1) < 5 * (p / (1 - p) / n) ** 0.5
    torch.testing.assert_close(got[got > 0], torch.full((int((got > 0).sum()),), 1 / (1 - p)), rtol=3e-5, atol=0)


def test_neighbours_do_not_know_of_one_another() -> None:
    """One draw of 64 bits serves four: each of the four has its share, and any two of them are independent."""
    kept = (dropout(torch.ones(50_000, 4), 0.3, True) > 0).double()
    covariance = torch.cov(kept.T)
    torch.testing.assert_close(kept.mean(0), torch.full((4,), 0.7).double(), rtol=0, atol=0.011)
    torch.testing.assert_close(covariance, 0.21 * torch.eye(4).double(), rtol=0, atol=0.005)


def test_the_gradient_is_the_mask() -> None:
    x = torch.randn(3, 5, 7, dtype=torch.float64, requires_grad=True)
    got = dropout(x, 0.4, True)
    (slope,) = torch.autograd.grad(got.sum(), x)
    torch.testing.assert_close(slope * x, got)
    assert set(slope.unique().tolist()) <= {0.0, 65536 / (65536 - round(0.4 * 65536))}


def test_the_seed_decides() -> None:
    x = torch.ones(101)
    torch.manual_seed(3)
    one, other = dropout(x, 0.5, True), dropout(x, 0.5, True)
    torch.manual_seed(3)
    assert torch.equal(dropout(x, 0.5, True), one)
    assert not torch.equal(one, other)


@pytest.mark.parametrize(("p", "training"), [(0.0, True), (0.5, False)])
def test_nothing_is_drawn_where_nothing_is_dropped(p: float, training: bool) -> None:
    x = torch.randn(5)
    before = torch.random.get_rng_state()
    assert dropout(x, p, training) is x
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 5), (1,), (2,), (3,), (4,), (5,), (7, 11, 13)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_any_size_and_type(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    x = torch.ones(shape, dtype=dtype)
    got = dropout(x, 0.25, True)
    assert got.shape == x.shape
    assert got.dtype == dtype
    assert all(abs(value - 4 / 3) < 0.01 or value == 0 for value in got.float().unique().tolist())
    assert (x == 1).all()


def test_what_is_not_contiguous() -> None:
    x = torch.arange(1.0, 36.0).view(5, 7).T
    torch.manual_seed(1)
    got = dropout(x, 0.5, True)
    torch.manual_seed(1)
    mask = dropout(torch.ones(7, 5), 0.5, True)
    assert torch.equal(got, x * mask)


@pytest.mark.parametrize("p", [1e-7, 1 - 1e-7])
def test_a_probability_next_to_none_or_all(p: float) -> None:
    got = dropout(torch.ones(1000), p, True)
    assert got.isfinite().all()
    assert ((got > 0).float().mean() > 0.99) == (p < 0.5)


def test_the_layer() -> None:
    layer, x = Dropout(0.5), torch.ones(1000)
    assert 300 < int((layer(x) == 0).sum()) < 700
    assert layer.eval()(x) is x
    assert repr(layer) == "Dropout(p=0.5)"
    assert not list(layer.parameters())


@for_each("p", [-0.1, 1.0, 2])
def test_what_is_wrong_is_told(p: float) -> None:
    with pytest.raises(ValueError, match=f"dropout must be 0 or more and below 1, got {p}; try 0.1"):
        Dropout(p)
