"""Parity of attacks with torchattacks, bit for bit from the same seed, and with foolbox in L2."""

import sys
import warnings
from types import ModuleType
from typing import Any

import pytest
import torch
import torchattacks
from tests.attacks.models import images, network
from tests.for_each import for_each
from torch import Tensor, nn

import regard
from regard.attacks import APGD, DLR, FGSM, L2, MIFGSM, PGD, UniformStart

EPS, STEP = 0.07, 0.02


@pytest.fixture(scope="module")
def victim() -> tuple[nn.Module, Tensor, Tensor]:
    model = network(dtype=torch.float32)
    return model, *images(model, 32)


@pytest.fixture(scope="module")
def foolbox() -> Any:
    """foolbox imports GitPython to download models, of which nothing here has need."""
    git = ModuleType("git")
    git.Repo = None  # type: ignore[attr-defined]
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        patch.setitem(sys.modules, "git", git)
        # scipy.ndimage.filters, and names of numpy
        warnings.simplefilter("ignore", DeprecationWarning)
        import foolbox

        yield foolbox


@for_each(
    ("ours", "theirs"),
    [
        (FGSM(EPS), lambda model: torchattacks.FGSM(model, EPS)),
        (PGD(EPS, 7, STEP), lambda model: torchattacks.PGD(model, EPS, STEP, 7, random_start=False)),
        (PGD(EPS, 7, STEP, UniformStart()), lambda model: torchattacks.PGD(model, EPS, STEP, 7)),
        (MIFGSM(EPS, 7, STEP), lambda model: torchattacks.MIFGSM(model, EPS, STEP, 7)),
        (MIFGSM(EPS, 7, STEP, decay=0.5), lambda model: torchattacks.MIFGSM(model, EPS, STEP, 7, decay=0.5)),
        (APGD(EPS, 40), lambda model: torchattacks.APGD(model, eps=EPS, steps=40, seed=3)),
        (APGD(EPS, 40, rho=0.6), lambda model: torchattacks.APGD(model, eps=EPS, steps=40, seed=3, rho=0.6)),
    ],
)
def test_bit_for_bit(ours: regard.attacks.Attack, theirs: Any, victim: tuple[nn.Module, Tensor, Tensor]) -> None:
    model, x, y = victim
    torch.manual_seed(3)
    want = theirs(model)(x, y)
    result = regard.attack(model, x, y, ours, seed=3)
    assert torch.equal(result.inputs, want)
    assert 0 < result.broken.sum() < 32


def test_adaptive_steps_by_the_ratio_of_logits(victim: tuple[nn.Module, Tensor, Tensor]) -> None:
    model, x, y = victim
    want = torchattacks.APGD(model, eps=EPS, steps=40, seed=3, loss="dlr")(x, y)
    result = regard.attack(model, x, y, APGD(EPS, 40, loss=DLR()), seed=3)
    torch.testing.assert_close(result.inputs, want, rtol=0, atol=1e-6)
    assert 0 < result.broken.sum() < 32


def test_adaptive_steps_in_l2(victim: tuple[nn.Module, Tensor, Tensor]) -> None:
    model, x, y = victim
    want = torchattacks.APGD(model, norm="L2", eps=0.3, steps=20)(x, y)
    result = regard.attack(model, x, y, APGD(0.3, 20, ball=L2()))
    # the random directions are other ones, the verdicts are not
    assert (result.broken == (model(want).argmax(1) != y)).double().mean() > 0.9


def test_steps_in_l2(victim: tuple[nn.Module, Tensor, Tensor], foolbox: Any) -> None:
    model, x, y = victim
    bounded = foolbox.PyTorchModel(model, bounds=(0, 1))
    attack = foolbox.attacks.L2ProjectedGradientDescentAttack(abs_stepsize=0.1, steps=9, random_start=False)
    want, _, broken = attack(bounded, x, y, epsilons=0.4)
    result = regard.attack(model, x, y, PGD(0.4, 9, 0.1, ball=L2()))
    torch.testing.assert_close(result.inputs, want, rtol=0, atol=1e-6)
    assert torch.equal(result.broken, broken)
    assert 0 < broken.sum() < 32


def test_steps_of_foolbox(victim: tuple[nn.Module, Tensor, Tensor], foolbox: Any) -> None:
    model, x, y = victim
    bounded = foolbox.PyTorchModel(model, bounds=(0, 1))
    attack = foolbox.attacks.LinfPGD(abs_stepsize=STEP, steps=9, random_start=False)
    want, _, _ = attack(bounded, x, y, epsilons=EPS)
    assert torch.equal(regard.attack(model, x, y, PGD(EPS, 9, STEP)).inputs, want)
