"""regard attack: the accuracy of a trained classifier of images, or predictor of texts, under an attack."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from regard.cli import run_options
from regard.cli.output import note, warn
from regard.cli.parsing.output_paths import check_output
from regard.cli.run_options import parse_with_run
from regard.common.options.checks import CheckedOptions
from regard.common.options.fields import flag, left_open, option, positional, random_seed
from regard.experiments.attackable_tasks import attackable_tasks, choose_attack

ImageAttackName = Literal["fgsm", "pgd", "mi-fgsm", "apgd-ce", "apgd-dlr", "square", "worst"]
AttackName = Literal[ImageAttackName, "hotflip", "triggers", "characters"]
_FIGURES = (".png", ".svg", ".pdf")
# ways to break an input for an attack that broke none
_WAYS_OUT = {"image": "raise --eps", "text": "allow more changes, or a larger --k"}


@dataclass(frozen=True)
class AttackOptions(CheckedOptions):
    """Attack a trained model on held-out data: the accuracy of a classifier of images against the radius of the attack,
    or of a predictor of texts before and after it.

    Every pixel, from 0 to 1, may change by up to eps; of texts, words or letters are replaced. Texts behind RUN are
    attacked instead of held-out ones: away from the prediction of the model.
    `regard attack RUN --help` lists only the options of that run.
    """

    run: Path = positional()
    """The folder of a run of classify-image, glimpse, classify-text, match, tag or translate."""
    texts: tuple[str, ...] = positional(())
    """Texts to attack, for a run that reads texts."""
    attack: AttackName | None = left_open("pgd for images, hotflip for texts")
    """The attack; worst takes the strongest per image, as AutoAttack does, and many times as long."""
    count: int | None = left_open("500 images, 100 texts", minimum=1)
    """Attack this many inputs, evenly spaced in the split."""
    seed: int = random_seed(0)
    """Determines random starts, squares and misspellings, and the draws of a model that samples its attention."""
    picture: Path | None = option(None, metavar="FILE")
    """Draw inputs that the attack broke: images with the change of attention, texts with old and new words tinted;
    .png, .svg or .pdf."""
    json: bool = flag()
    """Print one JSON object instead."""
    task: dict[str, Any] = field(default_factory=dict)
    load: dict[str, Any] = field(default_factory=dict)


def run(args: Sequence[str]) -> int:
    options, config = parse_with_run(AttackOptions, "attack", args, attackable_tasks())
    name = choose_attack(options.run, config, options.attack, options.texts)
    task_options: Any = config.Attack(**options.task)
    typed = {"count": options.count, **options.task}
    if options.texts and (choice := next((key for key in ("count", "split", "test") if typed.get(key)), None)):
        raise ValueError(
            f"--{choice} chooses held-out texts, and {options.texts[0]!r:.40} is typed to be attacked instead; leave "
            "one of them out"
        )
    curve = getattr(task_options, "curve", None)
    for flag_name, path in (("--curve", curve), ("--picture", options.picture)):
        check_output(flag_name, path, options.run, _FIGURES)
    loaded = run_options.load(options.run, options.load)
    from regard.experiments.attacked_images import AttackedImages
    from regard.experiments.robust_accuracy import attack_run

    attacked = attack_run(
        loaded, name, task_options, texts=options.texts, count=options.count, seed=options.seed, report=note
    )
    if isinstance(attacked, AttackedImages) and curve is not None:
        attacked.draw_curve(curve)
        note(f"the accuracy against eps is drawn in {curve}")
    if options.picture is not None:
        if attacked.draw_examples(options.picture):
            note(f"attacked {attacked.unit}s are drawn in {options.picture}")
        else:
            way_out = _WAYS_OUT[attacked.unit]
            note(f"{name} broke no {attacked.unit}, so {options.picture} is not drawn; {way_out}")
    if options.json:
        print(json.dumps({"run": str(options.run), **attacked.to_json()}, indent=2, ensure_ascii=False))
    else:
        print(attacked.explain())
    warn(attacked.warnings)
    return 0
