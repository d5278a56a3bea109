"""MultiHead from nn.MultiheadAttention and back: the same outputs, the same weights."""

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.for_each import for_each
from torch import nn

import regard
from regard.attn.multihead import MultiHead

X, Y, Z = torch.randn(2, 5, 8), torch.randn(2, 7, 6), torch.randn(2, 7, 10)
CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "without bias": {"bias": False},
    "zero key": {"add_zero_attn": True},
    "batch second": {"batch_first": False},
    "widths": {"kdim": 6, "vdim": 10},
}


@pytest.mark.parametrize("name", CASES)
@torch.no_grad()
def test_there_and_back(name: str) -> None:
    options = {"batch_first": True, **CASES[name]}
    heads = nn.MultiheadAttention(8, 2, **options).eval()
    for bias in (heads.in_proj_bias, heads.out_proj.bias):
        if bias is not None:
            bias.normal_()  # torch sets them to zero
    layer = MultiHead.from_torch(heads)
    inputs = (X, Y, Z) if name == "widths" else (X, X, X)
    given = inputs if heads.batch_first else tuple(t.transpose(0, 1) for t in inputs)
    out, weights = heads(*given, average_attn_weights=False)
    ours = layer.attend(*inputs, need=regard.Need(weights=True))
    assert torch.allclose(ours.out, out if heads.batch_first else out.transpose(0, 1), atol=1e-6)
    assert torch.allclose(ours.weights, weights[..., : ours.weights.shape[-1]], atol=1e-6)
    back = layer.to_torch()
    assert not back.training
    assert back.state_dict().keys() == heads.state_dict().keys()
    assert all(torch.equal(a, b) for a, b in zip(back.state_dict().values(), heads.state_dict().values(), strict=True))
    assert torch.equal(back(*inputs)[0], nn.MultiheadAttention.forward(back, *inputs)[0])


def test_dropout_and_mode_are_kept() -> None:
    layer = MultiHead.from_torch(nn.MultiheadAttention(8, 2, dropout=0.3).double())
    assert layer.training
    assert isinstance(layer.attention, regard.Attention)
    assert layer.attention.dropout == 0.3
    assert layer.query.weight.dtype == torch.float64
    assert layer.to_torch().dropout == 0.3


ERRORS: dict[str, tuple[Callable[[], object], str]] = {
    "an added key": (
        lambda: MultiHead.from_torch(nn.MultiheadAttention(8, 2, add_bias_kv=True)),
        "MultiHead has no place for the key and value that nn.MultiheadAttention(add_bias_kv=True) appends; build the "
        "module without them",
    ),
    "shared keys": (
        lambda: MultiHead(8, 4, kv_heads=2).to_torch(),
        "nn.MultiheadAttention has no heads that share keys; keep the layer of regard",
    ),
    "own attentions": (
        lambda: MultiHead(8, 2, attention=[regard.Attention(), regard.Attention()]).to_torch(),
        "nn.MultiheadAttention has no attentions of their own for its heads; keep the layer of regard",
    ),
    "wide heads": (
        lambda: MultiHead(8, 2, head_dim=6).to_torch(),
        "nn.MultiheadAttention has no heads of width 6, which is not dim / heads; keep the layer of regard",
    ),
    "rotation": (
        lambda: MultiHead(8, 2, rotate=regard.Rotary(4)).to_torch(),
        f"nn.MultiheadAttention has no place for {regard.Rotary(4)!r}; keep the layer of regard",
    ),
    "sparse": (
        lambda: MultiHead(8, 2, attention=regard.Attention(normalize=regard.Sparsemax())).to_torch(),
        "nn.MultiheadAttention has no place for Attention(",
    ),
    "mask": (
        lambda: MultiHead(8, 2, attention=regard.Attention(mask=regard.Causal())).to_torch(),
        "nn.MultiheadAttention has no place for the mask Causal(); keep the layer of regard",
    ),
}


@for_each("name", ERRORS)
def test_what_has_no_counterpart_is_refused(name: str) -> None:
    call, sentence = ERRORS[name]
    with pytest.raises(ValueError, match=re.escape(sentence)):
        call()
