"""The task select-response: models, the tf-idf baseline, ties, one map per turn, frozen encoders, and errors."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.tasks.encoders import bert_folder
from tests.tasks.laws import check_resume

import regard
from regard.cli.main import main
from regard.data.dialogues import CandidateGroup
from regard.inference.limits import Limits
from regard.inference.predictor import labelled_recording
from regard.serve.errors import RequestError
from regard.serve.model_endpoint import InputsRequest
from regard.tasks.select_response.data import parse_group, tf_idf_scores
from regard.tasks.select_response.task import _best, ranking_scores
from regard.tasks.shared.encoder import PretrainedEncoder

WORDS = ["good", "bad", "film", "trip", "it", "was", "to"]
SMALL = ["--turns", "3", "--words", "5", "--candidates", "3", "--batch", "8", "--threads", "1", "--device", "cpu"]
STEPS = ["--warmup", "1", "--validate-every", "2"]
DEEP = ["--width", "6", "--levels", "1", "--filters", "3", "2"]
MODELS = {
    "deep": [*DEEP, "--embedding", "4"],
    "deep alone": [*DEEP, "--embedding", "4", "--similarity", "none"],
    "esim": ["--model", "esim", "--hidden", "4", "--embedding", "4"],
    "deep, frozen": [*DEEP, "--encoder", "BERT"],
    "esim, frozen": ["--model", "esim", "--hidden", "4", "--encoder", "BERT", "--attention", "additive"],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("dialogues")
    bert_folder(path / "bert")
    lines = [f"{a} {b}\t{'' if n % 5 == 0 else b}\t{b} {a} {n}\t{n}" for n, a in enumerate(WORDS) for b in WORDS]
    (path / "dialogues.tsv").write_text("".join(f"{line}\n" for line in lines))
    return path


def train(folder: Path, options: Sequence[str], out: Path, steps: int) -> None:
    given = [str(folder / "bert") if option == "BERT" else option for option in options]
    args = ["--train", str(folder / "dialogues.tsv"), *given, *SMALL, *STEPS]
    assert main(["train", "select-response", *args, "--steps", str(steps), "--out", str(out)]) == 0


@pytest.fixture(scope="module")
def run(folder: Path) -> Path:
    train(folder, MODELS["esim"], folder / "run", 1)
    return folder / "run"


@pytest.mark.parametrize("options", MODELS.values(), ids=MODELS)
def test_every_model(folder: Path, tmp_path: Path, options: Sequence[str]) -> None:
    run = check_resume(lambda out, steps: train(folder, options, out, steps), tmp_path)
    predictor = regard.load(run, device="cpu")
    inputs = ["good film\tit\nbad\nto it was\ntrip", "it\t\tto\nfilm film\nwas"]
    together = [dict(output.candidates) for output in predictor.predict(inputs)]
    for n, text in enumerate(inputs):
        assert dict(predictor.predict([text])[0].candidates) == pytest.approx(together[n], abs=1e-5)
    # the probabilities are shares of the candidates, in proportions that do not depend on the others
    assert [sum(each.values()) for each in together] == pytest.approx([1.0, 1.0])
    few = dict(predictor.predict(["good film\tit\ntrip\nbad"])[0].candidates)
    assert few["trip"] / few["bad"] == pytest.approx(together[0]["trip"] / together[0]["bad"], abs=1e-4)
    output, recording = labelled_recording(predictor, inputs[0])
    assert all(item.verified for item in recording)
    expected = ("all turns",) if "esim" in options else ("turn 1", "turn 2")  # of the dialogue
    assert recording.names == expected
    assert {name.partition(":")[0] for name in recording.queries or ()} == {"1", "2"}
    for item in recording:
        rows, columns = recording.labels(item)
        assert rows is not None
        assert columns is not None
        torch.testing.assert_close(item.weights.dense().sum(-1), torch.ones(1, len(rows)))
    assert predictor.draw(recording, inputs[0], output, tmp_path / "x.png").stat().st_size > 100
    # candidates in several batches, the best one in the last: the maps are still its own
    predictor.batch = 2
    best_last = "\n".join(["good film\tit", *(text for text, _ in output.candidates[::-1])])
    for one, other in zip(labelled_recording(predictor, best_last)[1], recording, strict=True):
        torch.testing.assert_close(one.weights.dense(), other.weights.dense())
    assert predictor.predict([]) == []
    if "BERT" in options:
        # another task can start from the encoder of the run, whose weights did not change
        first, kept = (PretrainedEncoder.of_folder(path).facts for path in (folder / "bert", run))
        assert kept == replace(first, source="once")


def test_evaluate_prints_the_baseline(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["evaluate", str(run)]) == 0
    printed = capsys.readouterr().out
    assert "tf-idf, the baseline: recall at 1" in printed
    assert "how often the right one of 3 is among the k best; ties are wrong" in printed
    assert main(["evaluate", str(run), "--test", str(run.with_name("dialogues.tsv"))]) == 0


def test_tf_idf_prefers_common_words() -> None:
    groups = [CandidateGroup(("a", "b b"), ("b", "x", "a b")), CandidateGroup(("x",), ("y", "x", "b"))]
    scores = tf_idf_scores(groups)
    assert scores.shape == (2, 3)
    assert scores[0, 1] == scores[1, 0] == scores[1, 2] == 0
    assert scores[1, 1] == pytest.approx(1)
    assert scores[0, 2] > scores[0, 0] > 0


def test_a_model_that_scores_all_alike_knows_nothing() -> None:
    scores = ranking_scores(np.zeros((4, 10)))
    assert scores["recall at 1"] == scores["recall at 5"] == 0
    assert scores["mrr"] == pytest.approx(10)
    assert scores["nll"] == pytest.approx(np.log(10))
    assert "recall at 5" not in ranking_scores(np.zeros((4, 3)))
    # the right candidate is the first
    assert _best(np.zeros(3)) == 2
    assert _best(np.array([2.0, 1.0, 1.0])) == 0


def test_groups_that_cannot_be_read() -> None:
    turns = "an input must be the turns of a dialogue on one line"
    for text, most, message in (
        ("one line", None, f"{turns}.*got 'one line'; give one turn and one"),
        ("\t\nb", None, turns),
        ("a\n\nb", None, turns),
        ("a\n" + "b " * 9, None, r"the text 'b b .*' has 9 words, more than max_length=8 of this run; shorten it"),
        ("a\nb\nc", 1, "the input .* has 2 candidates, more than 1; send the others in further inputs"),
    ):
        with pytest.raises(ValueError, match=message):
            parse_group(text, 8, most)
    assert parse_group("a\nb", 8, 1) == CandidateGroup(("a",), ("b",))


def test_a_request_has_a_limited_number_of_candidates(run: Path) -> None:
    predictor = regard.load(run, device="cpu")
    many = "a\n" + "b\n" * 101
    endpoint = predictor.endpoint(Limits(), run="run", step=1)
    with pytest.raises(RequestError, match="has 101 candidates, more than 100; send the others in further inputs"):
        endpoint.answer([InputsRequest((many,))])
    assert len(predictor.predict([many])[0].candidates) == 101


@pytest.mark.parametrize("options", [MODELS["esim"], MODELS["esim, frozen"]], ids=["words", "tokens"])
def test_turns_that_are_cut_and_dialogues_without_a_response_are_counted(
    folder: Path, tmp_path: Path, options: Sequence[str], capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "dialogues.tsv"
    path.write_text("".join(f"{'it ' * (9 if n < 3 else 1)}{n}\tto {n}\n" for n in range(12)) + "alone\t\n")
    given = [str(folder / "bert") if option == "BERT" else option for option in options]
    args = ["--train", str(path), "--valid", str(path), *given, *SMALL, *STEPS, "--steps", "1"]
    assert main(["train", "select-response", *args, "--out", str(tmp_path / "run")]) == 0
    printed = "".join(capsys.readouterr())
    assert "3 turns to train on have more than words=5 tokens" in printed
    assert "2 dialogues without a response left out" in printed


def test_errors(run: Path, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    predictor = regard.load(run, device="cpu")
    with pytest.raises(ValueError, match="target must be one of the candidates, got 'x'; theirs: b, c"):
        predictor.loss(["a\nb\nc"], ["x"])
    gaps = tmp_path / "gaps.tsv"
    gaps.write_text("".join(f"a {n}\t\tb {n}\n" for n in range(9)))
    base = ["train", "select-response", "--steps", "1", "--out", str(tmp_path / "new")]
    for options, message in (
        (["--train", str(gaps), "--turns", "1"], "has no response with words in the --turns 1 before it"),
        (["--encoder", str(folder / "bert"), "--embedding", "7"], "--embedding 7 is of trained vectors"),
        (["--attention", "local-p"], "is more than a score and a normalizer"),
    ):
        assert main([*base, *options]) == 2
        assert message in capsys.readouterr().err
