"""Attacks on images beside torchattacks and a lean loop; torchattacks and foolbox are in tests/peers.txt."""

import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import regard
from benchmarks.experiments.runner import TrainedRun
from benchmarks.timing import Effort, measure
from regard.attacks import ATTACKS, PGD, UniformStart, Worst
from regard.tasks.shared.image_data import ImageStats, bounded_examples, normalized, read_split

# images of the timed PGD, of worst and of AutoAttack; the factor of saturated logits
FEW, FACTOR = 128, 300.0
# test images of MNIST under the worst attack
ATTACKED = 1000
NAMES = ("fgsm", "pgd", "mi-fgsm", "apgd-ce", "apgd-dlr")
EFFORT = Effort(repeat=40, budget=60)


class Pixels(nn.Module):
    """Pixels from 0 to 1 to logits, times a factor: the network behind its normalisation, as torchattacks takes it."""

    def __init__(self, model: nn.Module, stats: ImageStats, factor: float = 1.0) -> None:
        super().__init__()
        self.model, self.stats, self.factor = model, stats, factor
        # torchattacks puts all modules back into the mode of the outermost one
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        return self.model(normalized(x, self.stats)) * self.factor


def examples(run: TrainedRun) -> tuple[nn.Module, Tensor, Tensor]:
    """The network, and the test images with their labels."""
    stats = run.predictor.stats
    images = read_split(run.config, "test", stats.classes)
    return Pixels(run.predictor.model, stats), *bounded_examples(images, stats.classes)


def digits(run: TrainedRun) -> dict[str, Any]:
    """The accuracy under each attack; of the plain network also times, AutoAttack and saturated logits."""
    net, x, y = examples(run)
    few, eps = (x[:FEW], y[:FEW]), 0.1
    begun = time.process_time()
    worst = regard.attack(net, *few, Worst(eps)).accuracy
    values: dict[str, Any] = {
        "clean": accuracy(net, x, y),
        "under": {name: regard.attack(net, x, y, ATTACKS[name](eps)).accuracy for name in NAMES},
        "long": regard.attack(net, x, y, PGD(eps, 40, start=UniformStart())).accuracy,
        "worst": worst,
        "worst seconds": time.process_time() - begun,
        "images": len(x),
    }
    if run.variant == "plain":
        saturated = Pixels(run.predictor.model, run.predictor.stats, FACTOR)
        theirs, seconds = by_autoattack(net, *few, eps)
        masked = regard.attack(saturated, x, y, PGD(eps, 10))
        values |= {"autoattack": theirs, "autoattack seconds": seconds, "lowest": min(worst, theirs)}
        values |= {"saturated": regard.attack(saturated, *few, Worst(eps)).accuracy, "saturated pgd": masked.accuracy}
        values |= {"warnings": len(masked.warnings), "time": timed(net, *few, eps)}
    return values


def mnist(run: TrainedRun) -> dict[str, float]:
    """The accuracy on all test images, and under the worst attack on the first ones."""
    net, x, y = examples(run)
    begun = time.process_time()
    result = regard.attack(net, x[:ATTACKED], y[:ATTACKED], Worst(run.config.eps))
    seconds, images = time.process_time() - begun, len(x[:ATTACKED])
    clean = sum(accuracy(net, a, b) * len(a) for a, b in zip(x.split(1000), y.split(1000), strict=True)) / len(x)
    return {"worst": result.accuracy, "worst seconds": seconds, "attacked": images, "clean": clean, "images": len(x)}


def accuracy(model: nn.Module, x: Tensor, y: Tensor) -> float:
    with torch.no_grad():
        return 100 * (model(x).argmax(1) == y).double().mean().item()


def by_autoattack(model: nn.Module, x: Tensor, y: Tensor, eps: float) -> tuple[float, float]:
    """The accuracy that torchattacks' AutoAttack leaves, and its CPU seconds."""
    import torchattacks

    begun = time.process_time()
    z = torchattacks.AutoAttack(model, eps=eps, version="standard", n_classes=10, seed=0)(x, y)
    return accuracy(model, z, y), time.process_time() - begun


def timed(model: nn.Module, x: Tensor, y: Tensor, eps: float) -> dict[str, float]:
    """The CPU time of PGD-10 by regard and by torchattacks, each divided by that of the lean loop."""
    import torchattacks

    theirs = torchattacks.PGD(model, eps=eps, alpha=eps / 4, steps=10, random_start=False)

    def verdict(z: Tensor) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            return z, (model(z).argmax(1) != y).float()

    def lean() -> tuple[Tensor, Tensor]:
        z = x
        for _ in range(10):
            z = z.detach().requires_grad_()
            (gradient,) = torch.autograd.grad(F.cross_entropy(model(z), y, reduction="sum"), z)
            z = (x + (z.detach() + eps / 4 * gradient.sign() - x).clamp(-eps, eps)).clamp(0, 1)
        return verdict(z)

    def by_regard() -> tuple[Tensor, Tensor]:
        result = regard.attack(model, x, y, PGD(eps, 10, eps / 4))
        return result.inputs, result.broken.float()

    calls: dict[str, Callable[[], object]] = {"lean": lean, "regard": by_regard}
    calls["torchattacks"] = lambda: verdict(theirs(x, y))
    times = measure(calls, EFFORT, 1, grad=True, agree=("regard",))
    ratio = times.ratio("regard", "lean")
    return {"regard": ratio.median, "high": ratio.high, "torchattacks": times.ratio("torchattacks", "lean").median}
