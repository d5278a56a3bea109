"""regard train: new runs, old runs, and the ways in which both end."""

import json
import re
import signal
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
from PIL import Image
from tests.cli.conftest import LINES, TINY, Regard

from regard.cli.parsing import toml_config
from regard.cli.verbs.train import New, chosen, training_of
from regard.tasks.caption.options import Caption
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
    said = ran.out.splitlines()
    assert said[0] == f"{run}: {len(LINES) - 1} pairs to train on, 1 to validate, 10 and 10 tokens"
    assert re.fullmatch(r"[\d,]+ parameters on cpu, 1 thread; \d+ batch(es)? an epoch", said[1])
    assert re.fullmatch(r"step 2 of 4  loss \d.\d{4}  [\d,]+ tokens/s  0:\d\d, 0:\d\d left", said[2])
    assert re.fullmatch(r"step 2: bleu \S+  chrf \S+  nll \S+  \(the best so far\)", said[3])
    assert "→" in said[4]
    assert "Step 4 of 4 is done." in said
    assert f"Go on with: regard translate '{run}', or regard evaluate '{run}'" in said
    assert {"run.json", "config.toml", "best.safetensors", "last.safetensors", "memory.json"} <= {
        path.name for path in run.iterdir()
    }


def test_resume_goes_on_with_what_was_typed(regard: Regard, pairs: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert regard(*NEW, "--train", pairs, *TINY, "--steps", 2, "--lr", 0.5, "--out", run).code == 0
    ran = regard("train", "--resume", run)
    assert ran.code == 0
    assert "Nothing is left to train: step 2 of 2 is done; raise --steps 2 to go on." in ran.out
    ran = regard("train", f"--resume={run}", "--steps", 5, "--log-every", 1)
    assert ran.code == 0
    assert "goes on after step 2" in ran.out
    assert steps(run) == [2, 3, 4, 5]
    told = toml_config.read(run / "config.toml", Translate)
    assert (told["lr"], told["steps"]) == (0.5, 5)
    # the name of the task may stand there
    assert regard(*NEW, "--resume", run, "--steps", 6).code == 0


def test_help_of_a_resume_shows_the_run_s_own(regard: Regard, trained: Path) -> None:
    ran = regard("train", "--resume", trained, "--help")
    assert ran.code == 0
    assert "usage: regard train" in ran.out


def test_without_an_end_it_says_which_it_takes(pairs: Path) -> None:
    typed = dict.fromkeys(("steps", "epochs", "minutes"))
    for kind, minutes in Translate.MINUTES.items():
        task = Translate(train=(pairs,)) if kind == "files" else Translate(data=kind)  # type: ignore[arg-type]
        training, end = training_of(typed, task)
        assert training == TrainingConfig(minutes=minutes)
        assert end == f"ends after {lasting(minutes)}, as no --steps, --epochs or --minutes is given"
    assert training_of({**typed, "epochs": 3.0}, task) == (TrainingConfig(epochs=3.0), "")


@pytest.mark.parametrize(
    ("typed", "file", "ends", "schedule"),
    [
        ([], "", (1600, None, None), "cosine"),
        (["--steps", "70"], "", (70, None, None), "cosine"),
        (["--epochs", "50"], "", (None, 50.0, None), "cosine"),
        (["--minutes", "30"], "", (None, None, 30.0), "inverse-sqrt"),
        (["--minutes", "30", "--epochs", "50"], "", (None, 50.0, 30.0), "cosine"),
        (["--minutes", "30", "--schedule", "constant"], "", (None, None, 30.0), "constant"),
        ([], "epochs = 50", (None, 50.0, None), "cosine"),
        ([], "[training]\nminutes = 30", (None, None, 30.0), "inverse-sqrt"),
        (["--steps", "70"], "minutes = 30", (70, None, 30.0), "cosine"),
        (["--train", "a.tsv"], "", (None, None, 60.0), "inverse-sqrt"),
    ],
)
def test_what_a_task_proposes_gives_way(
    tmp_path: Path, typed: list[str], file: str, ends: tuple[object, ...], schedule: str
) -> None:
    """Captions of scenes end after so many steps, unless anything was said of their end."""
    (tmp_path / "some.toml").write_text(file)
    found = chosen(New, "train", "caption", [*typed, "--config", str(tmp_path / "some.toml")] if file else typed)
    training, said = training_of(found.training, Caption(**found.task))
    assert (training.steps, training.epochs, training.minutes) == ends
    assert training.schedule == schedule
    assert training.lr == Caption.TRAINING["lr"]
    given = "as no --steps, --epochs or --minutes is given"
    end = "1,600 steps" if ends[0] == 1600 else "60 minutes"
    assert (f"ends after {end}, {given}" in said) == (not file and not {"--steps", "--epochs", "--minutes"} & {*typed})
    assert ("has the schedule inverse-sqrt, as minutes alone do not tell cosine how many steps there are" in said) == (
        schedule == "inverse-sqrt"
    )


def test_what_a_task_proposed_gives_way_to_more_passes(
    regard: Regard, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(Caption, "STEPS", {"files": 2})
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


def test_files_are_known_by_their_full_names(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert Translate(train=(Path("a"),)).placed() == Translate(train=(tmp_path / "a",))


def test_embedded_data_and_a_folder_named_after_the_time(
    regard: Regard, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from regard.data import embedded
    from regard.data.embedded import reverse

    few = embedded.Embedded("few", lambda seed: reverse.splits(seed, 50, 5, 5), "characters", "characters")
    monkeypatch.setitem(embedded.EMBEDDED, "dates", few)
    monkeypatch.chdir(tmp_path)
    ran = regard(*NEW, "--minutes", 1e-9, "--width", 6, "--hidden", 8, "--threads", 1)
    assert ran.code == 0, ran.err
    assert ran.out.startswith("No --train and no --data: dates it is.\n")
    (run,) = (tmp_path / "runs").iterdir()
    assert re.fullmatch(r"translate-\d{8}-\d{6}", run.name)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--train", "nix.tsv"], "nix.tsv, which --train names; name one that is there"),
        (["--train", "PAIRS", "--valid", "nix.tsv"], "nix.tsv, which --valid names; name one that is there"),
        (["--train", "latin.tsv"], "latin.tsv:2: byte 0xfc at place 2 is not UTF-8; convert it"),
        (["--train", "a", "b", "c"], "train must be one .tsv file or two text files, got 3; join them first"),
        (["--data", "dates", "--train", "a"], "exclude each other; give one of them"),
        (["--attention", "dot", "--decoder", "fixed"], "--attention dot has no place in --decoder fixed"),
        (["--attention", "entmx", "--train", "PAIRS"], "unknown --attention 'entmx'; did you mean 'entmax'?"),
        (
            ["--attention", "bahdanau"],
            "--attention bahdanau is a decoder, whose attention is 'additive'; give --decoder bahdanau and leave",
        ),
        (["--attention", "bidaf", "--train", "PAIRS"], "AttentionFlow"),
        (["--heads", "2"], "--heads 2 belongs to --model transformer, not to 'seq2seq'"),
        (["--lr", "-1"], "--lr must be positive, got -1.0; try --lr 0.001"),
        (["--schedule", "cosine"], "schedule 'cosine' must know how many steps it goes over"),
        (["--schedule", "cosin"], "unknown --schedule 'cosin'; did you mean 'cosine'?"),
        (["--train", "PAIRS", "--tokens", "bpe", "--vocabulary", "9"], "9"),
        (["--config", "nix.toml"], "there is no file nix.toml"),
        (["--train", "PAIRS", "--out", "PAIRS"], "is a file, not a folder; take another one"),
    ],
)
def test_wrong_input_is_one_sentence(
    args: list[str], said: str, regard: Regard, pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("latin.tsv").write_bytes(b"a\tb\n\xe4\xfc\tb\n".replace(b"\xe4", b"x"))
    run = [] if "--out" in args else ["--out", "run"]
    ran = regard(*NEW, *(pairs if one == "PAIRS" else one for one in args), "--hidden", 6, "--minutes", 1e-6, *run)
    assert ran.code == 2
    assert said in ran.err
    assert ran.err.startswith("regard: ")
    assert ran.err.count("\n") == 1
    assert not Path("run").exists()


@pytest.mark.parametrize("verb", ["train", "compare"])
def test_files_are_looked_for_before_anything_is_said_or_torch_imported(verb: str, tmp_path: Path) -> None:
    program = f"""import sys; from regard.cli.main import main
code = main(["{verb}", "classify-image", "--train", "nix", *(["--gate", "se"] if "{verb}" == "compare" else [])])
sys.exit(9 if "torch" in sys.modules else code)"""
    ran = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    told = f"regard: there is no folder {tmp_path / 'nix'}, which --train names; name one that is there\n"
    assert (ran.returncode, ran.stdout, ran.stderr) == (2, "", told)


def test_a_folder_with_a_run_is_not_overwritten(regard: Regard, pairs: Path, trained: Path) -> None:
    ran = regard(*NEW, "--train", pairs, *TINY, "--steps", 1, "--out", trained)
    assert ran.code == 2
    assert ran.err == f"regard: {trained} holds a run already; resume it (--resume {trained}), or take another folder\n"


def test_resume_of_nothing(regard: Regard, tmp_path: Path) -> None:
    ran = regard("train", "--resume", tmp_path)
    assert ran.code == 2
    assert f"{tmp_path} holds no run: there is no run.json in it" in ran.err
    assert regard("train", "--resume").code == 2


def test_resume_of_a_damaged_run(regard: Regard, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{", encoding="utf-8")
    ran = regard("train", "--resume", tmp_path)
    assert ran.code == 2
    assert f"{tmp_path / 'run.json'} cannot be read" in ran.err


def test_resume_of_another_kind(regard: Regard, trained: Path, tmp_path: Path) -> None:
    told = json.loads((trained / "run.json").read_text(encoding="utf-8"))
    (tmp_path / "run.json").write_text(json.dumps({**told, "kind": "Paint"}), encoding="utf-8")
    ran = regard("train", "--resume", tmp_path)
    assert ran.code == 2
    assert ran.err == f"regard: {tmp_path} is a run of Paint, which this version does not know; update regard\n"


def test_a_resumed_run_keeps_its_task(regard: Regard, trained: Path) -> None:
    ran = regard("train", "--resume", trained, "--width", 9)
    assert ran.code == 2
    assert "--width was settled when the run began, as its data and its model were; --resume changes" in ran.err
    assert "--gate was settled when" in regard("train", "--resume", trained, "--gate=eca").err
    assert "unknown option --widht; " in regard("train", "--resume", trained, "--widht", 9).err


def test_diverging_is_3(regard: Regard, pairs: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    ran = regard(*NEW, "--train", pairs, *TINY, "--steps", 50, "--lr", 1e30, "--clip", "None", "--out", run)
    assert ran.code == 3
    assert re.search(r", on lines (\d+, )+\d+( and \d+ more)? of pairs\.tsv; there is no checkpoint yet: mend", ran.err)
    assert f"regard train --resume {run} --lr 5e+29" in ran.err


def command(*args: object) -> list[str]:
    return [sys.executable, "-m", "regard", *map(str, args)]


@pytest.mark.usefixtures("hangup")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_saves_and_says_how_to_go_on(
    regard: Regard, pairs: Path, tmp_path: Path, number: signal.Signals
) -> None:
    run = tmp_path / "run"
    args = [*NEW, "--train", pairs, *TINY, "--steps", 10**6, "--log-every", 1, "--out", run]
    with subprocess.Popen(command(*args), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        for line in child.stdout:
            if line.startswith("step 3 "):
                break
        child.send_signal(number)
        rest, said, code = child.stdout.read(), child.stderr.read(), child.wait()
    assert code == 130
    assert said == ""
    found = re.search(r"interrupted after step ([\d,]+); go on with: regard train --resume (\S+)\n$", rest)
    assert found is not None
    assert found[2] == str(run)
    done = int(found[1].replace(",", ""))
    ran = regard("train", "--resume", run, "--steps", done + 2)
    assert ran.code == 0
    assert f"goes on after step {done:,}" in ran.out
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
    assert ran.err.endswith(f"go on with: regard train --resume {trained}\n")
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_torchrun_leaves_every_option_alone() -> None:
    """It takes the beginning of its own options for them, in what it starts as well."""
    from torch.distributed.run import get_args_parser

    names = [one.name for of in (Translate, TrainingConfig) for one in fields(of)] + ["out", "config", "resume"]
    told = [*NEW, *(f"--{name.replace('_', '-')}" for name in names)]
    assert get_args_parser().parse_args(["-m", "regard", *told]).training_script_args == told


def test_two_processes_speak_with_one_voice(pairs: Path, tmp_path: Path) -> None:
    args = [*NEW, "--train", pairs, *TINY, "--steps", 3, "--log-every", 1, "--validate-every", 2]
    torchrun = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc-per-node",
        "2",
        "-m",
        "regard",
        *map(str, args),
    ]
    ran = subprocess.run(torchrun, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    # no --out: both must name the folder after the same moment
    (run,) = (tmp_path / "runs").iterdir()
    assert steps(run) == [1, 2, 3]
    assert ran.stdout.count("\nstep 1 of 3 ") == 1
    assert "in each of 2 processes" in ran.stdout
    assert ran.stdout.count("Step 3 of 3 is done.") == 1


@pytest.mark.parametrize("name", ["config.toml", "tokens.json", "data.json", "metrics.jsonl"])
def test_a_new_run_writes_over_nothing(regard: Regard, pairs: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("my own")
    found = regard("train", "translate", "--train", pairs, *TINY, "--steps", "1", "--out", tmp_path)
    assert found.code == 2
    assert f"{tmp_path} has a file {name}, which a training would write over; name another folder by --out" in found.err
    assert (tmp_path / name).read_text() == "my own"
    assert [path.name for path in tmp_path.iterdir()] == [name]
