"""Options in a TOML file."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.cli.conftest import TINY, Regard
from tests.cli.parsing.test_parser import Learning, Training

from regard.cli.parsing import toml_config
from regard.tasks.translate.options import Translate
from regard.training.config import TrainingConfig

SECTIONS: dict[str, type] = {"task": Translate, "training": TrainingConfig}


def test_what_is_written_is_read() -> None:
    task = Translate(train=(Path('/a "b"\\c.txt'), Path("/ü\x7f\n.txt")), width=7, dropout=0.25, shared=True)
    training = TrainingConfig(steps=3, lr=1e-5, clip=None, betas=(0.5, 0.75), tensorboard=True)
    path = Path("config.toml")
    toml_config.write(path, task, training)
    told = toml_config.read(path, SECTIONS)
    own = {name: told[name] for name in told if hasattr(task, name)}
    assert Translate(**own) == task
    assert TrainingConfig(**{name: told[name] for name in told.keys() - own.keys()}) == training


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def written(text: str) -> Path:
    path = Path("own.toml")
    path.write_text(text, encoding="utf-8")
    return path


def test_tables_or_none_and_names_as_typed() -> None:
    flat = toml_config.read(
        written('data = "dates"\nvalid-lines = 3\nlr = 1\ntrain = "a.tsv"\nbetas = [0, 0.5]\n'), SECTIONS
    )
    assert flat == {"data": "dates", "valid_lines": 3, "lr": 1.0, "train": (Path("a.tsv"),), "betas": (0.0, 0.5)}
    assert toml_config.read(written('[task]\ndata = "dates"\n[training]\nlog_every = 3\n'), SECTIONS) == {
        "data": "dates",
        "log_every": 3,
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("widht = 3", "unknown option in own.toml: 'widht'; did you mean 'width'\\? known are: data, train,"),
        (
            "[training]\nwidth = 3",
            "width is no option of \\[training\\] but of \\[task\\]; put it there in own.toml",
        ),
        ("[training]\nwhat = 3", "unknown option in \\[training\\] of own.toml: 'what'; known are: steps, epochs"),
        (
            "[trainin]\nlr = 3",
            "unknown table in own.toml: 'trainin'; did you mean 'training'\\? known are: task, training",
        ),
        ('lr = "x"', "lr in own.toml must be a number, got 'x'; write it as such"),
        ("steps = 1.5", "steps in own.toml must be a whole number, got 1.5"),
        ("steps = true", "steps in own.toml must be a whole number, got True"),
        ("tensorboard = 1", "tensorboard in own.toml must be true or false, got 1"),
        ('data = "datse"', "unknown data in own.toml 'datse'; did you mean 'dates'"),
        ("train = 3", "train in own.toml must be a list of names of files, got 3"),
        ("train = [1, 2]", "train in own.toml must be the name of a file, got 1; write it as such"),
        ("betas = [0.5]", "betas in own.toml must be a list of two numbers, got \\[0.5\\]"),
        ("lr = = 3", "own.toml is no TOML \\(.*\\); write lines such as: lr = 1e-3"),
    ],
)
def test_bad_files(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        toml_config.read(written(text), SECTIONS)


def test_no_file() -> None:
    with pytest.raises(ValueError, match="there is no file nix.toml; --config wants one"):
        toml_config.read(Path("nix.toml"), SECTIONS)
    Path("folder").mkdir()
    with pytest.raises(ValueError, match="folder is a folder; name the file in it, such as folder/config.toml"):
        toml_config.read(Path("folder"), SECTIONS)


def test_the_command_line_wins_and_a_run_repeats(regard: Regard, pairs: Path) -> None:
    own = written(f'train = "{pairs}"\nsteps = 1\nhidden = 10\n')
    args = [one for n, one in enumerate(TINY) if "--hidden" not in TINY[max(n - 1, 0) : n + 1]]
    assert regard("train", "translate", "--config", own, *args, "--steps", 2, "--out", "one").code == 0
    told = toml_config.read(Path("one/config.toml"), SECTIONS)
    assert told["steps"] == 2
    assert told["hidden"] == 10
    assert told["train"] == (pairs,)
    assert regard("train", "translate", "--config", "one/config.toml", "--out", "two").code == 0
    assert Path("one/best.safetensors").read_bytes() == Path("two/best.safetensors").read_bytes()
    assert Path("one/config.toml").read_bytes() == Path("two/config.toml").read_bytes()


def test_an_unknown_key_stops_before_training(regard: Regard) -> None:
    ran = regard("train", "translate", "--config", written("widht = 3"), "--out", "one")
    assert ran.code == 2
    assert ran.err.startswith("regard: unknown option in own.toml: 'widht'; did you mean 'width'?")
    assert not Path("one").exists()


def test_paths_stay_what_they_are() -> None:
    task = Translate(train=(Path("a b.txt"), Path("c.txt")))
    toml_config.write(Path("x.toml"), task, TrainingConfig(steps=1))
    assert toml_config.read(Path("x.toml"), SECTIONS)["train"] == replace(task).train


def test_paths_start_where_the_command_is_typed(regard: Regard, monkeypatch: pytest.MonkeyPatch) -> None:
    here = Path.cwd()
    (here / "below").mkdir()
    written('train = "pairs.tsv"').rename("below/own.toml")
    (here / "below" / "pairs.tsv").write_text("a\tb\n", encoding="utf-8")
    ran = regard("train", "translate", "--config", "below/own.toml", "--out", "one")
    said = f"regard: there is no file {here / 'pairs.tsv'}, which --train names; name one that is there\n"
    assert ran == (2, "", said)
    monkeypatch.setenv("COLUMNS", "200")
    for verb in ("train", "compare"):
        assert "Its paths start where you are." in regard(verb, "translate", "--help").out


def test_a_list_of_whole_numbers() -> None:
    from regard.tasks.classify_image.options import ClassifyImage

    assert toml_config.read(written("depths = [1, 2]"), {"task": ClassifyImage}) == {"depths": (1, 2)}
    with pytest.raises(ValueError, match=r"depths in .* must be a list of whole numbers, got 3; write it as such"):
        toml_config.read(written("depths = 3"), {"task": ClassifyImage})


MODELLED: dict[str, type] = {"task": Learning, "training": Training}


@pytest.mark.parametrize(
    ("text", "chosen"),
    [
        ('seed = 1\n[task.model]\nname = "attentive"\nheads = 3\n', None),
        ('[task]\nseed = 1\n[task.model]\nname = "attentive"\nheads = 3\n[training]\nlr = 1\n', {"lr": 1.0}),
        ('[task]\nseed = 1\nheads = 3\nmodel = "attentive"\n', {}),
        ('seed = 1\nmodel = "attentive"\nheads = 3\nlr = 1\n', {"lr": 1.0}),
    ],
    ids=["mixed", "tables", "flat in a table", "flat"],
)
def test_options_of_a_model(text: str, chosen: dict[str, float] | None) -> None:
    expected = {"seed": 1, "model": {"name": "attentive", "heads": 3}, **(chosen or {})}
    assert toml_config.read(written(text), MODELLED) == expected


def test_options_of_a_model_without_its_name() -> None:
    assert toml_config.read(written("heads = 3\ndepths = [1, 2]"), MODELLED) == {
        "model": {"heads": 3, "depths": (1, 2)}
    }
    assert toml_config.read(written("[task.model]\nlayers = 3"), MODELLED) == {"model": {"layers": 3}}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            '[task.model]\nname = "x"',
            "unknown name in \\[task.model\\] of own.toml 'x'; known are: recurrent, attentive",
        ),
        ('model = "x"', "unknown model in own.toml 'x'; known are: recurrent, attentive"),
        (
            "[task.model]\nhedas = 3",
            "unknown option in \\[task.model\\] of own.toml: 'hedas'; did you mean 'heads'\\? known",
        ),
        ("[task.model]\nseed = 3", "seed is no option of \\[task.model\\] but of \\[task\\]; put it there in own.toml"),
        ("[training]\nheads = 3", "heads is no option of \\[training\\] but of \\[task\\]; put it there in own.toml"),
        ("[model]\nheads = 3", "unknown table in own.toml: 'model'; known are: task, training"),
        (
            "[task.model]\nheads = 1.5",
            "heads in \\[task.model\\] of own.toml must be a whole number, got 1.5; write it as",
        ),
        ("[task.data]\nheads = 1", "unknown data in \\[task\\] of own.toml "),
    ],
)
def test_bad_options_of_a_model(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        toml_config.read(written(text), MODELLED)
