"""regard attack: the accuracy of a trained classifier of images, or predictor of texts, under an attack."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from regard.cli import run_options
from regard.cli.output import check_writable
from regard.cli.parsing.output_paths import not_an_input
from regard.cli.run_options import parse_with_run
from regard.common.options.checks import check_positive, check_seed
from regard.common.options.fields import flag, left_open, option, positional
from regard.tasks.base import NoOptions, TaskConfig
from regard.tasks.registry import TASKS

ImageAttackName = Literal["fgsm", "pgd", "mi-fgsm", "apgd-ce", "apgd-dlr", "square", "worst"]
AttackName = Literal[ImageAttackName, "hotflip", "triggers", "characters"]
_FIGURES = (".png", ".svg", ".pdf")


@dataclass(frozen=True)
class AttackOptions:
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
    count: int | None = left_open("500 images, 100 texts")
    """Attack this many inputs, evenly spaced in the split."""
    seed: int = 0
    """Determines random starts, squares and misspellings, and the draws of a model that samples its attention."""
    picture: Path | None = option(None, metavar="FILE")
    """Draw inputs that the attack broke: images with the change of attention, texts with old and new words tinted;
    .png, .svg or .pdf."""
    json: bool = flag()
    """Print one JSON object instead."""
    task: dict[str, Any] = field(default_factory=dict)
    load: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_positive(self, "count")
        check_seed(self)


def attackable_tasks(kind: str | None = None) -> dict[str, type[TaskConfig]]:
    """The tasks whose runs can be attacked; of inputs of one kind, if it is given."""
    return {
        name: config
        for name, config in TASKS.items()
        if config.Attack is not NoOptions and kind in (None, config.input_kind)
    }


def run(args: Sequence[str]) -> int:
    tasks = attackable_tasks()
    options, config = parse_with_run(AttackOptions, "regard attack", args, "Attack", tasks)
    if config.name not in tasks:
        raise ValueError(
            f"{options.run} is a run of {config.name}, which regard attack does not change; name a run of "
            f"{', '.join(tasks)}"
        )
    kind: Any = config.Attack
    name = options.attack or kind.attacks[0]
    if name not in kind.attacks:
        changes = next(each.Attack.changes for each in tasks.values() if name in each.Attack.attacks)  # type: ignore[attr-defined]
        raise ValueError(
            f"--attack {name} {changes}, and {options.run} is a run of {config.name}; use --attack "
            f"{' or '.join(kind.attacks)}"
        )
    of_task = kind(**options.task)
    if config.input_kind == "image" and options.texts:
        raise ValueError(
            f"{options.run} is a run of {config.name}, which reads no texts; leave {options.texts[0]!r} out"
        )
    typed = {"count": options.count, **options.task}
    if options.texts and (choice := next((key for key in ("count", "split", "test") if typed.get(key)), None)):
        raise ValueError(
            f"--{choice} chooses held-out texts, and {options.texts[0]!r:.40} is typed to be attacked instead; leave "
            "one of them out"
        )
    for given, path in (("--curve", getattr(of_task, "curve", None)), ("--picture", options.picture)):
        check_writable(given, path, _FIGURES)
        not_an_input(given, path, options.run, {})
    loaded = run_options.load(options.run, options.load)
    if config.input_kind == "image":
        from regard.experiments.attacked_images import attack_image_run

        attack_image_run(options, of_task, name, loaded)
    else:
        from regard.experiments.attacked_texts import attack_text_run

        attack_text_run(options, of_task, name, loaded)
    return 0
