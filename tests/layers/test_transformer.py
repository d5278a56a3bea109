"""Transformer layers: where the norm stands, and what comes behind a past is what comes of the whole."""

import pytest
import torch
from torch import nn

from regard import Causal, Lengths, MultiHead, Rotary
from regard.attn.call import Need
from regard.layers.transformer import DecoderLayer, EncoderLayer, FeedForward, Sublayer

B, T, S, D, F, H = 2, 5, 7, 6, 11, 3


def decoder(norm: str = "pre", rotate: bool = False, dropout: float = 0.0) -> DecoderLayer:
    own = MultiHead(D, H, rotate=Rotary(D // H) if rotate else None)
    layer = DecoderLayer(D, F, own, MultiHead(D, H), norm=norm, dropout=dropout)
    for key, p in layer.named_parameters():
        if "norm" in key or key.endswith("bias"):
            nn.init.normal_(p, mean=1.0)
    return layer.double()


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_sublayer_norms_before_or_behind(norm: str) -> None:
    around = Sublayer(D, norm=norm, dropout=0.0)
    nn.init.normal_(around.norm.weight)
    x = torch.randn(B, T, D)
    got = around.leave(x, 2 * around.enter(x))
    want = x + 2 * around.norm(x) if norm == "pre" else around.norm(x + 2 * x)
    torch.testing.assert_close(got, want)


def test_dropout_is_on_what_is_added() -> None:
    around, x = Sublayer(D, norm="pre", dropout=0.5), torch.zeros(40, D)
    added = around.leave(x, torch.ones(40, D))
    assert set(added.unique().tolist()) == {0.0, 2.0}
    assert torch.equal(around.eval().leave(x, torch.ones(40, D)), torch.ones(40, D))


def test_the_feed_forward_net() -> None:
    net, x = FeedForward(D, F, dropout=0.0), torch.randn(B, T, D)
    inner = (x @ net.inner.weight.T + net.inner.bias).clamp_min(0)
    torch.testing.assert_close(net(x), inner @ net.outer.weight.T + net.outer.bias)


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("rotate", [True, False], ids=["rotary", "plain"])
def test_behind_a_past_as_in_the_whole(norm: str, rotate: bool) -> None:
    """Two tokens, then one, then two: the keys of those before are kept, the source is projected once."""
    layer, x, source = decoder(norm, rotate), torch.randn(B, T, D).double(), torch.randn(B, S, D).double()
    mask = Lengths(torch.tensor([7, 4]))
    places = torch.arange(T), torch.arange(S)
    whole = layer(x, source, mask=Causal(), source_mask=mask, source_positions=places, need=Need(weights=True))
    assert whole.past is None
    memory, past = layer.cross_attention.project_kv(source), None
    for first, last in ((0, 2), (2, 3), (3, 5)):
        here = torch.arange(first, last)
        got = layer(
            x[:, first:last],
            memory,
            mask=Causal(),
            source_mask=mask,
            positions=(here, torch.arange(last)),
            source_positions=(here, places[1]),
            past=past,
            need=Need(weights=True),
        )
        past = got.past
        assert past is not None
        assert len(past) == last
        torch.testing.assert_close(got.out, whole.out[:, first:last])
        torch.testing.assert_close(got.weights, whole.weights[..., first:last, :])


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_gradients_are_those_of_the_output(norm: str) -> None:
    layer, x, source = decoder(norm), torch.randn(B, 3, D).double(), torch.randn(B, 4, D).double()
    encoder = EncoderLayer(D, F, MultiHead(D, H), norm=norm, dropout=0.0).double()
    mask = Lengths(torch.tensor([4, 2]))

    def run(x: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
        return layer(x, encoder(source, mask), mask=Causal(), source_mask=mask).out

    assert torch.autograd.gradcheck(run, (x.requires_grad_(), source.requires_grad_()))


def test_the_input_is_not_mutated() -> None:
    layer, x, source = decoder("post", dropout=0.1), torch.randn(B, T, D).double(), torch.randn(B, S, D).double()
    before = x.clone(), source.clone()
    layer(x, source, mask=Causal(), source_mask=None)
    assert torch.equal(x, before[0])
    assert torch.equal(source, before[1])


def test_what_is_wrong_is_told() -> None:
    for make in (
        lambda: Sublayer(D, norm="prae", dropout=0.0),
        lambda: EncoderLayer(D, F, MultiHead(D, H), norm="prae", dropout=0.0),
        lambda: DecoderLayer(D, F, MultiHead(D, H), MultiHead(D, H), norm="prae", dropout=0.0),
    ):
        with pytest.raises(ValueError, match="unknown norm 'prae'; did you mean 'pre'"):
            make()
    with pytest.raises(ValueError, match="dropout must be 0 or more and below 1, got 1; try 0.1"):
        FeedForward(D, F, dropout=1)
