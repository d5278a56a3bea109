"""explain names what runs: every mechanism and layer, in training and evaluation, in whole calls and in steps."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any
from unittest import mock

import pytest
import torch
from tests.attn.backends.cases import Case, Sizes, tensors, willing
from tests.attn.mechanism_properties import BY_ROWS, CHAINED
from tests.for_each import for_each
from torch import nn

import regard
from regard.attn import fused_heads, native_heads, stepwise
from regard.attn.backends import BACKENDS, fused
from regard.layers import native_decoder
from regard.models.transfer import text_embedder

DIM, HEADS = 12, 3


@contextmanager
def probe() -> Iterator[list[str]]:
    """The names of the backends and paths that ran, in their order."""
    ran: list[str] = []

    def watch(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*args: Any, **kwargs: Any) -> Any:
            result = function(*args, **kwargs)
            if result is not None:
                ran.append(name)
            return result

        return watched

    places: list[tuple[ModuleType, str, str]] = [(backend, "run", name) for name, backend in BACKENDS.items()]
    places += [(backend, "run_kept", name) for name, backend in BACKENDS.items() if hasattr(backend, "run_kept")]
    places += [(fused, "plain_attention", "fused"), (fused_heads, "self_attention", "layer")]
    places += [(native_heads, "step", "step"), (native_decoder, "decoder_step", "decoder")]
    places += [(native_decoder, "encode", "encoder"), (native_decoder, "stack_step", "stack")]
    places += [(text_embedder, "packed_layers", "packed")]
    patches = [mock.patch.object(place, name, watch(label, getattr(place, name))) for place, name, label in places]
    for patch in patches:
        patch.start()
    try:
        yield ran
    finally:
        for patch in patches:
            patch.stop()


def explained(text: str) -> list[str]:
    """The names before "runs:"."""
    words = text.split()
    return [words[n - 1] for n, word in enumerate(words) if word == "runs:"]


def agree(layer: nn.Module, *args: Any, **kwargs: Any) -> None:
    """A call runs what `explain` says; a mechanism without a backend says so."""
    text = "no backend is chosen"
    with probe() as ran:
        if hasattr(layer, "explain"):
            text = layer.explain(*args, **kwargs)
        assert not ran, "explain runs nothing"
        layer(*args, **kwargs)
    assert ran == explained(text), text
    assert ran or "no backend is chosen" in text


MASKS = {"none": lambda: None, "causal": regard.Causal, "lengths": lambda: regard.Lengths([7, 4])}


@for_each("name", regard.MECHANISMS)
@for_each("training", [True, False])
@for_each("grad", [True, False])
def test_every_mechanism_runs_what_explain_says(name: str, training: bool, grad: bool) -> None:
    torch.manual_seed(0)
    layer = regard.mechanism(name, DIM).train(training)
    x = torch.randn(2, 7, DIM)
    with torch.set_grad_enabled(grad):
        for mask in MASKS.values():
            agree(layer, x, x, mask=mask())
        if name not in CHAINED | BY_ROWS:
            agree(layer, x[:, -1:], stepwise.project_kv(layer, x))


CASES = [
    Case(score, mask=mask, normalize=normalize)
    for score, mask, normalize in itertools.product(
        ("dot", "additive", "euclid", "kernel-elu"),
        ("none", "causal", "window", "lengths", "documents"),
        ("softmax", "sparsemax", "sum"),
    )
]


@for_each("case", [case for case in CASES if case.possible], ids=str, share=0.5)
@for_each("size", [7, 600])
def test_every_backend_that_cannot_run_says_so(case: Case, size: int) -> None:
    sizes = Sizes(q=size, k=size)
    q, k, v = (t.detach() for t in tensors(sizes, torch.float32))
    terms = case.terms(sizes, torch.float32)
    agree(regard.Attention(terms["score"], normalize=terms["normalize"]), q, k, v, mask=terms["mask"])
    lines = {line.split()[0]: line for line in regard.explain(q, k, v, **terms).splitlines()[2:]}
    assert {name for name, line in lines.items() if " cannot: " not in line} == {*willing(q, k, v, **terms)}


LAYERS: dict[str, Callable[[], regard.MultiHead]] = {
    "plain": lambda: regard.MultiHead(DIM, HEADS),
    "dropout": lambda: regard.MultiHead(DIM, HEADS, dropout=0.1),
    "shared": lambda: regard.MultiHead(DIM, HEADS, kv_heads=1),
    "rotary": lambda: regard.MultiHead(DIM, HEADS, rotate=regard.Rotary(DIM // HEADS)),
    "causal": lambda: regard.MultiHead(DIM, HEADS, attention=regard.Attention(mask=regard.Causal())),
    "sparsemax": lambda: regard.MultiHead(DIM, HEADS, attention=regard.Attention(normalize=regard.Sparsemax())),
    "alibi": lambda: regard.MultiHead(DIM, HEADS, attention=regard.Attention(bias=regard.ALiBi(HEADS))),
    "forced": lambda: regard.MultiHead(DIM, HEADS, attention=regard.Attention(backend="eager")),
    "per head": lambda: regard.MultiHead(DIM, HEADS, attention=[regard.Attention() for _ in range(HEADS)]),
}


@for_each("name", LAYERS)
@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("training", [True, False])
def test_every_multi_head_layer_runs_what_explain_says(name: str, training: bool, grad: bool) -> None:
    torch.manual_seed(0)
    layer = LAYERS[name]().train(training)
    x, other = torch.randn(2, 7, DIM), torch.randn(2, 5, DIM)
    with torch.set_grad_enabled(grad):
        for mask in MASKS.values():
            agree(layer, x, mask=mask())
        agree(layer, x, other)
        past = layer.project_kv(x)
        agree(layer, other[:, :1], past)
        for mask in (None, regard.Causal()):
            token = x[:, :1].contiguous()
            text = layer.explain_step(token, past, mask=mask)
            with probe() as ran:
                layer.step(token, past, mask=mask)
            assert ran == explained(text), text


def test_whole_layers_give_their_reason() -> None:
    layer, x = regard.MultiHead(DIM, HEADS), torch.randn(2, 7, DIM)
    assert "layer    runs: the projections" in layer.explain(x, mask=regard.Causal())
    assert "fused    could, but layer comes first" in layer.explain(x)
    assert "layer    cannot: it takes no mask but Causal()" in layer.explain(x, mask=regard.Lengths([7, 4]))
    with torch.no_grad():
        assert "layer    cannot: gradients are off" in layer.explain(x)
        assert "step     runs: one native kernel" in layer.explain_step(x[:, :1].contiguous())
        assert "step     cannot: it takes one token of each" in layer.explain_step(x)
    assert "step     cannot: gradients are on" in layer.explain_step(x[:, :1].contiguous())
