"""A hyperparameter is declared once: the option of a model has the default of the parameter to which it goes."""

import ast
import inspect
import math
from collections.abc import Iterator
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, ClassVar

import pytest

import regard
from regard.attacks import TEXT_ATTACKS
from regard.common.options.checks import CheckedOptions
from regard.common.options.construct import construct
from regard.common.options.fields import at_least, bounded, inner_share, left_open, positive, share
from regard.tasks.base import ModelOptions, NoOptions, TaskConfig
from regard.tasks.registry import TASKS
from regard.tasks.shared.text_options import AttackTexts
from regard.training.config import TrainingConfig

# classes that several tasks build with sizes of their own, and the task, or the paper, whose defaults they have
SHARED = {"BERT": "Devlin et al. 2019", "GPT2": "language-model"}


def classes(options: type[ModelOptions]) -> list[Any]:
    return [resolve_name(name) for name in (options.model_class, *options.part_classes)]


def default(config: type[TaskConfig], options: type[ModelOptions], name: str) -> Any:
    """The value of an option that is not typed; where it depends on the data, that for files of one's own."""
    (item,) = (item for item in fields(options) if item.name == name)
    by_data = {**config.defaults.get("files", {}), **options.task_defaults}
    return by_data.get(name) if item.default is None else item.default


def read_elsewhere(options: type[ModelOptions]) -> set[str]:
    return {name for each in options.__mro__ for name in vars(each).get("read_by_task", ())}


def offences(config: type[TaskConfig], options: type[ModelOptions], attributes: set[str]) -> Iterator[str]:
    """Options that differ from their parameter, or that no class and no task reads.

    The task fills the open options that it names in `read_by_task`.
    """
    elsewhere = read_elsewhere(options)
    for item in fields(options):
        at = f"{config.name}: {options.__name__}.{item.name}"
        parameters = {each: inspect.signature(each).parameters.get(item.name) for each in classes(options)}
        if not any(parameters.values()) and not (item.name in elsewhere and item.name in attributes):
            yield f"{at} goes nowhere: no class has such a parameter, and no task reads it"
        is_filled_by_task = item.default is None and item.name in elsewhere
        value = default(config, options, item.name)
        for each, parameter in parameters.items():
            compared = parameter is not None and SHARED.get(each.__name__, config.name) == config.name
            if not compared or is_filled_by_task or item.default is MISSING:
                continue
            if parameter.default not in (value, parameter.empty):
                yield f"{at} is {value!r}, and {parameter.default!r} in {each.__name__}"


def attributes_read() -> set[str]:
    """The names of attributes that the tasks read anywhere."""
    tasks = Path(regard.__file__).parent / "tasks"
    trees = (ast.parse(path.read_text()) for path in tasks.rglob("*.py"))
    return {node.attr for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Attribute)}


def test_an_option_has_the_default_of_its_parameter() -> None:
    attributes = attributes_read()
    models = [(config, options) for config in TASKS.values() for options in config.models.values()]
    lines = [line for config, options in models for line in offences(config, options, attributes)]
    assert not lines, "\n".join(lines)


class Model:
    def __init__(self, words: int, *, width: int = 8, layers: int = 2, heads: int) -> None:
        self.arguments = (words, width, layers, heads)


@dataclass(frozen=True)
class Options(ModelOptions):
    model_class: ClassVar[str] = f"{__name__}:Model"
    read_by_task: ClassVar[tuple[str, ...]] = ("freeze", "unread_anywhere")

    width: int = at_least(1, 9)
    layers: int = at_least(1)
    heads: int = at_least(1, 2, divides="width")
    ignored: int = 0
    freeze: bool = False
    unread_anywhere: bool = False


def test_offences_are_found() -> None:
    class Config(TaskConfig):
        name = "config"
        defaults: ClassVar[dict[str, dict[str, Any]]] = {"files": {"layers": 2}}

    lines = list(offences(Config, Options, {"freeze"}))
    assert lines == [
        "config: Options.width is 9, and 8 in Model",
        "config: Options.ignored goes nowhere: no class has such a parameter, and no task reads it",
        "config: Options.unread_anywhere goes nowhere: no class has such a parameter, and no task reads it",
    ]


def test_fields_go_to_the_parameters_of_their_names() -> None:
    options = Options(width=6, layers=3)
    assert options.build(11).arguments == (11, 6, 3, 2)
    assert construct(Model, options, words=11, heads=5).arguments == (11, 6, 3, 5)
    with pytest.raises(TypeError, match="unexpected keyword argument 'depth'"):
        options.build(11, depth=3)


@dataclass(frozen=True)
class Numbers(CheckedOptions):
    count: int = at_least(1, 3)
    open: int = at_least(1)
    described: int | None = left_open(5, minimum=2)
    port: int = at_least(0, 80, maximum=100)
    rate: float = positive(0.5)
    dropout: float = share()
    valid: float = inner_share(0.1)
    decay: float = bounded(0.9, above=0, maximum=1)
    filters: tuple[int, int] = at_least(1, (4, 5))
    folder: Path | None = None
    files: tuple[Path, ...] = ()


WRONG = {
    "count": (0, "count must be 1 or more, got 0; try count=3"),
    "open": (-1, "open must be 1 or more, got -1; leave it out for a value that suits"),
    "described": (1, "described must be 2 or more, got 1; try described=5"),
    "port": (101, "port must be from 0 to 100, got 101; try port=80"),
    "rate": (float("inf"), "rate must be positive and finite, got inf; try rate=0.5"),
    "dropout": (1.0, "dropout must be 0 or more and below 1, got 1.0; leave it out for a value that suits"),
    "valid": (0, "valid must be above 0 and below 1, got 0; try valid=0.1"),
    "decay": (float("nan"), "decay must be above 0 and at most 1 and finite, got nan; try decay=0.9"),
    "filters": ((1, 0), r"filters must be 1 or more, got \(1, 0\); try filters=\(4, 5\)"),
}


def test_bounds_are_checked() -> None:
    for name, (value, sentence) in WRONG.items():
        with pytest.raises(ValueError, match=f"^{sentence}$"):
            Numbers(**{name: value})
    with pytest.raises(TypeError, match="count must be a whole number, got '3'; write it in digits, such as count=1"):
        Numbers(count="3")
    with pytest.raises(
        ValueError, match="width must split evenly over heads, got width=10 and heads=4; try width=8, or another number"
    ):
        Options(width=10, heads=4)
    with pytest.raises(ValueError, match="got width=3 and heads=4; try width=4, or another number of heads"):
        Options(width=3, heads=4)


def test_texts_become_paths() -> None:
    numbers = Numbers(folder="a", files="b")
    assert numbers.folder == Path("a")
    assert numbers.files == (Path("b"),)


def option_classes() -> set[type]:
    """The options of a training, of all tasks and of their models, and those of their verbs."""
    parts = [
        [each, *each.models.values(), each.Predict, each.Evaluate, each.Serve, each.Attack] for each in TASKS.values()
    ]
    return {TrainingConfig, *(kind for part in parts for kind in part)} - {NoOptions}


def required_fields(options: Any) -> dict[str, Any]:
    """A value for each field without a default, for the word that an attack needs, and for the end of a training."""
    if options is TrainingConfig:
        return {"steps": 1}
    names = [each.name for each in fields(options) if each.default is MISSING is each.default_factory]
    return dict.fromkeys([*names, *({"target_word"} & {each.name for each in fields(options)})], "x")


def test_an_open_option_becomes_the_number_that_its_help_states() -> None:
    checked, lines = 0, []
    for options in option_classes():
        resolved = options(**required_fields(options))
        for item in fields(options):
            stated, value = item.metadata.get("open"), getattr(resolved, item.name)
            if isinstance(stated, int | float) and value is not None:
                checked += 1
                if value != stated:
                    lines.append(f"{options.__name__}.{item.name} is {value}, and its help says {stated}")
    for name, attack in TEXT_ATTACKS.items():
        parameters = inspect.signature(attack).parameters
        for item in fields(AttackTexts):
            stated = item.metadata.get("open")
            if item.name in parameters and isinstance(stated, int):
                checked += 1
                if parameters[item.name].default != stated:
                    lines.append(f"{name} has {item.name}={parameters[item.name].default}, and its help says {stated}")
    assert not lines, "\n".join(lines)
    assert checked > 12


# the first number beyond each bound
BEYOND = {
    "minimum": lambda limit: limit - 1,
    "above": lambda limit: limit,
    "maximum": lambda limit: limit + 1,
    "below": lambda limit: limit,
}


def test_every_option_refuses_nan_and_a_number_beside_its_bounds() -> None:
    checked, lines = 0, []
    for options in option_classes():
        for item in fields(options):
            bounds = {key: limit for key, limit in item.metadata.items() if key in BEYOND and limit is not None}
            for value in [*(BEYOND[key](limit) for key, limit in bounds.items()), *([math.nan] if bounds else [])]:
                checked += 1
                typed = (value,) * len(item.default) if isinstance(item.default, tuple) else value
                try:
                    options(**required_fields(options) | {item.name: typed})
                except (ValueError, TypeError) as error:
                    # an option of another environment is refused whatever its number
                    sentences = (f"{item.name} must be ", f"{item.name}={value} belongs to ")
                    if not str(error).lstrip("-").replace("-", "_").startswith(sentences):
                        lines.append(f"{options.__name__}.{item.name}={value}: {error}")
                else:
                    lines.append(f"{options.__name__} takes {item.name}={value}")
    assert not lines, "\n".join(lines)
    assert checked > 100
