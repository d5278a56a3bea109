"""`regard attack` on a run that reads images, and the accuracy that an attack leaves of its test images."""

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from regard.attacks import ATTACKS, AccuracyCurve, accuracy_curve
from regard.attacks.attack import attack
from regard.cli.output import note, warn
from regard.common.wording import plural
from regard.experiments.attack_pictures import draw_curve, draw_examples
from regard.inference.bounded_classifier import BoundedClassifier
from regard.tasks.loading import LoadedRun, load_run
from regard.tasks.shared.image_options import AttackImages

if TYPE_CHECKING:
    from regard.cli.verbs.attack import AttackOptions

# images per run
_COUNT = 500


def attack_image_run(options: "AttackOptions", of_task: AttackImages, name: str, loaded: LoadedRun) -> None:
    """Prints the accuracy on held-out images against the radius of an attack, and draws it."""
    attack = of_task.build(name)
    predictor, x, labels, split = held_out_images(loaded, of_task, options.count or _COUNT)
    epsilons = [of_task.eps * n / (of_task.points - 1) for n in range(of_task.points)]
    note(f"{name} on {plural(len(x), 'image')}, {of_task.points} radii")
    start = time.perf_counter()
    curve = accuracy_curve(predictor, x, labels, attack, epsilons, options.seed)
    seconds = time.perf_counter() - start
    if of_task.curve is not None:
        draw_curve(curve, name, of_task.curve)
        note(f"the accuracy against eps is drawn in {of_task.curve}")
    if options.picture is not None:
        if draw_examples(predictor, x, curve, name, options.picture):
            note(f"attacked images are drawn in {options.picture}")
        else:
            note(f"{name} broke no image, so {options.picture} is not drawn; raise --eps")
    if options.json:
        print(json.dumps(_as_json(options, name, loaded, curve, split, seconds), indent=2))
    else:
        _print(name, loaded, curve, split, seconds)
    warn(curve.warnings)


def _as_json(
    options: "AttackOptions", name: str, loaded: LoadedRun, curve: AccuracyCurve, split: str, seconds: float
) -> dict[str, Any]:
    return {
        "run": str(options.run),
        "weights": loaded.weights,
        "step": loaded.step,
        "split": split,
        "images": len(curve.results[0].broken),
        "attack": name,
        "seed": options.seed,
        "curve": [
            {"eps": eps, "accuracy": result.accuracy, "queries": result.queries.cpu().double().mean().item()}
            for eps, result in zip(curve.epsilons, curve.results, strict=True)
        ],
        "warnings": list(curve.warnings),
        "seconds": seconds,
    }


def _print(name: str, loaded: LoadedRun, curve: AccuracyCurve, split: str, seconds: float) -> None:
    print("eps       accuracy")
    for eps, accuracy in zip(curve.epsilons, curve.accuracies, strict=True):
        print(f"{eps:<10.4g}{accuracy:<10.2f}{'█' * round(accuracy / 4)}".rstrip())
    print(about_line(plural(len(curve.results[0].broken), "image"), split, name, seconds, loaded))


def about_line(count: str, split: str, name: str, seconds: float, loaded: LoadedRun) -> str:
    """The last line of a table: the inputs, the attack and the weights."""
    step = f", of step {loaded.step:,}" if loaded.step else ""
    return f"{count} of {split}, under {name}, in {seconds:.1f} s; {loaded.weights} weights{step}"


def held_out_images(
    loaded: LoadedRun, options: Any, count: int
) -> tuple[BoundedClassifier, Tensor, Tensor, str]:  # "b c h w", "b"
    """The predictor, at most `count` images evenly spaced in a split, their classes, and the name of the split.

    `options` are those of the task's `Attack`.
    """
    assert isinstance(loaded.predictor, BoundedClassifier)
    x, labels, split = loaded.attack_examples(options)
    rows = evenly_spaced(len(x), count)
    return loaded.predictor, x[rows], labels[rows], split


def evenly_spaced(size: int, count: int) -> list[int]:
    """At most `count` of the numbers below `size`."""
    count = min(count, size)
    return [n * size // count for n in range(count)]


def robust_accuracy(run: Path, name: str, eps: float) -> float:
    """The accuracy of the best weights of a run on its test images under an attack, in percent."""
    loaded = load_run(run)
    predictor, x, labels, _ = held_out_images(loaded, loaded.config.Attack(), _COUNT)
    return attack(predictor, x, labels, ATTACKS[name](eps)).accuracy
