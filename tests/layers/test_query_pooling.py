"""QueryPooling: the papers' formulas written out, and every mechanism that can read for a learned query."""

import pytest
import torch
from tests.for_each import for_each

from regard import MECHANISMS, Additive, Attention, Need
from regard.layers.query_pooling import POSITIONAL, QueryPooling

B, T, D, R, HIDDEN = 3, 7, 6, 5, 11
LENGTHS = torch.tensor([4, 7, 1])


def states() -> torch.Tensor:
    torch.manual_seed(1)
    return torch.randn(B, T, D, dtype=torch.float64)


@pytest.mark.parametrize(("queries", "bias"), [(R, False), (1, True)])
def test_the_formula_written_out(queries: int, bias: bool) -> None:
    pooling = QueryPooling(D, queries, hidden=HIDDEN, bias=bias).double()
    x = states()
    got = pooling.attend(x, LENGTHS, Need(weights=True))
    assert (pooling.key.bias is not None) == bias
    for b, length in enumerate(LENGTHS.tolist()):
        h = x[b, :length]
        a = torch.softmax(pooling.query @ torch.tanh(pooling.key(h)).T, -1)
        torch.testing.assert_close(got.weights[b, :, :length], a)
        assert not got.weights[b, :, length:].any()
        torch.testing.assert_close(got.out[b], a @ h)
    assert torch.equal(pooling(x, LENGTHS), pooling.attend(x, LENGTHS).out)


def test_one_query_of_yang_is_the_additive_score() -> None:
    """v · tanh(W u + U h) with W u for the bias and v for the context vector."""
    pooling = QueryPooling(D, hidden=HIDDEN).double()
    additive = Attention(Additive(D, D, HIDDEN)).double()
    u = torch.randn(1, D, dtype=torch.float64)
    with torch.no_grad():
        additive.score.key.weight.copy_(pooling.key.weight)
        additive.score.energy.copy_(pooling.query[0])
        pooling.key.bias.copy_(additive.score.query(u)[0])
    x = states()
    torch.testing.assert_close(pooling(x[1:2], LENGTHS[1:2]), additive(u[None], x[1:2]))


@for_each("name", [name for name in MECHANISMS if name not in POSITIONAL])
def test_every_mechanism_reads_and_padding_is_absent(name: str) -> None:
    torch.manual_seed(0)
    pooling = QueryPooling(D, R, attention=name).double().eval()
    x = states()
    got = pooling.attend(x, LENGTHS, Need(weights=True))
    assert got.out.shape == (B, R, pooling.out_features)
    assert got.weights.shape == (B, R, T)
    for b, length in enumerate(LENGTHS.tolist()):
        alone = pooling.attend(x[b : b + 1, :length], LENGTHS[b : b + 1], Need(weights=True))
        torch.testing.assert_close(alone.out[0], got.out[b])
        torch.testing.assert_close(alone.weights[0], got.weights[b, :, :length])
    dirty = x.clone()
    dirty[0, 4:] = 1e3
    torch.testing.assert_close(pooling(dirty, LENGTHS), got.out)


@pytest.mark.parametrize("name", [None, "additive", "multi-head", "entmax"])
def test_gradients(name: str | None) -> None:
    torch.manual_seed(0)
    pooling = QueryPooling(D, 2, attention=name).double()
    assert torch.autograd.gradcheck(lambda x: pooling(x, LENGTHS), states().requires_grad_())
    pooling(states(), LENGTHS).square().sum().backward()
    for key, p in pooling.named_parameters():
        assert p.grad is not None, key
        assert p.grad.any(), key


@for_each("name", sorted(POSITIONAL))
def test_a_mechanism_that_needs_a_place_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"attention='{name}' weighs keys by their distance .* try attention='additi"):
        QueryPooling(D, attention=name)


def test_bad_arguments_are_told() -> None:
    with pytest.raises(ValueError, match="unknown attention 'aditive'; did you mean 'additive'"):
        QueryPooling(D, attention="aditive")
    with pytest.raises(
        ValueError, match="attention='key-value' cannot read states of width 5: .*try attention='additi"
    ):
        QueryPooling(5, attention="key-value")
    with pytest.raises(TypeError, match="states must be a floating tensor, got torch.int64"):
        QueryPooling(D)(torch.zeros(1, 2, D, dtype=torch.int64), torch.tensor([2]))
