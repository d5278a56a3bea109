"""Parity of gates with code nobody here wrote: the squeeze-and-excitation layers of transformers' convolutional models.

timm's and torchvision's layers are not among them: torchvision's wheels need the torch they were built with, CUDA and
all, and timm needs torchvision.
"""

import pytest
import torch
import transformers
from torch import nn

import regard


def copied(ours: regard.gates.SqueezeExcite, down: nn.Conv2d, up: nn.Conv2d) -> regard.gates.SqueezeExcite:
    with torch.no_grad():
        for mine, theirs in ((ours.down, down), (ours.up, up)):
            mine.weight.copy_(theirs.weight.flatten(1))
            mine.bias.copy_(theirs.bias)
    return ours


def same(ours: nn.Module, theirs: nn.Module, channels: int) -> None:
    """The same output, and the same gradient of the map and of every parameter."""
    x = torch.randn(2, channels, 7, 5, requires_grad=True)
    grad = torch.randn_like(x)
    found = []
    for module in (ours, theirs):
        out = module(x)
        grads = torch.autograd.grad(out, [x, *module.parameters()], grad)
        found.append((out, *(g.flatten() for g in grads)))
    for mine, others in zip(*found, strict=True):
        torch.testing.assert_close(mine, others, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("channels", "hidden"), [(32, 2), (24, 6), (7, 1)])
def test_regnet(channels: int, hidden: int) -> None:
    from transformers.models.regnet.modeling_regnet import RegNetSELayer

    theirs = RegNetSELayer(channels, hidden)
    ours = copied(regard.gates.SqueezeExcite(channels, hidden=hidden), theirs.attention[0], theirs.attention[2])
    same(ours, theirs, channels)


@pytest.mark.parametrize("channels", [32, 5])
def test_efficientnet(channels: int) -> None:
    from transformers.models.efficientnet.modeling_efficientnet import EfficientNetSqueezeExciteLayer

    config = transformers.EfficientNetConfig(hidden_act="relu", squeeze_expansion_ratio=0.25)
    theirs = EfficientNetSqueezeExciteLayer(config, channels, channels)
    ours = copied(regard.gates.SqueezeExcite(channels, 4), theirs.reduce, theirs.expand)
    same(ours, theirs, channels)


def test_non_local_is_torchs_attention() -> None:
    """One head of nn.MultiheadAttention without biases, whose scale is undone in the queries."""
    theirs = nn.MultiheadAttention(8, 1, bias=False, batch_first=True)
    ours = regard.gates.NonLocal(8, hidden=8, value=8)
    with torch.no_grad():
        query, key, value = theirs.in_proj_weight.chunk(3)
        ours.query.weight.copy_(query / 8**0.5)
        ours.key.weight.copy_(key)
        ours.value.weight.copy_(value)
        ours.out.weight.copy_(theirs.out_proj.weight)
        ours.residual.fill_(1.0)
    x = torch.randn(2, 8, 7, 5)
    places = x.flatten(2).transpose(1, 2)
    want = theirs(places, places, places, need_weights=False)[0].transpose(1, 2).reshape(x.shape)
    torch.testing.assert_close(ours(x), x + want)
