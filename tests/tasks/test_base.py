"""TaskConfig: the data of every task, options through JSON, absolute paths; what `of` and `with_options` refuse."""

import json
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from tests.for_each import for_each
from tests.tasks.cases import required_options

from regard.common.options.checks import literal_choices
from regard.tasks.base import TaskConfig
from regard.tasks.classify_image.options import ClassifyImage, ConvNetOptions, RowReaderOptions
from regard.tasks.classify_text.options import ClassifyText
from regard.tasks.glimpse.options import RAMOptions
from regard.tasks.registry import TASKS, config_from_record
from regard.training.config import TrainingConfig
from regard.training.run_folder import RunRecord, TrainingChange

each_task = for_each("name", TASKS)
# agents make their own data
READERS = [name for name, config in TASKS.items() if "data" in {item.name for item in fields(config)}]  # type: ignore[arg-type]
each_reader = for_each("name", READERS)


def test_all_tasks_but_agents_read_data() -> None:
    assert set(TASKS) - set(READERS) == {"agent"}


@for_each(
    ("options", "message"),
    [
        ({"model": 3}, "model must be options with a name, got 3"),
        ({"model": {"width": 3}}, "model must be options with a name, got {'width': 3}"),
        ({"model": {"name": []}}, r"model must be options with a name, got {'name': \[\]}"),
        ({"model": {"name": "convnets"}}, "unknown model 'convnets'"),
        ({"seed": "x"}, "seed is 'x', which is of a wrong type"),
        ({"batch": -3}, "batch must be"),
        ({"colour": 3}, "the run has options that this version does not know: colour"),
    ],
)
def test_a_record_that_describes_no_task(options: dict[str, Any], message: str) -> None:
    training = TrainingConfig(steps=1)
    record = RunRecord("classify-image", options, training, None, {}, (TrainingChange(0, training),))
    said = rf"^run/run.json has options that cannot be used \({message}.*\); restore it, or train in another folder$"
    with pytest.raises(ValueError, match=said):
        config_from_record(record, Path("run"))


def of_files(name: str, *paths: Path) -> TaskConfig:
    """A task that trains on files: the first to train, and if there are more to validate."""
    files = [(path,) if name == "translate" else path for path in paths]
    options: dict[str, Any] = dict(zip(("train", "valid"), files, strict=False))
    return TASKS[name].of(**options)


@each_reader
def test_embedded_data_or_files(name: str) -> None:
    config = TASKS[name]
    plain, task = config.of(), of_files(name, Path("far/x.tsv"))
    assert (plain.dataset, plain.data, plain.dataset_label) == (config.embedded, config.embedded, config.embedded)
    assert (task.dataset, task.data, task.dataset_label) == ("files", None, "x.tsv")
    assert plain.title.endswith(config.embedded)
    assert task.title.endswith("x.tsv")
    assert config.of(data=config.embedded) == plain
    assert config.default_for_help("data") == f"{config.embedded}, if there is no --train"
    assert {*literal_choices(config)["data"], "files"} == config.budgets.keys()


@each_reader
def test_data_that_is_unknown_or_given_twice(name: str) -> None:
    embedded = TASKS[name].embedded
    with pytest.raises(ValueError, match=f"unknown data '{embedded}x'; did you mean '{embedded}'[?] known are: "):
        TASKS[name].of(data=f"{embedded}x")
    train: Any = ("x",) if name == "translate" else "x"
    with pytest.raises(ValueError, match=f"data='{embedded}' and train=x exclude each other; give one of them"):
        TASKS[name].of(data=embedded, train=train)
    with pytest.raises(ValueError, match=r"seed must be 0 or more and below 2\^63, got -1; try seed="):
        TASKS[name].of(seed=-1)


@each_task
def test_every_word_of_an_option_is_known(name: str) -> None:
    config = TASKS[name]
    for option in literal_choices(config).keys() - {"data"}:
        with pytest.raises(ValueError, match=f"unknown {option} 'qq'; known are: "):
            config.of(**{option: "qq"})
    for model, options in config.models.items():
        for option in literal_choices(options):
            with pytest.raises(ValueError, match=f"unknown {option} 'qq'; known are: "):
                config.of(model=model, **{**required_options(options), option: "qq"})


@each_reader
def test_files_are_found_from_any_working_directory(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    has_valid = "valid" in {item.name for item in fields(TASKS[name])}  # type: ignore[arg-type]
    paths = [Path("x"), Path("y")] if has_valid else [Path("x")]
    assert of_files(name, *paths).with_absolute_paths() == of_files(name, *(path.absolute() for path in paths))
    assert TASKS[name].of().with_absolute_paths() == TASKS[name].of()


@each_task
def test_there_and_back_through_json(name: str) -> None:
    for model, options in TASKS[name].models.items():
        files = [of_files(name, Path("x"))] if name in READERS else []
        for task in (TASKS[name].of(model=model, **required_options(options)), *files):
            record = json.loads(json.dumps(task.to_json()))
            again = TASKS[name].from_json(record)
            assert again == task
            assert hash(again) == hash(task)
    with pytest.raises(ValueError, match="the run has options that this version does not know: colour"):
        TASKS[name].from_json({"colour": 1})


@each_task
def test_the_data_comes_first(name: str) -> None:
    first = ["data", "train"] if name in READERS else ["env"]
    assert [item.name for item in fields(TASKS[name])][: len(first)] == first  # type: ignore[arg-type]
    TrainingConfig(**{"steps": 1, **TASKS[name].training})


def test_options_of_another_model() -> None:
    with pytest.raises(ValueError, match="heads=2 belongs to model='rows', not to 'convnet'; leave it out or choose"):
        ClassifyImage.of(heads=2)
    with pytest.raises(TypeError, match="classify-image has no option colour='red'; its options are "):
        ClassifyImage.of(colour="red")
    with pytest.raises(TypeError, match="model must be the options of a model, ConvNetOptions or RowReaderOptions"):
        ClassifyImage(model=RAMOptions())  # type: ignore[arg-type]
    task = ClassifyImage.of(model="rows", heads=2, batch=3)
    assert task == ClassifyImage(model=RowReaderOptions(heads=2), batch=3)
    assert task.with_options(heads=4, batch=5) == ClassifyImage.of(model="rows", heads=4, batch=5)
    assert ClassifyImage().model == ConvNetOptions()


def test_options_without_effect_are_refused() -> None:
    """Each of these was accepted, and ignored."""
    refused = {
        (
            "transcribe",
            "mask_frames=5",
        ): "mask_frames=5 is the size of a mask, and there are none; give masks=2 as well",
        ("transcribe", "mask_bands=3"): "mask_bands=3 is the size of a mask, and there are none; give masks=2 as well",
        ("match", "model=bag-of-words word_dropout=0.5"): (
            "word_dropout=0.5 drops words, and a bag of words reads all of them; leave word_dropout out"
        ),
        ("classify-clip", "data=signals window=9"): "window=9 counts frames, and signals have none; leave it out",
        ("classify-clip", "data=signals model=transformer window=9"): (
            "window=9 counts frames, and signals have none; leave it out"
        ),
    }
    for (task, options), message in refused.items():
        parsed = dict(each.split("=") for each in options.split())
        given = {name: json.loads(value) if value[0].isdigit() else value for name, value in parsed.items()}
        with pytest.raises(ValueError, match=re.escape(message)):
            TASKS[task].of(**given).load().check_options()


def test_a_comparison_parses_numbers() -> None:
    class Widths(ClassifyText):
        varies = "width"

    assert [each.model.width for each in TaskConfig.variants(Widths.of(), ["5", "7"]).values()] == [5, 7]
    with pytest.raises(ValueError, match="width must be whole numbers, got 'wide'; try 1,2,4"):
        TaskConfig.variants(Widths.of(), ["wide"])
