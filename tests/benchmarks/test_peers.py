"""The comparison with whole systems: its protocol, its data, its turns, and regard's side of it at toy size."""

import sys
from pathlib import Path
from typing import Any

import pytest
from benchmarks.measured import About
from benchmarks.peers import environment, joeynmt, regard_worker, text
from benchmarks.peers.talk import ROOT, Setting, Worker
from benchmarks.report import Results
from benchmarks.table import Row

TOY = """
import sys
from benchmarks.peers.talk import serve
def echo(value): print("noise"); return {"value": value}
def fail(): raise ValueError("no such thing")
serve({"echo": echo, "fail": fail, "end": lambda: sys.exit(3)})
"""


def test_a_worker_answers_line_by_line_whatever_is_printed_beside(tmp_path: Path) -> None:
    with Worker([sys.executable, "-c", TOY], tmp_path / "log") as worker:
        assert [worker.ask("echo", value=n)["value"] for n in ("é\n", [1, 2.5])] == ["é\n", [1, 2.5]]
        with pytest.raises(
            RuntimeError, match=r"failed at 'fail': ValueError: no such thing; the traceback is in .*log"
        ):
            worker.ask("fail")
        assert worker.ask("echo", value=1) == {"value": 1}
        with pytest.raises(RuntimeError, match=r"ended at 'end' without an answer; its output is in .*log"):
            worker.ask("end")
    assert (tmp_path / "log").read_text().count("noise") == 3


def test_the_installed_copy_is_mended_once(tmp_path: Path) -> None:
    path = tmp_path / "builders.py"
    path.write_text('kwargs = {\n            "verbose": False,\n            "threshold_mode": "abs",\n}\n')
    environment.mend(path)
    mended = path.read_text()
    assert "verbose" not in mended
    environment.mend(path)
    assert path.read_text() == mended
    path.write_text("another version\n")
    with pytest.raises(RuntimeError, match="does not read as that of joeynmt 2.3.0; delete the environment"):
        environment.mend(path)


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(
        ValueError, match="holds something else than an environment; name a folder that is new or empty"
    ):
        environment.setup(tmp_path)
    assert environment.found(tmp_path) is None


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> text.Text:
    folder = tmp_path_factory.mktemp("text")
    lines = [" ".join("abc"[(n * k) % 3] * (1 + n % 4) for k in range(1 + n % 5)) for n in range(60)]
    (folder / "one").write_text("\n".join(lines) + "\n")
    (folder / "two").write_text("\n".join(line[::-1] for line in lines) + "\n")
    return text.write(folder / "made", folder / "one", folder / "two", size=264, held_out=7, seed=0)


def test_both_systems_read_the_same_numbers(words: text.Text) -> None:
    source, target = (text.read(words.folder / f"train.{side}") for side in ("src", "trg"))
    assert len(source) == len(target) == words.pairs == 53
    assert len(text.read(words.folder / "test.src")) == 7
    known = [n for (n,) in text.read(words.folder / "vocabulary.txt")]
    assert known == list(range(4, words.vocabulary))
    assert {n for row in source + target for n in row} <= set(known)
    assert words.tokens == sum(len(row) + 1 for row in target) / 53


def test_too_few_pairs_to_hold_any_out(words: text.Text, tmp_path: Path) -> None:
    one, two = words.folder.parent / "one", words.folder.parent / "two"
    with pytest.raises(ValueError, match="has 60 pairs of suitable length, too few to hold out 31; give a longer file"):
        text.write(tmp_path, one, two, size=264, held_out=31, seed=0)


SMALL = {"width": 8, "heads": 2, "feed_forward": 8, "sentences": 11}


@pytest.mark.parametrize("name", joeynmt.SETTINGS)
@pytest.mark.parametrize("own", [False, True])
def test_regard_trains_and_decodes_on_that_text(words: text.Text, name: str, own: bool) -> None:
    setting = Setting(**{**joeynmt.SETTINGS[name][0].json(), **SMALL})  # type: ignore[arg-type]
    ours = regard_worker.Regard()
    loaded = ours.load(setting.json(), str(words.folder), seed=1, own=own)
    assert loaded["parameters"] == sum(p.numel() for p in ours.model.parameters())
    first, later = ours.train(steps=2), ours.train(steps=8)
    assert later["loss"] < first["loss"]
    assert 0 < later["tokens"] <= later["places"]
    assert later["cpu_seconds"] > 0
    if not own:
        rows = text.read(words.folder / "train.trg")
        assert first["tokens"] == sum(len(row) + 1 for row in rows[:22])
    got = ours.decode(start=2, stop=7, beam=3, alpha=1.0, longest=9)
    assert got["sentences"] == 5
    assert 5 <= got["tokens"] <= 45
    ours.steps.close()


class Counting:
    """A worker that is so many times slower."""

    def __init__(self, seconds: float, calls: list[float]) -> None:
        self.seconds, self.calls = seconds, calls

    def ask(self, do: str, **asked: Any) -> dict[str, Any]:
        self.calls.append(self.seconds)
        return {"tokens": 10, "places": 16, "sentences": 5, "cpu_seconds": self.seconds, "loss": 2.0}


def test_they_take_turns_and_ratios_are_taken_inside_a_round() -> None:
    calls: list[float] = []
    workers: Any = {joeynmt.PEER: Counting(6.0, calls), joeynmt.SAME: Counting(3.0, calls)}
    answers = joeynmt.rounds("train", workers, [{"steps": 1}] * 3)
    assert calls == [6.0, 3.0, 3.0, 6.0, 6.0, 3.0]
    (row,) = joeynmt.versus("training", answers, "tokens", {joeynmt.SAME: 2.5, joeynmt.OWN: None}, "target tokens")
    assert row.measured.median == 2.0
    assert row.verdict == "falls short"
    assert "3 target tokens/s (38% padding, loss 2.00) to 2 target tokens/s" in row.note


def test_models_that_are_not_measured_again_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joeynmt, "RESULT", tmp_path / "joeynmt.json")
    assert joeynmt.others([]) == []
    about = About("2020-02-02", {}, {})
    rows = [Row(f"training, {name}", "a : b", note="then") for name in ("one", "two")]
    Results(about, rows).write(joeynmt.RESULT)
    again = [Row("training, one", "a : b", note="now")]
    (kept,) = joeynmt.others(again)
    assert kept.case == "training, two"
    assert kept.note == "then; measured on 2020-02-02"
    Results(about, [*again, kept]).write(joeynmt.RESULT)
    assert [row.note for row in joeynmt.others(again)] == [kept.note]


def test_the_command_says_what_is_missing(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for given, said in [
        ([], "give --peer, --source and --target, or run --setup FOLDER first"),
        (["--peer", str(tmp_path), "--source", "a", "--target", "b"], "has no joeynmt 2.3.0; run --setup"),
        (["--rounds", "0"], "must be 1 or more, got 0"),
    ]:
        with pytest.raises(SystemExit):
            joeynmt.main(given)
        assert said in capsys.readouterr().err
    (tmp_path / "letter.txt").write_text("dear")
    assert joeynmt.main(["--setup", str(tmp_path)]) == 1
    assert "error: " in capsys.readouterr().err


def test_the_environment_of_joeynmt_shares_torch_alone() -> None:
    """The other constraints of regard contradict the requirements of joeynmt."""
    lines = environment.shared((ROOT / "constraints.txt").read_text(encoding="utf-8")).splitlines()
    assert {line.partition("==")[0] for line in lines} == {"torch", "numpy", "setuptools"}
    assert environment.shared("torch==2\ntorch-extra==1\nprotobuf==7\n") == "torch==2\n"
