"""Need(scores=True): the scores before the normalizer, of every mechanism that has them."""

import pytest
import torch
from tests.attn.test_catalogue import ALL, built, inputs
from tests.for_each import for_each

import regard
from regard import ALiBi, Attended, Causal, Need, attend


def scored(name: str) -> Attended | str:
    """The results of a mechanism, or the sentence with which it refuses."""
    module, (q, k) = built(name), inputs(name, 3)
    try:
        return module.attend(q, k, need=Need(scores=True, weights=True))  # type: ignore[operator]
    except ValueError as error:
        return str(error)


@for_each("name", ALL)
def test_every_mechanism_returns_them_or_refuses(name: str) -> None:
    got = scored(name)
    if isinstance(got, str):
        assert "scores" in got
    else:
        assert got.scores.shape == got.weights.shape


def test_against_loops() -> None:
    q, k, v = (torch.randn(2, 3, n, 7, dtype=torch.float64) for n in (5, 5, 5))
    bias = ALiBi(3)
    got = attend(q, k, v, bias=bias, mask=Causal(), need=Need(scores=True, weights=True))
    slopes = bias(q, torch.arange(5), torch.arange(5), 5)
    for b in range(2):
        for h in range(3):
            for i in range(5):
                for j in range(5):
                    want = sum(float(q[b, h, i, d] * k[b, h, j, d]) for d in range(7)) / 7**0.5
                    want = want + float(slopes[..., h, i, j].flatten()[0]) if j <= i else -torch.inf
                    assert float(got.scores[b, h, i, j]) == pytest.approx(want, abs=1e-10)
    torch.testing.assert_close(got.scores.softmax(-1), got.weights)


def test_gradients_flow_through_them() -> None:
    q, k = torch.randn(3, 5, dtype=torch.float64, requires_grad=True), torch.randn(4, 5, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda q: attend(q, k, need=Need(scores=True)).scores, q)


@pytest.mark.parametrize("heads", [1, 4])
def test_of_heads_and_of_a_pool(heads: int) -> None:
    layer, x = regard.MultiHead(8, heads), torch.randn(2, 5, 8)
    got = layer.attend(x, need=Need(scores=True, weights=True))
    assert got.scores.shape == (2, heads, 5, 5)
    torch.testing.assert_close(got.scores.softmax(-1), got.weights)
    own = regard.MultiHead(8, 2, attention=[regard.Attention(regard.Dot()) for _ in range(2)])
    assert own.attend(x, need=Need(scores=True)).scores.shape == (2, 2, 5, 5)
    assert regard.layers.Pool(regard.Attention(regard.Additive(8, 8, 3)), 8).attend(
        x, need=Need(scores=True)
    ).scores.shape == (2, 5)


def test_nothing_changes_without_them() -> None:
    q = torch.randn(2, 5, 8)
    assert attend(q, q).scores is None
    torch.testing.assert_close(attend(q, q, need=Need(scores=True)).out, attend(q, q).out)
    with pytest.raises(ValueError, match=r"need\.scores does not exist for SimAM"):
        regard.gates.SimAM().attend(torch.randn(1, 2, 3, 3), need=Need(scores=True))
