"""Parity of layers, models and the beam with torch's and transformers' own, weights copied from one to the other."""

import functools
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard import Causal, Lengths, MultiHead
from regard.layers.transformer import DecoderLayer, EncoderLayer
from regard.models import Transformer

pytestmark = pytest.mark.usefixtures("float64")

# sizes that share no factor: a swapped axis must fail
B, S, T, H, D, F, V = 3, 7, 5, 3, 12, 13, 11
LENGTHS = torch.tensor([4, 7, 1])

Linked = list[tuple[Tensor, Tensor]]


def both(ours: nn.Module, theirs: nn.Module, *names: tuple[str, str]) -> Linked:
    """Weights and biases of modules that stand for each other."""
    return [
        (ours.get_parameter(f"{one}.{kind}").data, theirs.get_parameter(f"{other}.{kind}").data)
        for one, other in names
        for kind in ("weight", "bias")
    ]


def heads(ours: MultiHead, theirs: nn.MultiheadAttention) -> Linked:
    linked = both(ours, theirs, ("out", "out_proj"))
    for n, linear in enumerate((ours.query, ours.key, ours.value)):
        linked.append((linear.weight.data, theirs.in_proj_weight.data.chunk(3)[n]))
        linked.append((linear.bias.data, theirs.in_proj_bias.data.chunk(3)[n]))
    return linked


def encoder_layers(ours: EncoderLayer, theirs: nn.TransformerEncoderLayer) -> Linked:
    return heads(ours.attention, theirs.self_attn) + both(
        ours,
        theirs,
        ("feed.inner", "linear1"),
        ("feed.outer", "linear2"),
        ("around_attention.norm", "norm1"),
        ("around_feed.norm", "norm2"),
    )


def decoder_layers(ours: DecoderLayer, theirs: nn.TransformerDecoderLayer) -> Linked:
    return (
        heads(ours.self_attention, theirs.self_attn)
        + heads(ours.cross_attention, theirs.multihead_attn)
        + both(
            ours,
            theirs,
            ("feed.inner", "linear1"),
            ("feed.outer", "linear2"),
            ("around_self.norm", "norm1"),
            ("around_cross.norm", "norm2"),
            ("around_feed.norm", "norm3"),
        )
    )


def copied(linked: Linked, ours_to_theirs: bool) -> None:
    for one, other in linked:
        nn.init.normal_(one, std=0.4)
        nn.init.normal_(other, std=0.4)
        if ours_to_theirs:
            other.copy_(one)
        else:
            one.copy_(other)


def same_slopes(linked: Linked, ours: nn.Module, theirs: nn.Module, **tolerance: float) -> None:
    """The gradients of what stands for each other, put where the weights are and compared there."""
    for module in (ours, theirs):
        for p in module.parameters():
            p.data.copy_(torch.zeros_like(p) if p.grad is None else p.grad)
    for one, other in linked:
        torch.testing.assert_close(one, other, **tolerance)
    assert any(one.abs().max() > 1e-3 for one, _ in linked)


way = pytest.mark.parametrize("ours_to_theirs", [True, False], ids=["ours to theirs", "theirs to ours"])
norms = pytest.mark.parametrize("norm", ["pre", "post"])


@norms
@way
@pytest.mark.parametrize("kind", ["relu", "gelu, eps 1e-3"])
def test_an_encoder_layer_is_torch_s(norm: str, ours_to_theirs: bool, kind: str) -> None:
    ours_has: dict[str, Any] = {}
    theirs_has: dict[str, Any] = {}
    if kind != "relu":
        ours_has = {"activation": nn.GELU(), "norm": functools.partial(nn.LayerNorm, eps=1e-3)}
        theirs_has = {"activation": "gelu", "layer_norm_eps": 1e-3}
    ours = EncoderLayer(D, F, MultiHead(D, H), residual=norm, dropout=0.0, **ours_has)
    theirs = nn.TransformerEncoderLayer(D, H, F, 0.0, batch_first=True, norm_first=norm == "pre", **theirs_has)
    linked = encoder_layers(ours, theirs)
    assert sum(one.numel() for one, _ in linked) == sum(p.numel() for p in theirs.parameters())
    copied(linked, ours_to_theirs)
    x = torch.randn(B, S, D, requires_grad=True)
    real = torch.arange(S) < LENGTHS[:, None]
    got, want = ours(x, Lengths(LENGTHS)).out, theirs(x, src_key_padding_mask=~real)
    torch.testing.assert_close(got[real], want[real])
    to_x = []
    for out in (got, want):
        out[real].square().sum().backward()
        to_x.append(x.grad)
        x.grad = None
    torch.testing.assert_close(*to_x)
    same_slopes(linked, ours, theirs)


@norms
@way
def test_a_decoder_layer_is_torch_s(norm: str, ours_to_theirs: bool) -> None:
    ours = DecoderLayer(D, F, MultiHead(D, H), MultiHead(D, H), norm_first=norm == "pre", dropout=0.0)
    theirs = nn.TransformerDecoderLayer(D, H, F, 0.0, batch_first=True, norm_first=norm == "pre")
    linked = decoder_layers(ours, theirs)
    assert sum(one.numel() for one, _ in linked) == sum(p.numel() for p in theirs.parameters())
    copied(linked, ours_to_theirs)
    x, source = torch.randn(B, T, D, requires_grad=True), torch.randn(B, S, D, requires_grad=True)
    hidden = torch.arange(S) >= LENGTHS[:, None]
    got = ours(x, source, mask=Causal(), source_mask=Lengths(LENGTHS)).out
    later = torch.ones(T, T, dtype=torch.bool).triu(1)
    want = theirs(x, source, tgt_mask=later, memory_key_padding_mask=hidden)
    torch.testing.assert_close(got, want)
    slopes = [torch.autograd.grad(out.square().sum(), [x, source], retain_graph=True) for out in (got, want)]
    for one, other in zip(*slopes, strict=True):
        torch.testing.assert_close(one, other)
    for out in (got, want):
        out.square().sum().backward()
    same_slopes(linked, ours, theirs)


@norms
@way
def test_the_whole_transformer_is_torch_s(norm: str, ours_to_theirs: bool) -> None:
    """nn.Transformer on embeddings with the positions of the paper, whose formula is written out here."""
    ours = Transformer(V, V + 2, width=D, heads=H, layers=2, feed=F, norm=norm, dropout=0.0)
    kind = {"batch_first": True, "norm_first": norm == "pre"}
    ends = [nn.LayerNorm(D) if norm == "pre" else None for _ in range(2)]
    theirs = nn.Transformer(
        D,
        H,
        custom_encoder=nn.TransformerEncoder(
            nn.TransformerEncoderLayer(D, H, F, 0.0, **kind), 2, ends[0], enable_nested_tensor=False
        ),
        custom_decoder=nn.TransformerDecoder(nn.TransformerDecoderLayer(D, H, F, 0.0, **kind), 2, ends[1]),
        **kind,
    )
    linked = []
    for n in range(2):
        linked += encoder_layers(ours.encoder[n], theirs.encoder.layers[n])
        linked += decoder_layers(ours.decoder[n], theirs.decoder.layers[n])
    if norm == "pre":
        linked += both(ours, theirs, ("source_norm", "encoder.norm"), ("target_norm", "decoder.norm"))
    assert sum(one.numel() for one, _ in linked) == sum(p.numel() for p in theirs.parameters())
    copied(linked, ours_to_theirs)
    source, target = torch.randint(1, V, (B, S)), torch.randint(1, V, (B, T))

    def placed(table: nn.Embedding, tokens: Tensor) -> Tensor:
        x = table(tokens) * math.sqrt(D)
        waves = [
            [(math.sin if d % 2 == 0 else math.cos)(p / 10000 ** (d // 2 * 2 / D)) for d in range(D)]
            for p in range(tokens.shape[1])
        ]
        return x + torch.tensor(waves)

    hidden = torch.arange(S) >= LENGTHS[:, None]
    want = theirs(
        placed(ours.source, source),
        placed(ours.target, target),
        tgt_mask=torch.ones(T, T, dtype=torch.bool).triu(1),
        src_key_padding_mask=hidden,
        memory_key_padding_mask=hidden,
    )
    want = want @ ours.target.weight.T + ours.output.bias
    got = ours(source, LENGTHS, target)
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6)  # our waves are taken in float32
    for out in (got, want):
        out.square().sum().backward()
    same_slopes(linked, ours, theirs, rtol=1e-4, atol=1e-4)
