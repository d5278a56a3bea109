"""Options in a TOML file."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import TINY, Refused, Regard
from tests.cli.parsing.test_parser import Learning, Training
from tests.for_each import for_each
from tests.tasks.cases import required_options

from regard.cli.parsing import toml_config
from regard.cli.verbs.train import TrainOptions, parse_task
from regard.tasks.base import TaskConfig
from regard.tasks.registry import TASKS
from regard.tasks.translate.options import TransformerOptions, Translate
from regard.training.config import TrainingConfig
from regard.training.run_folder import write_config

SECTIONS: dict[str, type] = {"task": Translate, "training": TrainingConfig}


def config_of(name: str, options: Mapping[str, Any]) -> tuple[TaskConfig, TrainingConfig]:
    """The options of a task and of its training, as `regard train` makes them of a file."""
    path = Path("config.toml")
    write_config(path, TASKS[name].of(**options), TrainingConfig(steps=3, **TASKS[name].training))
    typed = parse_task(TrainOptions, f"regard train {name}", TASKS[name], ["--config", str(path)])
    return TASKS[name](**typed.task), TrainingConfig(**typed.training)


@for_each("name", TASKS)
def test_the_options_of_a_run_are_read_back(name: str) -> None:
    config = TASKS[name]
    for model, options in config.models.items():
        chosen = {"model": model, "seed": 7, **required_options(options)}
        training = TrainingConfig(steps=3, **config.training)
        assert config_of(name, chosen) == (config.of(**chosen), training), options


def test_every_kind_of_value_is_read_back() -> None:
    paths = (Path('/a "b"\\c.txt'), Path("/ü\x7f\n.txt"))
    task = Translate.of(train=paths, width=7, dropout=0.25, shared=True, decoder="luong")
    training = TrainingConfig(steps=3, lr=1e-5, clip=None, betas=(0.5, 0.75), tensorboard=True)
    path = Path("config.toml")
    write_config(path, task, training)
    values = toml_config.read(path, SECTIONS)
    assert values["clip"] is None
    assert values["betas"] == (0.5, 0.75)
    assert values["train"] == paths
    model = values.pop("model")
    assert model["name"] == "seq2seq"
    assert (model["width"], model["dropout"], model["decoder"], model["attention"]) == (7, 0.25, "luong", "general")
    of_task = {name: values[name] for name in values if hasattr(task, name)}
    assert Translate.of(**of_task, **{name: model[name] for name in model if name != "name"}) == task
    assert TrainingConfig(**{name: values[name] for name in values.keys() - of_task.keys()}) == training


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def written(text: str) -> Path:
    path = Path("own.toml")
    path.write_text(text, encoding="utf-8")
    return path


def test_tables_or_none_and_names_as_typed() -> None:
    flat = written('data = "dates"\nvalid-lines = 3\nlr = 1\ntrain = "a.tsv"\nbetas = [0, 0.5]\n')
    values = {"data": "dates", "valid_lines": 3, "lr": 1.0, "train": (Path("a.tsv"),), "betas": (0.0, 0.5)}
    assert toml_config.read(flat, SECTIONS) == values
    tables = written('[task]\ndata = "dates"\n[training]\nlog_every = 3\n')
    assert toml_config.read(tables, SECTIONS) == {"data": "dates", "log_every": 3}


@for_each(
    ("text", "sentence"),
    [
        ("widht = 3", "unknown option in own.toml: 'widht'; did you mean 'width'\\? known are: data, train,"),
        ("[training]\nwidth = 3", r"width is no option of \[training\] but of \[task\]; put it there in own.toml"),
        ("[training]\nwhat = 3", r"unknown option in \[training\] of own.toml: 'what'; known are: steps, epochs"),
        ("[trainin]\nlr = 3", r"unknown table in own.toml: 'trainin'; did you mean 'training'\? known are: task, trai"),
        ('lr = "x"', "lr in own.toml must be a number, got 'x'; write it such as 0.5"),
        ("lr = 1" + "0" * 400, "lr in own.toml must be a number that is a float, got 1000000.*; write it such as 0.5"),
        ("steps = 1.5", "steps in own.toml must be a whole number, got 1.5; write it such as 10"),
        ("steps = true", "steps in own.toml must be a whole number, got True"),
        ("tensorboard = 1", "tensorboard in own.toml must be true or false, got 1; write it such as true"),
        ('data = "datse"', "unknown data in own.toml 'datse'; did you mean 'dates'"),
        ("train = 3", "train in own.toml must be a list of names of files, got 3; write it in brackets, such as"),
        ("train = [1, 2]", "train in own.toml must be the name of a file in quotes, got 1; write it such as"),
        ("betas = [0.5]", "betas in own.toml must be a list of two numbers, got \\[0.5\\]"),
        ("steps = " + "1" * 5000, "own.toml is not TOML \\(.*digits.*\\); write lines such as: lr = 1e-3"),
        ("lr = = 3", "own.toml is not TOML \\(.*\\); write lines such as: lr = 1e-3"),
    ],
)
def test_bad_files(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        toml_config.read(written(text), SECTIONS)


def test_no_file() -> None:
    with pytest.raises(
        ValueError, match="there is no file nix.toml; --config names a file with options, such as RUN/config.toml"
    ):
        toml_config.read(Path("nix.toml"), SECTIONS)
    Path("folder").mkdir()
    with pytest.raises(ValueError, match="folder is a folder; name the file in it, such as folder/config.toml"):
        toml_config.read(Path("folder"), SECTIONS)


def test_the_command_line_wins_and_a_run_repeats(regard: Regard, pairs: Path) -> None:
    own = written(f'train = "{pairs}"\nsteps = 1\nhidden = 10\n')
    args = [word for n, word in enumerate(TINY) if "--hidden" not in TINY[max(n - 1, 0) : n + 1]]
    assert regard("train", "translate", "--config", own, *args, "--steps", 2, "--out", "one").code == 0
    values = toml_config.read(Path("one/config.toml"), SECTIONS)
    assert values["steps"] == 2
    assert values["model"]["hidden"] == 10
    assert values["train"] == (pairs,)
    assert regard("train", "translate", "--config", "one/config.toml", "--out", "two").code == 0
    assert Path("one/best.safetensors").read_bytes() == Path("two/best.safetensors").read_bytes()
    assert Path("one/config.toml").read_bytes() == Path("two/config.toml").read_bytes()


def test_options_may_depend_on_the_model_of_the_file() -> None:
    path = str(written('model = "transformer"\nwidth = 8\n'))
    options = parse_task(TrainOptions, "regard train translate", Translate, ["--heads", "2", "--config", path])
    assert options.task == {"model": TransformerOptions(width=8, heads=2)}


def task_of(text: str, *args: str) -> Translate:
    """The task of `regard train translate` with a file of these lines and typed options."""
    path = str(written(text))
    return Translate(**parse_task(TrainOptions, "regard train translate", Translate, ["--config", path, *args]).task)


def test_options_of_another_model_are_kept_if_both_have_them(capsys: pytest.CaptureFixture[str]) -> None:
    text = '[task.model]\nname = "seq2seq"\nwidth = 16\nhidden = 8\ncell = "lstm"\n'
    task = task_of(text, "--model", "transformer")
    assert task.model == Translate.of(model="transformer", width=16).model
    assert capsys.readouterr().err == "regard: hidden, cell of own.toml belong to model seq2seq and are left out\n"


RESOLVED = """[task]
data = "dates"
train = []
[task.model]
name = "seq2seq"
decoder = "bahdanau"
attention = "additive"
"""


@for_each(
    ("text", "args", "expected", "note"),
    [
        (RESOLVED, ["--train", "a", "b"], {"train": (Path("a"), Path("b"))}, "--train replaces data"),
        (
            'train = ["a", "b"]\nvalid = ["c", "d"]\ntest = "e.tsv"\n',
            ["--data", "dates"],
            {"data": "dates"},
            "--data replaces train, valid, test",
        ),
        (RESOLVED, ["--decoder", "fixed"], {"decoder": "fixed"}, "--decoder replaces attention"),
        (
            RESOLVED,
            ["--decoder", "luong"],
            {"decoder": "luong", "attention": "general"},
            "--decoder replaces attention",
        ),
        (RESOLVED, ["--decoder", "luong", "--attention", "dot"], {"decoder": "luong", "attention": "dot"}, ""),
        (RESOLVED.replace("additive", "dot"), ["--decoder", "bahdanau"], {"attention": "dot"}, ""),
        ('attention = "dot"', ["--decoder", "luong"], {"decoder": "luong", "attention": "dot"}, ""),
        (RESOLVED, ["--data", "dates"], {}, ""),
    ],
)
def test_a_typed_option_replaces_options_of_the_file(
    text: str, args: list[str], expected: dict[str, Any], note: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert task_of(text, *args) == Translate.of(**expected)
    assert capsys.readouterr().err == (f"regard: {note} of own.toml\n" if note else "")


def test_paths_start_where_the_command_is_typed(
    regard: Regard, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = Path.cwd()
    (here / "below").mkdir()
    written('train = "pairs.tsv"').rename("below/own.toml")
    (here / "below" / "pairs.tsv").write_text("a\tb\n", encoding="utf-8")
    sentence = f"there is no file {here / 'pairs.tsv'}, which --train names; name one that is there"
    assert refused("train", "translate", "--config", "below/own.toml", "--out", "one") == sentence
    monkeypatch.setenv("COLUMNS", "200")
    for verb in ("train", "compare"):
        assert "Paths in it are relative to the working directory." in regard(verb, "translate", "--help").out


def test_a_list_of_whole_numbers() -> None:
    from regard.tasks.classify_image.options import ClassifyImage

    assert toml_config.read(written("depths = [1, 2]"), {"task": ClassifyImage}) == {"model": {"depths": (1, 2)}}
    with pytest.raises(ValueError, match=r"depths in .* must be a list of whole numbers, got 3; write it in brackets"):
        toml_config.read(written("depths = 3"), {"task": ClassifyImage})


MODELLED: dict[str, type] = {"task": Learning, "training": Training}


@for_each(
    ("text", "training"),
    [
        ('seed = 1\n[task.model]\nname = "attentive"\nheads = 3\n', {}),
        ('[task]\nseed = 1\n[task.model]\nname = "attentive"\nheads = 3\n[training]\nlr = 1\n', {"lr": 1.0}),
        ('[task]\nseed = 1\nheads = 3\nmodel = "attentive"\n', {}),
        ('seed = 1\nmodel = "attentive"\nheads = 3\nlr = 1\n', {"lr": 1.0}),
    ],
    ids=["mixed", "tables", "flat in a table", "flat"],
)
def test_options_of_a_model(text: str, training: dict[str, float]) -> None:
    expected = {"seed": 1, "model": {"name": "attentive", "heads": 3}, **training}
    assert toml_config.read(written(text), MODELLED) == expected


def test_options_of_a_model_without_its_name() -> None:
    values = {"model": {"heads": 3, "depths": (1, 2)}}
    assert toml_config.read(written("heads = 3\ndepths = [1, 2]"), MODELLED) == values
    assert toml_config.read(written("[task.model]\nlayers = 3"), MODELLED) == {"model": {"layers": 3}}


@for_each(
    ("text", "sentence"),
    [
        ('[task.model]\nname = "x"', r"unknown name in \[task.model\] of own.toml 'x'; known are: recurrent, attent"),
        ("[task.model]\nhedas = 3", r"unknown option in \[task.model\] of own.toml: 'hedas'; did you mean 'heads'\?"),
        ("[task.model]\nseed = 3", r"seed is no option of \[task.model\] but of \[task\]; put it there in own.toml"),
        ("[model]\nheads = 3", "unknown table in own.toml: 'model'; known are: task, training"),
        ("[task.model]\nheads = 1.5", r"heads in \[task.model\] of own.toml must be a whole number, got 1.5; write"),
        ("[task.data]\nheads = 1", r"unknown data in \[task\] of own.toml "),
    ],
)
def test_bad_options_of_a_model(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        toml_config.read(written(text), MODELLED)


def test_a_file_that_is_nested_too_deeply(tmp_path: Path) -> None:
    path = tmp_path / "deep.toml"
    for text in ("a = " + "[" * 100_000, "a." * 100_000 + "a = 1", "a = {" + "a." * 100_000 + "a = 1}"):
        path.write_text(text)
        with pytest.raises(ValueError, match="deep.toml is nested too deeply; write lines such as: lr = 1e-3"):
            toml_config.read(path, SECTIONS)
