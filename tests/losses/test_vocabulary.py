"""The vocabulary layer with its cross-entropy, and AdaptiveSoftmax, held to torch's."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode

from regard.layers.adaptive_embedding import AdaptiveEmbedding
from regard.losses import AdaptiveSoftmax, linear_cross_entropy
from regard.losses.vocabulary import cluster_widths

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
    monkeypatch.setattr("regard.losses.vocabulary._MAX_LOGITS", room)
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


# sizes of the adaptive softmax
ROWS, WIDTH, WORDS = 17, 8, 23


def pair(cutoffs: list[int], div: int) -> tuple[AdaptiveSoftmax, nn.AdaptiveLogSoftmaxWithLoss]:
    """Both with the same weights; torch's tails have no bias."""
    ours = AdaptiveSoftmax(WIDTH, WORDS, cutoffs, div=div).double()
    theirs = nn.AdaptiveLogSoftmaxWithLoss(WIDTH, WORDS, cutoffs, div_value=div, head_bias=True).double()
    with torch.no_grad():
        theirs.head.weight.copy_(torch.cat([ours.shortlist.weight, ours.clusters.weight]))
        theirs.head.bias.copy_(torch.cat([ours.shortlist.bias, ours.clusters.bias]))
        for n, (projection, tail) in enumerate(zip(ours.projections, ours.tails, strict=True)):
            theirs.tail[n][0].weight.copy_(projection.T)
            theirs.tail[n][1].weight.copy_(tail.weight)
            nn.init.zeros_(tail.bias)
    return ours, theirs


@pytest.mark.parametrize(("cutoffs", "div"), [([5], 2), ([5, 11], 2), ([1, 2, 20], 2), ([22], 1)], ids=str)
@pytest.mark.parametrize("chosen", ["all", "shortlist", "last"])
def test_the_adaptive_softmax_is_that_of_torch(cutoffs: list[int], div: int, chosen: str) -> None:
    ours, theirs = pair(cutoffs, div)
    states = torch.randn(ROWS, WIDTH, dtype=torch.float64, requires_grad=True)
    targets = {
        "all": torch.arange(ROWS) * 7 % WORDS,
        "shortlist": torch.arange(ROWS) % cutoffs[0],
        "last": torch.full((ROWS,), WORDS - 1),
    }[chosen]
    torch.testing.assert_close(ours(states), theirs.log_prob(states))
    total, nll = ours.token_loss(states, targets)
    want = theirs(states, targets)
    torch.testing.assert_close(nll, -want.output.detach())
    torch.testing.assert_close(total, -want.output.sum())
    (got,) = torch.autograd.grad(total, states, retain_graph=True)
    torch.testing.assert_close(got, torch.autograd.grad(want.loss * ROWS, states)[0])
    ours.zero_grad()
    ours.token_loss(states, targets)[0].backward()
    (theirs(states, targets).loss * ROWS).backward()
    torch.testing.assert_close(
        torch.cat([ours.shortlist.weight.grad, ours.clusters.weight.grad]), theirs.head.weight.grad
    )
    for n, tail in enumerate(ours.tails):
        if tail.weight.grad is not None:
            torch.testing.assert_close(tail.weight.grad, theirs.tail[n][1].weight.grad)
            torch.testing.assert_close(ours.projections[n].grad.T, theirs.tail[n][0].weight.grad)


def test_probabilities_sum_to_one_with_every_bias() -> None:
    layer = AdaptiveSoftmax(WIDTH, WORDS, [5, 11]).double()
    for tail in layer.tails:
        nn.init.normal_(tail.bias)
    states, targets = torch.randn(2, ROWS, WIDTH, dtype=torch.float64), torch.randint(0, WORDS, (ROWS,))
    log_p = layer(states)
    assert log_p.shape == (2, ROWS, WORDS)
    torch.testing.assert_close(log_p.exp().sum(-1), torch.ones(2, ROWS, dtype=torch.float64))
    nll = layer.token_loss(states[0], targets)[1]
    torch.testing.assert_close(nll, -log_p[0].gather(-1, targets.unsqueeze(-1)).squeeze(-1).detach())
    assert repr(layer).startswith("AdaptiveSoftmax(\n  8, 23, cutoffs=[5, 11]")


def test_the_embedding_is_a_table_of_projected_vectors() -> None:
    sizes, widths = [5, 6, 12], cluster_widths(WIDTH, 2, 2)
    assert widths == [8, 4, 2]
    layer = AdaptiveEmbedding(sizes, widths).double()
    tables = [table.weight for table in layer.tables]
    whole = torch.cat([tables[0], *(t @ p.T for t, p in zip(tables[1:], layer.projections, strict=True))])
    tokens = torch.randint(0, WORDS, (2, 3, ROWS))
    torch.testing.assert_close(layer(tokens), whole[tokens])

    def run(*parameters: Tensor) -> Tensor:
        return torch.func.functional_call(
            layer, dict(zip(dict(layer.named_parameters()), parameters, strict=True)), tokens[0]
        )

    assert torch.autograd.gradcheck(run, tuple(layer.parameters()))
    assert layer(tokens[:0]).shape == (0, 3, ROWS, WIDTH)
