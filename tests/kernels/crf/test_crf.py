"""The chain in its three forms: native, scaled in torch, and in logarithms."""

import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from regard.kernels import crf, native_library
from regard.kernels.crf.plain import plain_nll

NATIVE = pytest.param(
    True, marks=pytest.mark.skipif(native_library.library() is None, reason=str(native_library.unavailable_reason()))
)
forms = pytest.mark.parametrize("native", [NATIVE, False], ids=["native", "torch"])


def chain(
    b: int, t: int, k: int, dtype: torch.dtype = torch.float64, scale: float = 1.0, holes: bool = False
) -> tuple[Tensor, Tensor, crf.Potentials]:
    emissions = torch.randn(b, t, k, dtype=dtype) * scale
    scores = [torch.randn(*shape, dtype=dtype) for shape in [(k, k), (k,), (k,)]]
    if holes:
        scores = [torch.where(torch.rand(s.shape) < 0.4, -torch.inf, s) for s in scores]
        # tag 0 may follow, start and end anything, so that a path exists
        for s in scores:
            s[..., 0] = 0.0
        scores[0][0] = 0.0
    return emissions, torch.zeros(b, t, dtype=torch.int64), crf.Potentials(*scores)


@forms
@given(
    b=st.sampled_from([1, 2, 3, 17]),
    t=st.sampled_from([1, 2, 5, 13]),
    k=st.sampled_from([1, 2, 3, 8, 16, 17, 33, 40, 65]),
    scale=st.sampled_from([0.0, 1.0, 8.0, 100.0, 1e4]),
    holes=st.booleans(),
    masked=st.booleans(),
    gold=st.booleans(),
    wide=st.booleans(),
)
def test_agrees_with_logarithms(
    native: bool, b: int, t: int, k: int, scale: float, holes: bool, masked: bool, gold: bool, wide: bool
) -> None:
    dtype = torch.float64 if wide else torch.float32
    emissions, tags, potentials = chain(b, t, k, dtype, scale, holes)
    mask = torch.rand(b, t) < 0.6 if masked else None
    inputs = [x.requires_grad_() for x in (emissions, *potentials)]
    doubles = [x.detach().double().requires_grad_() for x in inputs]
    grad = torch.randn(b, dtype=dtype)
    got = crf.nll(emissions, tags if gold else None, mask, potentials, native)
    want = plain_nll(doubles[0], tags if gold else None, mask, *doubles[1:])
    size = max(1.0, scale) * t
    torch.testing.assert_close(got.double(), want, rtol=0, atol=(1e-12 if wide else 2e-6) * size)
    rights = torch.autograd.grad(want, doubles, grad.double(), materialize_grads=True)
    for mine, right in zip(torch.autograd.grad(got, inputs, grad), rights, strict=True):
        tolerance = 1e-10 if wide else 1e-4
        torch.testing.assert_close(mine.double(), right, rtol=tolerance, atol=tolerance * max(1.0, scale / 100))


@forms
def test_levels_agree(native: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    emissions, tags, potentials = chain(3, 7, 19, torch.float32)
    want = crf.nll(emissions, tags, None, potentials, native)
    path, _ = crf.viterbi(emissions, None, potentials, native)
    for level in (0, 1):
        monkeypatch.setattr(native_library, "LEVEL", level)
        torch.testing.assert_close(crf.nll(emissions, tags, None, potentials, native), want)
        assert torch.equal(crf.viterbi(emissions, None, potentials, native)[0], path)


@forms
@given(
    b=st.sampled_from([1, 3]),
    t=st.sampled_from([1, 2, 7]),
    k=st.sampled_from([1, 2, 5, 17, 33]),
    masked=st.booleans(),
    holes=st.booleans(),
)
def test_the_best_path(native: bool, b: int, t: int, k: int, masked: bool, holes: bool) -> None:
    emissions, _, potentials = chain(b, t, k, holes=holes)
    mask = torch.rand(b, t) < 0.6 if masked else torch.ones(b, t, dtype=torch.bool)
    path, score = crf.viterbi(emissions, mask, potentials, native)
    for row in range(b):
        kept = emissions[row][mask[row]]
        assert (path[row, len(kept) :] == -1).all()
        if len(kept) == 0:
            assert score[row] == 0
            continue
        # the score of the path is the score that is reported, and no tag can be changed for a better one
        delta = potentials.start + kept[0]
        for emission in kept[1:]:
            delta = (delta.unsqueeze(1) + potentials.transitions).amax(0) + emission
        torch.testing.assert_close(score[row], (delta + potentials.end).amax())
        tags = path[row, : len(kept)].unsqueeze(0)
        own = -crf.nll(kept.unsqueeze(0), tags, None, potentials) + crf.nll(kept.unsqueeze(0), None, None, potentials)
        torch.testing.assert_close(own[0], score[row])


@forms
def test_derivatives(native: bool) -> None:
    emissions, tags, potentials = chain(2, 4, 3)
    mask = torch.tensor([[True, False, True, True], [False, True, True, False]])
    inputs = [x.requires_grad_() for x in (emissions, *potentials)]

    def call(emissions: Tensor, *scores: Tensor) -> Tensor:
        return crf.nll(emissions, tags, mask, crf.Potentials(*scores), native)

    assert gradcheck(call, inputs)
    assert gradgradcheck(call, inputs)


@forms
def test_nothing_at_all(native: bool) -> None:
    _, _, potentials = chain(1, 1, 3)
    for shape in [(0, 4, 3), (2, 0, 3)]:
        emissions = torch.zeros(shape, dtype=torch.float64, requires_grad=True)
        loss = crf.nll(emissions, torch.zeros(shape[:2], dtype=torch.int64), None, potentials, native)
        assert loss.tolist() == [0.0] * shape[0]
        assert torch.autograd.grad(loss.sum(), emissions)[0].shape == shape
        assert crf.viterbi(emissions.detach(), None, potentials, native)[0].shape == shape[:2]


@forms
def test_no_path_and_nan(native: bool) -> None:
    emissions, _, potentials = chain(4, 3, 2)
    emissions[1, 1] = -torch.inf
    emissions[2, 1, 0] = torch.nan
    emissions[3, 1] = torch.nan
    emissions.requires_grad_()
    log_z = crf.nll(emissions, None, None, potentials, native)
    assert log_z[0].isfinite()
    assert log_z[1] == -torch.inf
    assert log_z[2:].isnan().all()
    (grad,) = torch.autograd.grad(log_z[:2].sum(), emissions)
    assert grad[:2].isfinite().all()
    torch.testing.assert_close(grad[0].sum(-1), torch.ones(3, dtype=torch.float64))
    assert crf.viterbi(emissions.detach(), None, potentials, native)[1][1] == -torch.inf


@forms
def test_masked_values_are_not_read(native: bool) -> None:
    emissions, tags, potentials = chain(2, 5, 3)
    mask = torch.tensor([[False, True, True, False, True], [True, True, False, False, False]])
    spoilt = torch.where(mask.unsqueeze(-1), emissions, torch.nan).requires_grad_()
    loss = crf.nll(spoilt, torch.where(mask, tags, -100), mask, potentials, native)
    torch.testing.assert_close(loss, crf.nll(emissions, tags, mask, potentials, native))
    (grad,) = torch.autograd.grad(loss.sum(), spoilt)
    assert (grad[~mask] == 0).all()
    assert grad.isfinite().all()


@pytest.mark.skipif(native_library.library() is None, reason=str(native_library.unavailable_reason()))
def test_threads_do_not_change_the_gradient() -> None:
    emissions, tags, potentials = chain(64, 60, 20, torch.float32)
    inputs = [x.requires_grad_() for x in (emissions, *potentials)]
    found = []
    for count in (1, 3):
        torch.set_num_threads(count)
        found.append(torch.autograd.grad(crf.nll(emissions, tags, None, potentials, True).sum(), inputs))
    for first, second in zip(*found, strict=True):
        assert torch.equal(first, second)


def test_every_way_to_call() -> None:
    emissions, tags, potentials = chain(2, 4, 3)
    mask = torch.tensor([[True, False, True, True], [True, True, False, False]])
    inputs = [x.requires_grad_() for x in (emissions, *potentials)]

    def call(emissions: Tensor, *scores: Tensor) -> Tensor:
        gold, keep = tags.to(emissions.device), mask.to(emissions.device)
        return crf.nll(emissions, gold, keep, crf.Potentials(*scores)).square().sum()

    want = torch.autograd.grad(call(*inputs), inputs)
    torch.compiler.reset()
    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(torch.autograd.grad(compiled(*inputs), inputs), want)
    plain = [x.detach() for x in inputs]
    torch.testing.assert_close(torch.func.grad(call, argnums=(0, 1, 2, 3))(*plain), want)
    assert call(*[x.to("meta") for x in plain]).shape == ()


def test_the_operator_is_sound_in_both_forms() -> None:
    from regard.kernels.crf import custom_ops

    emissions, tags, potentials = chain(2, 4, 3)
    inputs = [x.requires_grad_() for x in (emissions, *potentials)]
    for native in (None, False):
        arguments = (inputs[0], tags, None, *inputs[1:], native)
        torch.library.opcheck(custom_ops.nll, arguments, test_utils=("test_schema", "test_faketensor"))
