"""The help of every command: every option is documented, and its default is the value that it takes."""

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Regard
from tests.for_each import for_each

from regard.cli.main import VERBS, options_class
from regard.cli.parsing.help import field_docs
from regard.cli.parsing.option import Option, options_of
from regard.cli.parsing.parser import parse
from regard.cli.run_options import LoadOptions
from regard.cli.verbs import compare, train
from regard.cli.verbs.train import TrainOptions, parse_task
from regard.tasks.base import NoOptions, TaskConfig
from regard.tasks.registry import TASKS
from regard.training.config import ENDS, TrainingConfig

OPTIONS: list[Any] = [
    *(options_class(verb) for verb in VERBS if verb not in ("train", "compare")),
    *(train.TrainOptions, train.ResumeOptions, LoadOptions, TrainingConfig),
    *(compare.options_of(config) for config in TASKS.values()),
    *TASKS.values(),
    *(model for config in TASKS.values() for model in config.models.values()),
    *(nested for config in TASKS.values() for nested in (config.Evaluate, config.Predict, config.Serve)),
]
SECTIONS = ("task", "load", "training")
each_task = for_each("name", TASKS)


def plain(text: str) -> str:
    """The text without its line breaks."""
    return " ".join(text.split())


@for_each("options", OPTIONS, ids=lambda options: f"{options.__module__}.{options.__name__}")
def test_every_option_is_documented(options: Any) -> None:
    assert not options.__doc__.startswith(f"{options.__name__}("), "the docstring that dataclass makes"
    docs = field_docs(options)
    for item in fields(options):
        if item.name not in SECTIONS:
            assert docs[item.name].endswith((".", "…")), item.name


def test_the_help_of_shared_options_names_the_content_of_the_task() -> None:
    assert field_docs(TASKS["match"])["test"] == (
        "The pairs that only `regard evaluate` reads; if left out, those of --valid."
    )
    assert not any("{" in doc for config in TASKS.values() for doc in field_docs(config).values())


def missing(options: list[Option], text: str) -> list[str]:
    return [option.flag for option in options if not option.positional and f"  {option.flag}" not in text]


@for_each("verb", VERBS)
def test_help_of_every_verb(verb: str, regard: Regard) -> None:
    task = ["translate"] if verb in ("train", "compare") else []
    ran = regard(verb, *task, "--help")
    assert ran.code == 0
    assert ran.out.startswith(f"usage: regard {' '.join([verb, *task])} [-h] [OPTIONS]")
    assert task or missing(options_of(options_class(verb), dict.fromkeys(SECTIONS, NoOptions)), ran.out) == []
    assert not [fault for fault in ("None}", "default: None", "<", "Options(") if fault in ran.out]


@each_task
@pytest.mark.parametrize("verb", ["train", "compare"])
def test_help_lists_the_options_of_a_task_and_of_its_models(verb: str, name: str, regard: Regard) -> None:
    text = regard(verb, name, "--help").out
    of_verb = compare.options_of(TASKS[name]) if verb == "compare" else TrainOptions
    assert missing(options_of(of_verb, {"task": TASKS[name], "training": TrainingConfig}), text) == []
    for model in TASKS[name].models if len(TASKS[name].models) > 1 else []:
        assert f"\noptions of --model {model}:\n" in text


@pytest.mark.parametrize(
    ("verb", "nested"), [("predict", "Predict"), ("evaluate", "Evaluate"), ("serve", "Serve"), ("translate", "Predict")]
)
def test_help_lists_the_options_of_every_task_or_of_the_run(
    verb: str, nested: str, regard: Regard, trained: Path
) -> None:
    of_verb = options_class(verb)
    tasks = ["translate"] if verb == "translate" else list(TASKS)
    text = regard(verb, "--help").out
    sections = {task: getattr(TASKS[task], nested) for task in tasks}
    assert missing(options_of(of_verb, {"task": LoadOptions, "load": LoadOptions, **sections}), text) == []
    for task in tasks:
        assert (f"\n{task} options:\n" in text) == bool(fields(sections[task]))
    of_run = regard(verb, trained, "--help")
    assert of_run.code == 0
    sections = {"task": getattr(TASKS["translate"], nested), "load": LoadOptions}
    assert missing(options_of(of_verb, sections), of_run.out) == []
    assert "\ntask options:\n" in of_run.out
    assert "--beam INT" in of_run.out
    # a folder that does not exist has no task
    assert regard(verb, trained / "none", "--help") == (0, text, "")


def test_help_shows_the_value_of_an_option_that_is_not_typed(regard: Regard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    text = plain(regard("train", "translate", "--help").out)
    assert "--width INT The width of embeddings, and of a Transformer's layers. (default: 64 for dates and" in text
    assert "--train FILE [FILE] Your own pairs" in text
    assert "--clip FLOAT|None Scale gradients down to this global norm" in text
    assert "--lr FLOAT The peak of the learning rate. (default: 0.001)" in text
    assert "no longer improves. (default: 0.5)" in text
    assert "before the learning rate is lowered. (default: 2)" in text
    budgets = TASKS["translate"].budgets.items()
    ends = ", ".join(f"{budget.minutes:g} for {dataset}" for dataset, budget in budgets)
    assert f"(default: {ends}, if no end is given)" in text
    assert "--coverage FLOAT The weight of the penalty for source tokens that received no attention. (default: 0)" in (
        plain(regard("translate", "--help").out)
    )


def test_help_shows_the_end_and_the_schedule_of_a_task(regard: Regard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    caption = plain(regard("train", "caption", "--help").out)
    assert "--train FILE " in caption
    assert "--train FOLDER " in regard("train", "glimpse", "--help").out
    assert (
        "End after this many steps (updates of the weights). (default: 1600 for scenes, if no end is given)" in caption
    )
    assert "unless validation takes long. (default: 60 for files, if no end is given)" in caption
    assert "as the measured speed allows. (default: cosine, linear for pretrained)" in caption
    translate = plain(regard("train", "translate", "--help").out)
    assert "End after this many steps (updates of the weights). --epochs" in translate
    assert "as the measured speed allows. (default: inverse-sqrt)" in translate


def test_a_task_has_its_own_defaults_of_training(
    regard: Regard, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    own = {"betas": (0.0, 0.9), "clip": None, "lr": 7e-4, "warmup": 0, "schedule": "constant"}
    config = TASKS["translate"]
    monkeypatch.setattr(config, "training", own)
    monkeypatch.setenv("COLUMNS", "120")
    text = plain(regard("train", "translate", "--help").out)
    assert "--lr FLOAT The peak of the learning rate. (default: 0.0007, 0.002 for ntm)" in text
    assert "of squared gradients. (default: 0.0 0.9)" in text
    options = parse_task(TrainOptions, "regard train translate", config, ["--warmup", "3"])
    assert options.training == own | {"warmup": 3}
    (tmp_path / "own.toml").write_text("lr = 0.5\nclip = 2.0\n")
    options = parse_task(TrainOptions, "regard train translate", config, ["--config", str(tmp_path / "own.toml")])
    assert options.training == own | {"lr": 0.5, "clip": 2.0}


@each_task
def test_no_task_has_a_default_end_of_training(name: str) -> None:
    """It would end a training early: the first end that is reached counts."""
    assert not TASKS[name].training.keys() & set(ENDS)


@each_task
def test_options_that_are_not_typed_are_those_of_the_dataclass(name: str) -> None:
    config: type[TaskConfig] = TASKS[name]
    options = parse(TrainOptions, "regard", ["--steps", "3"], sections={"task": config, "training": TrainingConfig})
    assert config(**options.task) == config()
    assert TrainingConfig(**options.training) == TrainingConfig(steps=3)


@for_each("task", TASKS)
def test_help_says_what_a_batch_counts(regard: Regard, task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    counted = "Tokens|Words|Words of passages|Images|Rows of text|Pairs|Questions|Contexts|Turns|Games|Clips|Frames"
    assert re.search(rf"--batch INT ({counted}) per batch", plain(regard("train", task, "--help").out))
