"""regard attack: the accuracy of a trained classifier of images under an attack."""

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from regard.cli import run_options
from regard.cli.output import check_writable, note
from regard.cli.parsing.output_paths import not_an_input
from regard.cli.run_options import parse_with_run
from regard.common.option_checks import check_positive, check_radius, check_seed
from regard.common.option_fields import flag, option, positional
from regard.common.wording import plural
from regard.tasks.base import NoOptions, TaskConfig
from regard.tasks.registry import TASKS

if TYPE_CHECKING:
    from regard.attacks import AccuracyCurve
    from regard.tasks.loading import LoadedRun

AttackName = Literal["fgsm", "pgd", "mi-fgsm", "apgd-ce", "apgd-dlr", "square", "worst"]
_FIGURES = (".png", ".svg", ".pdf")


@dataclass(frozen=True)
class AttackOptions:
    """Attack a classifier of images: its accuracy on held-out images against the radius of the attack.

    Every pixel, from 0 to 1, may change by up to eps. `regard attack RUN --help` lists only the options of that run.
    """

    run: Path = positional()
    """The folder of a run of classify-image or glimpse."""
    attack: AttackName = "pgd"
    """The attack; worst takes the strongest per image, as AutoAttack does, and many times as long."""
    eps: float = 0.1
    """The largest change of a pixel; the curve goes from 0 to it."""
    points: int = 5
    """Radii of the curve, 0 and eps included."""
    count: int = 500
    """Attack this many images, evenly spaced in the split."""
    seed: int = 0
    """Determines random starts, squares, and the draws of a model that samples its attention."""
    curve: Path | None = option(None, metavar="FILE")
    """Draw the accuracy against eps; .png, .svg or .pdf."""
    picture: Path | None = option(None, metavar="FILE")
    """Draw images that the attack broke: clean, change, attacked, and the change of attention; .png, .svg or .pdf."""
    json: bool = flag()
    """Print one JSON object instead."""
    task: dict[str, Any] = field(default_factory=dict)
    load: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_positive(self, "count")
        check_seed(self)
        if self.points < 2:
            raise ValueError(f"--points must be 2 or more, 0 and --eps, got {self.points}; try --points 5")
        check_radius(self, "eps")


def attackable_tasks() -> dict[str, type[TaskConfig]]:
    """The tasks whose runs can be attacked."""
    return {name: config for name, config in TASKS.items() if config.Attack is not NoOptions}


def run(args: Sequence[str]) -> int:
    tasks = attackable_tasks()
    options, config = parse_with_run(AttackOptions, "regard attack", args, "Attack", tasks)
    if config.name not in tasks:
        raise ValueError(
            f"{options.run} is a run of {config.name}, and regard attack changes the pixels of images; name a run of "
            f"{' or '.join(tasks)}"
        )
    for name, path in (("--curve", options.curve), ("--picture", options.picture)):
        check_writable(name, path, _FIGURES)
        not_an_input(name, path, options.run, {})
    loaded = run_options.load(options.run, options.load)
    from regard.attacks import ATTACKS, accuracy_curve
    from regard.cli.attack_images import held_out_images
    from regard.cli.attack_pictures import draw_curve, draw_examples

    predictor, x, labels, split = held_out_images(loaded, config.Attack(**options.task), options.count)
    epsilons = [options.eps * n / (options.points - 1) for n in range(options.points)]
    note(f"{options.attack} on {plural(len(x), 'image')}, {options.points} radii")
    start = time.perf_counter()
    curve = accuracy_curve(predictor, x, labels, ATTACKS[options.attack](options.eps), epsilons, options.seed)
    seconds = time.perf_counter() - start
    if options.curve is not None:
        draw_curve(curve, options.attack, options.curve)
        note(f"the accuracy against eps is drawn in {options.curve}")
    if options.picture is not None:
        draw_examples(predictor, x, curve, options.attack, options.picture)
        note(f"attacked images are drawn in {options.picture}")
    if options.json:
        print(json.dumps(_as_json(options, loaded, curve, split, seconds), indent=2))
    else:
        _print(options, loaded, curve, split, seconds)
    for sentence in curve.warnings:
        print(f"regard: warning: {sentence}", file=sys.stderr)
    return 0


def _as_json(
    options: AttackOptions, loaded: "LoadedRun", curve: "AccuracyCurve", split: str, seconds: float
) -> dict[str, Any]:
    return {
        "run": str(options.run),
        "weights": loaded.weights,
        "step": loaded.step,
        "split": split,
        "images": len(curve.results[0].broken),
        "attack": options.attack,
        "seed": options.seed,
        "curve": [
            {"eps": eps, "accuracy": result.accuracy, "queries": result.queries.cpu().double().mean().item()}
            for eps, result in zip(curve.epsilons, curve.results, strict=True)
        ],
        "warnings": list(curve.warnings),
        "seconds": seconds,
    }


def _print(options: AttackOptions, loaded: "LoadedRun", curve: "AccuracyCurve", split: str, seconds: float) -> None:
    print("eps       accuracy")
    for eps, accuracy in zip(curve.epsilons, curve.accuracies, strict=True):
        print(f"{eps:<10.4g}{accuracy:<10.2f}{'█' * round(accuracy / 4)}".rstrip())
    count = plural(len(curve.results[0].broken), "image")
    step = f", of step {loaded.step:,}" if loaded.step else ""
    print(f"{count} of {split}, under {options.attack}, in {seconds:.1f} s; {loaded.weights} weights{step}")
