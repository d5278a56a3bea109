"""Every way to call a kernel gives the same numbers: eager, compiled, exported, transformed, forward-mode, traced."""

import warnings
from collections.abc import Callable

import pytest
import torch
from tests.for_each import for_each
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad
from torch.utils.flop_counter import FlopCounterMode

from regard.kernels import additive, sparsemax
from regard.kernels.additive import compute

ALLOWED = torch.tensor([[1, 1, 0, 1, 1, 0, 1], [0, 0, 0, 0, 0, 0, 0], [1, 0, 1, 1, 0, 0, 1]], dtype=torch.bool)
ALPHA = torch.tensor([[[1.3]], [[1.7]]], dtype=torch.float64)

CALLS: dict[str, Callable[..., tuple[Tensor, ...]]] = {
    "scores": lambda a, b, w, v: (additive.scores(a, b, w),),
    "weights": lambda a, b, w, v: additive.weights(a, b, w),
    "attend": lambda a, b, w, v: additive.attend(a, b, w, v),
    "attend masked": lambda a, b, w, v: additive.attend(a, b, w, v, ALLOWED)[:1],
    "sparsemax": lambda a, b, w, v: (sparsemax.sparsemax(a @ b.mT * 3, ALLOWED),),
    "entmax15": lambda a, b, w, v: (sparsemax.entmax15(a @ b.mT * 3, ALLOWED),),
    "sparsemax threshold": lambda a, b, w, v: (sparsemax.sparsemax_threshold(a @ b.mT),),
    "entmax15 threshold": lambda a, b, w, v: (sparsemax.entmax15_threshold(a @ b.mT),),
    "entmax": lambda a, b, w, v: (sparsemax.entmax(a @ b.mT * 3, ALPHA, ALLOWED),),
}
every_call = for_each("name", CALLS)


def problem() -> list[Tensor]:
    return [
        torch.randn(*shape, dtype=torch.float64, requires_grad=True)
        for shape in [(2, 3, 5), (2, 7, 5), (5,), (2, 7, 4)]
    ]


def gradients(out: tuple[Tensor, ...], inputs: list[Tensor]) -> tuple[Tensor, ...]:
    total = sum(x.square().sum() for x in out)
    return torch.autograd.grad(total, inputs, allow_unused=True, materialize_grads=True)


def compiled_equals_plain(name: str) -> None:
    inputs, call = problem(), CALLS[name]
    torch.compiler.reset()
    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    want, got = call(*inputs), compiled(*inputs)
    torch.testing.assert_close(got, want)
    torch.testing.assert_close(gradients(got, inputs), gradients(want, inputs))


@every_call
def test_compiled_whole(name: str) -> None:
    compiled_equals_plain(name)


def test_compiled_whole_when_weights_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compute, "KEEP_BYTES", 0)
    compiled_equals_plain("attend")
    compiled_equals_plain("attend masked")


@pytest.mark.whole
def test_compiled_by_the_code_generator() -> None:
    inputs = problem()
    torch.compiler.reset()
    compiled = torch.compile(CALLS["attend masked"], fullgraph=True, dynamic=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, from its own imports
        got = compiled(*inputs)
    torch.testing.assert_close(got, CALLS["attend masked"](*inputs))


# torch 2.6 warns of the mask, a global tensor
@pytest.mark.filterwarnings("ignore:.*get_attr")
@pytest.mark.parametrize("name", ["attend masked", "entmax15"])
def test_exported(name: str) -> None:
    class Module(torch.nn.Module):
        def forward(self, a: Tensor, b: Tensor, w: Tensor, v: Tensor) -> tuple[Tensor, ...]:
            return CALLS[name](a, b, w, v)

    inputs = [x.detach() for x in problem()]
    program = torch.export.export(Module(), tuple(inputs), strict=False)
    assert any("regard" in str(node.target) for node in program.graph.nodes)
    torch.testing.assert_close(program.module()(*inputs), CALLS[name](*inputs))


@every_call
def test_transformed(name: str) -> None:
    inputs, call = problem(), CALLS[name]
    want = gradients(call(*inputs), inputs)
    plain = [x.detach() for x in inputs]
    got = torch.func.grad(lambda *x: sum(y.square().sum() for y in call(*x)), argnums=(0, 1, 2, 3))(*plain)
    torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-9)
    if name != "entmax":
        stacked = [torch.stack([x, 2 * x]) for x in plain]
        rows = torch.func.vmap(call)(*stacked)
        for i in range(2):
            torch.testing.assert_close(tuple(x[i] for x in rows), call(*[x[i] for x in stacked]))


@every_call
def test_forward_mode(name: str) -> None:
    inputs, call = [x.detach() for x in problem()], CALLS[name]
    directions = [torch.randn_like(x) for x in inputs]
    _, want = torch.func.jvp(call, tuple(inputs), tuple(directions))
    with forward_ad.dual_level():
        duals = [forward_ad.make_dual(x, t) for x, t in zip(inputs, directions, strict=True)]
        got = tuple(forward_ad.unpack_dual(x).tangent for x in call(*duals))
    torch.testing.assert_close(got, want)
    # against a small step, away from where the support changes
    step = 1e-6
    moved = call(*[x + step * t for x, t in zip(inputs, directions, strict=True)])
    back = call(*[x - step * t for x, t in zip(inputs, directions, strict=True)])
    slope = tuple((x - y) / (2 * step) for x, y in zip(moved, back, strict=True))
    torch.testing.assert_close(got, slope, rtol=1e-5, atol=1e-5)


@every_call
def test_second_derivatives_of_a_transform(name: str) -> None:
    inputs, call = problem(), CALLS[name]
    plain = [x.detach() for x in inputs]
    got = torch.func.hessian(lambda a: sum(y.square().sum() for y in call(a, *plain[1:])))(plain[0])
    (first,) = torch.autograd.grad(sum(y.square().sum() for y in call(*inputs)), inputs[0], create_graph=True)
    direction = torch.randn_like(first)
    (want,) = torch.autograd.grad(first, inputs[0], direction)
    torch.testing.assert_close(torch.tensordot(direction, got, 3), want, rtol=1e-8, atol=1e-8)


@every_call
def test_shapes_without_values(name: str) -> None:
    inputs = [x.detach() for x in problem()]
    want = [x.shape for x in CALLS[name](*inputs)]
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        assert [x.shape for x in CALLS[name](*[mode.from_tensor(x) for x in inputs])] == want
    if "masked" not in name and ("sparsemax" not in name or "threshold" in name) and name not in ("entmax15", "entmax"):
        assert [x.shape for x in CALLS[name](*[x.to("meta") for x in inputs])] == want


def test_dispatch_modes_see_the_operator() -> None:
    inputs = problem()
    want = additive.attend(*inputs)[0]
    with FlopCounterMode(display=False):
        torch.testing.assert_close(additive.attend(*inputs)[0], want)


def test_tracing_does_not_freeze_the_result() -> None:
    inputs = [x.detach() for x in problem()]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.jit is deprecated, but must not be silently wrong
        traced = torch.jit.trace(lambda *x: additive.attend(*x)[0], inputs, check_trace=False)
    others = [x.detach() for x in problem()]
    torch.testing.assert_close(traced(*others), additive.attend(*others)[0])


def test_a_subclass_keeps_its_kind() -> None:
    class Named(Tensor):
        pass

    inputs = [x.detach() for x in problem()]
    out, _ = additive.attend(inputs[0].as_subclass(Named), *inputs[1:])
    assert type(out) is Named
    torch.testing.assert_close(out.as_subclass(Tensor), additive.attend(*inputs)[0])
