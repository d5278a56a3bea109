"""Additive kernels against the equation as written: every form, every shape, every mask, every magnitude."""

import math
import threading

import pytest
import torch
from benchmarks import memory
from benchmarks.additive import attend_job
from hypothesis import given, strategies as st
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from regard.kernels import additive, native_library
from regard.kernels.additive import compute

NATIVE = pytest.param(
    True, marks=pytest.mark.skipif(native_library.library() is None, reason=str(native_library.unavailable_reason()))
)
forms = pytest.mark.parametrize("native", [NATIVE, False], ids=["native", "torch"])
sizes = st.sampled_from([0, 1, 2, 3, 5, 7, 8, 11, 13, 17, 33])


@pytest.fixture(autouse=True)
def chunked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small problems must go the way of large ones, in several chunks."""
    monkeypatch.setitem(compute._CHUNK_ELEMENTS, "cpu", 64)
    monkeypatch.setattr(compute, "_BROADCAST_MAX_ELEMENTS", 0)


def equation(a: Tensor, b: Tensor, w: Tensor) -> Tensor:
    return (w * torch.tanh(a.unsqueeze(-2) + b.unsqueeze(-3))).sum(-1)


def reference(a: Tensor, b: Tensor, w: Tensor, v: Tensor, allowed: Tensor | None = None) -> tuple[Tensor, Tensor]:
    s = equation(a, b, w)
    if allowed is not None:
        s = s.masked_fill(~allowed, -torch.inf)
    return s.softmax(-1).nan_to_num(0.0) @ v, s.logsumexp(-1)


def draw(*shape: int, dtype: torch.dtype = torch.float64, scale: float = 1.0) -> Tensor:
    return (torch.randn(*shape, dtype=dtype) * scale).requires_grad_()


def problem(
    n: int, q: int, k: int, d: int, v: int, dtype: torch.dtype = torch.float64, scale: float = 1.0
) -> list[Tensor]:
    a, b = draw(n, q, d, dtype=dtype, scale=scale), draw(n, k, d, dtype=dtype, scale=scale)
    return [a, b, draw(d, dtype=dtype), draw(n, k, v, dtype=dtype)]


def agree(got: tuple[Tensor, ...], want: tuple[Tensor, ...], inputs: list[Tensor], rtol: float, atol: float) -> None:
    torch.testing.assert_close(got, want, rtol=rtol, atol=atol)
    pairs = [(x, y) for x, y in zip(got, want, strict=True) if x.numel()]
    if pairs:
        grads = [torch.randn_like(x) for x, _ in pairs]
        mine = torch.autograd.grad([x for x, _ in pairs], inputs, grads, allow_unused=True, materialize_grads=True)
        theirs = torch.autograd.grad([y for _, y in pairs], inputs, grads, allow_unused=True, materialize_grads=True)
        torch.testing.assert_close(mine, theirs, rtol=rtol, atol=atol)


@forms
@given(n=st.sampled_from([0, 1, 2, 3]), q=sizes, k=sizes, d=sizes, v=st.sampled_from([0, 1, 5]), wide=st.booleans())
def test_agrees_with_the_equation(native: bool, n: int, q: int, k: int, d: int, v: int, wide: bool) -> None:
    dtype, tolerance = (torch.float64, 1e-11) if wide else (torch.float32, 2e-5)
    inputs = problem(n, q, k, d, v, dtype)
    got = additive.attend(*inputs, None, native)
    if k == 0:
        assert torch.equal(got[0], torch.zeros(n, q, v, dtype=dtype))
        assert torch.equal(got[1], torch.full((n, q), -torch.inf, dtype=dtype))
        return
    agree(got, reference(*inputs), inputs, tolerance, tolerance)
    agree((additive.scores(*inputs[:3], native),), (equation(*inputs[:3]),), inputs[:3], tolerance, 2 * tolerance)


@forms
@given(
    q=sizes,
    k=sizes.filter(bool),
    d=sizes.filter(bool),
    pattern=st.sampled_from(["keys", "pairs", "rows", "one", "last"]),
)
def test_masked_agrees_and_empty_rows_are_zero(native: bool, q: int, k: int, d: int, pattern: str) -> None:
    n = 3
    inputs = problem(n, q, k, d, 5)
    shape = {"keys": (n, 1, k), "pairs": (n, q, k), "rows": (1, q, 1), "one": (q, k), "last": (k,)}[pattern]
    allowed = torch.rand(shape) < 0.6
    if allowed.numel():
        allowed[0] = False
    got = additive.attend(*inputs, allowed, native)
    full = allowed.expand(n, q, k)
    some = full.any(-1)
    torch.testing.assert_close(got[1] == -torch.inf, ~some)
    assert (got[0][~some] == 0).all()
    out, lse = reference(*inputs, allowed)
    torch.testing.assert_close(got[0], out, rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(got[1][some], lse[some], rtol=1e-11, atol=1e-11)
    grad = torch.randn_like(out)
    mine = torch.autograd.grad(got[0], inputs, grad, materialize_grads=True)
    # the reference differentiates only rows that look somewhere
    theirs = torch.autograd.grad(_reference_rows(inputs, full, some), inputs, grad, materialize_grads=True)
    torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-10)


def _reference_rows(inputs: list[Tensor], allowed: Tensor, some: Tensor) -> Tensor:
    a, b, w, v = inputs
    s = equation(a, b, w).masked_fill(~(allowed | ~some.unsqueeze(-1)), -torch.inf)
    return (s.softmax(-1) * some.unsqueeze(-1)) @ v


@forms
@pytest.mark.parametrize("q", [1, 3, 6])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_a_forbidden_key_holds_is_never_felt(native: bool, q: int, bad: float) -> None:
    n, k, d = 2, 19, 7
    inputs = problem(n, q, k, d, 5)
    allowed = torch.ones(n, q, k, dtype=torch.bool)
    allowed[:, :, [0, 4, 18]] = False
    allowed[1, -1] = False  # an empty row
    want = additive.attend(*inputs, allowed, native)
    grad = torch.randn_like(want[0])
    want_grads = torch.autograd.grad(want[0], inputs, grad)
    spoilt = [x.detach().clone() for x in inputs]
    spoilt[1][:, [0, 4, 18]] = bad
    spoilt[3][:, [0, 4, 18]] = bad
    spoilt[0][1, -1] = bad
    for x in spoilt:
        x.requires_grad_()
    got = additive.attend(*spoilt, allowed, native)
    torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(torch.autograd.grad(got[0], spoilt, grad), want_grads, rtol=1e-11, atol=1e-11)
    # the weights of a key seen by one query do not reach another one either
    allowed[0, :, 4] = torch.arange(q) == 0
    weights, _ = additive.weights(*spoilt[:3], allowed, native)
    assert not weights[0, 1:].isnan().any()
    if q > 1:
        (da,) = torch.autograd.grad(weights[0, 1:].square().sum(), spoilt[0])
        assert not da[0, 1:].isnan().any()
        assert not da[1].isnan().any()


@forms
@pytest.mark.parametrize("q", [1, 5])
def test_a_visible_nan_stays_visible(native: bool, q: int) -> None:
    a, b, w, v = problem(2, q, 9, 4, 3)
    with torch.no_grad():
        b[1, 2, 3] = math.nan
    out, lse = additive.attend(a, b, w, v, None, native)
    assert out[1].isnan().all()
    assert lse[1].isnan().all()
    assert not out[0].isnan().any()
    grads = torch.autograd.grad(out.sum(), (a, b))
    assert grads[0][1].isnan().any()
    assert not grads[0][0].isnan().any()


@forms
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1e-4, 8.0, 25.0, 200.0, 1e4, 1e30])
def test_any_magnitude(native: bool, dtype: torch.dtype, scale: float) -> None:
    tolerance = 2e-5 if dtype == torch.float32 else 1e-11
    for opposite in (False, True):
        inputs = problem(2, 5, 11, 6, 3, dtype, scale)
        if opposite:
            # sums that cancel: tanh(30 + -30) is 0 however large each of them is
            with torch.no_grad():
                inputs[1][:, :5] = -inputs[0] + torch.randn(2, 5, 6, dtype=dtype)
        agree((additive.scores(*inputs[:3], native),), (equation(*inputs[:3]),), inputs[:3], tolerance, tolerance)
        agree(additive.attend(*inputs, None, native), reference(*inputs), inputs, tolerance, tolerance)


@forms
def test_is_as_accurate_as_torch(native: bool) -> None:
    inputs = problem(2, 40, 50, 256, 8, torch.float32)
    exact = [x.detach().double() for x in inputs]
    want = equation(*exact[:3])
    mine = (additive.scores(*inputs[:3], native).double() - want).abs().max()
    theirs = (equation(*inputs[:3]).double() - want).abs().max()
    assert mine < 4 * theirs
    assert mine < 1e-6 * exact[2].abs().sum()


@forms
def test_gradients_of_any_order(native: bool) -> None:
    inputs = problem(2, 3, 5, 4, 2)
    allowed = torch.tensor([[1, 1, 0, 1, 1], [0, 0, 0, 0, 0], [1, 0, 1, 1, 0]], dtype=torch.bool)
    for mask in (None, allowed):
        assert gradcheck(lambda *x, m=mask: additive.attend(*x, m, native)[0], inputs)
        assert gradgradcheck(lambda *x, m=mask: additive.attend(*x, m, native)[0], inputs, fast_mode=True)
    assert gradcheck(lambda *x: additive.attend(*x, None, native)[1], inputs)
    assert gradgradcheck(lambda *x: additive.attend(*x, None, native), inputs, fast_mode=True)
    assert gradgradcheck(lambda *x: additive.scores(*x, native), inputs[:3], fast_mode=True)


@forms
def test_large_weights_are_not_kept_but_computed_again(native: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = problem(3, 7, 11, 5, 2)
    allowed = torch.rand(3, 7, 11) < 0.7
    allowed[2, 3] = False
    want = additive.attend(*inputs, allowed, native)
    some = allowed.any(-1)
    grads = [torch.randn_like(want[0]), torch.randn(3, 7, dtype=torch.float64) * some]
    theirs = torch.autograd.grad(want, inputs, grads)
    monkeypatch.setattr(compute, "KEEP_BYTES", 0)
    for block in (1, 11 * 8 * 3, 11 * 8 * 15):  # one query, three queries, two whole batches
        monkeypatch.setattr(compute, "BLOCK_BYTES", block)
        got = additive.attend(*inputs, allowed, native)
        torch.testing.assert_close(got, want)
        torch.testing.assert_close(torch.autograd.grad(got, inputs, grads), theirs)
    small = [
        x.detach()[..., :2, :3].requires_grad_() if x.ndim > 1 else x.detach()[:3].requires_grad_() for x in inputs
    ]
    assert gradgradcheck(lambda *x: additive.attend(*x, None, native), small, fast_mode=True)


@forms
def test_leading_axes_broadcast_and_strides_are_any(native: bool) -> None:
    a, b, w, v = draw(2, 1, 6, 5), draw(3, 7, 5), draw(5), draw(7, 4)
    allowed = torch.rand(2, 1, 1, 7) < 0.7
    allowed[..., 0] = True
    agree(additive.attend(a, b, w, v, allowed, native), reference(a, b, w, v, allowed), [a, b, w, v], 1e-11, 1e-11)
    a, b, w, v = draw(5, 2, 6), draw(7, 2, 10), draw(10), draw(4, 7, 2)
    parts = [a.transpose(0, 1).mT, b.transpose(0, 1)[..., ::2], w[::2], v.permute(2, 1, 0)]
    parts[0] = parts[0][:, :, :5]
    allowed = (torch.rand(7, 6, 2) < 0.8).permute(2, 1, 0)
    allowed[..., 0] = True
    agree(additive.attend(*parts, allowed, native), reference(*parts, allowed), [a, b, w, v], 1e-11, 1e-11)
    agree((additive.scores(*parts[:3], native),), (equation(*parts[:3]),), [a, b, w], 1e-11, 1e-11)


@forms
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_types_are_computed_in_float32(native: bool, dtype: torch.dtype) -> None:
    inputs = problem(2, 5, 7, 8, 3, dtype)
    out, lse = additive.attend(*inputs, None, native)
    assert out.dtype == dtype
    assert lse.dtype == torch.float32
    want, want_lse = additive.attend(*[x.float() for x in inputs], None, native)
    torch.testing.assert_close(out, want.to(dtype))
    torch.testing.assert_close(lse, want_lse)
    out.sum().backward()
    assert all(x.grad is not None and x.grad.dtype == dtype for x in inputs)
    assert additive.scores(*inputs[:3], native).dtype == dtype


@forms
@pytest.mark.parametrize("keep", [compute.KEEP_BYTES, 0])
def test_autocast_changes_nothing(native: bool, keep: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compute, "KEEP_BYTES", keep)
    inputs = problem(2, 5, 7, 8, 3, torch.float32)
    want = additive.attend(*inputs, None, native)[0]
    grads = torch.autograd.grad(want.sum(), inputs)
    with torch.autocast("cpu", torch.bfloat16):
        got = additive.attend(*inputs, None, native)[0]
        torch.testing.assert_close(got, want)
    torch.testing.assert_close(torch.autograd.grad(got.sum(), inputs), grads)


@pytest.mark.skipif(native_library.library() is None, reason=str(native_library.unavailable_reason()))
@pytest.mark.parametrize("shape", [(1, 700, 130, 40), (40, 50, 50, 64), (64, 1, 300, 64)])
def test_threads_do_not_change_a_bit(shape: tuple[int, int, int, int]) -> None:
    inputs = problem(*shape, 8, torch.float32)
    before = torch.get_num_threads()
    results = []
    for threads in (1, 2, 5):
        torch.set_num_threads(threads)
        weights, lse = additive.weights(*inputs[:3], None, True)
        results.append(
            (weights, lse, *compute.scores_backward(*[x.detach() for x in inputs[:3]], weights.detach(), True))
        )
    torch.set_num_threads(before)
    for other in results[1:]:
        assert all(torch.equal(x, y) for x, y in zip(results[0], other, strict=True))


@pytest.mark.skipif(native_library.library() is None, reason=str(native_library.unavailable_reason()))
@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_instruction_set(level: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_library, "LEVEL", level)
    tolerance = 2e-5 if dtype == torch.float32 else 1e-11
    for scale in (1.0, 40.0):
        inputs = problem(2, 6, 21, 19, 3, dtype, scale)
        agree(additive.attend(*inputs, None, True), reference(*inputs), inputs, tolerance, tolerance)


@pytest.mark.skipif(native_library.library() is None, reason=str(native_library.unavailable_reason()))
def test_python_threads_may_call_at_once() -> None:
    inputs = [x.detach() for x in problem(4, 30, 30, 32, 8, torch.float32)]
    want, got = additive.attend(*inputs)[0], []
    workers = [threading.Thread(target=lambda: got.append(additive.attend(*inputs)[0])) for _ in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(got) == 8
    assert all(torch.equal(x, want) for x in got)


@forms
def test_the_input_is_not_changed(native: bool) -> None:
    inputs = problem(2, 5, 7, 4, 3)
    allowed = torch.rand(2, 5, 7) < 0.5
    copies = [x.detach().clone() for x in inputs]
    out, _ = additive.attend(*inputs, allowed, native)
    out.sum().backward()
    assert all(torch.equal(x, y) for x, y in zip(inputs, copies, strict=True))


def test_memory_is_linear() -> None:
    """In a process of its own, where no other test has had its peak. The broadcast form holds gigabytes."""
    assert memory.extra(attend_job, {"tokens": 1024, "hidden": 256}, {"tokens": 64}, threads=1).megabytes < 100


def test_errors_name_the_argument_and_the_way_out() -> None:
    a, b, w, v = (torch.zeros(*shape) for shape in [(2, 3, 5), (2, 7, 5), (5,), (2, 7, 4)])
    with pytest.raises(ValueError, match=r"a, b, w must be \(\*b, q, d\).*\(2, 7, 4\).*project"):
        additive.scores(a, v, w)
    with pytest.raises(ValueError, match=r"v must be \(\*b, k, v\), one value per key: got \(2, 3, 5\) for 7 keys"):
        additive.attend(a, b, w, a)
    with pytest.raises(TypeError, match="allowed must be bool.*float32; try allowed != 0"):
        additive.attend(a, b, w, v, torch.ones(3, 7))
    with pytest.raises(ValueError, match=r"allowed must broadcast to \(\*b, 3, 7\): got \(7, 3\)"):
        additive.attend(a, b, w, v, torch.ones(7, 3, dtype=torch.bool))
    with pytest.raises(
        TypeError, match="a, b, w must be floating point: got torch.int64, torch.int64, torch.int64; try a.float"
    ):
        additive.scores(a.long(), b.long(), w.long())
    with pytest.raises(RuntimeError, match="native=True is not possible: .* native=None falls back to torch"):
        native_library.resolve_native(True, a.half())
