"""accuracy_curve: the accuracy of a classifier against the radius of an attack."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import torch
from torch import nn

from regard.attacks.attack import AttackResult, attack as run_attack
from regard.attacks.balls import column
from regard.attacks.base import Attack
from regard.inference.bounded_classifier import BoundedClassifier

# points of accuracy that a larger radius may leave more by chance
_CHANCE = 1.0


@dataclass(frozen=True, eq=False)
class AccuracyCurve:
    """The results of an attack at several radii, from the smallest on.

    An input that a smaller radius broke is broken at a larger one, whose ball holds the same point: such inputs are
    carried over, so the accuracy never rises.
    """

    epsilons: tuple[float, ...]
    results: tuple[AttackResult, ...]
    warnings: tuple[str, ...] = ()

    @property
    def accuracies(self) -> list[float]:
        """In percent, one per radius."""
        return [result.accuracy for result in self.results]


def accuracy_curve(
    model: nn.Module | BoundedClassifier,
    inputs: Any,
    targets: Any,
    attack: Attack,
    epsilons: Sequence[float],
    seed: int = 0,
    **batching: int,
) -> AccuracyCurve:
    """The attack at each of these radii on all inputs; `batching` are `first` and `batch` of `regard.attack`.

    A radius that leaves more than a smaller one did, before anything is carried over, and a curve that does not fall
    are signs of masked gradients, of which the warnings tell.
    """
    if not epsilons or any(a >= b for a, b in pairwise(epsilons)):
        raise ValueError(f"epsilons must rise, one at least, got {list(epsilons)}; try [0.0, 0.05, 0.1]")
    results = [run_attack(model, inputs, targets, attack.with_eps(eps), seed, **batching) for eps in epsilons]
    warnings = dict.fromkeys(sentence for result in results for sentence in result.warnings)
    for (eps, result), (wider, next_result) in pairwise(zip(epsilons, results, strict=True)):
        if next_result.accuracy > result.accuracy + _CHANCE:
            warnings[
                f"eps {wider:g} leaves an accuracy of {next_result.accuracy:.1f} % where {eps:g} leaves "
                f"{result.accuracy:.1f} %, so the attack fails where it should succeed; use more steps, or the attack "
                "worst"
            ] = None
    lowest = min(result.accuracy for result in results)
    if len(results) > 1 and lowest > max(results[0].accuracy - _CHANCE, _CHANCE):
        warnings[
            f"the accuracy does not fall from eps {epsilons[0]:g} to {epsilons[-1]:g}; gradients may be masked; use "
            "the attack worst, or a larger eps"
        ] = None
    carried = results[:1]
    for result in results[1:]:
        carried.append(_carried_over(carried[-1], result))
    return AccuracyCurve(tuple(epsilons), tuple(carried), tuple(warnings))


def _carried_over(smaller: AttackResult, larger: AttackResult) -> AttackResult:
    """The larger radius with the successes of the smaller one where it has none of its own."""
    rows = smaller.broken & ~larger.broken
    return replace(
        larger,
        inputs=torch.where(column(rows, larger.inputs), smaller.inputs, larger.inputs),
        broken=smaller.broken | larger.broken,
        loss=torch.where(rows, smaller.loss, larger.loss),
        distance=torch.where(rows, smaller.distance, larger.distance),
    )
