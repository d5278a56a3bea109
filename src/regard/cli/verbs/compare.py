"""regard compare: several attentions on the same data with the same budget."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, make_dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from regard.cli.main import choose, print_error
from regard.cli.output import note
from regard.cli.verbs.attack import ImageAttackName
from regard.cli.verbs.train import SUMMARIES, check_paths_exist, parse_task, training_config
from regard.common.options.checks import check_radius, dashed
from regard.common.options.fields import flag, left_open, option, resolve
from regard.experiments.attackable_tasks import attackable_tasks
from regard.tasks.base import TaskConfig
from regard.tasks.registry import TASKS

_POSITIONS = "positions"
_POSITIONS_HELP = "Positions of a Transformer by name, to be compared instead; one name holds for all."
TextAttackName = Literal["hotflip", "characters"]
TEXT_ATTACK_NAMES: tuple[str, ...] = get_args(TextAttackName)
ComparedAttackName = Literal[ImageAttackName, TextAttackName]
# tasks whose texts have one class, which an attack may change: their accuracy decides which weights are best
_TEXT_TASKS = [name for name, config in attackable_tasks("text").items() if next(iter(config.metrics)) == "accuracy"]
_ABOUT = """Example: regard compare translate --data reverse --attention additive,general,dot,entmax,none --minutes 5
Example: regard compare classify-image --gate none,se,eca,cbam,simam --epochs 20
Example: regard compare translate --model transformer --positions sinusoidal,half-wave,rotary,alibi --minutes 5
`regard compare TASK --help` lists the options."""


@dataclass(frozen=True, kw_only=True)
class CompareOptions:
    """Train the same model with several values of one option.

    Every training is an ordinary run, FOLDER/NAME, in a process of its own with the same budget. The same command
    continues a comparison: finished runs stay, new names are added. table.md, results.json and curve.png hold the
    results: the best validation score, the median rate, the number of parameters, the peak memory of the process, and
    the time.
    """

    out: Path | None = option(None, metavar="FOLDER")
    """The folder for the runs and the results; if left out, runs/compare-TASK."""
    seeds: int = 1
    """Train each this many times, with --seed and the numbers after it; the table then has means and 95 % intervals."""
    attack: ComparedAttackName | None = None
    """For classifiers of images, or of texts (hotflip, characters): add the accuracy on test data under this attack to
    the table."""
    attack_eps: float | None = left_open("0.1 with an --attack on images")
    """The largest change of a pixel by --attack."""
    properties: bool = flag()
    """Add measures of the attention on held-out inputs to the table: how far heads disagree, how many there are in
    effect; and the share of the weight on the true features, of strings of --data recall the character that is the
    answer, of the embedded digits the ink."""
    config: Path | None = option(None, metavar="FILE")
    """A TOML file with options, such as the config.toml of a run; typed options win. Paths in it are relative to the
    working directory."""
    task: dict[str, Any] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.attack is None and self.attack_eps is not None:
            raise ValueError(f"--attack-eps {self.attack_eps:g} belongs to --attack; give --attack worst as well")
        check_radius(self, "attack_eps")
        if self.attack in TEXT_ATTACK_NAMES and self.attack_eps is not None:
            raise ValueError(
                f"--attack-eps {self.attack_eps:g} is the change of a pixel, and --attack {self.attack} changes texts; "
                "leave it out"
            )
        if self.attack is not None and self.attack not in TEXT_ATTACK_NAMES:
            resolve(self, {"attack_eps": 0.1})


def options_of(config: type[TaskConfig]) -> type[CompareOptions]:
    """The options of a comparison with those that it can vary, one of which takes several values."""
    metadata = {"metavar": "VALUE,VALUE,...", "help": config.varies_help}
    varied: list[tuple[str, Any, Any]] = [(config.varies, str, field(metadata=metadata))]
    if _has_positions(config):
        varied = [
            (config.varies, str | None, field(default=None, metadata=metadata)),
            (_POSITIONS, str | None, field(default=None, metadata={**metadata, "help": _POSITIONS_HELP})),
        ]
    namespace = {"__doc__": CompareOptions.__doc__}
    return make_dataclass(
        "CompareOptions", varied, bases=(CompareOptions,), namespace=namespace, frozen=True, kw_only=True
    )


def _has_positions(config: type[TaskConfig]) -> bool:
    """Whether a model of the task has a choice of positions."""
    return any(item.name == _POSITIONS for model in config.models.values() for item in fields(model))


def varied_values(options: Any, base: TaskConfig) -> tuple[TaskConfig, dict[str, TaskConfig]]:
    """The task with the options of one value, and its variants by the values of the other."""
    names = [base.varies, _POSITIONS] if _has_positions(type(base)) else [base.varies]
    typed = {name: split_values(name, value) for name in names if (value := getattr(options, name)) is not None}
    flags = [dashed(name) for name in names]
    if not typed:
        raise ValueError(f"nothing to compare; name the values of {' or '.join(flags)}, separated by commas")
    if len(typed) > 1 and all(len(values) > 1 for values in typed.values()):
        raise ValueError(f"{' and '.join(flags)} both name several values; vary one, and give the other one value")
    varied = max(typed, key=lambda name: len(typed[name]))
    for name, values in typed.items():
        if name != varied:
            base = _variants(base, name, values)[values[0]]
    return base, _variants(base, varied, typed[varied])


def _variants(base: TaskConfig, option: str, values: Sequence[str]) -> dict[str, TaskConfig]:
    if option == base.varies:
        return dict(base.variants(values))
    owners = [name for name, model in base.models.items() if option in {item.name for item in fields(model)}]
    if base.model_name not in owners:
        raise ValueError(
            f"--{option} belongs to --model {' or '.join(owners)}, not to {base.model_name}; give --model {owners[0]}"
        )
    return {value: base.with_options(**{option: value}) for value in values}


def run(args: Sequence[str]) -> int:
    name = choose("regard compare", "TASK", SUMMARIES, args, _ABOUT)
    if name is None:
        return 0
    config = TASKS[name]
    options = parse_task(options_of(config), f"regard compare {name}", config, args[1:])
    out = Path("runs") / f"compare-{name}" if options.out is None else options.out
    _check_attack(options.attack, name)
    base = check_paths_exist(config(**options.task).with_absolute_paths())
    training, end = training_config(options.training, base)
    base, variants = varied_values(options, base)
    import torch

    from regard.experiments.comparison import TrainingFailed, compare, holds_comparison, with_seeds

    torch.set_num_threads(1)  # attacks and properties are measured as on any machine; a training is another process
    variants = with_seeds(variants, options.seeds)
    holds_comparison(out, base, training)  # raises for the folder of another one before anything is printed
    if end:
        note(f"each training {end}")
    try:
        comparison = compare(
            variants,
            training,
            out,
            base=base,
            attack=options.attack,
            eps=options.attack_eps,
            properties=options.properties,
            report=note,
        )
    except TrainingFailed as error:
        if error.exit_code == 130:
            command = shlex.join(["regard", "compare", *args])
            print_error(f"interrupted while {error.name} was trained; resume with the same command: {command}")
        elif error.exit_code != 2:  # a training that refuses its input says why itself
            print_error(str(error))
        return error.exit_code if error.exit_code in (2, 130) else 1
    print(f"{comparison.table()}\n{', '.join(map(str, comparison.files))}")
    return 0


def _check_attack(attack: str | None, task: str) -> None:
    """Raises for an attack on other inputs than those of the task."""
    if attack in TEXT_ATTACK_NAMES:
        if task not in _TEXT_TASKS:
            raise ValueError(
                f"--attack {attack} changes the words of texts that have one class, and {task} has none; leave it out, "
                f"or compare {' or '.join(_TEXT_TASKS)}"
            )
    elif attack is not None and task not in attackable_tasks("image"):
        attacks = f"use --attack {' or '.join(TEXT_ATTACK_NAMES)}" if task in _TEXT_TASKS else "leave it out"
        raise ValueError(
            f"--attack {attack} changes the pixels of images, and {task} reads none; {attacks}, or compare "
            f"{' or '.join(attackable_tasks('image'))}"
        )


def split_values(option: str, values: str) -> list[str]:
    """The values between commas; raises for a value that is empty or stands there twice."""
    names = [name.strip() for name in values.split(",")]
    if "" in names:
        raise ValueError(f"a value of --{option} is empty, got {values!r}; name values with one comma between them")
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"--{option} names {twice[0]!r} twice; name each once")
    return names
