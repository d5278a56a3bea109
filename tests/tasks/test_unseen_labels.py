"""Labels that a run never saw count as missed in files to evaluate, with a note; training refuses them."""

import json
from pathlib import Path

import pytest
from tests.tasks.cases import CASES, with_paths, write_files

from regard.cli.main import main

# by task: the file of its case, a line with an unseen label, the kind and the label in the note, and the examples that
# nll leaves out
UNSEEN = {
    "classify-text": ("texts.txt", "mixed\ta mixed film\n", "labels", "mixed", "1 example"),
    "answer": ("stories_train.txt", "1 Al went to x.\n2 Where is Al?\tx\t1\n", "answers", "x", "1 question"),
    "track": ("turns.tsv", "99\t1\t\ta table\tfood=x\t\n", "values or requests", "food=x", "1 turn"),
    "transcribe": ("speech.tsv", "sound0.wav\té\n", "letters", "é", ""),
    "match": ("sentences.tsv", "contrary\ta b\tb a\n", "labels", "contrary", "1 example"),
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unseen")
    write_files(folder)
    return folder


def evaluate(run: Path, path: Path, capsys: pytest.CaptureFixture[str]) -> tuple[dict[str, float], list[str]]:
    """The scores and the number of examples, and the notes."""
    capsys.readouterr()
    assert main(["evaluate", str(run), "--test", str(path), "--json"]) == 0
    evaluation = json.loads(capsys.readouterr().out)
    (count,) = (value for unit, value in evaluation.items() if f"{unit}_per_second" in evaluation)
    return {**evaluation["scores"], "count": count}, evaluation.get("notes", [])


def hits(scores: dict[str, float]) -> float:
    """The number of examples that are right, times 100."""
    share = next((scores[name] for name in ("accuracy", "turn inform") if name in scores), None)
    return scores["count"] * (100 - scores["error"] if share is None else share)


@pytest.mark.parametrize("task", UNSEEN)
def test_unseen_labels_of_a_test_file_count_as_missed(
    task: str, files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name, line, kind, label, left_out = UNSEEN[task]
    known, run = files / name, files / f"run-{task}"
    with_unseen = known.with_name(f"unseen_{name}")
    with_unseen.write_text(known.read_text() + line)
    options = [*with_paths(CASES[task].options, files), "--steps", "1", "--threads", "1"]
    ontology = files / "ontology.json"
    ontology.write_text(
        json.dumps({"informable": {slot: [*"abcde"] for slot in ("food", "area")}, "requestable": ["phone"]})
    )
    options += ["--ontology", str(ontology)] if task == "track" else []
    note = f"{kind} that the run never saw count as missed: 1 ({label!r})"
    note += f"; nll leaves out {left_out} with them" if left_out else ""
    # the best weights are chosen by a file that has the label, too; answers of validation are known
    options += ["--valid", str(known if task == "answer" else with_unseen)]
    assert main(["train", task, *options, "--out", str(run)]) == 0
    assert (note in " ".join("".join(capsys.readouterr()).split())) == (task != "answer")
    (before, _), (after, notes) = (evaluate(run, path, capsys) for path in (known, with_unseen))
    assert note in notes
    assert after["count"] == before["count"] + 1
    if task == "transcribe":
        # a model of one step writes nothing right
        assert after["cer"] >= before["cer"] == 100
    else:
        right, right_too = (hits(each) for each in (before, after))
        assert right_too == pytest.approx(right)
        assert after["nll"] == pytest.approx(before["nll"], rel=1e-5)
