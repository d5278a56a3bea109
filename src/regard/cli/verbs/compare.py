"""regard compare: several attentions on the same data with the same budget."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field, make_dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from regard.cli.main import choose, print_error
from regard.cli.output import note
from regard.cli.parsing.option import Option, section_options
from regard.cli.parsing.parser import asks_for_help, unchecked_values
from regard.cli.verbs.attack import ImageAttackName
from regard.cli.verbs.train import SUMMARIES, check_paths_exist, parse_task, training_config
from regard.common.options.checks import check_radius, dashed
from regard.common.options.fields import flag, left_open, option, resolve
from regard.experiments.attackable_tasks import attackable_tasks
from regard.tasks.base import TaskConfig
from regard.tasks.registry import TASKS
from regard.training.config import TrainingConfig

_MODEL = "model"
TextAttackName = Literal["hotflip", "characters"]
TEXT_ATTACK_NAMES: tuple[str, ...] = get_args(TextAttackName)
ComparedAttackName = Literal[ImageAttackName, TextAttackName]
# tasks whose texts have one class, which an attack may change: their accuracy decides which weights are best
_TEXT_TASKS = [name for name, config in attackable_tasks("text").items() if next(iter(config.metrics)) == "accuracy"]
_ABOUT = """Example: regard compare translate --data reverse --attention additive,general,dot,entmax,none --minutes 5
Example: regard compare classify-image --gate none,se,eca,cbam,simam --epochs 20
Example: regard compare translate --model transformer --positions sinusoidal,half-wave,rotary,alibi --minutes 5
Example: regard compare translate --decoder per-position,initial,fixed,bahdanau,luong --minutes 5
`regard compare TASK --help` lists the options."""


@dataclass(frozen=True, kw_only=True)
class CompareOptions:
    """Train the same model with several values of one option.

    Several values stand between commas: --decoder fixed,luong or --heads 1,2,4. Any option of the task or of its model
    whose values are names or numbers can be varied, one at a time; --data and --seed hold for all.
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
    json: bool = flag()
    """Print results.json instead of the table."""
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
    """The options of a comparison with the one that the task compares most often, which takes several values."""
    metadata = {"metavar": "VALUE,VALUE,...", "help": config.varies_help}
    return make_dataclass(
        "CompareOptions",
        [(config.varies, str | None, field(default=None, metadata=metadata))],
        bases=(CompareOptions,),
        namespace={"__doc__": CompareOptions.__doc__},
        frozen=True,
        kw_only=True,
    )


def split_variants(config: type[TaskConfig], args: Sequence[str]) -> tuple[Any, str, TaskConfig, dict[str, TaskConfig]]:
    """The options of the command, the option with several values, the task without it, and its variants by value."""
    usual, (name, values) = config.varies, _several_values(config, args)
    words = args if name == usual else _with_value(args, name, values[0] if name == _MODEL else None)
    options, base = _parsed(config, words)
    typed = getattr(options, usual)
    if name == usual:
        return options, name, base, dict(base.variants(split_values(usual, typed)))
    variants = {value: _parsed(config, _with_value(args, name, value))[1] for value in values}
    for value, variant in variants.items():
        first = next(other for other in values if variants[other] == variant)
        if first != value:
            raise ValueError(f"{dashed(name)} names {first} and {value}, which are the same; name each once")
    if typed is not None:
        base, variants = _fixed(base, typed), {value: _fixed(variant, typed) for value, variant in variants.items()}
    return options, name, base, variants


def _several_values(config: type[TaskConfig], args: Sequence[str]) -> tuple[str, list[str]]:
    """The option that is typed with several values, and these values."""
    sections = {"task": config, "training": TrainingConfig}
    typed = unchecked_values(options_of(config), args, sections=sections)
    table = [option for option in section_options({"task": config}) if _takes_several(option)]
    names = {option.flag: option.name for option in table} | {dashed(config.varies): config.varies}
    varied = {names[flag]: text for flag, text in typed.items() if flag in names and "," in text}
    if len(varied) > 1:
        flags = " and ".join(map(dashed, varied))
        raise ValueError(f"{flags} both name several values; vary one, and give the other one value")
    if not varied and dashed(config.varies) not in typed:
        for option in section_options(sections):
            if _is_name_or_number(option) and "," in (text := typed.get(option.flag, "")):
                raise ValueError(
                    f"{option.flag} {text} names several values, and all trainings of a comparison have the same; "
                    f"give it one, and vary {dashed(config.varies)}, or another option of the task or its model"
                )
        _parsed(config, args)  # words that are wrong in themselves have a sentence of their own
        raise ValueError(
            f"nothing to compare; name the values of {dashed(config.varies)}, or of another option of the task or its "
            "model, separated by commas"
        )
    name, text = next(iter(varied.items()), (config.varies, typed.get(dashed(config.varies), "")))
    return name, split_values(name, text)


def _takes_several(option: Option) -> bool:
    """Whether an option has one value, a name or a number; all variants have the data and the seeds in common."""
    return _is_name_or_number(option) and option.name not in ("data", "seed")


def _is_name_or_number(option: Option) -> bool:
    return option.count == 1 and (bool(option.choices) or option.kind in (int, float, bool))


def _with_value(args: Sequence[str], name: str, value: str | None) -> list[str]:
    """The words with another value of an option, or without it if the value is None."""
    words, rest = [], iter(args)
    for word in rest:
        flag, equals, _ = word.partition("=")
        if flag.replace("_", "-") != dashed(name):
            words.append(word)
            continue
        if not equals:
            next(rest)
        if value is not None:
            words.append(f"{dashed(name)}={value}")
    return words


def _parsed(config: type[TaskConfig], args: Sequence[str]) -> tuple[Any, TaskConfig]:
    """The options of the command, and the task."""
    options = parse_task(options_of(config), f"regard compare {config.name}", config, args)
    return options, check_paths_exist(config(**options.task).with_absolute_paths())


def _fixed(config: TaskConfig, value: str) -> TaskConfig:
    """The task with one value of the option that it compares most often."""
    return config.variants([value])[value]


def run(args: Sequence[str]) -> int:
    name = choose("regard compare", "TASK", SUMMARIES, args, _ABOUT)
    if name is None:
        return 0
    config = TASKS[name]
    if asks_for_help(args):
        parse_task(options_of(config), f"regard compare {name}", config, args[1:])
    options, varied, base, variants = split_variants(config, args[1:])
    out = Path("runs") / f"compare-{name}" if options.out is None else options.out
    _check_attack(options.attack, name)
    training, end = training_config(options.training, base)
    import torch

    from regard.experiments.comparison import RESULTS, TrainingFailed, compare, holds_comparison, with_seeds

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
            varied=varied.replace("_", " "),
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
    if options.json:
        print((out / RESULTS).read_text(encoding="utf-8"), end="")
        return 0
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
