"""Options out of dataclasses: every one is documented, shown as it is typed, and left as it was if it is not."""

import importlib
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Regard

from regard.cli.main import VERBS
from regard.cli.parsing.options import documented, metavar, parse
from regard.cli.verbs.compare import VARIED
from regard.cli.verbs.demo import Options as Demo
from regard.cli.verbs.evaluate import Options as Evaluate
from regard.cli.verbs.explain import Options as Explain
from regard.cli.verbs.list import Options as Listing
from regard.cli.verbs.train import New, Resume, chosen
from regard.cli.verbs.translate import Options as Translating
from regard.tasks.classify_image.options import ClassifyImage
from regard.tasks.registry import TASKS
from regard.tasks.translate.options import Translate
from regard.training.config import ENDS, TrainingConfig

ALL = [
    *(options for options, _ in VARIED.values()),
    Demo,
    Evaluate,
    Explain,
    Listing,
    New,
    Resume,
    Translating,
    Translate,
    TrainingConfig,
]


@pytest.mark.parametrize("of", ALL, ids=lambda of: f"{of.__module__}.{of.__name__}")
def test_every_option_is_documented(of: Any) -> None:
    said = documented(of)
    for one in fields(of):
        if "of" not in one.metadata:
            assert said[one.name].endswith((".", "…")), one.name


@pytest.mark.parametrize("verb", VERBS)
def test_help_of_every_verb(verb: str, regard: Regard) -> None:
    task = ["translate"] if verb in ("train", "compare") else []
    ran = regard(verb, *task, "--help")
    assert ran.code == 0
    assert ran.out.startswith(f"usage: regard {' '.join([verb, *task])}")
    assert "None}" not in ran.out
    assert "default: None" not in ran.out
    assert "<" not in ran.out
    assert hasattr(importlib.import_module(f"regard.cli.verbs.{verb}"), "verb")


def test_help_shows_what_will_be(regard: Regard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    said = " ".join(regard("train", "translate", "--help").out.replace("│", " ").split())
    assert "--width INT The width of embeddings, and of a Transformer's layers. (default: 64 for dates and" in said
    assert "--train FILE [FILE] Your own pairs" in said
    assert "--clip FLOAT|None Gradients are shortened to this global norm" in said
    assert "--lr FLOAT The peak of the learning rate. (default: 0.001)" in said
    assert ", ".join(f"{minutes:g} for {kind}" for kind, minutes in Translate.MINUTES.items()) in said


def test_what_is_not_typed_is_what_is_given() -> None:
    typed = parse(
        New, "regard", ["--lr", "2", "--train", "a", "b"], {"lr": 5.0, "betas": (0.5, 0.6), "width": 7}, Translate
    )
    assert typed.training["lr"] == 2.0
    assert typed.training["betas"] == (0.5, 0.6)
    assert typed.task["width"] == 7
    assert typed.task["train"] == (Path("a"), Path("b"))
    assert typed.task["valid"] == ()


def test_several_numbers_that_may_be_left_open() -> None:
    """What a file says stays, though tyro is told of nothing."""
    given: dict[str, Any] = {"depths": (2, 1)}

    def depths(*args: str, given: dict[str, Any] | None = None) -> Any:
        return parse(New, "regard train classify-image", args, given, task=ClassifyImage).task["depths"]

    assert depths() is None
    assert depths(given=given) == (2, 1)
    assert depths("--depths", "3", given=given) == (3,)


def test_a_task_has_a_training_of_its_own(regard: Regard, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    own = {"betas": (0.0, 0.9), "clip": None, "lr": 7e-4, "warmup": 0, "schedule": "constant"}
    monkeypatch.setattr(Translate, "TRAINING", own, raising=False)
    monkeypatch.setenv("COLUMNS", "120")
    said = " ".join(regard("train", "translate", "--help").out.replace("│", " ").split())
    assert "--lr FLOAT The peak of the learning rate. (default: 0.0007)" in said
    assert "squares. (default: 0.0 0.9)" in said
    typed = chosen(New, "train", "translate", ["--warmup", "3"])
    assert {name: typed.training[name] for name in own} == own | {"warmup": 3}
    (tmp_path / "some.toml").write_text("lr = 0.5\nclip = 2.0\n")
    typed = chosen(New, "train", "translate", ["--config", str(tmp_path / "some.toml")])
    assert {name: typed.training[name] for name in own} == own | {"lr": 0.5, "clip": 2.0}


@pytest.mark.parametrize("kind", TASKS.values(), ids=lambda kind: kind.__name__)
def test_no_end_is_a_default_of_training(kind: Any) -> None:
    """It would cut short what was typed: the first end that is reached ends a training."""
    assert not kind.TRAINING.keys() & set(ENDS)


@pytest.mark.parametrize(
    ("task", "wants"),
    [("glimpse", "FOLDER"), ("generate", "FOLDER"), ("classify-image", "FOLDER"), ("caption", "FILE")],
)
def test_help_says_what_to_train_on(regard: Regard, task: str, wants: str) -> None:
    assert f"--train {wants} " in regard("train", task, "--help").out


def test_help_tells_how_captions_end(regard: Regard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    said = " ".join(regard("train", "caption", "--help").out.replace("│", " ").split())
    assert "End after this many steps (updates of the weights). (default, if no end is given: 1600 for scenes)" in said
    assert "counted over resumes. (default, if no end is given: 60 for files)" in said
    assert "need steps or epochs. (default: cosine; inverse-sqrt where minutes alone end it)" in said
    other = " ".join(regard("train", "translate", "--help").out.replace("│", " ").split())
    assert "End after this many steps (updates of the weights). --epochs" in other
    assert "need steps or epochs. (default: inverse-sqrt)" in other


def test_untyped_options_are_the_dataclass_itself() -> None:
    typed = parse(New, "regard", ["--steps", "3"], task=Translate)
    assert Translate(**typed.task) == Translate()
    assert TrainingConfig(**typed.training) == TrainingConfig(steps=3)


def test_none_can_be_typed() -> None:
    assert parse(New, "regard", ["--clip", "None"], task=Translate).training["clip"] is None


def test_a_choice_is_told_the_nearest() -> None:
    with pytest.raises(
        ValueError, match="unknown --data 'datse'; did you mean 'dates'\\? known are: dates, reverse, pronounce"
    ):
        parse(New, "regard", ["--data", "datse"], task=Translate)
    with pytest.raises(ValueError, match="unknown list 'dta'; did you mean 'data'\\?"):
        parse(Listing, "regard", ["dta"])


@pytest.mark.parametrize(
    ("hint", "default", "shown"),
    [
        (int, 3, "INT"),
        (float | None, None, "FLOAT"),
        (float | None, 1.0, "FLOAT|None"),
        (tuple[Path, ...], (), "FILE [FILE]"),
        (bool | None, None, "{True,False}"),
        (bool, False, None),
        (Path | None, None, "FILE"),
    ],
)
def test_metavars(hint: Any, default: object, shown: str | None) -> None:
    assert metavar("name", hint, default) == shown
