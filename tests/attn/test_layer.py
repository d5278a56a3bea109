"""Attention as a layer."""

import pytest
import torch
from tests.attn.backends.cases import NORMALIZERS, SCORES, SIZES, close, tensors

import regard
from regard import Attention, Need


@pytest.mark.parametrize("normalize", [n for n in NORMALIZERS if n != "sum"])
@pytest.mark.parametrize("score", SCORES)
def test_a_layer_is_its_function(score: str, normalize: str) -> None:
    layer = Attention(SCORES[score](SIZES), normalize=NORMALIZERS[normalize](SIZES)).double()
    q, k, v = (t.detach() for t in tensors())
    got = layer.attend(q, k, v, mask=regard.Causal(), need=Need(weights=True))
    want = regard.attend(
        q, k, v, score=layer.score, normalize=layer.normalize, mask=regard.Causal(), need=Need(weights=True)
    )
    assert torch.equal(got.out, want.out)
    assert torch.equal(got.weights, want.weights)
    close(layer(q, k, v, mask=regard.Causal()), want.out, "forward")
    close(layer(q, layer.project_kv(k, v), mask=regard.Causal()), want.out, "remembered")


def test_the_mask_of_the_layer_is_joined_to_that_of_the_call() -> None:
    layer = Attention(mask=regard.Causal())
    q, k, v = torch.randn(2, 5, 4), torch.randn(2, 5, 4), torch.randn(2, 5, 3)
    lengths = regard.Lengths(torch.tensor([2, 4]))
    assert torch.equal(layer(q, k, v), regard.attention(q, k, v, mask=regard.Causal()))
    assert torch.equal(layer(q, k, v, mask=lengths), regard.attention(q, k, v, mask=regard.Causal() & lengths))
    given = torch.rand(5, 5) < 0.5
    assert torch.equal(layer(q, k, v, mask=given), regard.attention(q, k, v, mask=regard.Causal() & given))
    assert torch.equal(Attention()(q, k, v, mask=lengths), regard.attention(q, k, v, mask=lengths))


@pytest.mark.parametrize("read", [regard.Gumbel(), regard.Sample()], ids=repr)
def test_evaluation_has_no_dropout_and_no_draws(read: regard.Read) -> None:
    layer = Attention(dropout=0.5, read=read)
    q, k, v = torch.randn(2, 5, 4), torch.randn(2, 5, 4), torch.randn(2, 5, 3)
    assert not torch.equal(layer(q, k, v), layer(q, k, v))
    layer.eval()
    assert torch.equal(layer(q, k, v), layer(q, k, v))
    assert torch.equal(layer(q, k, v), regard.attention(q, k, v, read=regard.Argmax()))
    assert "Argmax" in layer.explain(q, k, v)
    soft = Attention(dropout=0.5).eval()
    close(soft(q, k, v), regard.attention(q, k, v), "eval", rtol=1e-5, atol=1e-6)


def test_a_forced_backend_is_kept() -> None:
    q = torch.randn(2, 5, 4)
    assert "blocked  runs: " in Attention(backend="blocked").explain(q, q)
    with pytest.raises(ValueError, match="backend 'additive' cannot run this"):
        Attention(backend="additive")(q, q)


def test_a_layer_says_what_it_is() -> None:
    said = repr(
        Attention(
            regard.Additive(3, 5, 7),
            mask=regard.Causal(),
            normalize=regard.Entmax(1.3),
            read=regard.Sample(),
            dropout=0.1,
        )
    )
    for word in ("Additive(3, 5, 7)", "Causal()", "1.3", "Sample()", "dropout=0.1"):
        assert word in said
