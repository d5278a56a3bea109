"""Adversarial training: images are attacked before the model learns from them, and the validation watches PGD."""

from collections.abc import Callable
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from regard.attacks import FGSM, PGD, Attack, UniformStart
from regard.attacks.attack import AttackResult, adversarial_inputs, attack_logits
from regard.data.images.labelled import Images
from regard.tasks.shared.image_data import ImageBatch, ImageStats, normalized, pixel_tensor

# steps of the PGD that scores a validation, and its images at most
_STEPS, _IMAGES = 10, 1000
# catastrophic overfitting: PGD leaves less than this share of the accuracy that one step leaves
_COLLAPSE = 0.5


def training_attack(name: Literal["pgd", "fgsm"], eps: float, steps: int | None) -> Attack:
    """min E max (Madry et al. 2018): PGD, or one step of 1.25 eps from a random start (Wong et al. 2020)."""
    if name == "fgsm":
        return FGSM(eps, 1.25 * eps, UniformStart())
    assert steps is not None
    return PGD(eps, steps, start=UniformStart())


def attacked_batch(model: nn.Module, batch: ImageBatch, stats: ImageStats, attack: Attack) -> ImageBatch:
    """The batch with attacked images; the model is in evaluation mode meanwhile.

    The seed of random starts comes from torch's generator, which a training seeds anew for every batch.
    """
    pixels = (batch.x * stats.spread + stats.mean).clamp(0.0, 1.0)
    seed = int(torch.randint(2**31, ()))
    x = adversarial_inputs(model, _logits(model, stats), pixels, batch.labels, attack, seed)
    return ImageBatch(normalized(x, stats), batch.labels)


def robust_scores(
    model: nn.Module, images: Images, stats: ImageStats, attack: Attack, seed: int
) -> tuple[dict[str, float], list[str]]:
    """Accuracy and −log p of the right class under PGD, and a warning if only the attack of training is withstood."""
    device = next(model.parameters()).device
    # evenly spaced, so that images sorted by class are of all classes
    rows = np.unique(np.linspace(0, len(images) - 1, min(len(images), _IMAGES)).astype(int))
    x, labels = pixel_tensor(images.pixels[rows]).to(device), torch.from_numpy(images.labels[rows]).to(device)

    def under(attack: Attack) -> AttackResult:
        return attack_logits(model, _logits(model, stats), x, labels, attack, seed)

    result = under(PGD(attack.eps, _STEPS, start=UniformStart()))
    scores = {"robust_accuracy": result.accuracy, "robust_nll": result.loss.cpu().double().mean().item()}
    warnings = []
    if isinstance(attack, FGSM) and result.accuracy < _COLLAPSE * (single := under(attack).accuracy):
        warnings.append(
            f"catastrophic overfitting: one step of fgsm leaves an accuracy of {single:.1f} %, {_STEPS} steps of PGD "
            f"leave {result.accuracy:.1f} %; use the best weights, a smaller --eps, or --adversary pgd"
        )
    return scores, warnings


def _logits(model: nn.Module, stats: ImageStats) -> Callable[[Tensor], Tensor]:
    """The logits of pixels from 0 to 1."""
    return lambda x: model(normalized(x, stats)).float()
