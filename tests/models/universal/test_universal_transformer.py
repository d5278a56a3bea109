"""UniversalTransformer: one layer for all steps, padding that is absent, the ponder cost, and what it learns."""

import pytest
import torch
from tests.models.cases import LENGTHS, UNIVERSAL, B, S, T, built, given, universal

from regard.losses.vocabulary import vocabulary_loss

pytestmark = pytest.mark.usefixtures("float64")


@torch.no_grad()
def test_the_encoder_is_one_layer_over_steps() -> None:
    """Dehghani et al. 2019, equations 1 to 5, with a fixed number of steps."""
    model, (source, *_) = built(UNIVERSAL["universal, fixed"]).eval(), given()
    source = source[:1, :4]
    s = 12**0.5 * model.source(source)

    def encoding(place: int) -> torch.Tensor:
        angle = place / 10000 ** (torch.arange(0, 12, 2) / 12)
        return torch.stack([angle.sin(), angle.cos()], -1).flatten()

    for n in range(3):
        s = model.encoder(s + torch.stack([encoding(p) + encoding(n) for p in range(4)])).out
    torch.testing.assert_close(model.encode(source, torch.tensor([4])).out, s, rtol=1e-5, atol=1e-5)


def test_padding_costs_no_steps() -> None:
    model, (source, lengths, target) = built(UNIVERSAL["universal"]), given()
    target[1, 3:] = 0
    of_source, of_target = model.steps(source, lengths, target)
    assert torch.equal(of_source > 0, torch.arange(S) < LENGTHS[:, None])
    assert torch.equal(of_target > 0, target != 0)
    alone = sum(
        model.teacher_force(
            source[n : n + 1, :length], lengths[n : n + 1], target[n : n + 1, : 3 if n == 1 else T]
        ).ponder
        for n, length in enumerate(LENGTHS.tolist())
    )
    ponder = model.teacher_force(source, lengths, target).ponder
    torch.testing.assert_close(ponder, alone)
    assert ponder > of_source.sum() + of_target.sum()


def test_only_learned_steps_have_a_cost() -> None:
    model, args = built(UNIVERSAL["universal, fixed"]), given()
    assert model.teacher_force(*args).ponder is None
    steps = model.steps(*args)
    assert set(steps[0].unique().tolist()) == {0, 3}
    assert steps[1].tolist() == [[3] * T] * B


def test_it_learns_to_reverse_and_pondering_costs_steps() -> None:
    means, losses = [], []
    for weight in (0.0, 1.0):
        torch.manual_seed(0)
        model = universal(width=24, max_steps=3)()
        optimizer = torch.optim.Adam(model.parameters(), 5e-3)
        source, lengths = torch.randint(3, 9, (16, 4)), torch.full((16,), 4)
        answer = source.flip(1)
        target = torch.cat([torch.ones(16, 1, dtype=torch.long), answer[:, :-1]], 1)
        for _ in range(60):
            output = model.teacher_force(source, lengths, target)
            loss, _ = vocabulary_loss(model.output, output.states.flatten(0, 1), answer.flatten(), smoothing=0.0)
            optimizer.zero_grad()
            (loss + weight * output.ponder).backward()
            optimizer.step()
        losses.append(float(loss.detach()) / answer.numel())
        means.append(float(torch.cat(model.steps(source, lengths, target), 1).double().mean()))
    assert losses[0] < 0.6
    assert means[1] < means[0]
