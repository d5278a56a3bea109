"""Adversarial attacks on classifiers of images and on predictors of texts: frozen values that `regard.attack` runs.

result = regard.attack(model, x, y, regard.attacks.PGD(eps=0.1))
result = regard.attack(regard.load("runs/topics"), texts, classes, regard.attacks.HotFlip(flips=2))
"""

from regard.attacks.apgd import APGD
from regard.attacks.attack import AttackResult
from regard.attacks.balls import L2, Ball, Linf, Start, SurfaceStart, UniformStart
from regard.attacks.base import Attack
from regard.attacks.catalogue import ATTACKS, TEXT_ATTACKS
from regard.attacks.curve import AccuracyCurve, accuracy_curve
from regard.attacks.gradient_attacks import FGSM, MIFGSM, PGD
from regard.attacks.objectives import DLR, AttackLoss, CrossEntropy, Margin, TargetedDLR
from regard.attacks.square import Square
from regard.attacks.text.base import TextAttack, TextAttackResult
from regard.attacks.text.character_edits import CharacterEdits
from regard.attacks.text.constraints import Constraint, CosineSimilarity, EditDistance, SameStart
from regard.attacks.text.hotflip import HotFlip
from regard.attacks.text.target_words import ForbiddenWord, TargetWord
from regard.attacks.text.triggers import Triggers
from regard.attacks.worst import Worst

__all__ = [
    "APGD",
    "ATTACKS",
    "AccuracyCurve",
    "Attack",
    "AttackLoss",
    "AttackResult",
    "Ball",
    "CharacterEdits",
    "Constraint",
    "CosineSimilarity",
    "CrossEntropy",
    "DLR",
    "EditDistance",
    "FGSM",
    "ForbiddenWord",
    "HotFlip",
    "L2",
    "Linf",
    "MIFGSM",
    "Margin",
    "PGD",
    "SameStart",
    "Square",
    "Start",
    "SurfaceStart",
    "TEXT_ATTACKS",
    "TargetWord",
    "TargetedDLR",
    "TextAttack",
    "TextAttackResult",
    "Triggers",
    "UniformStart",
    "Worst",
    "accuracy_curve",
]
