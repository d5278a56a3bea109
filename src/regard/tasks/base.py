"""TaskConfig, the options of a task, and Task, its work.  No torch here: a command line reads options.

A task is a folder: `options.py` has its TaskConfig and the options of its models, `task.py` its Task and its training
problem, `predictor.py` its Predictor. Outside of the folder it is one line in `registry.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields, replace
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, Self, TypeVar

from regard.common.dataclass_json import fields_from_json, parse_number, to_json
from regard.common.input_kind import InputKind
from regard.common.options.checks import CheckedOptions, check_fields
from regard.common.options.construct import construct
from regard.common.options.fields import resolve
from regard.common.suggestions import known, suggestion
from regard.data.spreadsheets.input_texts import InputColumn
from regard.data.spreadsheets.label_columns import TEXT_NAMES
from regard.inference.evaluation import EXAMPLES, Progress

if TYPE_CHECKING:
    from torch import nn

    from regard.inference.evaluation import Evaluation
    from regard.inference.predictor import Predictor
    from regard.training.protocol import TrainingProblem


@dataclass(frozen=True)
class Budget:
    """The end of a training that is given no end."""

    minutes: float | None = None
    steps: int | None = None


@dataclass(frozen=True)
class NoOptions:
    """No further options."""


@dataclass(frozen=True)
class ModelOptions(CheckedOptions, ABC):
    """The options of one model of a task, by which its class is called."""

    model_class: ClassVar[str]  # its module and its name, such as "regard.models.tagger:WindowTagger"
    part_classes: ClassVar[tuple[str, ...]] = ()  # classes of parts that `build` makes out of the options, likewise
    read_by_task: ClassVar[tuple[str, ...]] = ()  # options that the task reads, and no class has as a parameter
    # Where a model differs from the task's other models
    training: ClassVar[dict[str, Any]] = {}  # defaults of TrainingConfig that suit it
    task_defaults: ClassVar[dict[str, Any]] = {}  # values of open fields, the task's and its own, for any data set
    # options that matter in training alone, so that trained weights do not depend on them
    training_only: ClassVar[tuple[str, ...]] = ("dropout",)

    def resolved(self, defaults: Mapping[str, Any]) -> Self:
        """The same with every open field filled; `defaults` are those of the task's data set."""
        open_fields = [item.name for item in fields(self) if getattr(self, item.name) is None]
        return replace(self, **{name: defaults[name] for name in open_fields if name in defaults})

    def build(self, *args: Any, **from_data: Any) -> Any:
        """The model with initial weights; the arguments are those that its data decides, such as vocabulary sizes."""
        return construct(resolve_name(self.model_class), self, *args, **from_data)


class TaskConfig(ABC):
    """The options of a task: a frozen dataclass whose fields a command line types and a run records.

    Open fields are filled when it is made, so whoever reads it, and the file that records it, sees a value.
    """

    # Facts about the task
    name: ClassVar[str]  # as a command line types it
    task_class: ClassVar[str]  # the module and the name of its Task
    summary: ClassVar[str]  # a line of `regard train --help`
    unit: ClassVar[str]  # the plural of what rates count
    input_kind: ClassVar[InputKind]  # what `regard predict` is given
    embedded: ClassVar[str]  # the embedded data set that is taken where none is named
    budgets: ClassVar[dict[str, Budget]]  # one per data set
    metrics: ClassVar[dict[str, bool]]  # whether more is better; the first decides which weights are best
    varies: ClassVar[str]  # the option that `regard compare` varies
    varies_help: ClassVar[str]
    models: ClassVar[dict[str, type[ModelOptions]]]  # the first is the default
    reads_empty_texts: ClassVar[bool] = True  # whether a typed text may be empty, as the prompt of a language model
    chosen_by: ClassVar[dict[str, str]] = {}  # the model of an option that chooses its model where none is typed
    run_files: ClassVar[tuple[str, ...]]  # files that it leaves in the folder of a run
    vocabulary_files: ClassVar[tuple[str, ...]]  # run files that decide inputs and outputs of the model
    # its own options that weights depend on, beside those of the model; `regard train --init-from` keeps them
    weight_fields: ClassVar[tuple[str, ...]]
    # Where a task differs from most
    training: ClassVar[dict[str, Any]] = {}  # defaults of TrainingConfig that suit it
    data_training: ClassVar[dict[str, dict[str, Any]]] = {}  # the same where they differ, by data set
    defaults: ClassVar[dict[str, dict[str, Any]]] = {}  # values of open fields, its own and its model's, by data set
    has_line_breaks: ClassVar[bool] = False  # whether an input of text may have several lines
    picture_suffixes: ClassVar[tuple[str, ...]] = (".png", ".svg", ".pdf")  # endings that --picture takes
    content: ClassVar[str] = "files"  # the plural of what files of one's own hold
    file_options: ClassVar[tuple[str, ...]] = ()  # options that mean nothing without --train
    usage: ClassVar[str] = "predict {run}"  # a command that uses a trained run
    # the output of `regard chat` beside each turn: a reply, the state of the dialogue, or None for a task without chat
    chats: ClassVar[Literal["reply", "state"] | None] = None
    is_served: ClassVar[bool] = False  # whether `regard serve` takes it; its predictor's endpoint has the path
    # Further options of `regard evaluate`, `regard attack`, `regard predict` and `regard serve`
    Evaluate: ClassVar[type] = NoOptions
    Attack: ClassVar[type] = NoOptions  # with none, it cannot be attacked
    Predict: ClassVar[type] = NoOptions
    Serve: ClassVar[type] = NoOptions

    # Fields of every task
    data: str | None
    train: Path | tuple[Path, ...] | None
    model: Any
    seed: int

    def __post_init__(self) -> None:
        check_fields(self)
        if self.data is not None and _is_given(self.train):
            raise ValueError(
                f"data={self.data!r} and train={_as_typed(self.train)} exclude each other; give one of them"
            )
        if self.data is None and not _is_given(self.train):
            object.__setattr__(self, "data", self.embedded)
        model = next(iter(self.models.values()))() if self.model is None else self.model
        if type(model) not in self.models.values():
            names = " or ".join(each.__name__ for each in self.models.values())
            raise TypeError(
                f"model must be the options of a model, {names}, got {model!r}; or use {type(self).__name__}.of(…)"
            )
        defaults = {**self.defaults.get(self.dataset, {}), **model.task_defaults}
        resolve(self, defaults)
        object.__setattr__(self, "model", model.resolved(defaults))
        self._check_file_options()

    def load(self) -> Task[Any, Any]:
        """The work of the task; its module, and torch with it, are imported here."""
        task: Task[Any, Any] = resolve_name(self.task_class)(self)
        return task

    @property
    def title(self) -> str:
        """The model and its data, in a few words."""
        return f"{self.model_name} on {self.dataset_label}"

    def next_command(self, run: str) -> str:
        """A command that uses a trained run."""
        return f"regard {self.usage.format(run=run)}"

    @property
    def initial_files(self) -> tuple[str, ...]:
        """The files that a run which starts from a run of the task copies: vocabularies, and the record of examples."""
        return (*self.vocabulary_files, EXAMPLES)

    @classmethod
    def join_texts(cls, texts: Sequence[str]) -> Sequence[str]:
        """The inputs of `regard predict` that these arguments are, where an input is several texts."""
        return texts

    @property
    def input_columns(self) -> tuple[InputColumn, ...]:
        """The columns of an input of `regard predict` in a sheet."""
        return (InputColumn(TEXT_NAMES),)

    @property
    def metric(self) -> str:
        """The score that decides which weights are best."""
        return next(iter(self.metrics))

    @property
    def model_name(self) -> str:
        return next(name for name, options in self.models.items() if type(self.model) is options)

    @property
    def dataset(self) -> str:
        """The embedded data set, or "files"."""
        return "files" if _is_given(self.train) else self.data or self.embedded

    @property
    def dataset_label(self) -> str:
        """The names of the training files, or the embedded data set."""
        paths = self.train if isinstance(self.train, tuple) else () if self.train is None else (self.train,)
        return " and ".join(path.name for path in paths) or self.dataset

    @classmethod
    def default_for_help(cls, name: str) -> str:
        """The value of an option that is not typed, where it depends on the data; otherwise empty."""
        if name == "data":
            return f"{cls.embedded}, if there is no --train"
        if name in ("minutes", "steps"):
            ends = {dataset: getattr(budget, name) for dataset, budget in cls.budgets.items()}
            each = ", ".join(f"{end:g} for {dataset}" for dataset, end in ends.items() if end is not None)
            return f"{each}, if no end is given" if each else ""
        if name in cls.training:
            values = {"": cls.training[name]} | {
                m: o.training[name] for m, o in cls.models.items() if name in o.training
            }
            return ", ".join(
                (" ".join(map(str, value)) if isinstance(value, tuple) else str(value)) + (model and f" for {model}")
                for model, value in values.items()
            )
        if not all(name in values for values in cls.defaults.values()):
            return ""
        datasets: dict[Any, list[str]] = {}
        for dataset, values in cls.defaults.items():
            datasets.setdefault(values[name], []).append(dataset)
        return ", ".join(f"{value} for {' and '.join(names)}" for value, names in datasets.items())

    # From flat options and from records

    @classmethod
    def replaced(cls, option: str, value: Any, file: Mapping[str, Any]) -> Sequence[str]:
        """The options of a file that an option typed beside it excludes or decides anew.

        `file` has the options of the model beside those of the task.
        """
        return {"data": ("train", "valid", "test", "size"), "train": ("data",)}.get(option, ())

    @classmethod
    def training_defaults(cls, model: ModelOptions | None, dataset: str = "files") -> dict[str, Any]:
        """Defaults of TrainingConfig that suit the task with this model and data set; None is the first model."""
        return {**cls.training, **cls.data_training.get(dataset, {}), **({} if model is None else model.training)}

    @classmethod
    def of(cls, **options: Any) -> Self:
        """The task with options as a command line types them: `model` is a name, its options stand beside the others.

        Translate.of(data="dates", model="transformer", heads=2)
        """
        task_fields = {item.name for item in fields(cls)} - {"model"}  # type: ignore[arg-type]
        chosen = [model for option, model in cls.chosen_by.items() if options.get(option) is not None]
        name = options.get("model") or next(iter([*chosen, *cls.models]))
        known("model", name, cls.models)
        model_fields = {item.name for item in fields(cls.models[name])}
        for option, value in options.items():
            if option not in task_fields | model_fields | {"model"} and value is not None:
                owners = [other for other, model in cls.models.items() if option in {f.name for f in fields(model)}]
                if owners:
                    raise ValueError(
                        f"{option}={value!r} belongs to model='{owners[0]}', not to '{name}'; "
                        "leave it out or choose the other model"
                    )
                names = sorted(task_fields | model_fields)
                near = suggestion(option, names)
                raise TypeError(f"{cls.name} has no option {option}={value!r}; {near}its options are {names}")
        model_options = {option: value for option, value in options.items() if option in model_fields}
        task_options = {option: value for option, value in options.items() if option in task_fields}
        needed = [f.name for f in fields(cls.models[name]) if f.default is MISSING and f.default_factory is MISSING]
        if missing := [option for option in needed if model_options.get(option) is None]:
            raise ValueError(f"model='{name}' needs {missing[0]}; give {missing[0]}=… as well")
        return cls(**{**task_options, "model": cls.models[name](**model_options)})

    def with_options(self, **options: Any) -> Self:
        """The same with other values of these options, its own or its model's."""
        task_fields = {item.name for item in fields(self)}  # type: ignore[arg-type]
        model = replace(self.model, **{name: value for name, value in options.items() if name not in task_fields})
        task_options = {name: value for name, value in options.items() if name in task_fields}
        return replace(self, **{"model": model, **task_options})  # type: ignore[type-var]

    def to_json(self) -> dict[str, Any]:
        """All options as values of JSON; those of the model are nested, with its name."""
        return {**to_json(self, but=("model",)), "model": {"name": self.model_name, **to_json(self.model)}}

    def weight_options(self) -> dict[str, Any]:
        """The options that weights depend on, in the layout of `to_json`; a run that starts with weights has these."""
        options = self.to_json()
        free = type(self.model).training_only
        model = {name: value for name, value in options["model"].items() if name not in free}
        return {**{name: options[name] for name in self.weight_fields}, "model": model}

    @classmethod
    def modules(cls, options: Mapping[str, Any]) -> Sequence[str]:
        """The modules of Python that recorded options name, and that making the task would import."""
        return ()

    @classmethod
    def from_json(cls, options: Mapping[str, Any]) -> Self:
        """The task that `to_json` wrote."""
        model = options.get("model", {"name": next(iter(cls.models))})
        if not isinstance(model, Mapping) or not isinstance(name := model.get("name"), str):
            raise ValueError(f"model must be options with a name, got {model!r}")
        model = {option: value for option, value in model.items() if option != "name"}
        known("model", name, cls.models)
        task_options = {option: value for option, value in options.items() if option != "model"}
        built = cls.models[name](**fields_from_json(cls.models[name], model))
        return cls(**{**fields_from_json(cls, task_options), "model": built})

    # For comparisons

    def variants(self, values: Sequence[str]) -> dict[str, Self]:
        """The same with each of these values of the option that a comparison varies."""
        names = {item.name for item in fields(self)}  # type: ignore[arg-type]
        owner = type(self if self.varies in names else self.model)
        return {value: self.with_options(**{self.varies: parse_number(owner, self.varies, value)}) for value in values}

    # For training

    def with_absolute_paths(self) -> Self:
        """The same with absolute paths: a run is resumed from any working directory."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}  # type: ignore[arg-type]
        model_options = {item.name: _absolute(getattr(self.model, item.name)) for item in fields(self.model)}
        values["model"] = replace(self.model, **model_options)
        return replace(self, **{name: _absolute(value) for name, value in values.items()})  # type: ignore[type-var]

    def preparation_notice(self, folder: Path, new: bool) -> str:
        """A sentence about the work of `prepare`, if it takes long; otherwise empty."""
        return ""

    def prepare(self, folder: Path, new: bool = True) -> TrainingProblem[Any, Any]:
        """Reads the data. What is learned from it is saved in the folder, or if not `new` loaded."""
        return self.load().prepare(folder, new)

    def _check_file_options(self) -> None:
        """Raises for options that embedded data has no use for."""
        for name in self.file_options:
            if _is_given(value := getattr(self, name)) and not _is_given(self.train):
                train: Field[Any] = type(self).__dataclass_fields__["train"]  # type: ignore[attr-defined]
                way = "=".join(["train", *([train.metadata["metavar"]] if "metavar" in train.metadata else [])])
                raise ValueError(f"{name}={_as_typed(value)} belongs to {self.content} of your own; give {way} as well")


Config = TypeVar("Config", bound=TaskConfig)
AnyPredictor = TypeVar("AnyPredictor", bound="Predictor[Any, Any]")


class Task(ABC, Generic[Config, AnyPredictor]):
    """The work of a task with given options: train a model, load it, evaluate it."""

    def __init__(self, config: Config) -> None:
        self.config = config

    @abstractmethod
    def prepare(self, folder: Path, new: bool) -> TrainingProblem[Any, Any]:
        """Reads the data. What is learned from it is saved in the folder, or if not `new` loaded.

        The vocabularies of a run that starts from another are in `initial_folder(folder)`: they are taken as they are,
        and data that does not fit them raises.
        """

    @abstractmethod
    def sketch(self) -> nn.Module:
        """The model for few tokens and classes, on the meta device; raises if the options do not fit together."""

    def check_options(self) -> None:
        """Raises if the options do not fit together, or their model not into memory, before any data is read."""
        import torch

        from regard.training.model_size import check_model_fits

        check_model_fits(self.sketch, self.config, torch.device("cpu"))

    @abstractmethod
    def predictor(self, folder: Path) -> AnyPredictor:
        """The predictor of a run, its model with initial weights."""

    @abstractmethod
    def evaluate(self, predictor: AnyPredictor, folder: Path, options: Any, progress: Progress) -> Evaluation:
        """The scores of a run on data that it did not train on; `options` are those of the config's `Evaluate`."""

    def attack_examples(self, predictor: AnyPredictor, folder: Path, options: Any) -> tuple[Any, Any, str]:
        """Held-out inputs and targets, as `regard.attack` takes them, and the name of their split.

        Images are tensors from 0 to 1, with the numbers of their classes; texts and their targets are lists. `options`
        are those of the config's `Attack`; a task without any is never asked.
        """
        raise AssertionError

    def example(self, folder: Path) -> str | None:
        """An input that was held out from training, for a first look at a run; None if an input must be named."""
        return None

    def known_features(self, predictor: AnyPredictor, count: int) -> Sequence[tuple[Any, Any]]:
        """So many held-out inputs of the predictor, and booleans at the features that decide their answer, "k" of
        tokens or "h w" of positions; none if the data do not know these.
        """
        return ()


def _is_given(value: object) -> bool:
    """Whether a value is neither None nor an empty tuple."""
    return value is not None and value != ()


def _as_typed(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _absolute(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_absolute, value))
    return value.absolute() if isinstance(value, Path) else value
