"""ConvCaptioner: steps are the whole, a batch is one by one, the recorded maps are those of the grid."""

import pytest
import torch
from torch import Tensor

from regard import record
from regard.attn.call import Need
from regard.models import ConvCaptioner
from regard.models.show_attend_tell.encoder import AnnotationEncoder

pytestmark = pytest.mark.usefixtures("float64")

B, T, WORDS = 3, 5, 13


def built(attention: str = "dot", **choices: int) -> ConvCaptioner:
    torch.manual_seed(1)
    encoder = AnnotationEncoder(1, 7, channels=2)
    return ConvCaptioner(encoder, WORDS, width=6, hidden=10, layers=2, attention=attention, **choices)


def given() -> tuple[Tensor, Tensor]:
    torch.manual_seed(2)
    return torch.randn(B, 1, 12, 20), torch.randint(3, WORDS, (B, T))


@pytest.mark.parametrize("attention", ["dot", "additive", "location-sensitive", "hard"])
@torch.no_grad()
def test_one_step_at_a_time_is_all_at_once(attention: str) -> None:
    model, (images, target) = built(attention).eval(), given()
    whole = model.teacher_force(images, target, Need(weights=True))
    state = model.init_state(images)
    h, w = state.grid
    assert whole.weights.shape == (B, T, h * w)
    for t in range(T):
        step = model.step(target[:, t : t + 1], state, weights=True)
        state = step.state
        torch.testing.assert_close(step.logits, model.output(whole.states)[:, t : t + 1])
        torch.testing.assert_close(step.weights, whole.weights[:, t : t + 1])


@torch.no_grad()
def test_hypotheses_are_decodings_of_their_own() -> None:
    model, (images, target) = built(kernel=4).eval(), given()
    state = model.step(target[:, :1], model.init_state(images)).state
    state = state.reorder(torch.zeros(B, 2, dtype=torch.long))
    step = model.step(target[:, 1:3], state)
    state = step.state.reorder(torch.tensor([[1, 0]] * B)).select_sentences(torch.tensor([2, 0]))
    last = model.step(target[[2, 0], 3:4].expand(-1, 2), state)
    for row, n in enumerate((2, 0)):
        for slot, second in enumerate((2, 1)):
            tokens = target[n : n + 1, [0, second, 3]]
            torch.testing.assert_close(last.logits[row, slot], model(images[n : n + 1], tokens)[0, -1])


@torch.no_grad()
def test_maps_are_recorded_on_the_grid() -> None:
    model, (images, target) = built().eval(), given()
    with record(model) as recording:
        weights = model.teacher_force(images, target, Need(weights=True)).weights
    assert [item.name for item in recording] == [f"decoder.layers.{n}.attention" for n in range(2)]
    maps = torch.stack([torch.as_tensor(item.weights[:]).reshape(weights.shape) for item in recording])
    torch.testing.assert_close(maps.mean(0), weights)
    assert all(item.grid == model.init_state(images).grid for item in recording)


def test_every_parameter_receives_a_gradient() -> None:
    model, (images, target) = built(), given()
    model(images, target).square().mul(torch.rand(T, WORDS)).sum().backward()
    assert all(p.grad is not None and p.grad.any() for p in model.parameters())
