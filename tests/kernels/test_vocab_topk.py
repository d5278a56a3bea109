"""The likeliest words against torch, and the laws of a search: a state is itself whatever stands beside it."""

import math
import re
from typing import Any

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor
from torch.nn.functional import linear

from regard.kernels import native_library
from regard.kernels.vocab_topk import topk_of_logits, vocab_topk

here = pytest.mark.skipif(native_library.library() is None, reason=str(native_library.unavailable_reason()))
forms = pytest.mark.parametrize("native", [pytest.param(True, marks=here), False], ids=["native", "torch"])


def problem(n: int, v: int, d: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor, Tensor]:
    return torch.randn(n, d, dtype=dtype), torch.randn(v, d, dtype=dtype), torch.randn(v, dtype=dtype)


def ask(native: bool, states: Tensor, weight: Tensor, bias: Tensor | None, k: int, also: int, never: list[int]) -> Any:
    """Native, or what torch makes of the logits."""
    if native:
        return vocab_topk(states, weight, bias, k, also, never, native=True)
    return topk_of_logits(linear(states, weight, bias), k, also, never)


@here
@settings(max_examples=60)
@given(
    n=st.sampled_from([0, 1, 2, 5, 7, 8, 9, 16, 17, 31, 33, 70]),
    v=st.sampled_from([1, 2, 5, 6, 7, 11, 13, 97, 192, 1535, 1543, 3079]),
    d=st.sampled_from([1, 2, 3, 7, 33]),
    k=st.sampled_from([1, 2, 3, 7, 40]),
    never=st.lists(st.integers(0, 3000), max_size=3),
    biased=st.booleans(),
    wide=st.booleans(),
)
def test_agrees_with_torch(n: int, v: int, d: int, k: int, never: list[int], biased: bool, wide: bool) -> None:
    states, weight, bias = problem(n, v, d, torch.float64 if wide else torch.float32)
    never, also = [f % v for f in never], v // 2
    log_p, words, told = vocab_topk(states, weight, bias if biased else None, k, also, never, native=True)
    assert log_p.shape == words.shape == (n, min(k, v))
    assert log_p.dtype == told.dtype == states.dtype
    whole = linear(states.double(), weight.double(), bias.double() if biased else None).log_softmax(-1)
    torch.testing.assert_close(told, whole[:, also].to(told.dtype), rtol=1e-5, atol=2e-5)
    whole[:, never] = -torch.inf
    want = whole.sort(-1, descending=True).values[:, : min(k, v)]
    torch.testing.assert_close(log_p.double(), want, rtol=1e-5, atol=2e-5)
    there = want > -torch.inf
    torch.testing.assert_close(whole.gather(1, words)[there], want[there], rtol=1e-5, atol=2e-5)
    assert not words[~there].any()
    if wide:
        torch.testing.assert_close(log_p, want, rtol=1e-12, atol=1e-12)


@forms
@pytest.mark.parametrize(("v", "values"), [(7, 2), (3079, 3), (3079, 40)])
@pytest.mark.parametrize("k", [1, 6])
def test_of_equals_the_lowest_comes_first(native: bool, v: int, values: int, k: int) -> None:
    # small whole numbers: every sum is exact, whatever its order
    states, weight = torch.randint(-1, 2, (11, 5)).float(), torch.randint(0, values, (v, 5)).float()
    _, words, _ = ask(native, states, weight, None, k, 0, [1, v - 1])
    logits = states @ weight.T
    logits[:, [1, v - 1]] = -torch.inf
    want = logits.sort(dim=-1, descending=True, stable=True)
    assert torch.equal(words, want.indices[:, :k].masked_fill(want.values[:, :k] == -torch.inf, 0))


@forms
def test_words_of_no_probability_come_last(native: bool) -> None:
    states, weight, bias = problem(9, 3079, 3)
    bias[:] = -torch.inf
    bias[[3, 2000, 3078]] = 0
    log_p, words, told = ask(native, states, weight, bias, 5, 7, [2000])
    assert torch.equal(words[:, :2].sort(-1).values, torch.tensor([[3, 3078]]).expand(9, -1))
    assert (log_p[:, 2:] == -torch.inf).all()
    assert not words[:, 2:].any()
    assert (told == -torch.inf).all()
    want = (states @ weight[[3, 2000, 3078]].T).log_softmax(-1)  # what may not be said counts
    torch.testing.assert_close(log_p[:, :2], want[:, [0, 2]].sort(-1, descending=True).values, rtol=1e-5, atol=1e-5)


@forms
@pytest.mark.parametrize("word", [0, 1000, 3078])
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_what_is_no_number_is_told_and_stays_in_its_row(native: bool, word: int, value: float) -> None:
    states, weight, bias = problem(19, 3079, 3)
    weight[:, 0] = 0
    weight[word, 0] = 1  # read by the broken state alone
    states[:, 0] = 0
    fine = ask(native, states, weight, bias, 4, 5, [0])
    states[6, 0] = value
    broken = ask(native, states, weight, bias, 4, 5, [0])
    for one, other in zip(fine, broken, strict=True):
        rest = torch.arange(19) != 6
        assert torch.equal(one[rest], other[rest])
    assert broken[0][6].isnan().all()
    assert broken[2][6].isnan()
    nothing = ask(native, states[:2], weight, torch.full_like(bias, -torch.inf), 4, 5, [])
    assert nothing[0].isnan().all()
    assert nothing[2].isnan().all()


@here
@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_instruction_set_agrees(monkeypatch: pytest.MonkeyPatch, level: int, dtype: torch.dtype) -> None:
    monkeypatch.setattr(native_library, "LEVEL", level)
    for n in (3, 45):
        states, weight, bias = problem(n, 1601, 13, dtype)
        got = vocab_topk(states, weight, bias, 5, 2, (7, 11), native=True)
        want = topk_of_logits(linear(states.double(), weight.double(), bias.double()), 5, 2, (7, 11))
        assert torch.equal(got[1], want[1])
        torch.testing.assert_close(got[0], want[0].to(dtype), rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(got[2], want[2].to(dtype), rtol=1e-5, atol=1e-5)


@here
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_state_is_the_same_beside_others(dtype: torch.dtype) -> None:
    states, weight, bias = problem(71, 3079, 37, dtype)
    together = vocab_topk(states, weight, bias, 6, 2, native=True)
    for n in (8, 11, 16, 40):
        for begin in (0, 13):
            part = vocab_topk(states[begin : begin + n], weight, bias, 6, 2, native=True)
            for one, other in zip(together, part, strict=True):
                assert torch.equal(one[begin : begin + n], other)


@here
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_state_is_the_same_beside_few_others(dtype: torch.dtype) -> None:
    """Up to six states are summed in another order than more: the same to rounding, and exactly among themselves."""
    states, weight, bias = problem(71, 3079, 37, dtype)
    together = vocab_topk(states, weight, bias, 6, 2, native=True)
    few = vocab_topk(states[13:19], weight, bias, 6, 2, native=True)
    torch.testing.assert_close(few[0], together[0][13:19], rtol=1e-5, atol=1e-5)
    assert torch.equal(few[1], together[1][13:19])
    for n in (1, 2, 3, 4, 5):
        part = vocab_topk(states[13 : 13 + n], weight, bias, 6, 2, native=True)
        for one, other in zip(few, part, strict=True):
            assert torch.equal(one[:n], other)


@here
@pytest.mark.parametrize("n", [15, 150])
def test_threads_change_nothing(n: int) -> None:
    states, weight, bias = problem(n, 5003, 401)
    found = []
    for threads in (1, 2, 3, 7):
        torch.set_num_threads(threads)
        found.append(vocab_topk(states, weight, bias, 6, 2, (3,), native=True))
    for other in found[1:]:
        for one, two in zip(found[0], other, strict=True):
            assert torch.equal(one, two)


@forms
def test_strides_are_read_as_they_are(native: bool) -> None:
    states, weight, bias = problem(5, 40, 22)
    every = (states[:, ::2], weight[::2, ::2], bias[::2])
    spread = (states[:1].expand(5, -1), weight[:1].expand(40, -1), bias[:1].expand(40))
    turned = (torch.randn(22, 5).T, torch.randn(22, 40).T, bias)
    for some in (every, spread, turned):
        assert not any(one.is_contiguous() for one in some if one is not bias)
        want = ask(native, *(one.contiguous() for one in some), 3, 1, [])
        for one, two in zip(want, ask(native, *some, 3, 1, []), strict=True):
            assert torch.equal(one, two)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_is_read_in_float32(dtype: torch.dtype) -> None:
    states, weight, bias = problem(5, 23, 7, dtype)
    log_p, words, told = vocab_topk(states, weight, bias, 3, 1)
    assert log_p.dtype == told.dtype == torch.float32
    whole = linear(states, weight, bias).float().log_softmax(-1)
    assert torch.equal(whole.gather(1, words), log_p)
    with pytest.raises(RuntimeError, match="native=True is not possible: the native kernels take float32 and float64"):
        vocab_topk(states, weight, bias, 3, 1, native=True)


@here
def test_types_that_are_not_one() -> None:
    states, weight, bias = problem(5, 23, 7)
    for wrong in ((states.double(), weight, bias), (states, weight, bias.double())):
        said = "native=True is not possible: the native kernels take tensors of one dtype, not torch.float(32|64) and"
        with pytest.raises(RuntimeError, match=said):
            vocab_topk(*wrong, 3, 1, native=True)
    # autocast makes them one
    with torch.autocast("cpu", torch.bfloat16):
        assert vocab_topk(states.bfloat16(), weight, bias, 3, 1)[0].dtype == torch.float32


def test_there_are_no_derivatives_in_any_form() -> None:
    states, weight, bias = (one.requires_grad_() for one in problem(5, 23, 7))
    for native in (None, False):
        assert not any(one.requires_grad for one in vocab_topk(states, weight, bias, 3, 1, native=native))


@here
@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("part", [1.0, 0.75, 1e-6])
def test_what_is_low_for_all_words_is_still_a_number(
    monkeypatch: pytest.MonkeyPatch, level: int, dtype: torch.dtype, part: float
) -> None:
    """As masks are at times: the least of the finite numbers instead of minus infinity."""
    monkeypatch.setattr(native_library, "LEVEL", level)
    states, weight, bias = problem(9, 3079, 3, dtype)
    bias[:] = part * torch.finfo(dtype).min
    bias[[0, 1, 1700]] = -torch.inf
    for got in zip(*(ask(native, states, weight, bias, 4, 5, [7]) for native in (True, False)), strict=True):
        torch.testing.assert_close(*got)
    log_p, words, told = vocab_topk(states, weight, bias, 4, 5, [7], native=True)
    assert torch.equal(words, torch.tensor([[2, 3, 4, 5]]).expand(9, -1))
    torch.testing.assert_close(log_p, torch.full_like(log_p, -math.log(3076)))
    torch.testing.assert_close(told, log_p[:, 0])


@pytest.mark.parametrize("native", [None, False])
@pytest.mark.parametrize(
    ("states", "weight", "bias"),
    [
        ((3, 5), (9, 4), (9,)),
        ((3, 4), (9, 4), (5,)),
        ((3, 4), (9, 4), (9, 1)),
        ((1, 3, 4), (9, 4), None),
        ((3, 4), (4,), None),
    ],
)
def test_shapes_that_do_not_fit(native: bool | None, states: Any, weight: Any, bias: Any) -> None:
    said = f"states must be (n, d) for a weight (v, d) and a bias (v), got {states}, {weight} and {bias}; build the"
    with pytest.raises(ValueError, match=re.escape(said)):
        vocab_topk(torch.zeros(states), torch.zeros(weight), torch.zeros(bias) if bias else None, 1, 0, native=native)


@forms
def test_words_that_are_none(native: bool) -> None:
    given = problem(2, 9, 3)
    for k in (0, -1):
        with pytest.raises(ValueError, match=f"k must be 1 or more, the number of words per state, got {k}; try k=1"):
            ask(native, *given, k, 0, [])
    for wrong in (-1, 9):
        with pytest.raises(
            ValueError, match=f"extra must be a word from 0 to 8, got {wrong}; words are counted from 0"
        ):
            ask(native, *given, 1, wrong, [])
        with pytest.raises(
            ValueError, match=f"forbidden must be a word from 0 to 8, got {wrong}; words are counted from 0"
        ):
            ask(native, *given, 1, 0, [3, wrong])


def test_native_is_not_to_be_had_in_a_transform() -> None:
    states, weight = torch.randn(3, 4), torch.randn(5, 4)
    said = "native=True is not possible under torch.compile, transforms and tracing; native=None falls back to torch"
    with pytest.raises(RuntimeError, match=said):
        torch.func.vmap(lambda one: vocab_topk(one[None], weight, None, 2, 0, native=True)[0])(states)


def test_the_default_device_of_torch_does_not_matter() -> None:
    states, weight = torch.randn(2, 3), torch.randn(5, 3)
    with torch.device("meta"):
        log_p, words, end = vocab_topk(states, weight, None, 2, 1)
    assert {log_p.device.type, words.device.type, end.device.type} == {"cpu"}
    assert torch.equal(words, (states @ weight.mT).topk(2).indices)
