"""The task read: answers that do not depend on the batch, offsets, k best spans, history, baselines, bad input."""

import json
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.for_each import for_each

import regard
from regard.cli.main import main
from regard.data.embedded import timetables
from regard.data.questions.squad import GoldAnswer, SpanQuestion, write_question
from regard.inference.predictor import labelled_recording
from regard.tasks.read.baseline import baseline_answers
from regard.tasks.read.data import read_file
from regard.tasks.read.options import ReadConfig
from regard.tasks.read.predictor import PredictedAnswer, ReadOutput, ReadPredictor
from regard.tasks.read.task import _sample
from regard.training.config import TrainingConfig
from regard.training.fit import fit
from regard.viz.recording.figures.flow import flow_figure

SMALL: dict[str, Any] = {"embedding": 8, "characters": 8, "hidden": 8, "batch": 256, "dropout": 0.0}
NAMES, PLACES = ["Ada", "Ben", "Cleo", "Dag", "Eli"], ["Rome", "Oslo", "New York", "Rio", "Bern"]
FIXTURES = Path(__file__).parents[2] / "fixtures" / "reading"


def questions(count: int, seed: int = 0) -> dict[str, Any]:
    """Three people and where they went; one of them is asked about."""
    draw = random.Random(seed)
    paragraphs = []
    for n in range(count):
        people, places = draw.sample(NAMES, 3), draw.sample(PLACES, 3)
        context = " ".join(f"{name} went to {place}." for name, place in zip(people, places, strict=True))
        k = draw.randrange(3)
        answer = {"text": places[k], "answer_start": context.index(places[k])}
        asked = {"id": f"{seed}-{n}", "question": f"Where did {people[k]} go?", "answers": [answer]}
        paragraphs.append({"context": context, "qas": [asked]})
    return {"version": "1.1", "data": [{"title": "trips", "paragraphs": paragraphs}]}


def write(path: Path, content: Any) -> Path:
    path.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("read")
    train, valid = (
        write(folder / f"{name}.json", questions(*given)) for name, given in (("a", (120, 0)), ("b", (30, 1)))
    )
    task = ReadConfig.of(train=train, valid=valid, history=1, limit=3, **SMALL)
    training = TrainingConfig(steps=150, lr=2e-2, warmup=5, threads=1, device="cpu", schedule="constant")
    *_, last = fit(task, folder / "run", training)
    assert last.reason == "done"
    return folder / "run"


@pytest.fixture(scope="module")
def predictor(run: Path) -> ReadPredictor:
    return regard.load(run, device="cpu")  # type: ignore[return-value]


def texts(count: int, seed: int = 7) -> list[str]:
    (article,) = questions(count, seed)["data"]
    return [f"{each['context']}\n{each['qas'][0]['question']}" for each in article["paragraphs"]]


def test_an_answer_has_offsets_a_probability_and_runners_up(predictor: ReadPredictor) -> None:
    text = "Ada went to\tNew  York.\r\nBen went to Rio.\nWhere did Ada go?"
    (output,) = predictor.predict([text])
    best = output.best
    assert text[best.start : best.end] == best.text
    assert 0 < best.probability <= 1
    assert len(output.answers) == 3
    shares = [answer.probability for answer in output.answers]
    assert shares == sorted(shares, reverse=True)
    found = predictor.json(output)
    assert found["answer"] == found["spans"][0]["text"] == text[found["start"] : found["end"]]
    assert "\n" not in predictor.text(output)
    assert re.fullmatch(r".+ \d+\.\d %\tcharacters \d+ to \d+\telse .+ \d+\.\d %", predictor.text(output))


def test_it_learns(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["evaluate", str(run), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["scores"]["exact match"] > found["baselines"]["sliding window"]["exact match"]
    assert found["scores"]["exact match"] > 50
    assert main(["evaluate", str(run)]) == 0
    printed = capsys.readouterr().out
    assert "sliding window, a baseline: exact match" in printed
    assert "best sentence, a baseline: exact match" in printed


def test_k_best_spans(predictor: ReadPredictor, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    text = texts(1)[0]
    assert main(["predict", str(run), text, "a\tb", "--spans", "5", "--json"]) == 0
    first, second = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    shares = [span["probability"] for span in first["spans"]]
    assert len(shares) == 5
    assert shares == sorted(shares, reverse=True)
    assert sum(shares) <= 1 + 1e-9
    assert len({(span["start"], span["end"]) for span in first["spans"]}) == 5
    assert all(text[span["start"] : span["end"]] == span["text"] for span in first["spans"])
    assert all(len(span["text"].split()) <= 3 for span in first["spans"])  # the limit of the run
    assert [span["text"] for span in second["spans"]] == ["a"]  # one word has one span


def test_a_question_beside_the_passage(predictor: ReadPredictor, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    passage = "Ada went to Rome.\nBen went to Oslo."
    capsys.readouterr()
    assert main(["predict", str(run), passage, "--question", "Where did Ben go?", "--json"]) == 0
    beside = json.loads(capsys.readouterr().out)
    assert main(["predict", str(run), f"{passage}\nWhere did Ben go?", "--json"]) == 0
    assert {**json.loads(capsys.readouterr().out), "text": passage} == beside
    assert main(["predict", str(run), passage, "--question", " "]) == 2
    assert "the question is empty; give at least one word" in capsys.readouterr().err


def test_history_is_read(predictor: ReadPredictor) -> None:
    plain, told, older = (
        "Ada went to Rome. Ben went to Oslo.\n\nWhere?",
        "Ada went to Rome. Ben went to Oslo.\n\nWho?\nBen\nWhere?",
        "Ada went to Rome. Ben went to Oslo.\n\nWhy?\nno\nWho?\nBen\nWhere?",
    )
    outputs = predictor.predict([plain, told, older])
    shares = [[answer.probability for answer in output.answers] for output in outputs]
    assert shares[0] != pytest.approx(shares[1], abs=1e-4)
    assert shares[1] == pytest.approx(shares[2], abs=1e-5)  # --history 1 reads the last turn alone


def test_the_loss_of_a_target(predictor: ReadPredictor) -> None:
    text = texts(1)[0]
    (output,) = predictor.predict([text])
    best = output.best
    share = predictor.loss([text], [best.text]).exp().reciprocal()
    assert share.item() == pytest.approx(best.probability, rel=1e-3)
    with pytest.raises(ValueError, match="target 'wen' is not in its passage from the beginning to the end of words"):
        predictor.loss([text], ["wen"])
    with pytest.raises(ValueError, match="target ''"):
        predictor.loss([text], [""])


def test_both_directions_are_labelled_and_drawn(predictor: ReadPredictor, tmp_path: Path) -> None:
    text = texts(1)[0]
    output, recording = labelled_recording(predictor, text)
    there, back = recording
    passage, question = recording.labels(there)
    assert question is not None
    assert " ".join(question).startswith("Where did")
    assert recording.labels(back) == (None, passage)  # one row for the whole question
    assert passage[output.best.words[0]] == output.best.text.split()[0]
    for suffix in (".png", ".svg", ".html", ".txt"):
        assert predictor.draw(recording, text, output, tmp_path / f"a{suffix}").stat().st_size
    assert "question → passage" in (tmp_path / "a.svg").read_text(encoding="utf-8")
    with pytest.raises(ValueError, match="this figure needs a map from the passage to the question"):
        flow_figure(recording[:1], tmp_path / "b.png", span=(0, 1))
    long = regard.recording.Recording(recording.maps, ("a",) * 4001, recording.keys, {})
    with pytest.raises(ValueError, match="this figure shows at most 4000 tokens, got a passage of 4001 words"):
        flow_figure(long, tmp_path / "b.png", span=(0, 1))


@pytest.mark.parametrize("attention", ["additive", "co-attention", "multi-head", "none"])
def test_other_attentions(attention: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "a.json", questions(12))
    task = ReadConfig.of(train=path, attention=attention, **SMALL)
    *_, _last = fit(task, tmp_path / "run", TrainingConfig(steps=1, warmup=1, threads=1, device="cpu"))
    reader: ReadPredictor = regard.load(tmp_path / "run", device="cpu")  # type: ignore[assignment]
    text = texts(1)[0]
    if attention == "none":
        capsys.readouterr()
        assert main(["predict", str(tmp_path / "run"), text, "--picture", str(tmp_path / "a.png")]) == 2
        assert "--picture needs attention, and this reader has none" in capsys.readouterr().err
        assert main(["record", str(tmp_path / "run"), text]) == 2
        assert "a recording needs attention" in capsys.readouterr().err
        return
    _, recording = labelled_recording(reader, text)
    there, back = recording
    passage, question = recording.labels(there)
    assert recording.labels(back) == (question, passage)
    output, _ = labelled_recording(reader, text)
    assert reader.draw(recording, text, output, tmp_path / "a.png").exists()


def test_what_is_left_out_is_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = questions(12)
    paragraphs = content["data"][0]["paragraphs"]
    answer = paragraphs[0]["qas"][0]["answers"][0]
    answer["text"] = answer["text"][:-1]  # ends inside a word
    for n in (1, 2):
        paragraphs[n]["qas"].append({"id": f"none {n}", "question": "?", "answers": [], "is_impossible": True})
    path = write(tmp_path / "a.json", content)
    valid = write(tmp_path / "b.json", questions(3, 2))
    task = ReadConfig.of(train=path, valid=valid, history=2, **SMALL)
    summary = task.prepare(tmp_path).summary
    assert "11 questions about 12 passages to train on, the longest of" in summary
    assert "1 training question dropped: no word begins or ends where the answer does" in summary
    assert "2 questions left out, because they have no answer" in summary
    assert "each with at most 2 earlier questions and its answer" in summary
    fit_options = TrainingConfig(steps=1, warmup=1, threads=1, device="cpu")
    *_, _last = fit(task, tmp_path / "run", fit_options)
    capsys.readouterr()
    assert main(["evaluate", str(tmp_path / "run"), "--test", str(path)]) == 0
    printed = capsys.readouterr().out
    assert "1 question cannot be matched: no word begins or ends where the answers do" in printed
    assert "2 questions left out, because they have no answer and this reader always answers" in printed
    # without a question that can be matched there is no nll; 0 would be the best one
    content["data"][0]["paragraphs"] = paragraphs[:1]
    assert main(["evaluate", str(tmp_path / "run"), "--test", str(write(tmp_path / "c.json", content)), "--json"]) == 0
    assert "nll" not in json.loads(capsys.readouterr().out)["scores"]


@pytest.mark.parametrize("layout", ["coqa", "quac"])
def test_dialogues(layout: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = FIXTURES / f"{layout}.json"
    arguments = ["--embedding", "5", "--characters", "4", "--hidden", "6", "--threads", "1", "--limit", "1"]
    command = ["train", "read", "--train", str(path), *arguments, "--steps", "2", "--warmup", "1"]
    assert main([*command, "--out", str(tmp_path / "run")]) == 0
    said = " ".join(capsys.readouterr().out.split())
    # two turns are read by default, as the file has dialogues
    assert "each with at most 2 earlier questions and its answer" in said
    assert "are longer than --limit 1: they are trained on, but never given as answers; try a larger --limit" in said
    assert "Baselines on the same data, exact match: sliding window " in said
    assert json.loads((tmp_path / "run" / "run.json").read_text())["options"]["history"] == 2
    assert main(["evaluate", str(tmp_path / "run"), "--test", str(path)]) == 0
    printed = capsys.readouterr().out
    assert "first questions" in printed
    assert "follow-up questions" in printed
    assert "are longer than --limit 1, so that they cannot be matched" in printed


def test_word_dropout_drops_a_word_everywhere(tmp_path: Path) -> None:
    task = ReadConfig.of(train=write(tmp_path / "a.json", questions(40)), word_dropout=0.5, **SMALL)
    problem = task.prepare(tmp_path)
    planned = problem.plan_epoch(0)[0]
    batch = problem.load_batch(planned, 0, 1)
    again = problem.load_batch(planned, 0, 1)
    plain = ReadConfig.of(train=task.train, **SMALL).prepare(tmp_path).load_batch(planned, 0, 1)
    assert (batch.passages.words == again.passages.words).all()
    changed = batch.passages.words != plain.passages.words
    assert changed.any()
    assert (batch.passages.words[changed] == 3).all()
    # a word is dropped from all passages and questions of the batch, or from none
    for word in plain.passages.words[changed].unique():
        assert (batch.passages.words[plain.passages.words == word] == 3).all()


def test_baselines_read_the_sentence_with_both_keys() -> None:
    passage = "The Owl goes to Rome at 7.40. The Owl goes to Bern at 9.15. The Fox goes to Rome at 8.30."
    answers = baseline_answers(passage, ["When", "does", "the", "Owl", "go", "to", "Bern", "?"], 4)
    assert answers.sentence == "The Owl goes to Bern at 9.15."
    assert answers.window in answers.sentence
    assert "Bern" not in answers.window
    assert baseline_answers("word", ["other"], 4) == ("word", "word")
    assert baseline_answers("Bern", ["Bern"], 4) == ("Bern", "Bern")  # nothing but words of the question
    assert len(baseline_answers("a b c d e f g", ["?"], 2).window.split()) == 2


def test_baselines_are_the_same_in_every_process() -> None:
    """The order of a set of words is that of their hashes, which every process draws anew."""
    code = (
        "from regard.common.word_splitting import split_words\nfrom regard.data.embedded import timetables\n"
        "from regard.tasks.read.baseline import baseline_answers\n"
        "answers = [\n"
        "    baseline_answers(each.passage, split_words(each.question, 'marks')[0], 8)\n"
        "    for each in timetables.splits(0, 1, 1, 120).test.questions\n]"
    )
    ran = subprocess.run([sys.executable, "-c", f"{code}\nprint(answers)"], capture_output=True, text=True, check=True)
    names: dict[str, Any] = {}
    exec(code, names)
    assert ran.stdout.strip() == str(names["answers"])


def test_embedded_timetables_follow_up_only_by_history(tmp_path: Path) -> None:
    task = ReadConfig.of(**SMALL)
    assert (task.data, task.history, task.limit) == ("timetables", 2, 8)
    made = timetables.splits(0, 3, 1, 1)
    follow_up = next(each for each in made.train.questions if each.history)
    assert write_question(follow_up, 0).count("\n") == 1
    assert write_question(follow_up, 2).split("\n\n")[1].split("\n")[-1] == follow_up.question


def files(folder: Path) -> dict[str, Path]:
    bad = questions(3)
    bad["data"][0]["paragraphs"][1]["qas"][0]["answers"][0]["answer_start"] += 1
    empty = questions(3)
    empty["data"][0]["paragraphs"][1] |= {"context": " \n", "qas": [{"id": "e", "question": "?", "answers": []}]}
    empty["data"][0]["paragraphs"][1]["qas"][0]["answers"] = [{"text": " ", "answer_start": 0}]
    long = questions(3)
    long["data"][0]["paragraphs"][2]["context"] += " word" * 1000
    inside = questions(2)
    for paragraph in inside["data"][0]["paragraphs"]:
        paragraph["qas"][0]["answers"] = [{"text": "ent", "answer_start": paragraph["context"].index("ent")}]
    question = questions(3)
    question["data"][0]["paragraphs"][0]["qas"][0]["question"] = " "
    return {
        "off": write(folder / "off.json", bad),
        "layout": write(folder / "layout.json", {"premise": "a", "label": "b"}),
        "empty": write(folder / "empty.json", empty),
        "long": write(folder / "long.json", long),
        "one": write(folder / "one.json", questions(1)),
        "inside": write(folder / "inside.json", inside),
        "question": write(folder / "question.json", question),
    }


@for_each(
    ("name", "message"),
    [
        ("off", "of 0-1 is not in its text: character"),
        ("layout", "is JSON of another layout"),
        ("empty", "the passage of e is empty; give at least one word"),
        ("long", "words, more than --max-length 1,000; split it into paragraphs, or train with a larger --max-length"),
        ("one", "and too few different ones to hold some out; give more questions, or --valid as well"),
        ("inside", "has no answer that begins and ends with words, so there is nothing to learn"),
        ("question", "the question 0-0 is empty; give at least one word"),
    ],
)
def test_bad_files_are_one_sentence(
    name: str, message: str, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = files(tmp_path)[name]
    capsys.readouterr()
    out = tmp_path / "run"
    assert main(["train", "read", "--train", str(path), "--steps", "1", "--out", str(out)]) == 2
    printed = capsys.readouterr()
    assert message in printed.err
    assert path.name in printed.err
    assert printed.err.count("\n") == 1
    assert not printed.out
    assert not (out / "last.safetensors").exists()
    if name in ("off", "layout", "empty", "long", "question"):
        assert main(["evaluate", str(run), "--test", str(path)]) == 2
        printed = capsys.readouterr()
        assert message in printed.err
        assert not printed.out


@for_each(
    ("text", "message"),
    [
        ("word " * 100_000 + "\nwhat?", "the passage has 100,000 words, more than --max-length 1,000; split it"),
        ("a\n" + "word " * 100_000, "the question has 100,000 words"),
        (" \nwhat?", "the passage is empty; give at least one word"),
        ("\twhat?", "the passage is empty"),
        ("a passage", "has a passage and no question"),
        ("", "has a passage and no question"),
        ("a\n\nq\nb", "give an odd number"),
        ("a\n\nq\n" + "b " * 100_000 + "\nwhat?", "an earlier answer of the text has 100,000 words, more than"),
        ("a\t\tb\twhat?", "an earlier question of the text is empty; give at least one word"),
    ],
)
def test_bad_texts_are_one_sentence(text: str, message: str, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["predict", str(run), "Ada went to Rome.\tWhere?", text]) == 2
    printed = capsys.readouterr()
    assert message in printed.err
    assert printed.err.count("\n") == 1
    assert not printed.out


def test_an_earlier_answer_of_a_file_that_is_too_long(tmp_path: Path) -> None:
    made = json.loads((FIXTURES / "coqa.json").read_text(encoding="utf-8"))
    made["data"][0]["answers"][0]["input_text"] = "word " * 1001
    path = write(tmp_path / "long.json", made)
    with pytest.raises(ValueError, match=r"long.json: an earlier answer before the question .* has 1,001 words"):
        read_file(ReadConfig.of(train=path, history=1, **SMALL), path)
    # what is not read may be of any length
    assert len(read_file(ReadConfig.of(train=path, history=0, **SMALL), path))


def test_a_sample_is_one_line() -> None:
    asked = SpanQuestion("x", "a\n b", "Where?", (GoldAnswer("a", 0),))
    said = PredictedAnswer("a\n b", 0, 4, (0, 2), 1.0)
    assert _sample(asked, ReadOutput(asked, (said,), 1)) == "Where? → a b right: a"


def test_a_run_without_history_refuses_turns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "a.json", questions(12))
    task = ReadConfig.of(train=path, **SMALL)
    *_, _last = fit(task, tmp_path / "run", TrainingConfig(steps=1, warmup=1, threads=1, device="cpu"))
    capsys.readouterr()
    assert main(["predict", str(tmp_path / "run"), "a\tq\ta\tq"]) == 2
    assert "the text has 1 earlier questions, and this run was trained with --history 0" in capsys.readouterr().err


def test_an_example_is_read_again(predictor: ReadPredictor, run: Path) -> None:
    text = predictor.config.load().example(run)
    assert text is not None
    assert predictor.predict([predictor.read(text)])[0].best.text
    assert isinstance(SpanQuestion("", "a", "b", ()).recent(3), tuple)
