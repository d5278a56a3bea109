"""Every autograd Function of the package has right second derivatives or refuses them with a sentence."""

import importlib
import pkgutil
from collections.abc import Callable

import pytest
import torch
from tests.for_each import for_each
from torch import Tensor
from torch.autograd import Function, gradgradcheck

import regard
from regard.kernels import additive, crf, feature_maps, rnn_cells, sparsemax
from regard.kernels.additive.autograd import AttendFunction
from regard.kernels.dropout import native_dropout
from regard.kernels.feed_forward import gelu_feed_forward
from regard.kernels.gelu import gelu_tanh
from regard.kernels.padded_attention import padded_attention
from regard.layers.rnn.deferred_linear import DeferredGradLinear
from regard.losses import linear_cross_entropy


def r(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def relative(q: Tensor) -> Tensor:
    torch.manual_seed(0)
    bias = regard.RelativeXL(4, 2, 3).double()
    return regard.attention(q, q, bias=bias, mask=regard.Causal(), backend="relative")


def heads(x: Tensor) -> Tensor:
    torch.manual_seed(0)
    return regard.MultiHead(4, 2).double()(x, mask=regard.Causal())


def dropped(x: Tensor) -> Tensor:
    torch.manual_seed(0)
    return native_dropout(x * x, 1 << 14)


def selected(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    blocks = torch.tensor([[True, False], [False, True], [True, True]])
    mask = regard.masks.SelectedBlocks(blocks, 2) & regard.Causal()
    return regard.attention(q, k, v, mask=mask, backend="flash")


def nll(emissions: Tensor, transitions: Tensor, start: Tensor, end: Tensor) -> Tensor:
    potentials = crf.Potentials(transitions, start, end)
    return crf.nll(emissions, torch.tensor([[0, 2, 1]]), None, potentials)


# the Function and a call that runs it, with inputs that are differentiated twice
RIGHT: dict[str, tuple[Callable[..., Tensor], tuple[Tensor, ...]]] = {
    "_RelativeAttention": (relative, (r(1, 2, 3, 3),)),
    "Flash": (
        lambda q, k, v: regard.attention(q, k, v, backend="fused"),
        (r(1, 2, 3, 4), r(1, 2, 3, 4), r(1, 2, 3, 4)),
    ),
    "_SelectedFlash": (selected, (r(1, 2, 3, 4), r(1, 2, 4, 4), r(1, 2, 4, 4))),
    "_Permute": (
        lambda q: regard.attention(q, q, mask=regard.masks.Neighbourhood((3, 4), 3), backend="blocked"),
        (r(1, 2, 12, 3),),
    ),
    "_Recomputed": (
        lambda q, k: regard.attention(q, k, normalize=regard.Sigmoid(), mask=regard.Causal(), backend="blocked"),
        (r(1, 2, 3, 4), r(1, 2, 3, 4)),
    ),
    "_SelfAttentionFunction": (heads, (r(1, 3, 4),)),
    "_PaddedFunction": (
        lambda q, k, v: padded_attention(q, k, v, torch.tensor([[0, 2]]), 0.5, False)[0],
        (r(1, 2, 3, 4), r(1, 2, 3, 4), r(1, 2, 3, 4)),
    ),
    "ScoresFunction": (additive.scores, (r(1, 2, 3), r(1, 4, 3), r(3))),
    "WeightsFunction": (lambda a, b, w: additive.weights(a, b, w)[0], (r(1, 2, 3), r(1, 4, 3), r(3))),
    "AttendFunction": (
        lambda a, b, w, v: AttendFunction.apply(a, b, w, v, None, True)[0],
        (r(1, 2, 3), r(1, 4, 3), r(3), r(1, 4, 2)),
    ),
    "SparsemaxFunction": (sparsemax.entmax15, (r(2, 5),)),
    "EntmaxFunction": (lambda s, alpha: sparsemax.entmax(s, alpha.sigmoid() + 1.1), (r(2, 5), r(1))),
    "_FeedForwardFunction": (gelu_feed_forward, (r(2, 3), r(4, 3), r(4), r(3, 4), r(3))),
    "_GELUFunction": (gelu_tanh, (r(7),)),
    "SimAMFunction": (lambda x: feature_maps.simam(x, 1e-2), (r(1, 2, 5),)),
    "PoolFunction": (lambda x: feature_maps.mean_max_pool(x * x)[1], (r(1, 2, 5),)),
    "ChannelPoolFunction": (lambda x, w: feature_maps.channel_pool(x, w)[1], (r(1, 3, 5), r(1, 3))),
    "ScaleFunction": (feature_maps.scale, (r(1, 2, 5), r(1, 2), r(1, 1, 5))),
    "NllFunction": (nll, (r(1, 3, 4), r(4, 4), r(4), r(4))),
    "_DropoutFunction": (dropped, (r(40),)),
}


def sequence(x: Tensor, u: Tensor) -> Tensor:
    zeros = x.new_zeros
    return rnn_cells.sequence(x, [torch.eye(6, 3).double(), u, zeros(6), zeros(6)], [zeros(1, 2)], [1, 1])


def deferred(x: Tensor, weight: Tensor) -> Tensor:
    return DeferredGradLinear(weight)(x)


REFUSED: dict[str, tuple[Callable[..., Tensor], tuple[Tensor, ...]]] = {
    "_StepFunction": (lambda x, p, h: rnn_cells.step(x, p, h)[0], (r(1, 6), r(1, 6), r(1, 2))),
    "_SequenceFunction": (sequence, (r(2, 3), r(6, 2))),
    "_LinearCrossEntropy": (lambda s, w: linear_cross_entropy(s, w, torch.tensor([0, 1]))[0], (r(2, 3), r(4, 3))),
    "_Gather": (deferred, (r(2, 3), r(4, 3))),
    "_DeferredGradProduct": (deferred, (r(2, 3), r(4, 3))),
}


def names_in_graph(out: Tensor) -> set[str]:
    names, nodes = set(), [out.grad_fn]
    while nodes:
        node = nodes.pop()
        if node is not None:
            names.add(type(node).__name__)
            nodes += [parent for parent, _ in node.next_functions]
    return names


@for_each("name", RIGHT)
def test_second_derivatives_are_right(name: str) -> None:
    torch.manual_seed(0)
    call, inputs = RIGHT[name]
    assert f"{name}Backward" in names_in_graph(call(*inputs))
    assert gradgradcheck(call, inputs, atol=1e-5)


@pytest.mark.parametrize("name", REFUSED)
def test_second_derivatives_are_refused(name: str) -> None:
    call, inputs = REFUSED[name]
    out = call(*inputs)
    assert f"{name}Backward" in names_in_graph(out)
    with pytest.raises(RuntimeError, match="no second derivative here, which create_graph=True asks for; leave it out"):
        torch.autograd.grad(out.sum(), inputs, create_graph=True)


def test_every_function_is_listed() -> None:
    for package in ("attn", "gates", "kernels", "layers", "losses"):
        root = importlib.import_module(f"regard.{package}")
        for module in pkgutil.walk_packages(root.__path__, f"regard.{package}."):
            if "_native" not in module.name:
                importlib.import_module(module.name)
    functions = {
        f.__name__
        for f in Function.__subclasses__()
        if f.__module__.startswith("regard.") and "Backward" not in f.__name__
    }
    assert functions == {*RIGHT, *REFUSED}
