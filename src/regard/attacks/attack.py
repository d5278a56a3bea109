"""attack: inputs near given ones that a classifier gets wrong, and how often they were found."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, overload

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.attacks.base import Attack
from regard.attacks.diagnostics import warnings_of
from regard.attacks.draws import Draws, seeded_model
from regard.attacks.text.attack import attack_texts
from regard.attacks.text.base import TextAttack, TextAttackResult, share_right
from regard.attacks.victim import Victim
from regard.common import checks
from regard.common.eval_mode import eval_mode
from regard.inference.bounded_classifier import BoundedClassifier
from regard.inference.token_predictor import TokenPredictor


@dataclass(frozen=True, eq=False)
class AttackResult:
    """The inputs that an attack ends with, and what the model makes of each.

    Inputs that the model gets wrong without a change count as broken, so `accuracy` is that of all inputs.
    """

    inputs: Tensor  # "b ...", in the box [0, 1]
    broken: Tensor  # "b": whether the model gets the input wrong
    loss: Tensor  # "b": the cross-entropy
    distance: Tensor  # "b": from the clean input, by the norm of the ball
    queries: Tensor  # "b": passes of the model, the verdict included
    warnings: tuple[str, ...] = ()

    @property
    def accuracy(self) -> float:
        """The share of inputs that the model still gets right, in percent."""
        return share_right(self.broken)


@overload
def attack(
    model: TokenPredictor,
    inputs: Any,
    targets: Any,
    attack: TextAttack,
    seed: int = 0,
    *,
    first: int = 0,
    batch: int = 256,
) -> TextAttackResult: ...


@overload
def attack(
    model: nn.Module | BoundedClassifier,
    inputs: Any,
    targets: Any,
    attack: Attack,
    seed: int = 0,
    *,
    first: int = 0,
    batch: int = 256,
) -> AttackResult: ...


def attack(
    model: nn.Module | BoundedClassifier | TokenPredictor,
    inputs: Any,
    targets: Any,
    attack: Attack | TextAttack,
    seed: int = 0,
    *,
    first: int = 0,
    batch: int = 256,
) -> AttackResult | TextAttackResult:
    """Attacks a classifier: a module from inputs in the box [0, 1] to logits, "b ..." -> "b k", or an image predictor;
    or, with an attack on texts, a predictor of texts.

    A module normalises its inputs itself. A predictor does, too; it takes its own inputs, or pixels from 0 to 1.
    `targets` are the true classes; of texts, the targets of the predictor's `loss`, words that a translation must or
    must not have, or None for the model's own predictions. The model is in evaluation mode meanwhile, and its modes,
    statistics and gradients stay as they are. `first` is the number of the first input where the inputs are part of a
    longer stream: random numbers belong to the number of an input, so `batch`, the inputs per pass, changes nothing.
    """
    checks.positive_ints("attack", batch=batch)
    name = type(attack).__name__
    if isinstance(attack, TextAttack):
        if not isinstance(model, TokenPredictor):
            raise TypeError(
                f"{name} edits texts, and model must be a predictor of texts, got {type(model).__name__}; load a run "
                "by regard.load, wrap a module of transformers in regard.attribution.TransformersClassifier, or use "
                "regard.attacks.PGD(eps=0.1) for images"
            )
        return attack_texts(model, inputs, targets, attack, seed, first=first, batch=batch)
    checks.instance_of("attack", attack, Attack, "regard.attacks.PGD(eps=0.1)")
    if isinstance(model, TokenPredictor):
        raise TypeError(
            f"{name} changes pixels, and {type(model).__name__} reads texts; use regard.attacks.HotFlip(flips=3)"
        )
    network, logits, clean, labels = _classifier(model, inputs, targets)
    return attack_logits(network, logits, clean, labels, attack, seed, first=first, batch=batch)


def attack_logits(
    network: nn.Module,
    logits: Callable[[Tensor], Tensor],
    clean: Tensor,
    labels: Tensor,
    attack: Attack,
    seed: int = 0,
    *,
    first: int = 0,
    batch: int = 256,
) -> AttackResult:
    """`attack` on a function from the box to logits, whose modules are in `network`."""
    victim = Victim(logits, attack.samples, int(labels.max()))
    parts: list[tuple[Tensor, ...]] = []
    warnings: dict[str, None] = {}
    with eval_mode(network), seeded_model(clean.device, seed):
        for start in range(0, len(clean), batch):
            x, y = clean[start : start + batch], labels[start : start + batch]
            noted = len(victim.first_steps)
            run = attack.run(victim, x, y, Draws(seed, torch.arange(first + start, first + start + len(x))))
            # the first one of several attacks starts on all inputs
            del victim.first_steps[noted + 1 :]
            before = victim.passes
            verdict = victim.logits(run.inputs)
            loss = F.cross_entropy(verdict, y, reduction="none")
            queries = run.queries + (victim.passes - before)
            parts.append((run.inputs, verdict.argmax(1) != y, loss, attack.ball.distance(run.inputs - x), queries))
            warnings |= dict.fromkeys(run.warnings)
    warnings |= dict.fromkeys(warnings_of(victim, attack))
    adversarial, broken, loss, distance, queries = (torch.cat(column) for column in zip(*parts, strict=True))
    return AttackResult(adversarial, broken, loss, distance, queries, tuple(warnings))


def adversarial_inputs(
    network: nn.Module, logits: Callable[[Tensor], Tensor], clean: Tensor, labels: Tensor, attack: Attack, seed: int
) -> Tensor:
    """The inputs of `attack_logits` without their verdict, which adversarial training has no use for."""
    with eval_mode(network), seeded_model(clean.device, seed):
        victim = Victim(logits, attack.samples, int(labels.max()))
        return attack.run(victim, clean, labels, Draws(seed, torch.arange(len(clean)))).inputs


def _classifier(
    model: nn.Module | BoundedClassifier, inputs: Any, targets: Any
) -> tuple[nn.Module, Callable[[Tensor], Tensor], Tensor, Tensor]:
    """The network, its logits as a function of the box, the inputs in the box, and the numbers of their classes."""
    if isinstance(model, BoundedClassifier):
        x = inputs if isinstance(inputs, Tensor) else model.bounded_inputs(inputs)
        _check_box(x)
        labels = targets if isinstance(targets, Tensor) else model.class_numbers(targets)
        return model.model, model.bounded_logits, x.to(model.device, model.dtype), _checked(labels, x).to(model.device)
    if not isinstance(model, nn.Module):
        raise TypeError(
            f"model must be a module, or a predictor of the classes of images, got {type(model).__name__}; attack the "
            "module inside of it"
        )
    if not isinstance(inputs, Tensor):
        raise TypeError(f"inputs of a module must be a tensor, got {type(inputs).__name__}; stack them by torch.stack")
    _check_box(inputs)
    return model, model, inputs.detach(), _checked(torch.as_tensor(targets), inputs).to(inputs.device)


def _check_box(x: Tensor) -> None:
    """Raises for inputs outside of [0, 1]."""
    if x.ndim < 2 or not x.numel() or not x.is_floating_point():
        raise ValueError(
            f"inputs must be floating point, (inputs, ...), one at least, got {checks.shape(x)} of {x.dtype}; scale "
            "whole numbers by x.float() / 255"
        )
    low, high = x.min().item(), x.max().item()
    if not (low >= 0 and high <= 1):
        raise ValueError(
            f"inputs must be in the box from 0 to 1, got values from {low:.3g} to {high:.3g}; undo their normalisation "
            "and make it the first module of the model"
        )


def _checked(labels: Tensor, x: Tensor) -> Tensor:
    """The numbers of classes, one per input."""
    if labels.shape != (len(x),) or labels.is_floating_point() or bool((labels < 0).any()):
        raise ValueError(
            f"targets must be the numbers of {len(x)} classes, 0 or more, one per input, got {checks.shape(labels)} of "
            f"{labels.dtype}; take the argmax of vectors of classes"
        )
    return labels.long()
