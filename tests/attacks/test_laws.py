"""Laws of attacks, each over the whole of ATTACKS: an attack is tested by being listed."""

import copy
from typing import NamedTuple

import pytest
import torch
from tests.attacks.models import images, network
from tests.for_each import for_each
from torch import Tensor, nn

import regard
from regard.attacks import ATTACKS, FGSM, L2, PGD, Attack, Square, UniformStart, accuracy_curve

# as short as a test allows; "worst" of one that climbs and one that does not
SMALL = {
    "fgsm": {},
    "pgd": {"steps": 3, "start": UniformStart()},
    "mi-fgsm": {"steps": 3},
    "apgd-ce": {"steps": 8},
    "apgd-dlr": {"steps": 8, "restarts": 2},
    "square": {"queries": 30},
    "worst": {"members": (PGD(steps=3), Square(queries=30))},
}
IN_BALLS = [(name, regard.attacks.Linf()) for name in ATTACKS] + [(name, L2()) for name in ATTACKS if name != "square"]


def small(name: str, eps: float = 0.1, **options: object) -> Attack:
    return ATTACKS[name](eps, **SMALL[name], **options)


def test_every_attack_has_a_small_form() -> None:
    assert SMALL.keys() == ATTACKS.keys()


@for_each(("name", "ball"), IN_BALLS)
def test_a_radius_of_zero_is_the_clean_input(name: str, ball: regard.attacks.Ball) -> None:
    model = network()
    x, y = images(model)
    y[:3] = (y[:3] + 1) % 5
    result = regard.attack(model, x, y, small(name, 0.0, ball=ball))
    assert torch.equal(result.inputs, x)
    assert not result.distance.any()
    assert torch.equal(result.broken, torch.arange(11) < 3)
    assert result.accuracy == pytest.approx(100 * 8 / 11)


@for_each(("name", "ball"), IN_BALLS)
def test_results_are_in_the_ball_and_in_the_box(name: str, ball: regard.attacks.Ball) -> None:
    model = network(dtype=torch.float32)
    x, y = images(model)
    x[0], x[1] = 0.0, 1.0
    y = model(x).argmax(1)
    eps = 0.1 if ball == regard.attacks.Linf() else 0.5
    result = regard.attack(model, x, y, small(name, eps, ball=ball))
    delta = (result.inputs - x).flatten(1)
    norm = delta.abs().amax(1) if ball == regard.attacks.Linf() else delta.norm(dim=1)
    assert (norm <= eps * (1 + 1e-6)).all()
    torch.testing.assert_close(result.distance, norm)
    assert result.inputs.min() >= 0
    assert result.inputs.max() <= 1
    assert norm.any()


@for_each(("name", "ball"), IN_BALLS)
def test_a_batch_is_attacked_as_its_inputs_alone(name: str, ball: regard.attacks.Ball) -> None:
    model = network()
    x, y = images(model)
    attack = small(name, 0.1 if ball == regard.attacks.Linf() else 0.5, ball=ball)
    whole = regard.attack(model, x, y, attack, seed=3)
    assert whole.broken.any()
    for alone in (
        regard.attack(model, x, y, attack, seed=3, batch=1),
        regard.attack(model, x[4:], y[4:], attack, seed=3, first=4),
    ):
        rows = slice(11 - len(alone.inputs), None)
        torch.testing.assert_close(alone.inputs, whole.inputs[rows], rtol=0, atol=1e-12)
        assert torch.equal(alone.broken, whole.broken[rows])
        assert torch.equal(alone.queries, whole.queries[rows])


@for_each("name", ATTACKS)
def test_a_larger_radius_is_never_weaker(name: str) -> None:
    model = network()
    x, y = images(model, 23)
    curve = accuracy_curve(model, x, y, small(name), [0.0, 0.02, 0.05, 0.2, 0.4])
    assert curve.accuracies[0] == 100
    assert curve.accuracies == sorted(curve.accuracies, reverse=True)
    assert curve.accuracies[-1] < 60
    for eps, result in zip(curve.epsilons, curve.results, strict=True):
        with torch.no_grad():
            assert torch.equal(model(result.inputs).argmax(1) != y, result.broken)
        assert (result.distance <= eps * (1 + 1e-6)).all()


@for_each("name", ATTACKS)
def test_model_and_inputs_stay_as_they_are(name: str) -> None:
    model = network().train()
    model[1].eval()  # a module in its own mode keeps it
    x, y = images(network())
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    before = copy.deepcopy(model.state_dict()), x.clone(), [module.training for module in model.modules()]
    state = torch.get_rng_state()
    regard.attack(model, x, y, small(name))
    for key, value in model.state_dict().items():
        assert torch.equal(value, before[0][key])
    assert torch.equal(x, before[1])
    assert not x.requires_grad
    assert [module.training for module in model.modules()] == before[2]
    assert all(torch.equal(p.grad, torch.ones_like(p)) and p.requires_grad for p in model.parameters())
    assert torch.equal(state, torch.get_rng_state())


@for_each("name", ATTACKS)
def test_the_verdict_is_that_of_the_model(name: str) -> None:
    model = network()
    x, y = images(model)
    result = regard.attack(model, x, y, small(name, 0.2))
    with torch.no_grad():
        logits = model(result.inputs)
    assert torch.equal(result.broken, logits.argmax(1) != y)
    torch.testing.assert_close(result.loss, torch.nn.functional.cross_entropy(logits, y, reduction="none"))
    assert result.accuracy == pytest.approx(100 * (~result.broken).double().mean().item())
    assert (result.queries >= 2).all()


@pytest.mark.parametrize("name", [name for name in ATTACKS if name not in ("square", "worst")])
def test_the_loss_rises(name: str) -> None:
    model = network()
    x, y = images(model)
    clean = regard.attack(model, x, y, FGSM(0.0)).loss
    result = regard.attack(model, x, y, small(name))
    changed = result.distance > 0
    assert changed.any()
    assert (result.loss[changed] > clean[changed]).all()


def test_worst_breaks_what_any_member_breaks() -> None:
    model = network()
    x, y = images(model, 40)
    members = (PGD(steps=1, step=0.03), Square(queries=4))
    broken = [regard.attack(model, x, y, member.with_eps(0.1)).broken for member in members]
    worst = regard.attack(model, x, y, regard.attacks.Worst(0.1, members))
    assert torch.equal(worst.broken, broken[0] | broken[1])
    assert not torch.equal(broken[0], broken[1])


def test_restarts_only_add_successes() -> None:
    model = network()
    x, y = images(model, 40)
    once = regard.attack(model, x, y, PGD(0.03, 2, start=UniformStart()))
    again = regard.attack(model, x, y, PGD(0.03, 2, start=UniformStart(), restarts=4))
    assert (again.broken >= once.broken).all()
    assert torch.equal(again.inputs[once.broken], once.inputs[once.broken])
    assert again.queries[0] == 4 * 2 + 3 + 1


def test_a_step_follows_the_radius() -> None:
    """2.5 eps / steps, which is the 0.025 of PGD(0.1, 10)."""
    model = network()
    x, y = images(model)
    for eps in (0.1, 0.3):
        default = regard.attack(model, x, y, PGD().with_eps(eps))
        given = regard.attack(model, x, y, PGD(eps, step=2.5 * eps / 10))
        assert torch.equal(default.inputs, given.inputs)


def test_a_predictor_is_attacked_by_its_pixels() -> None:
    """The normalisation of a run stays inside: pixels in, pixels out, and the clean accuracy of `predict`."""
    import numpy as np

    from regard.tasks.classify_image.predictor import ImageClassifier
    from regard.tasks.shared.image_data import ImageStats
    from regard.tasks.shared.image_predictors import ImageInput

    pixels = np.random.default_rng(0).integers(0, 256, (6, 5, 3, 2), np.uint8)
    predictor = ImageClassifier(network(dtype=torch.float32), ImageStats(2, 5, 3, list("abcde"), 0.4, 0.3, ""))
    inputs = [ImageInput(image) for image in pixels]
    named = [output.classes[0][0] for output in predictor.predict(inputs)]
    result = regard.attack(predictor, inputs, named, PGD(0.2))
    numbers = torch.tensor(["abcde".index(name) for name in named])
    assert regard.attack(predictor, inputs, named, PGD(0.0)).accuracy == 100
    again = regard.attack(predictor, torch.from_numpy(pixels).permute(0, 3, 1, 2) / 255, numbers, PGD(0.2))
    assert torch.equal(result.inputs, again.inputs)
    assert result.broken.any()


class Output(NamedTuple):
    """As of a classifier of transformers."""

    logits: Tensor


class Classifier(nn.Module):
    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Output:
        return Output(self.network(x))


def test_logits_are_taken_from_the_output_of_a_classifier() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(6, 3))
    x, y = torch.rand(5, 2, 3), torch.arange(5) % 3
    plain, wrapped = (regard.attack(each, x, y, FGSM(eps=0.1)) for each in (model, Classifier(model)))
    assert torch.equal(plain.inputs, wrapped.inputs)
