"""Gated heads over hidden units and the attention module of three parts, against loops in float64 and their laws."""

import math

import pytest
import torch
from tests.gates.loops import dense, sigma, softmax
from torch import Tensor, nn
from torch.autograd import gradcheck

from regard import Need, Sigmoid
from regard.gates import CellGate, ControlledAttention, GatedUnits, HeadsGate, ModuleGate, UnitsGate

B, D, N, H, W, T = 2, 3, 5, 4, 7, 6


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def unit_score(query: list[float], key: list[float], offset: list[float]) -> float:
    """Q · tanh(a + θ_j)/√d."""
    products = [q * math.tanh(a + o) for q, a, o in zip(query, key, offset, strict=True)]
    return sum(products) / math.sqrt(len(query))


def head_weights(scores: nn.Module, a: list[float], head: int, d: int) -> list[float]:
    """The weights of one head over its units."""
    key, query = a[head * d : (head + 1) * d], scores.query.tolist()
    return softmax([unit_score(query, key, offset) for offset in scores.offset[head].tolist()])


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


def pool_row(module: ControlledAttention, x: list[float], mean: list[float], y: list[float], head: int) -> list[float]:
    """f_k of one step: the softmax over the hidden units of one score, or of the product of three."""
    scores = module.scores
    if module.combine == "sum":
        return head_weights(scores, dense(module.key, x + mean + y), head, W)
    factors = []
    for f, part in enumerate((x, mean, y)):
        weight = module.key.weight[head * W : (head + 1) * W, f * D : (f + 1) * D].tolist()
        key = [sum(w * v for w, v in zip(row, part, strict=True)) for row in weight]
        offsets = scores.offset[3 * head + f].tolist()
        factors.append([unit_score(scores.query.tolist(), key, offset) for offset in offsets])
    return softmax([math.prod(each) for each in zip(*factors, strict=True)])


MODULES = {
    "as by default": {},
    "any number of heads selected": {"select": Sigmoid()},
    "hidden units of their own": {"units": N},
    "product of three scores": {"combine": "product"},
    "update that reads the input": {"update": "input", "units": N},
}


@pytest.mark.parametrize("name", MODULES)
def test_the_module_is_the_formula(name: str) -> None:
    module = ControlledAttention(D, H, d=W, **MODULES[name]).double()
    nn.init.normal_(module.output_gate)
    sequence = torch.randn(B, T, D, dtype=torch.float64)
    got, state = module.read(sequence, need=Need(weights=True))
    has_units = "units" in MODULES[name]
    assert got.weights.shape == (B, H, T, N if has_units else D)
    for b in range(B):
        y, added = [0.0] * D, [0.0] * D
        mean = sequence[b].mean(0).tolist()
        for t in range(T):
            x = [sequence[b, t, n].item() + added[n] for n in range(D)]
            rows = [pool_row(module, x, mean, y, k) for k in range(H)]
            scores = dense(module.control, x + y)
            chosen = [sigma(s) for s in scores] if "select" in MODULES[name] else softmax(scores)
            selected = [sum(p * f for p, f in zip(chosen, unit, strict=True)) for unit in zip(*rows, strict=True)]
            source = x
            if module.hidden is not None:
                hidden = dense(module.hidden, x) if has_units else x
                source = [f * h for f, h in zip(selected, hidden, strict=True)]
            update = [math.tanh(u) for u in dense(module.update, source + y)]
            y = [sigma(c + u * v) for c, u, v in zip(module.output_gate.tolist(), update, x, strict=True)]
            added = dense(module.back, selected) if has_units else selected
            torch.testing.assert_close(got.out[b, t], torch.tensor(y, dtype=torch.float64), rtol=0, atol=1e-10)
            torch.testing.assert_close(
                got.weights[b, :, t], torch.tensor(rows, dtype=torch.float64), rtol=0, atol=1e-10
            )
        torch.testing.assert_close(state.selection[b], torch.tensor(chosen, dtype=torch.float64), rtol=0, atol=1e-10)
        torch.testing.assert_close(state.mean[b], sequence[b].mean(0), rtol=0, atol=1e-10)
    assert module.read(sequence)[0].weights is None


def test_steps_are_the_whole_sequence() -> None:
    module, x = ControlledAttention(D, H, d=W).double(), torch.randn(B, T, D, dtype=torch.float64)
    mean = x.mean(1)
    got, last = module.read(x, need=Need(weights=True))
    state = None
    for t in range(T):
        step, state = module.attend(x[:, t], state, mean=mean, need=Need(weights=True))
        torch.testing.assert_close(step.out, got.out[:, t], rtol=0, atol=1e-10)
        torch.testing.assert_close(step.weights, got.weights[:, :, t], rtol=0, atol=1e-10)
    torch.testing.assert_close(list(state[:4]), list(last[:4]), rtol=0, atol=1e-10)
    assert state.steps == last.steps == T
    _, half = module.read(x[:, :2], mean=mean)
    before = [part.clone() for part in half[:4]]
    torch.testing.assert_close(module.read(x[:, 2:], half, mean=mean)[0].out, got.out[:, 2:], rtol=0, atol=1e-10)
    # the state that was passed is not written to
    assert all(torch.equal(one, other) for one, other in zip(before, half[:4], strict=True))


def test_a_step_that_does_not_know_the_sequence_uses_the_mean_of_its_inputs() -> None:
    module, x = ControlledAttention(D, H, d=W), torch.randn(B, 2, D)
    first, state = module(x[:, 0])
    assert torch.equal(first, module(x[:, 0], mean=x[:, 0])[0])
    assert torch.equal(module(x[:, 1], state)[0], module(x[:, 1], state, mean=x.mean(1))[0])


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
    # the heads act in the step that they attend in
    for layer, out in ((units, units(torch.randn(2, 2, dtype=torch.float64))), (module, module(sequence[:, 0])[0])):
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
