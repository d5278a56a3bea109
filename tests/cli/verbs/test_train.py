"""regard train: new runs, resumed runs, and how they end."""

import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
from PIL import Image
from tests.cli.conftest import LINES, TINY, Refused, Regard
from tests.for_each import for_each
from tests.product import first

from regard.cli.parsing import toml_config
from regard.cli.verbs.train import TrainOptions, parse_task, training_config
from regard.common.json_files import with_checksum
from regard.tasks.base import Budget
from regard.tasks.registry import TASKS
from regard.tasks.translate.options import Translate
from regard.training.config import TrainingConfig, lasting

NEW = ["train", "translate"]


def steps(run: Path) -> list[int]:
    lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [line["step"] for line in map(json.loads, lines) if line["kind"] == "step"]


def test_from_a_file_to_a_run(regard: Regard, pairs: Path, tmp_path: Path) -> None:
    run = tmp_path / "a b" / "run"
    ran = regard(*NEW, "--train", pairs, *TINY, "--steps", 4, "--log-every", 2, "--validate-every", 2, "--out", run)
    assert ran.code == 0, ran.err
    assert ran.err == ""
    lines = ran.out.splitlines()
    assert lines[0] == f"{run}: {len(LINES) - 1} pairs to train on, 1 to validate by greedy search, 10 and 10 tokens"
    assert re.fullmatch(r"[\d,]+ parameters on cpu, 1 thread; \d+ batch(es)? per epoch", lines[1])
    assert re.fullmatch(r"step 2 of 4  loss \d.\d{4}  [\d,]+ tokens/s  0:\d\d, 0:\d\d left", lines[2])
    assert re.fullmatch(r"step 2: bleu \S+  chrf \S+  nll \S+  \(the best so far\)", lines[3])
    assert "→" in lines[4]
    assert "Step 4 of 4 is done." in lines
    assert f"Next: regard translate '{run}', or regard evaluate '{run}'" in lines
    assert {"run.json", "config.toml", "best.safetensors", "last.safetensors", "memory.json"} <= {
        path.name for path in run.iterdir()
    }


def test_a_resumed_run_keeps_the_options_that_are_not_typed(regard: Regard, pairs: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert regard(*NEW, "--train", pairs, *TINY, "--steps", 2, "--lr", 0.5, "--out", run).code == 0
    ran = regard("train", "--resume", run)
    assert ran.code == 0
    assert "Nothing is left to train: step 2 of 2 is done; raise --steps 2 to go on." in ran.out
    ran = regard("train", f"--resume={run}", "--steps", 5, "--log-every", 1)
    assert ran.code == 0
    assert "resumed after step 2" in ran.out
    assert steps(run) == [2, 3, 4, 5]
    values = toml_config.read(run / "config.toml", {"task": Translate, "training": TrainingConfig})
    assert (values["lr"], values["steps"]) == (0.5, 5)
    # the name of the task is allowed
    assert regard(*NEW, "--resume", run, "--steps", 6).code == 0


def test_help_of_a_resume(regard: Regard, trained: Path) -> None:
    ran = regard("train", "--resume", trained, "--help")
    assert ran.code == 0
    assert ran.out.startswith("usage: regard train [-h] [OPTIONS] --resume RUN\n")
    assert "--steps INT" in ran.out
    assert "--width" not in ran.out
    # the defaults are those of the run
    assert " (default: 4)" in ran.out


def test_a_training_without_an_end_takes_that_of_its_data(pairs: Path) -> None:
    for dataset, budget in Translate.budgets.items():
        task = Translate.of(train=(pairs,)) if dataset == "files" else Translate.of(data=dataset)
        training, notes = training_config({}, task)
        assert budget.minutes is not None
        assert training == TrainingConfig(minutes=budget.minutes)
        assert notes == f"ends after {lasting(budget.minutes)}, as no --steps, --epochs or --minutes is given"
    assert training_config({"epochs": 3.0}, task) == (TrainingConfig(epochs=3.0), "")


@for_each(
    ("args", "file", "ends", "schedule"),
    [
        ([], "", (1600, None, None), "cosine"),
        (["--steps", "70"], "", (70, None, None), "cosine"),
        (["--epochs", "50"], "", (None, 50.0, None), "cosine"),
        (["--minutes", "30"], "", (None, None, 30.0), "cosine"),
        (["--minutes", "30", "--epochs", "50"], "", (None, 50.0, 30.0), "cosine"),
        (["--minutes", "30", "--schedule", "constant"], "", (None, None, 30.0), "constant"),
        ([], "epochs = 50", (None, 50.0, None), "cosine"),
        ([], "[training]\nminutes = 30", (None, None, 30.0), "cosine"),
        (["--steps", "70"], "minutes = 30", (70, None, 30.0), "cosine"),
        (["--train", "a.tsv"], "", (None, None, 60.0), "cosine"),
    ],
)
def test_the_end_that_a_task_proposes_gives_way(
    tmp_path: Path, args: list[str], file: str, ends: tuple[object, ...], schedule: str
) -> None:
    """Captions of scenes end after a number of steps, unless an end is given."""
    config = TASKS["caption"]
    (tmp_path / "own.toml").write_text(file)
    args = [*args, "--config", str(tmp_path / "own.toml")] if file else args
    options = parse_task(TrainOptions, "regard train caption", config, args)
    training, notes = training_config(options.training, config(**options.task))
    assert (training.steps, training.epochs, training.minutes) == ends
    assert training.schedule == schedule
    assert training.lr == config.training["lr"]
    reason = "as no --steps, --epochs or --minutes is given"
    end = "1,600 steps" if ends[0] == 1600 else "60 minutes"
    has_end = bool(file) or not {"--steps", "--epochs", "--minutes"}.isdisjoint(args)
    assert (f"ends after {end}, {reason}" in notes) != has_end


def test_the_steps_that_a_task_proposes_give_way_to_epochs(
    regard: Regard, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(TASKS["caption"], "budgets", {"files": Budget(steps=2)})
    tsv = tmp_path / "all.tsv"
    for n in range(3):
        Image.new("L", (8, 8), 90 * n).save(tmp_path / f"{n}.png")
    tsv.write_text("".join(f"{n}.png\tnumber {n}\n" for n in range(3)))
    run, small = tmp_path / "run", ["--annotation", 4, "--channels", 2, "--width", 4, "--hidden", 4, "--threads", 1]
    files = ["--train", tsv, "--valid", tsv, "--tokens", "words"]
    ran = regard("train", "caption", *files, *small, "--warmup", 1, "--log-every", 1, "--out", run)
    assert "The training ends after 2 steps, as no --steps, --epochs or --minutes is given." in ran.out
    assert steps(run) == [1, 2]
    assert "step 2 of 2 is done" in regard("train", "--resume", run, "--minutes", 60).out
    assert regard("train", "--resume", run, "--epochs", 5).code == 0
    assert steps(run) == [1, 2, 3, 4, 5]


def test_a_run_records_absolute_paths(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert Translate.of(train=(Path("a"),)).with_absolute_paths() == Translate.of(train=(tmp_path / "a",))


def test_embedded_data_and_a_folder_named_after_the_time(
    regard: Regard, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from regard.data import embedded
    from regard.data.embedded import letters

    few = embedded.EmbeddedPairs("few", lambda seed: letters.reverse_splits(seed, 50, 5, 5), "characters", "characters")
    monkeypatch.setitem(embedded.EMBEDDED, "dates", few)
    monkeypatch.chdir(tmp_path)
    ran = regard(*NEW, "--minutes", 1e-9, "--width", 6, "--hidden", 8, "--threads", 1, "--batch", 3)
    assert ran.code == 0, ran.err
    assert "warning: --batch 3 is less than the longest sample, of " in ran.out
    assert ran.out.startswith("No --train or --data given; using the built-in data set 'dates'.\n")
    (run,) = (tmp_path / "runs").iterdir()
    assert re.fullmatch(r"translate-\d{8}-\d{6}", run.name)


@for_each(
    ("words", "sentence"),
    {
        "--train nix.tsv": "nix.tsv, which --train names; name one that is there",
        "--train PAIRS --valid nix.tsv": "nix.tsv, which --valid names; name one that is there",
        "--train latin.tsv": "latin.tsv:2: byte 0xfc at place 2 is not UTF-8; convert it",
        "--train a b c": "train must be one .tsv file or two text files, got 3; join them first",
        "--data dates --train a": "exclude each other; give one of them",
        "--attention dot --decoder fixed": "--attention dot has no place in --decoder fixed",
        "--attention entmx --train PAIRS": "unknown --attention 'entmx'; did you mean 'entmax'?",
        "--attention bahdanau": "--attention bahdanau is a decoder, whose attention is 'additive'; give --decoder "
        "bahdanau and leave",
        "--attention bidaf --train PAIRS": "AttentionFlow",
        "--heads 2": "--heads 2 belongs to --model transformer or universal, not to seq2seq",
        "--glimpses 3": "--glimpses is an option of glimpse, not of this task; regard train translate --help",
        "--data dates --width 100000000": "--width 100000000 makes a model of ",
        "--lr -1": "--lr must be positive and finite, got -1.0; try --lr 0.001",
        "--train PAIRS --out PAIRS": "is a file, and a run is a folder; take another name",
    }.items(),
)
def test_wrong_input_is_one_sentence(
    words: str, sentence: str, refused: Refused, pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("latin.tsv").write_bytes(b"a\tb\n\xe4\xfc\tb\n".replace(b"\xe4", b"x"))
    run = [] if "--out" in words else ["--out", "run"]
    args = [pairs if word == "PAIRS" else word for word in words.split()]
    assert sentence in refused(*NEW, *args, "--hidden", 6, "--minutes", 1e-6, *run)
    assert not Path("run").exists()


def test_a_folder_with_a_run_is_not_overwritten(refused: Refused, pairs: Path, trained: Path) -> None:
    sentence = f"{trained} holds a run already; resume it (--resume {trained}), or take another folder"
    assert refused(*NEW, "--train", pairs, *TINY, "--steps", 1, "--out", trained) == sentence


def test_runs_that_cannot_be_resumed(refused: Refused, trained: Path, tmp_path: Path) -> None:
    assert refused("train", "caption", "--resume", trained) == (
        f"{trained} is a run of translate, not of caption; resume it without a task: regard train --resume {trained}"
    )
    assert refused("train", "--resume").startswith("--resume needs a value behind it")
    assert f"{tmp_path} holds no run: there is no run.json in it" in refused("train", "--resume", tmp_path)
    (tmp_path / "run.json").write_text("{", encoding="utf-8")
    assert f"{tmp_path / 'run.json'} cannot be read" in refused("train", "--resume", tmp_path)
    record = json.loads((trained / "run.json").read_text(encoding="utf-8"))
    (tmp_path / "run.json").write_bytes(with_checksum({**record, "task": "paint"}))
    sentence = f"{tmp_path} is a run of 'paint', which this version does not know; update regard"
    assert refused("train", "--resume", tmp_path) == sentence


def test_a_resumed_run_keeps_its_task(refused: Refused, trained: Path) -> None:
    resume = ["train", "--resume", trained]
    sentence = "--width was fixed when the run began, as its data and its model were; --resume changes"
    assert refused(*resume, "--width", 9).startswith(sentence)
    assert refused(*resume, "--gate=eca").startswith("--gate was fixed when")
    assert refused(*resume, "--widht", 9).startswith("unknown option --widht; ")


def test_diverging_is_3(regard: Regard, pairs: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    ran = regard(*NEW, "--train", pairs, *TINY, "--steps", 50, "--lr", 1e30, "--clip", "None", "--out", run)
    assert ran.code == 3
    assert re.search(r", on lines (\d+, )+\d+( and \d+ more)? of pairs\.tsv; there is no checkpoint yet: fix", ran.err)
    assert "start over with a smaller lr than 1e+30 or with a clip such as --clip 1.0" in ran.err
    assert f"regard train --resume {run} --lr 5e+29" in ran.err


def command(*args: object) -> list[str]:
    return [sys.executable, "-m", "regard", *map(str, args)]


@pytest.mark.usefixtures("hangup")
@pytest.mark.parametrize("number", first([signal.SIGINT, signal.SIGTERM, signal.SIGHUP]))
def test_a_signal_saves_and_prints_how_to_resume(
    regard: Regard, pairs: Path, tmp_path: Path, number: signal.Signals
) -> None:
    run = tmp_path / "run"
    args = [*NEW, "--train", pairs, *TINY, "--steps", 10**6, "--log-every", 1, "--out", run]
    with subprocess.Popen(command(*args), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        for line in child.stdout:
            if line.startswith("step 3 "):
                break
        child.send_signal(number)
        rest, error, code = child.stdout.read(), child.stderr.read(), child.wait()
    assert code == 130
    assert error == ""
    match = re.search(r"interrupted after step ([\d,]+); resume with: regard train --resume (\S+)\n$", rest)
    assert match[2] == str(run)
    done = int(match[1].replace(",", ""))
    ran = regard("train", "--resume", run, "--steps", done + 2)
    assert ran.code == 0
    assert f"resumed after step {done:,}" in ran.out
    assert steps(run) == list(range(1, done + 3))


def test_a_signal_before_the_first_step(
    regard: Regard, pairs: Path, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(task: object) -> None:
        assert signal.getsignal(signal.SIGTERM) != signal.SIG_DFL, "it would end the tests as well"
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr("regard.tasks.translate.task.read", read)
    run = tmp_path / "run"
    ran = regard(*NEW, "--train", pairs, *TINY, "--steps", 2, "--out", run)
    assert (ran.code, ran.err) == (130, "regard: interrupted\n")
    assert not run.exists()
    ran = regard("train", "--resume", trained, "--steps", 9)
    assert ran.code == 130
    assert ran.err.endswith(f"resume with: regard train --resume {trained}\n")
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_torchrun_leaves_every_option_alone() -> None:
    """It reads abbreviations of its own options also among the arguments of the program that it starts."""
    from torch.distributed.run import get_args_parser

    models = [model for config in TASKS.values() for model in config.models.values()]
    names = [item.name for options in (*TASKS.values(), *models, TrainingConfig) for item in fields(options)]
    args = [*NEW, *(f"--{name.replace('_', '-')}" for name in [*names, "out", "config", "resume"])]
    assert get_args_parser().parse_args(["-m", "regard", *args]).training_script_args == args


@for_each("name", ["config.toml", "tokens.json", "data.json", "metrics.jsonl"])
def test_a_new_run_writes_over_nothing(refused: Refused, pairs: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("my own")
    sentence = f"{tmp_path} has a file {name}, which a training would write over; name another folder by --out"
    assert sentence in refused(*NEW, "--train", pairs, *TINY, "--steps", 1, "--out", tmp_path)
    assert (tmp_path / name).read_text() == "my own"
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_an_empty_path(refused: Refused, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for words in (["train", "--resume", ""], ["train", "--resume="], ["evaluate", ""]):
        assert refused(*words).endswith("must be a path, got ''; name one, such as . for the working directory")
    assert refused(*NEW, "--train", "").endswith("must be a path, got ''; name a file")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes")
def test_a_named_pipe_as_a_record(refused: Refused, tmp_path: Path) -> None:
    record = tmp_path / "run.json"
    record.mkdir()
    sentence = f"{record} is no file; restore it, or name the folder of a training"
    assert refused("train", "--resume", tmp_path) == sentence
    record.rmdir()
    os.mkfifo(record)
    sentence = f"{record} is no file; remove it, or name the folder of a training"
    assert refused("train", "--resume", tmp_path) == sentence
