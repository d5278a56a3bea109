"""Transformer layers: where the norm stands, and what comes behind a past is what comes of the whole."""

import functools

import pytest
import torch
from torch import nn

from regard import Causal, Lengths, MultiHead, Rotary
from regard.attn.call import Need
from regard.layers import native_decoder, packed_layers
from regard.layers.transformer import (
    RESIDUALS,
    DecoderLayer,
    EncoderLayer,
    FeedForward,
    GatedFeedForward,
    Sublayer,
)

B, T, S, D, F, H = 2, 5, 7, 6, 11, 3


def decoder(norm: str = "pre", rotate: bool = False, dropout: float = 0.0) -> DecoderLayer:
    own = MultiHead(D, H, rotate=Rotary(D // H) if rotate else None)
    layer = DecoderLayer(D, F, own, MultiHead(D, H), norm_first=norm == "pre", dropout=dropout)
    for key, p in layer.named_parameters():
        if "norm" in key or key.endswith("bias"):
            nn.init.normal_(p, mean=1.0)
    return layer.double()


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_sublayer_norms_before_or_behind(norm: str) -> None:
    around = Sublayer(D, norm_first=norm == "pre", dropout=0.0)
    nn.init.normal_(around.norm.weight)
    x = torch.randn(B, T, D)
    got = around.leave(x, 2 * around.enter(x))
    want = x + 2 * around.norm(x) if norm == "pre" else around.norm(x + 2 * x)
    torch.testing.assert_close(got, want)


def test_dropout_is_on_what_is_added() -> None:
    around, x = Sublayer(D, norm_first=True, dropout=0.5), torch.zeros(40, D)
    added = around.leave(x, torch.ones(40, D))
    assert set(added.unique().tolist()) == {0.0, 2.0}
    assert torch.equal(around.eval().leave(x, torch.ones(40, D)), torch.ones(40, D))


def test_the_feed_forward_net() -> None:
    net, x = FeedForward(D, F, dropout=0.0), torch.randn(B, T, D)
    inner = (x @ net.inner.weight.T + net.inner.bias).clamp_min(0)
    torch.testing.assert_close(net(x), inner @ net.outer.weight.T + net.outer.bias)


def test_the_gated_feed_forward_net() -> None:
    net, x = GatedFeedForward(D, F, dropout=0.0), torch.randn(B, T, D)
    assert list(net.state_dict()) == ["gate.weight", "inner.weight", "outer.weight"]
    gate = x @ net.gate.weight.T
    want = (gate * torch.sigmoid(gate) * (x @ net.inner.weight.T)) @ net.outer.weight.T
    torch.testing.assert_close(net(x), want)
    biased = functools.partial(GatedFeedForward, bias=True)
    layer = EncoderLayer(D, F, MultiHead(D, H), residual="pre", dropout=0.0, activation=nn.GELU(), feed=biased)
    torch.testing.assert_close(
        layer.feed(x), layer.feed.outer(nn.functional.gelu(layer.feed.gate(x)) * layer.feed.inner(x))
    )
    assert FeedForward(D, F, dropout=0.0, bias=False).outer.bias is None


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("rotate", [True, False], ids=["rotary", "plain"])
def test_memory_is_keys_without_queries(norm: str, rotate: bool) -> None:
    """The outputs behind the memory are those of one sequence; what is before only gives keys, normed as x is."""
    layer, x = encoder(norm, rotate), torch.randn(B, T, D).double()
    whole = layer(x, Causal(), need=Need(weights=True))
    got = layer(x[:, 2:], Causal(), memory=x[:, :2], need=Need(weights=True))
    torch.testing.assert_close(got.out, whole.out[:, 2:])
    torch.testing.assert_close(got.weights, whole.weights[..., 2:, :])


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("rotate", [True, False], ids=["rotary", "plain"])
def test_behind_a_past_as_in_the_whole(norm: str, rotate: bool) -> None:
    """Two tokens, then one, then two: the keys of those before are kept, the source is projected once."""
    layer, x, source = decoder(norm, rotate), torch.randn(B, T, D).double(), torch.randn(B, S, D).double()
    mask = Lengths(torch.tensor([7, 4]))
    places = torch.arange(T), torch.arange(S)
    whole = layer(x, source, mask=Causal(), source_mask=mask, source_positions=places, need=Need(weights=True))
    assert whole.cache is None
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
            cache=past,
            use_cache=True,
            need=Need(weights=True),
        )
        past = got.cache
        assert past is not None
        assert len(past) == last
        torch.testing.assert_close(got.out, whole.out[:, first:last])
        torch.testing.assert_close(got.weights, whole.weights[..., first:last, :])


def encoder(residual: str = "pre", rotate: bool = False, dropout: float = 0.0) -> EncoderLayer:
    own = MultiHead(D, H, rotate=Rotary(D // H) if rotate else None)
    layer = EncoderLayer(D, F, own, residual=residual, dropout=dropout)
    for key, p in layer.named_parameters():
        if "norm" in key or key.endswith("bias"):
            nn.init.normal_(p, mean=1.0)
    return layer.double()


@pytest.mark.parametrize("residual", RESIDUALS)
def test_forms_of_residual_connections(residual: str) -> None:
    layer, x = encoder(residual), torch.randn(B, T, D).double()
    attend, feed, around, last = layer.attention, layer.feed, layer.around_attention, layer.around_feed
    match residual:
        case "post":
            middle = around.norm(x + attend(x))
            want = last.norm(middle + feed(middle))
        case "pre":
            middle = x + attend(around.norm(x))
            want = middle + feed(last.norm(middle))
        case "sandwich":
            middle = x + around.out_norm(attend(around.norm(x)))
            want = middle + last.out_norm(feed(last.norm(middle)))
        case _:
            want = x + attend(around.norm(x)) + feed(last.norm(x))
    got = layer(x).out
    torch.testing.assert_close(got, want)
    got.square().sum().backward()
    assert all(p.grad is not None for p in layer.parameters())


def test_native_paths_know_norms_before_and_behind_alone() -> None:
    """Of the others they would compute something else."""
    with pytest.raises(ValueError, match="unknown residual 'paralel'; did you mean 'parallel'"):
        encoder("paralel")
    for residual in RESIDUALS:
        layers = nn.ModuleList([encoder(residual).float()]).eval()
        is_plain = residual in ("pre", "post")
        assert (native_decoder._settings(layers[0]) is not None) == is_plain
        assert (packed_layers._plan(layers) is not None) == is_plain


@pytest.mark.parametrize("norm", ["pre", "post", "parallel", "sandwich"])
@pytest.mark.parametrize("rotate", [True, False], ids=["rotary", "plain"])
@pytest.mark.parametrize("placed", [True, False], ids=["positions", "the last keys"])
def test_an_encoder_layer_behind_a_cache_is_the_whole(norm: str, rotate: bool, placed: bool) -> None:
    layer, x = encoder(norm, rotate), torch.randn(B, T, D).double()
    whole = layer(x, Causal(), need=Need(weights=True))
    assert whole.cache is None
    assert whole.weights.shape == (B, H, T, T)
    assert layer(x, Causal()).weights is None
    torch.testing.assert_close(layer(x, Causal()).out, whole.out)
    cache = None
    for first, last in ((0, 2), (2, 3), (3, 5)):
        positions = (torch.arange(first, last), torch.arange(last)) if placed else None
        got = layer(
            x[:, first:last], Causal(), positions=positions, cache=cache, use_cache=True, need=Need(weights=True)
        )
        assert cache is None or len(cache) == first  # the one before is left as it was
        cache = got.cache
        assert cache is not None
        assert len(cache) == last
        torch.testing.assert_close(got.out, whole.out[:, first:last])
        torch.testing.assert_close(got.weights, whole.weights[..., first:last, :last])


def test_a_decoder_layer_gives_both_weights() -> None:
    layer, x, source = decoder(), torch.randn(B, T, D).double(), torch.randn(B, S, D).double()
    plain = layer(x, source, mask=Causal(), source_mask=None)
    assert plain.weights is None
    assert plain.self_weights is None
    both = layer(x, source, mask=Causal(), source_mask=None, need=Need(weights=True), self_need=Need(weights=True))
    assert both.weights.shape == (B, H, T, S)
    assert both.self_weights.shape == (B, H, T, T)
    assert not both.self_weights.triu(1).any()
    torch.testing.assert_close(both.out, plain.out)


def test_norm_and_activation_are_the_callers() -> None:
    own = functools.partial(MultiHead, D, H)
    norm, activation = functools.partial(nn.LayerNorm, eps=1e-3), nn.GELU()
    layers = (
        EncoderLayer(D, F, own(), residual="pre", dropout=0.0, norm=norm, activation=activation),
        DecoderLayer(D, F, own(), own(), norm_first=True, dropout=0.0, norm=norm, activation=activation),
    )
    for layer in layers:
        norms = [part for part in layer.modules() if isinstance(part, nn.LayerNorm)]
        assert [part.eps for part in norms] == [1e-3] * len(norms)
        assert layer.feed.activation is activation
        assert "feed.activation" not in layer.state_dict()
    net, x = FeedForward(D, F, dropout=0.0, activation=activation), torch.randn(B, T, D)
    torch.testing.assert_close(net(x), net.outer(nn.functional.gelu(net.inner(x))))


def test_keys_of_checkpoints_stay() -> None:
    linear = [f"{name}.{part}" for name in ("query", "key", "value", "out") for part in ("weight", "bias")]
    feed = [f"feed.{name}.{part}" for name in ("inner", "outer") for part in ("weight", "bias")]
    norms = [f"around_{name}.norm.{part}" for name in ("attention", "feed") for part in ("weight", "bias")]
    assert list(encoder().state_dict()) == [f"attention.{key}" for key in linear] + feed + norms


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_gradients_are_those_of_the_output(norm: str) -> None:
    layer, x, source = decoder(norm), torch.randn(B, 3, D).double(), torch.randn(B, 4, D).double()
    below = EncoderLayer(D, F, MultiHead(D, H), residual=norm, dropout=0.0).double()
    mask = Lengths(torch.tensor([4, 2]))

    def run(x: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
        return layer(x, below(source, mask).out, mask=Causal(), source_mask=mask).out

    assert torch.autograd.gradcheck(run, (x.requires_grad_(), source.requires_grad_()))


def test_what_is_wrong_is_told() -> None:
    layer, x = encoder(), torch.randn(B, T, D).double()
    with pytest.raises(ValueError, match=r"cache=KVCache\(.*\) is only read and extended with use_cache=True"):
        layer(x, cache=layer(x, use_cache=True).cache)
    with pytest.raises(ValueError, match="memory and use_cache=True both hold the tokens before x; pass one of them"):
        layer(x, memory=x, use_cache=True)


@pytest.mark.parametrize("hooked", ["module", "all modules"])
def test_a_hook_keeps_the_output_before_the_activation(hooked: str) -> None:
    """The activation works in place only where nobody else has seen the numbers."""
    layer, x, kept = FeedForward(D, F, dropout=0.0), torch.randn(B, T, D), {}

    def keep(module: nn.Module, args: object, out: torch.Tensor) -> None:
        if module is layer.inner:
            kept.update(out=out, copy=out.detach().clone())

    register = (
        layer.inner.register_forward_hook if hooked == "module" else nn.modules.module.register_module_forward_hook
    )
    want, handle = layer(x), register(keep)
    try:
        assert torch.equal(layer(x), want)
    finally:
        handle.remove()
    assert torch.equal(kept["out"], kept["copy"])
    assert (kept["copy"] < 0).any()


def test_a_layer_of_another_class_keeps_its_output() -> None:
    class Remembering(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.last = super().forward(x)
            return self.last

    layer = FeedForward(D, F, dropout=0.0)
    layer.inner = Remembering(D, F)
    layer(torch.randn(B, T, D))
    assert (layer.inner.last < 0).any()
