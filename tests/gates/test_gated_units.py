"""Gated heads over hidden units and the attention module of three parts, against loops in float64 and their laws."""

import math
import re

import pytest
import torch
from tests.for_each import for_each
from tests.gates.loops import dense, sigma, softmax
from torch import Tensor, nn
from torch.autograd import gradcheck

from regard import Need, Sigmoid
from regard.gates import CellGate, ControlledAttention, GatedUnits, HeadsGate, ModuleGate, UnitsGate

B, D, N, H, W, T = 2, 3, 5, 4, 7, 6


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def head_weights(scores: nn.Module, a: list[float], head: int, d: int) -> list[float]:
    """softmax_j(Q · tanh(a + θ_j)/√d) of one head."""
    own, q = a[head * d : (head + 1) * d], scores.query.tolist()
    found = []
    for offset in scores.offset[head].tolist():
        found.append(sum(q[n] * math.tanh(own[n] + offset[n]) for n in range(d)) / math.sqrt(d))
    return softmax(found)


def test_units_are_the_formula() -> None:
    layer, x = GatedUnits(D, N, H, d=W).double(), torch.randn(B, D, dtype=torch.float64)
    got = layer.attend(x, need=Need(weights=True))
    for b in range(B):
        hidden = [sigma(v) for v in dense(layer.squash, x[b].tolist())]
        a = dense(layer.key, hidden)
        alphas = [head_weights(layer.scores, a, h, W) for h in range(H)]
        shares, bias = softmax(hidden), layer.bias.tolist()
        want = [sigma(sum(alpha[j] * (shares[j] + bias[j]) for alpha in alphas)) for j in range(N)]
        torch.testing.assert_close(got.out[b], torch.tensor(want, dtype=torch.float64), rtol=0, atol=1e-10)
        torch.testing.assert_close(got.weights[b], torch.tensor(alphas, dtype=torch.float64), rtol=0, atol=1e-10)
    torch.testing.assert_close(layer(x), got.out)
    assert layer.attend(x).weights is None


@pytest.mark.parametrize("select", [None, Sigmoid()], ids=["softmax", "sigmoid"])
def test_the_module_is_the_formula(select: Sigmoid | None) -> None:
    module = ControlledAttention(D, H, d=W, select=select).double()
    nn.init.normal_(module.output_gate)
    x = torch.randn(B, T, D, dtype=torch.float64)
    got, state = module.read(x, need=Need(weights=True))
    assert got.weights.shape == (B, H, T, D)
    for b in range(B):
        y, added, inputs = [0.0] * D, [0.0] * D, list[list[float]]()
        for t in range(T):
            inputs.append([x[b, t, n].item() + added[n] for n in range(D)])
            now = inputs[-1]
            mean = [sum(one[n] for one in inputs) / len(inputs) for n in range(D)]
            rows = [head_weights(module.scores, dense(module.key, now + mean + y), k, W) for k in range(H)]
            scores = dense(module.control, now + y)
            chosen = softmax(scores) if select is None else [sigma(s) for s in scores]
            update = [math.tanh(u) for u in dense(module.update, now + y)]
            y = [sigma(c + u * v) for c, u, v in zip(module.output_gate.tolist(), update, now, strict=True)]
            added = [sum(p * row[n] for p, row in zip(chosen, rows, strict=True)) for n in range(D)]
            torch.testing.assert_close(got.out[b, t], torch.tensor(y, dtype=torch.float64), rtol=0, atol=1e-10)
            torch.testing.assert_close(
                got.weights[b, :, t], torch.tensor(rows, dtype=torch.float64), rtol=0, atol=1e-10
            )
        torch.testing.assert_close(state.selection[b], torch.tensor(chosen, dtype=torch.float64), rtol=0, atol=1e-10)
        torch.testing.assert_close(state.mean[b], torch.tensor(mean, dtype=torch.float64), rtol=0, atol=1e-10)
    assert module.read(x)[0].weights is None


def test_steps_are_the_whole_sequence() -> None:
    module, x = ControlledAttention(D, H, d=W).double(), torch.randn(B, T, D, dtype=torch.float64)
    got, last = module.read(x, need=Need(weights=True))
    state = None
    for t in range(T):
        step, state = module.attend(x[:, t], state, need=Need(weights=True))
        torch.testing.assert_close(step.out, got.out[:, t], rtol=0, atol=1e-10)
        torch.testing.assert_close(step.weights, got.weights[:, :, t], rtol=0, atol=1e-10)
    torch.testing.assert_close(list(state[:4]), list(last[:4]), rtol=0, atol=1e-10)
    assert state.steps == last.steps == T
    _, half = module.read(x[:, :2])
    before = [part.clone() for part in half[:4]]
    torch.testing.assert_close(module.read(x[:, 2:], half)[0].out, got.out[:, 2:], rtol=0, atol=1e-10)
    # the state that was passed is not written to
    assert all(torch.equal(one, other) for one, other in zip(before, half[:4], strict=True))


def test_dropout_is_on_the_weights_of_the_pool() -> None:
    module, x = ControlledAttention(11, H, d=W, dropout=0.5), torch.randn(B, T, 11)
    pool = module.read(x, need=Need(weights=True))[0].weights
    assert 0.3 < (pool == 0).float().mean() < 0.7
    assert not (module.eval().read(x, need=Need(weights=True))[0].weights == 0).any()


def test_gradients() -> None:
    units = GatedUnits(2, 3, 2, d=3).double()
    assert gradcheck(units, torch.randn(2, 2, dtype=torch.float64, requires_grad=True))
    module = ControlledAttention(2, 2, d=3).double()
    sequence = torch.randn(1, 3, 2, dtype=torch.float64, requires_grad=True)
    names, values = zip(*module.named_parameters(), strict=True)

    def call(x: Tensor, *values: Tensor) -> Tensor:
        with torch.nn.utils.stateless._reparametrize_module(module, dict(zip(names, values, strict=True))):
            return module.read(x)[0].out

    assert gradcheck(call, (sequence, *values))
    for layer, out in ((units, units(torch.randn(2, 2, dtype=torch.float64))), (module, module.read(sequence)[0].out)):
        out.sum().backward()
        assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in layer.parameters())


def test_state_stays_wide_under_autocast() -> None:
    module, x = ControlledAttention(D, H, d=W), torch.randn(B, T, D)
    want = module.read(x)[0].out
    with torch.autocast("cpu", torch.bfloat16):
        got, state = module.read(x.bfloat16())
    assert {got.out.dtype, state.memory.dtype, state.selection.dtype, state.mean.dtype} == {torch.float32}
    torch.testing.assert_close(got.out, want, rtol=0.03, atol=0.03)


def test_gates_weight_by_what_was_read() -> None:
    """Weights of channels of the whole map, and of the channels of every row."""
    x = torch.randn(B, 8, 5, 3)
    heads, units, cell, module = HeadsGate(8), UnitsGate(8), CellGate(8), ModuleGate(8)
    flat = x.flatten(2).transpose(1, 2)
    torch.testing.assert_close(heads.weights(x)[..., 0, 0], heads.heads(flat))
    torch.testing.assert_close(units.weights(x)[..., 0, 0], units.units(x.mean((2, 3))))
    rows = torch.stack([x[:, :, t].transpose(1, 2) for t in range(5)], 1)  # "b t n c"
    torch.testing.assert_close(cell.weights(x)[..., 1], cell.cell.read(rows)[0].transpose(1, 2))
    got, _ = module.module.read(rows.mean(2), need=Need(weights=True))
    torch.testing.assert_close(module.weights(x)[..., 2], got.out.transpose(1, 2))
    torch.testing.assert_close(module.pool(x), got.weights)


X = torch.zeros(B, D)
BAD = {
    "no units": (lambda: GatedUnits(D, 0, H), ["units must be a whole number"]),
    "another width": (lambda: GatedUnits(D, N, H)(torch.zeros(B, 4)), ["x must be 3 wide", "(2, 4)"]),
    "a sequence": (lambda: GatedUnits(D, N, H)(X.unsqueeze(0)), ["(batch, 3) for GatedUnits", "x.flatten(0, -2)"]),
    "no heads": (lambda: ControlledAttention(D, 0), ["heads must be a whole number"]),
    "a step of several": (lambda: ControlledAttention(D, H)(X.unsqueeze(0)), ["(batch, width)", "read runs over"]),
    "a sequence of one": (lambda: ControlledAttention(D, H).read(X), ["(batch, steps, width)", "x.unsqueeze(1)"]),
    "no steps": (lambda: ControlledAttention(D, H).read(torch.zeros(B, 0, D)), ["a step or more, got (2, 0, 3)"]),
    "another state": (
        lambda: ControlledAttention(D, H)(X, ControlledAttention(D, 2).initial_state(X)),
        ["of 2 samples, 4 heads and 3 units, got (2, 2, 3)", "or None to begin"],
    ),
    "entropy": (
        lambda: ControlledAttention(D, H).attend(X, need=Need(entropy=True)),
        ["need.entropy does not exist for ControlledAttention"],
    ),
    "uneven heads": (lambda: HeadsGate(6, 4), ["6 over 4 leaves 2; try heads=3"]),
    "uneven heads of a cell": (lambda: CellGate(7, 2), ["evenly over heads for CellGate", "try heads=1"]),
}


@for_each("name", BAD)
def test_the_sentence_says_what_where_and_the_way_out(name: str) -> None:
    act, words = BAD[name]
    with pytest.raises(ValueError, match=re.escape(words[0])) as caught:
        act()
    for word in words[1:]:
        assert word in str(caught.value), str(caught.value)


def test_shapes_that_do_not_fit() -> None:
    units = "x must be (batch, 3) for GatedUnits, got (2, 6, 3); x.flatten(0, -2) joins the axes before the last"
    with pytest.raises(ValueError, match=re.escape(units)):
        GatedUnits(D, N, H, d=W)(torch.randn(B, T, D))
    module = ControlledAttention(D, H, d=W)
    with pytest.raises(ValueError, match=re.escape("sequence must have a step or more, got (2, 0, 3); leave it out")):
        module.read(torch.randn(B, 0, D))
    _, state = module.read(torch.randn(B + 1, T, D))
    foreign = (
        "state must be of 2 samples, 4 heads and 3 units, got (3, 4, 3); pass the state that this module returned, or "
        "None to begin"
    )
    with pytest.raises(ValueError, match=re.escape(foreign)):
        module.read(torch.randn(B, T, D), state)
