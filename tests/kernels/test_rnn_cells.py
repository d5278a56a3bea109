"""Recurrent cells by the native library: nn.GRU and nn.LSTM are the reference, which nobody here wrote."""

from itertools import accumulate

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor, nn
from torch.autograd import gradcheck

from regard.kernels import native_library, rnn_cells
from regard.kernels.dispatch import can_run_native

pytestmark = pytest.mark.skipif(native_library.library() is None, reason=str(native_library.unavailable_reason()))
KINDS: dict[str, type[nn.GRU] | type[nn.LSTM]] = {"gru": nn.GRU, "lstm": nn.LSTM}
kinds = pytest.mark.parametrize("kind", KINDS)
ways = pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])


def made(kind: str, d: int, h: int, dtype: torch.dtype = torch.float64) -> nn.RNNBase:
    rnn = KINDS[kind](d, h, bidirectional=True, dtype=dtype)
    for p in rnn.parameters():
        nn.init.normal_(p, std=0.5)
    return rnn


def weights(rnn: nn.RNNBase, reverse: bool) -> list[Tensor]:
    end = "_l0" + "_reverse" * reverse
    return [getattr(rnn, name + end) for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]


def agree(kind: str, d: int, h: int, lengths: list[int], reverse: bool, dtype: torch.dtype, near: float) -> None:
    """Values and every gradient are those of torch over the same packed sequences."""
    rnn, b = made(kind, d, h, dtype), len(lengths)
    packed = nn.utils.rnn.pack_sequence([torch.randn(n, d, dtype=dtype) for n in sorted(lengths, reverse=True)])
    x = packed.data.requires_grad_()
    first = [torch.randn(2, b, h, dtype=dtype, requires_grad=True) for _ in range(2 if kind == "lstm" else 1)]
    theirs, _ = rnn(packed._replace(data=x), tuple(first) if kind == "lstm" else first[0])
    want = theirs.data[:, h:] if reverse else theirs.data[:, :h]
    got = rnn_cells.sequence(
        x, weights(rnn, reverse), [f[int(reverse)] for f in first], packed.batch_sizes.tolist(), reverse
    )
    torch.testing.assert_close(got, want, rtol=near, atol=near)
    way, inputs = torch.randn_like(want), [x, *first, *weights(rnn, reverse)]
    for mine, other in zip(torch.autograd.grad(got, inputs, way), torch.autograd.grad(want, inputs, way), strict=True):
        torch.testing.assert_close(mine, other, rtol=near, atol=20 * near)


@kinds
@ways
@settings(max_examples=15)
@given(
    d=st.sampled_from([1, 3, 8]),
    h=st.sampled_from([1, 4, 5, 8, 19, 32]),
    lengths=st.lists(st.integers(1, 6), min_size=1, max_size=5),
    wide=st.booleans(),
)
def test_sequences_are_those_of_torch(kind: str, reverse: bool, d: int, h: int, lengths: list[int], wide: bool) -> None:
    agree(kind, d, h, lengths, reverse, *((torch.float64, 1e-11) if wide else (torch.float32, 5e-6)))


@kinds
@ways
@pytest.mark.parametrize("level", [0, 1, 2])
def test_every_instruction_set(kind: str, reverse: bool, level: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_library, "LEVEL", level)
    agree(kind, 5, 37, [4, 7, 7, 1], reverse, torch.float32, 5e-6)
    agree(kind, 5, 37, [4, 7, 7, 1], reverse, torch.float64, 1e-11)


@kinds
@ways
def test_gradients(kind: str, reverse: bool) -> None:
    rnn = made(kind, 3, 4)
    first = [torch.randn(3, 4, dtype=torch.float64, requires_grad=True) for _ in range(2 if kind == "lstm" else 1)]
    x = torch.randn(6, 3, dtype=torch.float64, requires_grad=True)

    def run(x: Tensor, *rest: Tensor) -> Tensor:
        return rnn_cells.sequence(x, rest[:4], rest[4:], [3, 2, 1], reverse)

    gradcheck(run, (x, *weights(rnn, reverse), *first))


def states(kind: str, b: int, h: int, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    return [torch.randn(b, h, dtype=dtype, requires_grad=True) for _ in range(2 if kind == "lstm" else 1)]


@kinds
@pytest.mark.parametrize("h", [1, 8, 13])
def test_a_step_is_that_of_torch(kind: str, h: int) -> None:
    """By the same gates; of rows that do not lie next to each other as well."""
    b, x = 5, torch.randn(5, 3, dtype=torch.float64)
    cell = (nn.LSTMCell if kind == "lstm" else nn.GRUCell)(3, h, dtype=torch.float64)
    state = states(kind, b, h)
    want = cell(x, tuple(state) if kind == "lstm" else state[0])
    want = want if isinstance(want, tuple) else (want,)
    gates, past = x @ cell.weight_ih.T + cell.bias_ih, state[0] @ cell.weight_hh.T + cell.bias_hh
    among = torch.stack([gates, gates + 1], dim=1).unbind(1)[0]
    for asked in (gates, among):
        got = rnn_cells.step(asked, past, *state)
        assert len(got) == len(want)
        ways = [torch.randn_like(part) for part in want]
        inputs = [*state, *cell.parameters()]
        for mine, other in zip(
            (*got, *torch.autograd.grad(got, inputs, ways, retain_graph=True)),
            (*want, *torch.autograd.grad(want, inputs, ways, retain_graph=True)),
            strict=True,
        ):
            torch.testing.assert_close(mine, other)


@kinds
def test_only_one_part_of_a_state_is_used(kind: str) -> None:
    state = states(kind, 2, 4)
    gates, past = (torch.randn(2, (4 if kind == "lstm" else 3) * 4, dtype=torch.float64) for _ in range(2))
    gradcheck(lambda *s: rnn_cells.step(gates, past, *s)[-1], state)
    gradcheck(lambda *s: rnn_cells.step(gates, past, *s)[0], state)


@kinds
def test_zero_stays_zero(kind: str) -> None:
    """And what is small keeps its bits: tanh is odd."""
    d, width = 9, (4 if kind == "lstm" else 3) * 9
    state = [torch.zeros(2, d) for _ in range(2 if kind == "lstm" else 1)]
    for part in rnn_cells.step(torch.zeros(2, width), torch.zeros(2, width), *state):
        assert not part.any()
    gates = torch.linspace(-3e-3, 3e-3, 2 * width).view(2, width)
    one, other = (rnn_cells.step(sign * gates, torch.zeros(2, width), *state)[0] for sign in (1, -1))
    want = torch.tanh(gates[:, 2 * d : 3 * d].double())
    assert want.abs().min() > 0
    assert (one.sign() == want.sign()).all()
    assert (other.sign() == -want.sign()).all()


@kinds
def test_extremes_saturate_and_nan_stays_visible(kind: str) -> None:
    d, width = 9, (4 if kind == "lstm" else 3) * 9
    for size in (1e2, 1e4, 1e30, torch.inf):
        gates = torch.full((2, width), size)
        gates[1] = -size
        state = [torch.zeros(2, d) for _ in range(2 if kind == "lstm" else 1)]
        for part in rnn_cells.step(gates, torch.zeros(2, width), *state):
            assert part.isfinite().all()
    gates = torch.zeros(2, width)
    gates[0, 4] = torch.nan
    h = rnn_cells.step(gates, torch.zeros(2, width), *state)[0]
    assert h[0].isnan().any()
    assert h[1].isfinite().all()


@kinds
def test_a_row_does_not_feel_the_others_nor_the_threads(kind: str) -> None:
    """So many rows that threads are made, on the way back too."""
    first = [torch.randn(512, 256, requires_grad=True) for _ in range(2 if kind == "lstm" else 1)]
    found = []
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        gates, past = (
            torch.randn(512, (4 if kind == "lstm" else 3) * 256, generator=torch.manual_seed(n)) for n in (1, 2)
        )
        parts = rnn_cells.step(gates, past, *first)
        found.append((*parts, *torch.autograd.grad(parts, first[-1], [torch.ones_like(p) for p in parts])))
    for parts in found[1:]:
        assert all(torch.equal(one, other) for one, other in zip(parts, found[0], strict=True))
    alone = rnn_cells.step(gates[7:8], past[7:8], *(part[7:8] for part in first))
    assert all(torch.equal(one[0], other[7]) for one, other in zip(alone, found[0], strict=False))


@kinds
@ways
def test_a_sequence_does_not_feel_the_others_nor_the_threads(kind: str, reverse: bool) -> None:
    rnn, lengths = made(kind, 5, 192, torch.float32), [9] * 40 + [4] * 23
    sizes = [63] * 4 + [40] * 5
    x = torch.randn(sum(sizes), 5)
    first = [torch.randn(63, 192) for _ in range(2 if kind == "lstm" else 1)]
    found = []
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        leaf = x.clone().requires_grad_()
        h = rnn_cells.sequence(leaf, weights(rnn, reverse), first, sizes, reverse)
        found.append((h.detach(), *torch.autograd.grad(h.square().sum(), leaf)))
    assert torch.equal(found[0][0], found[1][0])
    assert torch.equal(found[0][0], found[2][0])
    torch.testing.assert_close(found[0][1], found[1][1], rtol=1e-5, atol=1e-6)  # torch's last product has threads too
    starts = [0, *accumulate(sizes)]
    for n in (0, 13, 62):
        rows = [starts[t] + n for t in range(lengths[n])]
        gates = torch.addmm(weights(rnn, reverse)[2], x, weights(rnn, reverse)[0].t())[rows]
        unit = [
            torch.eye(len(gates[0])),
            *weights(rnn, reverse)[1:2],
            torch.zeros(len(gates[0])),
            weights(rnn, reverse)[3],
        ]
        alone = rnn_cells.sequence(gates, unit, [part[n : n + 1] for part in first], [1] * len(rows), reverse)
        torch.testing.assert_close(alone, found[0][0][rows], rtol=1e-5, atol=1e-6)


@kinds
def test_one_run_serves_two_backward_passes(kind: str) -> None:
    rnn = made(kind, 3, 4)
    x, first = torch.randn(6, 3, dtype=torch.float64, requires_grad=True), states(kind, 3, 4)
    out = rnn_cells.sequence(x, weights(rnn, False), first, [3, 2, 1])
    one, two = (torch.autograd.grad(out.square().sum(), x, retain_graph=True)[0] for _ in range(2))
    assert torch.equal(one, two)


@kinds
def test_a_second_derivative_is_an_error(kind: str) -> None:
    rnn, first = made(kind, 3, 4), states(kind, 3, 4)
    x = torch.randn(6, 3, dtype=torch.float64, requires_grad=True)
    gates, past = (torch.randn(3, (4 if kind == "lstm" else 3) * 4, dtype=torch.float64) for _ in range(2))
    for out in (rnn_cells.sequence(x, weights(rnn, False), first, [3, 2, 1]), rnn_cells.step(gates, past, *first)[0]):
        with pytest.raises(RuntimeError, match="recurrent layers have no second derivative here, which create_graph"):
            torch.autograd.grad(out.sum(), first[-1], create_graph=True)


@kinds
def test_parameters_that_do_not_lie_in_a_row(kind: str) -> None:
    """As slices of others, spread from one number, or turned."""
    rnn, first = made(kind, 3, 4), states(kind, 3, 4)
    x = torch.randn(6, 3, dtype=torch.float64)
    w, u, b, b_past = weights(rnn, False)
    apart = [torch.stack([t, t + 1], dim=-1)[..., 0] for t in (w, u, b, b_past)]
    assert not apart[-1].is_contiguous()
    want = rnn_cells.sequence(x, [w, u, b, b_past], first, [3, 2, 1])
    torch.testing.assert_close(rnn_cells.sequence(x, apart, first, [3, 2, 1]), want)
    torch.testing.assert_close(rnn_cells.sequence(x, [w, u.T.contiguous().T, b, b_past], first, [3, 2, 1]), want)
    one = torch.ones((), dtype=torch.float64).expand(len(b))
    torch.testing.assert_close(
        rnn_cells.sequence(x, [w, u, b, one], first, [3, 2, 1]),
        rnn_cells.sequence(x, [w, u, b, one.clone()], first, [3, 2, 1]),
    )


@kinds
def test_what_is_kept_for_the_way_back(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all steps if somebody goes back, else of one: told to the native call."""
    told = []
    plain = rnn_cells.call_kernel
    monkeypatch.setattr(
        rnn_cells, "call_kernel", lambda name, like, *given: (told.append(given[-1]), plain(name, like, *given))
    )
    rnn, first = made(kind, 3, 4), [t.detach() for t in states(kind, 3, 4)]
    x = torch.randn(6, 3, dtype=torch.float64)
    rnn_cells.sequence(x, weights(rnn, False), first, [3, 2, 1])
    with torch.no_grad():
        rnn_cells.sequence(x, weights(rnn, False), first, [3, 2, 1])
    rnn_cells.sequence(x, [t.detach() for t in weights(rnn, False)], first, [3, 2, 1])
    assert told == [True, False, False]


@kinds
def test_without_gradients_the_numbers_are_the_same(kind: str) -> None:
    rnn, first = made(kind, 3, 4), states(kind, 3, 4)
    x = torch.randn(6, 3, dtype=torch.float64)
    want = rnn_cells.sequence(x, weights(rnn, True), first, [3, 2, 1], True)
    with torch.no_grad():
        assert torch.equal(rnn_cells.sequence(x, weights(rnn, True), first, [3, 2, 1], True), want)


def test_what_is_refused() -> None:
    """Then torch's own layers run."""
    x = torch.randn(2, 3)
    assert can_run_native(x, x)
    assert not can_run_native(x, x.double())
    assert not can_run_native(x.bfloat16())
    assert not can_run_native(x[:0])
    assert not can_run_native(x.to("meta"))
