"""ATTACKS and TEXT_ATTACKS: the attacks by name, as the command line types them."""

from collections.abc import Callable
from functools import partial

from regard.attacks.apgd import APGD
from regard.attacks.base import Attack
from regard.attacks.gradient_attacks import FGSM, MIFGSM, PGD
from regard.attacks.objectives import DLR
from regard.attacks.square import Square
from regard.attacks.text.base import TextAttack
from regard.attacks.text.character_edits import CharacterEdits
from regard.attacks.text.hotflip import HotFlip
from regard.attacks.text.triggers import Triggers
from regard.attacks.worst import Worst

# each takes the radius, `eps`, and the options of its class
ATTACKS: dict[str, Callable[..., Attack]] = {
    "fgsm": FGSM,
    "pgd": PGD,
    "mi-fgsm": MIFGSM,
    "apgd-ce": APGD,
    "apgd-dlr": partial(APGD, loss=DLR()),
    "square": Square,
    "worst": Worst,
}

# each takes the options of its class
TEXT_ATTACKS: dict[str, Callable[..., TextAttack]] = {
    "hotflip": HotFlip,
    "triggers": Triggers,
    "characters": CharacterEdits,
}
