"""Signs that an attack overrates a model: masked gradients, saturated logits, probabilities in place of logits."""

import torch

from regard.attacks.base import Attack
from regard.attacks.gradient_attacks import GradientAttack
from regard.attacks.objectives import CrossEntropy
from regard.attacks.victim import Victim
from regard.attacks.worst import Worst

# the share of inputs from which on a sign is reported
_MANY = 0.05


def warnings_of(victim: Victim, attack: Attack) -> list[str]:
    """One sentence per sign, with its remedy."""
    sentences = []
    if victim.is_stochastic:
        sentences.append(
            f"the model draws random numbers in evaluation mode; gradients and verdicts are means over "
            f"{victim.samples} samples"
        )
    if not victim.first_steps:
        return sentences
    has_gradient, is_saturated, has_probabilities = (
        torch.cat(parts) for parts in zip(*victim.first_steps, strict=True)
    )
    way = _way_out(attack)
    if bool(has_probabilities.all()):
        sentences.append(
            "the outputs of the model are probabilities, of which a loss takes the softmax again; return logits"
        )
    if (share := 1 - has_gradient.cpu().double().mean().item()) >= _MANY:
        sentences.append(
            f"the gradient of {100 * share:.0f} % of the inputs is zero, so it cannot lead an attack; {way}"
        )
    if (share := is_saturated.cpu().double().mean().item()) >= _MANY:
        sentences.append(
            f"the logits of {100 * share:.0f} % of the inputs are saturated: the probability of a class is 1 in "
            f"floating point, which masks the gradient of the cross-entropy; {way}"
        )
    return sentences


def _way_out(attack: Attack) -> str:
    if isinstance(attack, Worst):
        return "the members of Worst that compare logits or use no gradients are not affected"
    if isinstance(attack, GradientAttack) and not isinstance(attack.loss, CrossEntropy):
        return "the result may overrate the model; use the attack worst"
    return "the result may overrate the model; use loss=DLR() or the attack worst"
