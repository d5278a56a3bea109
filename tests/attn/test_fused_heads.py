"""Self-attention of MultiHead in one function is the layer itself: values, gradients, second gradients, NaN, hooks."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.for_each import for_each
from torch import Tensor, nn

import regard
from regard.attn import fused_heads
from regard.attn.call import NOTHING, AttentionInputs

MASKS = {"none": None, "causal": regard.Causal()}


def layer(dtype: torch.dtype = torch.float64, **options: Any) -> regard.MultiHead:
    torch.manual_seed(0)
    return regard.MultiHead(6, 3, **options).to(dtype)


def inputs(dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(2, 5, 6, dtype=dtype, generator=torch.Generator().manual_seed(1)).requires_grad_()


def run(heads: regard.MultiHead, x: Tensor, mask: regard.Mask | None) -> Tensor | None:
    return fused_heads.self_attention(heads, AttentionInputs(x, x, None, mask, None, NOTHING))


def step_by_step(heads: regard.MultiHead, x: Tensor, mask: regard.Mask | None) -> Tensor:
    """The same, with keys that are another tensor."""
    return heads(x, x.view_as(x), mask=mask)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_values_and_gradients_are_those_of_the_layer(dtype: torch.dtype, mask: str) -> None:
    heads, x = layer(dtype), inputs(dtype)
    upstream = torch.randn(6, 5, 2, dtype=dtype).permute(2, 1, 0)
    mine, theirs = run(heads, x, MASKS[mask]), step_by_step(heads, x, MASKS[mask])
    assert torch.equal(mine, heads(x, mask=MASKS[mask]))
    tolerance = {"rtol": 1e-5, "atol": 1e-5} if dtype == torch.float32 else {"rtol": 1e-12, "atol": 1e-12}
    torch.testing.assert_close(mine, theirs, **tolerance)
    gradients = [torch.autograd.grad(y, [x, *heads.parameters()], upstream) for y in (mine, theirs)]
    torch.testing.assert_close(*gradients, **tolerance)


@pytest.mark.parametrize("mask", MASKS)
def test_gradcheck_also_of_the_gradient(mask: str) -> None:
    heads = layer()
    heads.requires_grad_(False)
    heads.key.weight.requires_grad_()

    def of(x: Tensor, weight: Tensor) -> Tensor:
        out = run(heads, x, MASKS[mask])
        assert out is not None
        return out

    assert torch.autograd.gradcheck(of, (inputs(), heads.key.weight))
    assert torch.autograd.gradgradcheck(of, (inputs(), heads.key.weight))


@pytest.mark.parametrize("name", ["query.weight", "key.bias", "value.weight", "out.weight", "out.bias"])
def test_only_one_parameter_is_trained(name: str) -> None:
    heads, x = layer(), inputs().detach()
    for other, parameter in heads.named_parameters():
        parameter.requires_grad_(other == name)
    parameter = heads.get_parameter(name)
    outs = run(heads, x, None), step_by_step(heads, x, None)
    torch.testing.assert_close(*(torch.autograd.grad(out.square().sum(), parameter) for out in outs))


def test_a_nan_behind_the_mask_is_left_to_the_layer() -> None:
    heads, x = layer(), inputs().detach()
    want = heads(x, mask=regard.Causal())
    x[0, 3] = torch.nan
    assert run(heads, x, regard.Causal()) is None
    out = heads(x, mask=regard.Causal())
    torch.testing.assert_close(out[0, :3], want[0, :3])
    torch.testing.assert_close(out[1], want[1])
    assert out[0, 3:].isnan().all()


OTHERS: dict[str, Callable[[], regard.MultiHead]] = {
    "shared keys": lambda: regard.MultiHead(6, 3, kv_heads=1),
    "rotary": lambda: regard.MultiHead(6, 3, rotate=regard.Rotary(2)),
    "no bias": lambda: regard.MultiHead(6, 3, bias=False),
    "dropout": lambda: regard.MultiHead(6, 3, dropout=0.1),
    "score": lambda: regard.MultiHead(6, 3, attention=regard.Attention(regard.Cosine())),
    "mask": lambda: regard.MultiHead(6, 3, attention=regard.Attention(mask=regard.Causal())),
    "per head": lambda: regard.MultiHead(6, 3, attention=[regard.Attention() for _ in range(3)]),
    "double": lambda: regard.MultiHead(6, 3).double(),
}


@for_each("name", OTHERS)
def test_other_layers_are_not_fused(name: str) -> None:
    assert run(OTHERS[name](), inputs(torch.float32), None) is None


def test_other_calls_are_not_fused() -> None:
    heads, x = layer(), inputs()
    other = x.detach().clone()
    positions = (torch.arange(5), torch.arange(5))
    calls = [
        AttentionInputs(x, other),
        AttentionInputs(x, x, other),
        AttentionInputs(x, x, None, regard.Window(1, 0)),
        AttentionInputs(x, x, None, None, positions),
        AttentionInputs(x, x, need=regard.Need(weights=True)),
        AttentionInputs(x[:0], x[:0]),
        AttentionInputs(x[0], x[0]),
    ]
    assert [fused_heads.self_attention(heads, call) for call in calls] == [None] * len(calls)
    with torch.no_grad():
        assert run(heads, x, None) is None
    with torch.autocast("cpu", torch.bfloat16):
        assert run(heads, x, None) is None
    heads.requires_grad_(False)
    assert run(heads, other, None) is None


@pytest.mark.parametrize("name", ["query", "out"])
@pytest.mark.parametrize("kind", ["register_forward_hook", "register_full_backward_hook"])
def test_hooks_of_the_projections_are_called(kind: str, name: str) -> None:
    heads, calls = layer(), list[nn.Module]()
    getattr(heads.get_submodule(name), kind)(lambda module, inputs, output: calls.append(module))
    heads(inputs()).sum().backward()
    assert calls == [heads.get_submodule(name)]


def test_a_layer_that_lost_heads_computes_those_that_are_left() -> None:
    """Projections that were pruned to the first half of the heads: training, evaluation and a mask agree."""
    torch.manual_seed(0)
    whole, pruned = regard.MultiHead(8, 4), regard.MultiHead(8, 4)
    pruned.load_state_dict(whole.state_dict())
    for name in ("query", "key", "value"):
        linear = nn.Linear(8, 4)
        linear.weight.data, linear.bias.data = (
            t[:4].clone() for t in (getattr(whole, name).weight, getattr(whole, name).bias)
        )
        setattr(pruned, name, linear)
    pruned.out = nn.Linear(4, 8)
    pruned.out.weight.data, pruned.out.bias.data = whole.out.weight[:, :4].clone(), whole.out.bias.clone()
    x = torch.randn(2, 5, 8)
    got = whole.attend(x, need=regard.Need(weights=True)).weights[:, :2]
    values = whole.value(x).unflatten(-1, (4, 2)).transpose(1, 2)[:, :2]
    want = (got @ values).transpose(1, 2).flatten(2) @ whole.out.weight[:, :4].T + whole.out.bias
    torch.testing.assert_close(pruned(x), want)
    with torch.no_grad():
        torch.testing.assert_close(pruned(x), want)
