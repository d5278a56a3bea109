"""Signs of an attack that overrates a model."""

import pytest
import torch
from tests.attacks.models import images, network
from torch import Tensor, nn

import regard
from regard.attacks import ATTACKS, DLR, FGSM, PGD, Square, Worst, accuracy_curve
from regard.attacks.draws import Draws
from regard.attacks.objectives import TargetedDLR


class Scaled(nn.Module):
    """Logits times a factor: the same classes, and gradients of the cross-entropy that vanish."""

    def __init__(self, model: nn.Module, factor: float) -> None:
        super().__init__()
        self.model, self.factor = model, factor

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x) * self.factor


class Noisy(nn.Module):
    """A classifier that draws in evaluation mode."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        return self.model((x + 0.1 * torch.randn_like(x)).clamp(0, 1))


class Stairs(nn.Module):
    """Pixels in steps, whose gradient is zero almost everywhere."""

    def forward(self, x: Tensor) -> Tensor:
        return (x * 8).round() / 8


def test_a_plain_net_has_none() -> None:
    model = network()
    x, y = images(model)
    for name in ATTACKS:
        options = {"members": (PGD(steps=2), Square(queries=9))} if name == "worst" else {}
        options |= {"queries": 9} if name == "square" else {}
        assert regard.attack(model, x, y, ATTACKS[name](0.1, **options)).warnings == ()


def test_saturated_logits() -> None:
    model = network(dtype=torch.float32)
    x, y = images(model, 40)
    scaled = Scaled(model, 1e4)
    truth, masked = (regard.attack(each, x, y, PGD(0.3)) for each in (model, scaled))
    assert masked.accuracy > truth.accuracy + 20
    zero, saturated = masked.warnings
    assert zero.endswith("is zero, so it cannot lead an attack; the result may overrate the model; use loss=DLR() or "
                         "the attack worst")  # fmt: skip
    assert "are saturated: the probability of a class is 1 in floating point, which masks the gradient" in saturated
    by_ratio = regard.attack(scaled, x, y, PGD(0.3, loss=DLR()))
    assert by_ratio.accuracy == pytest.approx(regard.attack(model, x, y, PGD(0.3, loss=DLR())).accuracy, abs=3)
    worst = regard.attack(scaled, x, y, Worst(0.3, (PGD(), PGD(loss=DLR()))))
    assert worst.accuracy <= truth.accuracy + 3
    assert "the members of Worst that compare logits or use no gradients are not affected" in worst.warnings[0]


def test_probabilities_in_place_of_logits() -> None:
    model = nn.Sequential(network(), nn.Softmax(-1))
    x, y = images(model)
    (warning,) = regard.attack(model, x, y, FGSM()).warnings
    assert warning == (
        "the outputs of the model are probabilities, of which a loss takes the softmax again; return logits"
    )


def test_squares_find_masked_gradients() -> None:
    model = nn.Sequential(Stairs(), network())
    x, y = images(model, 40)
    by_gradient = regard.attack(model, x, y, PGD(0.2))
    assert by_gradient.accuracy == 100
    assert by_gradient.warnings[0].startswith("the gradient of 100 % of the inputs is zero")
    worst = regard.attack(model, x, y, Worst(0.2, (PGD(steps=2), Square(queries=40))))
    assert worst.accuracy < 70
    broken = int(worst.broken.sum())
    assert worst.warnings[0] == (
        f"Square, which uses no gradients, broke {broken} of 40 inputs that all attacks by gradients left; the "
        "gradients of the model are masked, so attacks by gradients overrate it"
    )
    curve = accuracy_curve(model, x, y, PGD(steps=2), [0.0, 0.1, 0.2])
    assert (
        "the accuracy does not fall from eps 0 to 0.2; gradients may be masked; use the attack worst, or a larger eps"
    ) in curve.warnings


class Wave(nn.Module):
    """cos(40 r), r the distance from grey, against 0: wrong at 0.08, right again at 0.16."""

    def forward(self, x: Tensor) -> Tensor:
        wave = torch.cos(40 * (x - 0.5).abs().flatten(1).amax(1))
        return torch.stack([wave, torch.zeros_like(wave)], 1)


def test_a_curve_that_rises() -> None:
    """The larger radius has the success of the smaller one, and the warning tells that it had none of its own."""
    x, y = torch.full((7, 1, 3, 2), 0.5), torch.zeros(7, dtype=torch.long)
    curve = accuracy_curve(Wave(), x, y, Square(queries=1), [0.0, 0.08, 0.16])
    assert curve.accuracies == [100, 0, 0]
    assert curve.warnings == (
        "eps 0.16 leaves an accuracy of 100.0 % where 0.08 leaves 0.0 %, so the attack fails where it should succeed; "
        "use more steps, or the attack worst",
    )


def test_a_stochastic_model_is_averaged() -> None:
    """Gradients and verdicts are means over samples, the same from the same seed; EOT is the stronger attack."""
    model = Noisy(network())
    x, y = images(network(), 60)
    state = torch.get_rng_state()
    once, few, again = (regard.attack(model, x, y, PGD(0.05, 3, samples=n), seed=2) for n in (1, 6, 6))
    assert torch.equal(state, torch.get_rng_state())
    assert torch.equal(few.inputs, again.inputs)
    assert torch.equal(few.broken, again.broken)
    assert few.warnings == (
        "the model draws random numbers in evaluation mode; gradients and verdicts are means over 6 samples",
    )
    assert int(few.queries[0]) == 6 * (3 + 1)
    assert int(once.queries[0]) == 3 + 1
    mean = torch.stack([model(few.inputs).softmax(1) for _ in range(200)]).mean(0)
    assert ((mean.argmax(1) != y) == few.broken).double().mean() > 0.8


def test_glimpses_are_sampled() -> None:
    from regard.models.ram import RAM
    from regard.tasks.glimpse.predictor import GlimpseClassifier
    from regard.tasks.shared.image_data import ImageStats

    torch.manual_seed(0)
    ram = RAM(1, 3, glimpses=2, patch=3, what=5, where=5, glimpse=7, hidden=7)
    predictor = GlimpseClassifier(ram, ImageStats(1, 7, 5, ["a", "b", "c"], 0.0, 0.5, ""))
    x = torch.rand(5, 1, 7, 5)
    result = regard.attack(predictor, x, ["a", "b", "c", "a", "b"], PGD(0.2, 2, samples=3))
    assert result.warnings[0].startswith("the model draws random numbers")
    assert result.distance.max() > 0


def test_draws_belong_to_examples() -> None:
    like = torch.zeros(3, 2, 5)
    some = Draws(7, torch.tensor([4, 0, 9]))
    for draw in (lambda draws, t: draws.normal(t), lambda draws, t: draws.uniform(t, -1.0, 1.0)):
        for row, number in enumerate((4, 0, 9)):
            alone = draw(Draws(7, torch.tensor([number])), like[:1])
            assert torch.equal(draw(some, like)[row], alone[0])
    assert not torch.equal(some.normal(like), some.restarted(1).normal(like))
    normal = Draws(0, torch.arange(500)).normal(torch.zeros(500, 33))
    assert abs(normal.mean().item()) < 0.02
    assert abs(normal.std().item() - 1) < 0.02


def test_points_of_balls() -> None:
    like = torch.full((400, 3), 0.5, dtype=torch.float64)
    draws = Draws(0, torch.arange(400))
    for ball in (regard.attacks.Linf(), regard.attacks.L2()):
        torch.testing.assert_close(ball.distance(ball.surface(draws, like, 0.3)), torch.full((400,), 0.3).double())
        inside = ball.distance(ball.inside(draws, like, 0.3))
        assert inside.max() <= 0.3
        # of a uniform point in three dimensions the radius is r·U^(1/3), with mean 3/4 r
        assert inside.mean().item() == pytest.approx(0.3 * 3 / 4, rel=0.05)


def test_losses_by_their_formulas() -> None:
    logits = torch.tensor([[3.0, 1.0, 0.5, -2.0, 0.0], [0.0, 4.0, 1.0, 2.0, -1.0]])
    labels = torch.tensor([0, 3])
    assert regard.attacks.Margin().of(labels, None)(logits).tolist() == [-2.0, 2.0]
    torch.testing.assert_close(DLR().of(labels, None)(logits), torch.tensor([-2 / 2.5, 2 / 3]))
    targeted = TargetedDLR(2).of(labels, logits)(logits)
    torch.testing.assert_close(targeted, torch.tensor([(0.5 - 3) / (3 - 0.25), (1 - 2) / (4 - 0.5)]))
