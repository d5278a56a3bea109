"""Adversarial attacks on classifiers of images: frozen values that `regard.attack` runs.

result = regard.attack(model, x, y, regard.attacks.PGD(eps=0.1))
"""

from regard.attacks.apgd import APGD
from regard.attacks.balls import L2, Ball, Linf
from regard.attacks.base import Attack
from regard.attacks.catalogue import ATTACKS
from regard.attacks.curve import AccuracyCurve, accuracy_curve
from regard.attacks.gradient_attacks import FGSM, MIFGSM, PGD
from regard.attacks.objectives import DLR, AttackLoss, CrossEntropy, Margin, TargetedDLR
from regard.attacks.square import Square
from regard.attacks.starts import Start, SurfaceStart, UniformStart
from regard.attacks.worst import Worst

__all__ = [
    "APGD",
    "ATTACKS",
    "AccuracyCurve",
    "Attack",
    "AttackLoss",
    "Ball",
    "CrossEntropy",
    "DLR",
    "FGSM",
    "L2",
    "Linf",
    "MIFGSM",
    "Margin",
    "PGD",
    "Square",
    "Start",
    "SurfaceStart",
    "TargetedDLR",
    "UniformStart",
    "Worst",
    "accuracy_curve",
]
