"""Each refusal of an attack is one sentence with a way out."""

import re
from collections.abc import Callable

import pytest
import torch
from tests.attacks.models import images, network
from tests.for_each import for_each
from torch import nn

import regard
from regard.attacks import APGD, DLR, FGSM, L2, PGD, Square, TargetedDLR, Worst, accuracy_curve

MODEL = network()
X, Y = images(MODEL)
TWO = network(classes=2)

REFUSALS: dict[str, Callable[[], object]] = {
    "eps must be from 0 to 1, the box of inputs, got 8; 8 of 255 grey levels are eps=0.0314": lambda: PGD(eps=8),
    "eps must be 0 or more and finite, got -0.1; try eps=1.0": lambda: PGD(eps=-0.1, ball=L2()),
    "eps must be a number for PGD, got '0.1'; try eps=0.1": lambda: PGD(eps="0.1"),
    "step must be more than 0 and finite for PGD, got 0; leave it out, or try 0.025": lambda: PGD(step=0.0),
    "steps must be a whole number, 1 or more, for PGD, got 0; try steps=8": lambda: PGD(steps=0),
    "restarts=2 would all begin at the clean input; give start=UniformStart() as well": lambda: PGD(restarts=2),
    "rho must be a share of steps, from 0 to 1, got 1.5; try rho=0.75": lambda: APGD(rho=1.5),
    "Square moves pixels by eps, in the ball Linf(), got L2(); leave ball out": lambda: Square(ball=L2()),
    "share must be more than 0 and at most 1, got 0; try share=0.8": lambda: Square(share=0.0),
    "loss must be an AttackLoss, got the class DLR; write loss=DLR(...)": lambda: PGD(loss=DLR),
    "members must be an Attack, got 'pgd'; write members=(regard.attacks.PGD(), regard.attacks.Square())": lambda: (
        Worst(members=("pgd",))
    ),
    "attack must be an Attack, got 'pgd'; write attack=regard.attacks.PGD(eps=0.1)": lambda: regard.attack(
        MODEL, X, Y, "pgd"
    ),
    "inputs must be in the box from 0 to 1, got values from -2 to 2; undo their normalisation and make it the "
    "first module of the model": lambda: regard.attack(MODEL, torch.linspace(-2, 2, 330).view(X.shape), Y, FGSM()),
    "inputs must be in the box from 0 to 1, got values from nan to nan; undo their normalisation and make it the "
    "first module of the model": lambda: regard.attack(MODEL, X / 0 * 0, Y, FGSM()),
    "inputs must be floating point, (inputs, ...), one at least, got (11, 2, 5, 3) of torch.uint8; scale whole "
    "numbers by x.float() / 255": lambda: regard.attack(MODEL, (255 * X).byte(), Y, FGSM()),
    "inputs of a module must be a tensor, got list; stack them by torch.stack": lambda: regard.attack(
        MODEL, list(X), Y, FGSM()
    ),
    "model must be a module, or a predictor of the classes of images, got function; attack the module "
    "inside of it": lambda: regard.attack(lambda x: x, X, Y, FGSM()),
    "targets must be the numbers of 11 classes, 0 or more, one per input, got (3) of torch.int64; take the argmax "
    "of vectors of classes": lambda: regard.attack(MODEL, X, Y[:3], FGSM()),
    f"targets must be from 0 to 4, the logits of the model, got {int(Y.max()) + 5}; number the classes as the "
    "model does": lambda: regard.attack(MODEL, X, Y + 5, FGSM()),
    "the model must return logits of two classes or more, (11, classes), got (11, 7, 5, 3); wrap it in a module "
    "that returns them": lambda: regard.attack(MODEL[:2], X, Y, FGSM()),
    "the logits of the model do not depend on the inputs by operations that have gradients; use the attack Square, "
    "which needs none": lambda: regard.attack(nn.Sequential(Rounded(), MODEL), X, Y, FGSM()),
    "an attack by gradients cannot run under torch.inference_mode(), which has none; leave its block, or use the "
    "attack Square": lambda: torch.inference_mode()(regard.attack)(MODEL, X, Y, FGSM()),
    "DLR() compares 3 logits, and the model has 2 classes; use loss=Margin(), which compares two": lambda: (
        regard.attack(TWO, X, Y % 2, APGD(loss=DLR()))
    ),
    "rank must be from 1 to 4, the other classes of the model, got 5; try rank=1": lambda: regard.attack(
        MODEL, X, Y, PGD(loss=TargetedDLR(5))
    ),
    "Square needs images, (images, channels, height, width), got (3, 28); use PGD, or reshape the inputs": lambda: (
        regard.attack(MODEL[-1], torch.rand(3, 28, dtype=torch.float64), Y[:3], Square())
    ),
    "epsilons must rise, one at least, got [0.1, 0.05]; try [0.0, 0.05, 0.1]": lambda: accuracy_curve(
        MODEL, X, Y, PGD(), [0.1, 0.05]
    ),
}


class Rounded(nn.Module):
    """A preprocessor that cuts the graph."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.detach()


@for_each("sentence", REFUSALS)
def test_refusals(sentence: str) -> None:
    with pytest.raises((ValueError, TypeError), match=f"^{re.escape(sentence)}$"):
        REFUSALS[sentence]()


def test_two_classes_take_the_margin_in_worst() -> None:
    x, y = images(TWO)
    result = regard.attack(TWO, x, y, Worst(0.4, (APGD(steps=8, loss=DLR()), APGD(steps=8, loss=TargetedDLR()))))
    assert result.warnings == (
        "the model has 2 classes, too few for DLR and TargetedDLR; the margin takes their place",
    )
    assert result.broken.any()
    alone = regard.attack(TWO, x, y, APGD(0.4, 8, loss=regard.attacks.Margin()))
    assert torch.equal(result.inputs, alone.inputs)
