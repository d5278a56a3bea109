"""The vocabulary layer with its cross-entropy, held to torch's own."""

import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode

from regard.losses import linear_cross_entropy

# sizes that share no factor: a swapped axis must fail
N, D, V = 7, 5, 11

Given = tuple[Tensor, Tensor, Tensor | None, Tensor]


def given(bias: bool = True, dtype: torch.dtype = torch.float64, rows: int = N) -> Given:
    states = torch.randn(rows, D, dtype=dtype, requires_grad=True)
    weight = torch.randn(V, D, dtype=dtype, requires_grad=True)
    offset = torch.randn(V, dtype=dtype, requires_grad=True) if bias else None
    return states, weight, offset, torch.arange(rows) * 3 % V


def theirs(states: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, smoothing: float) -> Tensor:
    return F.cross_entropy(F.linear(states, weight, bias), targets, label_smoothing=smoothing, reduction="sum")


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("smoothing", [0.0, 0.3])
# all rows at once, several, one at a time, and rows that do not come out even
@pytest.mark.parametrize("room", [1 << 22, 3 * V, 1, 2 * V + 3])
def test_value_and_gradient_are_those_of_torch(
    bias: bool, smoothing: float, room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # by sys.modules: the package has the function under the name of its module
    monkeypatch.setattr(sys.modules["regard.losses.linear_cross_entropy"], "_MAX_LOGITS", room)
    states, weight, offset, targets = given(bias)
    inputs = [t for t in (states, weight, offset) if t is not None]
    total, nll = linear_cross_entropy(states, weight, targets, bias=offset, smoothing=smoothing)
    want = theirs(states, weight, offset, targets, smoothing)
    torch.testing.assert_close(total, want)
    torch.testing.assert_close(
        nll, F.cross_entropy(F.linear(states, weight, offset), targets, reduction="none").detach()
    )
    # what comes back is scaled as training scales it
    got = torch.autograd.grad(total * 0.37, inputs)
    for one, other in zip(got, torch.autograd.grad(want * 0.37, inputs), strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_the_gradient_is_the_slope(smoothing: float) -> None:
    """gradcheck takes two backward passes; here one is all there is."""
    states, weight, bias, targets = given()
    inputs = [t for t in (states, weight, bias) if t is not None]
    slopes = torch.autograd.grad(
        linear_cross_entropy(states, weight, targets, bias=bias, smoothing=smoothing)[0], inputs
    )
    for t, slope in zip(inputs, slopes, strict=True):
        way = torch.randn_like(t)

        def at(step: float, t: Tensor = t, way: Tensor = way) -> Tensor:
            moved = [other + step * way if other is t else other for other in inputs]
            return linear_cross_entropy(moved[0], moved[1], targets, bias=moved[2], smoothing=smoothing)[0]

        with torch.no_grad():
            torch.testing.assert_close((slope * way).sum(), (at(1e-5) - at(-1e-5)) / 2e-5, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("wanted", [0, 1, 2])
def test_one_input_alone_may_want_a_gradient(wanted: int) -> None:
    states, weight, bias, targets = given()
    inputs = [t.detach() for t in (states, weight, bias) if t is not None]
    inputs[wanted].requires_grad_()
    linear_cross_entropy(inputs[0], inputs[1], targets, bias=inputs[2], smoothing=0.1)[0].backward()
    theirs(states, weight, bias, targets, 0.1).backward()
    torch.testing.assert_close(inputs[wanted].grad, (states, weight, bias)[wanted].grad)
    assert all(t.grad is None for n, t in enumerate(inputs) if n != wanted)


def test_without_a_gradient() -> None:
    states, weight, bias, targets = given()
    with torch.no_grad():
        total, nll = linear_cross_entropy(states, weight, targets, bias=bias, smoothing=0.1)
    assert not total.requires_grad
    torch.testing.assert_close(total, theirs(states, weight, bias, targets, 0.1).detach())
    assert not nll.requires_grad


@pytest.mark.parametrize(("way", "products"), [(torch.enable_grad, 3), (torch.no_grad, 1), (torch.inference_mode, 1)])
def test_products_of_gradients_are_made_only_where_one_goes_back(way: Callable[[], Any], products: int) -> None:
    states, weight, bias, targets = given()
    with way(), FlopCounterMode(display=False) as counted:
        linear_cross_entropy(states, weight, targets, bias=bias)
    assert counted.get_total_flops() == products * 2 * N * D * V


@pytest.mark.parametrize(("frozen", "products"), [((0,), 2), ((1,), 2), ((1, 2), 2), ((0, 1), 1)])
def test_what_is_frozen_costs_no_product(frozen: tuple[int, ...], products: int) -> None:
    states, weight, bias, targets = given()
    for n in frozen:
        (states, weight, bias)[n].requires_grad_(False)
    with FlopCounterMode(display=False) as counted:
        linear_cross_entropy(states, weight, targets, bias=bias)[0].backward()
    assert counted.get_total_flops() == products * 2 * N * D * V


# torch.compile makes an object of every Function it meets, of which torch warns
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_compiled_as_one_graph() -> None:
    states, weight, bias, targets = given()
    compiled = torch.compile(linear_cross_entropy, fullgraph=True, backend="aot_eager")
    got = torch.autograd.grad(compiled(states, weight, targets, bias=bias, smoothing=0.1)[0], [states, weight, bias])
    want = torch.autograd.grad(theirs(states, weight, bias, targets, 0.1), [states, weight, bias])
    for one, other in zip(got, want, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("way", [FakeTensorMode, lambda: torch.device("meta")], ids=["fake", "meta"])
def test_what_has_no_values_gives_its_shapes(way: Callable[[], Any]) -> None:
    with way():
        states, weight, bias, targets = given()
        total, nll = linear_cross_entropy(states, weight, targets, bias=bias, smoothing=0.1)
        total.backward()
    assert (total.shape, nll.shape) == ((), (N,))
    assert weight.grad.shape == weight.shape


def test_a_matrix_that_is_also_the_embedding() -> None:
    """Tied, as models tie them: both gradients meet in one matrix."""
    table = torch.randn(V, D, dtype=torch.float64, requires_grad=True)
    targets = torch.arange(N) * 3 % V

    def states() -> Tensor:
        return torch.tanh(table[targets.flip(0)])

    (got,) = torch.autograd.grad(linear_cross_entropy(states(), table, targets, smoothing=0.1)[0], table)
    (want,) = torch.autograd.grad(theirs(states(), table, None, targets, 0.1), table)
    torch.testing.assert_close(got, want)


def test_states_that_are_not_contiguous() -> None:
    _, weight, bias, targets = given()
    turned = torch.randn(D, N, dtype=torch.float64, requires_grad=True)
    (got,) = torch.autograd.grad(linear_cross_entropy(turned.T, weight, targets, bias=bias)[0], turned)
    (want,) = torch.autograd.grad(theirs(turned.T, weight, bias, targets, 0.0), turned)
    torch.testing.assert_close(got, want)


def test_no_rows() -> None:
    states, weight, bias, targets = given(rows=0)
    total, nll = linear_cross_entropy(states, weight, targets, bias=bias, smoothing=0.1)
    total.backward()
    assert total == 0
    assert nll.shape == (0,)
    assert not weight.grad.any()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("wide", [True, False], ids=["float32 weights", "narrow weights"])
def test_narrow_numbers(dtype: torch.dtype, wide: bool) -> None:
    states, weight, bias, targets = given(dtype=torch.float32)
    want = theirs(states, weight, bias, targets, 0.1)
    wanted = torch.autograd.grad(want, [states, weight, bias])
    narrow = [t.detach().to(torch.float32 if wide and n else dtype) for n, t in enumerate((states, weight, bias))]
    for t in narrow:
        t.requires_grad_()
    total, nll = linear_cross_entropy(narrow[0], narrow[1], targets, bias=narrow[2], smoothing=0.1)
    assert total.dtype == nll.dtype == torch.float32
    torch.testing.assert_close(total, want, rtol=0.02, atol=0.1)
    for t, one, other in zip(narrow, torch.autograd.grad(total, narrow), wanted, strict=True):
        assert one.dtype == t.dtype
        torch.testing.assert_close(one.float(), other, rtol=0.05, atol=0.05)


def test_under_autocast() -> None:
    """As `precision="bfloat16"` trains: float32 matrices, narrow products."""
    states, weight, bias, targets = given(dtype=torch.float32)
    wanted = torch.autograd.grad(theirs(states, weight, bias, targets, 0.1), [states, weight, bias])
    with torch.autocast("cpu", torch.bfloat16):
        total, _ = linear_cross_entropy(states, weight, targets, bias=bias, smoothing=0.1)
    assert total.dtype == torch.float32
    for one, other in zip(torch.autograd.grad(total, [states, weight, bias]), wanted, strict=True):
        assert one.dtype == torch.float32
        torch.testing.assert_close(one, other, rtol=0.05, atol=0.05)


def test_large_logits_neither_overflow_nor_vanish() -> None:
    states, weight, bias, targets = given()
    states = (1e4 * states).detach().requires_grad_()
    total, _ = linear_cross_entropy(states, weight, targets, bias=bias, smoothing=0.1)
    torch.testing.assert_close(total, theirs(states, weight, bias, targets, 0.1))
    (slope,) = torch.autograd.grad(total, states)
    assert slope.isfinite().all()


def test_inputs_are_not_mutated() -> None:
    states, weight, bias, targets = given()
    before = [t.detach().clone() for t in (states, weight, bias, targets)]
    linear_cross_entropy(states, weight, targets, bias=bias, smoothing=0.1)[0].backward()
    for one, other in zip(before, (states, weight, bias, targets), strict=True):
        assert torch.equal(one, other)


def test_a_second_backward_is_an_error() -> None:
    states, weight, bias, targets = given()
    total, _ = linear_cross_entropy(states, weight, targets, bias=bias)
    total.backward(retain_graph=True)
    with pytest.raises(
        RuntimeError, match="linear_cross_entropy has one backward pass, .* call linear_cross_entropy again"
    ):
        total.backward()


def test_a_second_derivative_is_refused_with_the_way_out() -> None:
    """A gradient penalty through the states would silently lack terms."""
    x, weight = torch.randn(5, 4, requires_grad=True), torch.randn(7, 4)
    loss, _ = linear_cross_entropy(torch.tanh(x), weight, torch.tensor([0, 1, 2, 3, 4]))
    with pytest.raises(
        RuntimeError, match="linear_cross_entropy has no second derivative here.*or use F.cross_entropy"
    ):
        torch.autograd.grad(loss, x, create_graph=True)


def test_what_is_wrong_is_told() -> None:
    states, weight, _, targets = given()
    with pytest.raises(
        ValueError, match=r"states must be as wide as weight, got \(7, 5\) and \(11, 4\); .*Linear\(5, 11\)"
    ):
        linear_cross_entropy(states, weight[:, :4], targets)
    for size in ((10,), (1,), (1, 11)):
        with pytest.raises(
            ValueError, match=r"bias must be one number per word of weight, got .* \(11, 5\); .*\(5, 11\)"
        ):
            linear_cross_entropy(states, weight, targets, bias=torch.zeros(size))
    with pytest.raises(
        ValueError, match=r"targets must be one per row of states, got \(6\) .*\(7, 5\).*states\[keep\]"
    ):
        linear_cross_entropy(states, weight, targets[:6])
    with pytest.raises(ValueError, match=r"targets must be one per row of states, got \(1, 7\) .*\(1, 7, 5\)"):
        linear_cross_entropy(states[None], weight, targets[None])
    with pytest.raises(TypeError, match=r"targets must be int64, the numbers of words, got torch.int32; .*\.long\(\)"):
        linear_cross_entropy(states, weight, targets.int())
    for wrong in (-100, V):
        targets[2] = wrong
        with pytest.raises(
            ValueError, match=rf"targets must be words 0 to 10 of weight, got {wrong}; .*targets\[keep\]"
        ):
            linear_cross_entropy(states, weight, targets)
    targets[2] = 0
    for smoothing in (-0.1, 1.0):
        with pytest.raises(ValueError, match=f"smoothing must be 0 or more and below 1, got {smoothing}; try 0.1"):
            linear_cross_entropy(states, weight, targets, smoothing=smoothing)
