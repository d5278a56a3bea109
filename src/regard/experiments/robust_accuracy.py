"""attack_run and robust_accuracy: the accuracy of a run under an attack on held-out inputs, or on given texts."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from regard.experiments.attackable_tasks import choose_attack
from regard.experiments.attacked_images import AttackedImages, attack_images
from regard.experiments.attacked_run import Report, silent
from regard.experiments.attacked_texts import AttackedTexts, attack_texts
from regard.tasks.loading import LoadedRun, load_run


def attack_run(
    run: Path | str | LoadedRun,
    attack: str | None = None,
    options: Any = None,
    *,
    texts: Sequence[str] = (),
    count: int | None = None,
    seed: int = 0,
    report: Report = silent,
) -> AttackedImages | AttackedTexts:
    """Attacks a run by name, `regard.attacks.ATTACKS` or `TEXT_ATTACKS`; None stands for pgd or hotflip.

    The inputs are `count` held-out ones, evenly spaced in the split (500 images or 100 texts), or the given `texts`.
    `options` are those of the task's `Attack`, such as `regard.tasks.shared.image_options.AttackImages(eps=0.2)`.
    `report` receives a line about the progress.
    """
    loaded = run if isinstance(run, LoadedRun) else load_run(Path(run))
    name = choose_attack("the run" if run is loaded else str(run), loaded.config, attack, texts)
    choices = loaded.config.Attack() if options is None else options
    if loaded.config.input_kind == "image":
        return attack_images(loaded, name, choices, count, seed, report)
    return attack_texts(loaded, name, choices, texts, count, seed, report)


def robust_accuracy(run: Path, attack: str, eps: float | None = None, report: Report = silent) -> float:
    """The accuracy of the best weights of a run on its test data under an attack, in percent.

    `eps` is the radius of an attack on images, None that of the task; texts have none.
    """
    loaded = load_run(run)
    name, options = choose_attack(run, loaded.config, attack), cast(Any, loaded.config.Attack())
    if loaded.config.input_kind == "image":
        options = options if eps is None else replace(options, eps=eps)
        return attack_images(loaded, name, options, None, 0, silent, [options.eps]).accuracy
    if eps is not None:
        raise ValueError(f"eps={eps:g} is the change of a pixel, and {run} reads texts; leave it out")
    return attack_texts(loaded, name, options, (), None, 0, report).accuracy
