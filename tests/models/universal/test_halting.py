"""Halting beside a loop over positions, with its gradients, its first and its last step."""

import pytest
import torch
from torch import Tensor

from regard.models.universal.halting import Halting

pytestmark = pytest.mark.usefixtures("float64")


def halting(**choices: object) -> Halting:
    torch.manual_seed(3)
    return Halting(5, **{"max_steps": 4, **choices})  # type: ignore[arg-type]


def step(s: Tensor, n: int) -> tuple[Tensor, Tensor]:
    return torch.tanh(1.7 * s + 0.3 * n), s[..., :2]


def by_loop(layer: Halting, s: Tensor) -> tuple[Tensor, Tensor, int, Tensor]:  # "d"
    """Graves 2016, equations 5 to 9, for one position."""
    states, others, h = [], [], []
    while len(h) < layer.max_steps and sum(map(float, h)) < 1 - layer.epsilon:
        s, other = step(s, len(h))
        states.append(s)
        others.append(other)
        h.append(torch.sigmoid(layer.unit.weight[0] @ s + layer.unit.bias[0]))
    remainder = 1 - sum(h[:-1], torch.zeros(()))
    p = [*h[:-1], remainder]
    mean, other = (sum(w * each for w, each in zip(p, many, strict=True)) for many in (states, others))
    return mean, other, len(p), remainder


@pytest.mark.parametrize("bias", [-1.0, 0.5, 2.0])
@torch.no_grad()
def test_the_equations(bias: float) -> None:
    layer = halting()
    torch.nn.init.constant_(layer.unit.bias, bias)
    s = 2 * torch.randn(3, 7, 5)
    present = torch.rand(3, 7) < 0.8
    output = layer(s, step, present)
    for place in torch.cartesian_prod(torch.arange(3), torch.arange(7)).tolist():
        i, j = place
        if present[i, j]:
            out, further, steps, remainder = by_loop(layer, s[i, j])
            torch.testing.assert_close(output.out[i, j], out)
            torch.testing.assert_close(output.further[i, j], further)
            assert output.steps[i, j] == steps
            torch.testing.assert_close(output.remainder[i, j], remainder)
        else:
            assert not output.out[i, j].any()
            assert output.steps[i, j] == 0
            assert torch.equal(output.last[i, j], s[i, j])
    torch.testing.assert_close(output.ponder, (output.steps + output.remainder)[present].sum())


def test_gradients() -> None:
    layer = halting()
    s = torch.randn(2, 3, 5, requires_grad=True)
    present = torch.tensor([[True, True, False], [True, True, True]])

    def outputs(s: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        parameters = {"unit.weight": weight, "unit.bias": bias}
        output = torch.func.functional_call(layer, parameters, (s, step, present))
        return output.out, output.ponder

    assert torch.autograd.gradcheck(outputs, (s, layer.unit.weight, layer.unit.bias))


def test_all_halt_at_the_first_step_or_at_the_last() -> None:
    layer, s, present = halting(), torch.randn(2, 3, 5), torch.ones(2, 3, dtype=torch.bool)
    calls = []

    def counted(s: Tensor, n: int) -> tuple[Tensor, Tensor]:
        calls.append(n)
        return step(s, n)

    torch.nn.init.constant_(layer.unit.bias, 50.0)
    output = layer(s, counted, present)
    assert calls == [0]
    assert torch.equal(output.out, step(s, 0)[0])
    assert (output.steps == 1).all()
    assert (output.remainder == 1).all()
    torch.nn.init.constant_(layer.unit.bias, -50.0)
    assert (layer(s, step, present).steps == 4).all()
    # a position that is absent keeps no other one waiting
    calls.clear()
    layer(s, counted, ~present)
    assert calls == [0]


def test_fixed_steps_give_the_last_state() -> None:
    s, layer = torch.randn(2, 3, 5), halting(halting="fixed", max_steps=3)
    output = layer(s, step, torch.ones(2, 3, dtype=torch.bool))
    assert not [*layer.parameters()]
    for n in range(3):
        s, _ = step(s, n)
    assert torch.equal(output.out, s)
    assert (output.steps == 3).all()


def test_errors() -> None:
    with pytest.raises(ValueError, match="unknown halting 'adaptiv'; did you mean 'adaptive'"):
        halting(halting="adaptiv")
    with pytest.raises(ValueError, match="epsilon must be above 0 and below 1, got 1; try epsilon=0.01"):
        halting(epsilon=1)
    with pytest.raises(ValueError, match="max_steps must be a whole number, 1 or more, for Halting, got 0"):
        halting(max_steps=0)
