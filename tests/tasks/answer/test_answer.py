"""The task answer: tasks of a folder, restarts, joint networks, noise, answers that do not depend on the batch."""

import json
import random
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.data.questions.test_babi import write_babi

import regard
from regard.cli.main import main
from regard.data.questions.babi import Question, parse_babi
from regard.inference.predictor import labelled_recording
from regard.tasks.answer.baseline import last_named
from regard.tasks.answer.data import EncodedQuestions, StoryEncoder, insert_empty, plan_questions, read
from regard.tasks.answer.options import Answer
from regard.tasks.answer.predictor import AnswerPredictor
from regard.training.config import TrainingConfig
from regard.training.fit import fit

PEOPLE, PLACES = ("Al", "Bo"), ("hall", "park", "attic")
SMALL = {"width": 16, "hops": 2, "memory": 6, "batch": 16, "restarts": 2, "linear_epochs": 1}


def where(count: int, seed: int) -> list[Question]:
    draw = random.Random(seed)
    found = []
    for _ in range(count):
        moves = [(draw.choice(PEOPLE), draw.choice(PLACES)) for _ in range(draw.randint(2, 5))]
        n = draw.randrange(len(moves))
        person = moves[n][0]
        last = max(i for i, (each, _) in enumerate(moves) if each == person)
        sentences = tuple(f"{each} went to the {place}." for each, place in moves)
        found.append(Question(sentences, f"Where is {person}?", moves[last][1], (last,)))
    return found


def whether(count: int, seed: int) -> list[Question]:
    return [
        Question(each.sentences, f"{each.question[:-1]} now?", "in" if n % 2 else "in,out")
        for n, each in enumerate(where(count, seed))
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two tasks, to train on and to test on."""
    path = tmp_path_factory.mktemp("babi")
    for name, make in (("qa1_where", where), ("qa2_whether", whether)):
        write_babi(make(500, 0), path / f"{name}_train.txt")
        write_babi(make(30, 1), path / f"{name}_test.txt")
    return path


def train(folder: Path, run: Path, steps: int = 240, **options: object) -> Path:
    task = Answer.of(train=(folder,), test=(folder,), **{**SMALL, **options})
    training = TrainingConfig(
        steps=steps, lr=2e-2, warmup=2, threads=1, device="cpu", schedule="cosine", validate_every=60
    )
    *_, last = fit(task, run, training)
    assert last.reason == "done"
    return run


@pytest.fixture(scope="module")
def run(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(folder, tmp_path_factory.mktemp("run") / "run")


@pytest.fixture(scope="module")
def predictor(run: Path) -> AnswerPredictor:
    return regard.load(run, device="cpu")  # type: ignore[return-value]


def test_all_tasks_of_a_folder_with_a_table(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", str(run), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    first, second = found["tasks"]
    assert (first["name"], first["questions"], second["name"]) == ("qa1_where", 30, "qa2_whether")
    assert found["scores"]["error"] == pytest.approx((first["error"] + second["error"]) / 2)
    # the first task is learned, beyond its baselines, and its hops are on the sentence that supports the answer
    assert first["error"] <= 10.0
    assert first["error"] + 10 < min(first["bag_of_words"], first["last_named"], first["most_frequent"])
    assert first["support"] > 60
    assert second["support"] is None
    assert found["scores"]["failed tasks"] == sum(each["error"] > 5 for each in found["tasks"])
    assert main(["evaluate", str(run)]) == 0
    printed = capsys.readouterr().out
    assert re.search(r"qa1_where: error \d+\.\d % of 30, support .* %; bag of words .* %, last answer named", printed)


def test_the_answer_has_a_runner_up_and_the_sentences_of_every_hop(predictor: AnswerPredictor) -> None:
    text = "task: qa1\nAl went to the hall. Bo went to the park. Where is Al?"
    (output,) = predictor.predict([text])
    assert (output.best, output.sentences) == ("hall", ("Al went to the hall.", "Bo went to the park."))
    np.testing.assert_allclose(np.sum(output.hops, axis=1), 1.0, atol=1e-6)
    found = predictor.json(output)
    assert found["answer"] == "hall"
    assert predictor.predict([text.replace("\n", " ")]) == [output]
    assert found["runner_up"]["probability"] <= found["probability"]
    assert [hop["line"] for hop in found["hops"]] == [n + 1 for n in output.attended]
    assert re.fullmatch(
        r"hall [\d.]+ % \(else \w+ [\d.]+ %\)\thop 1: \d .* \d+ %\thop 2: \d .* \d+ %", predictor.text(output)
    )


def test_sentences_that_support_the_answer_are_marked(predictor: AnswerPredictor, tmp_path: Path) -> None:
    text = "task: qa1_where\n1 Al went to the hall.\n2 Bo went to the park.\n3 Where is Al?\thall\t1"
    _, recording = labelled_recording(predictor, text)
    (hops,) = recording
    assert hops.verified
    assert recording.keys == ("1 Al went to the hall. (supports the answer)", "2 Bo went to the park.")
    assert recording.queries == ("hop 1", "hop 2")
    (output,) = predictor.predict([text])
    np.testing.assert_allclose(hops.weights.dense().flatten(0, -3)[0].numpy(), output.hops, atol=1e-6)
    for name in ("hops.png", "hops.html"):
        assert predictor.draw(recording, text, output, tmp_path / name).stat().st_size > 1000


def test_unknown_words_and_old_sentences_are_noted(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    story = "Bo went to the park. " * 7 + "Al went to the hall yesterday. Where is Al?"
    assert main(["predict", str(run), f"task: qa1\n{story}"]) == 0
    printed = capsys.readouterr()
    assert printed.out.count("\n") == 1
    assert "1 word was not in the vocabulary, so the model could not read it: yesterday" in printed.err
    assert "2 sentences were older than the memory of 6 and not read" in printed.err


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "Al went. Where is Al?",
            "this run has one network for each of 2 tasks; begin the text with one of them",
        ),
        ("task: qa7\nAl went. Where is Al?", "qa1_where"),
        ("task: qa1\nWhere is Al?", "the story before the question 'Where is Al?' is empty"),
        ("task: qa1\n" + "word " * 100_000 + "?", "has 100,001 words, more than max_length=5,000 of this run"),
        ('task: qa1\n{"story": 1}', "is JSON; give sentences and a question"),
    ],
)
def test_bad_texts_are_one_sentence(run: Path, text: str, sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", str(run), text]) == 2
    printed = capsys.readouterr()
    assert (printed.out, printed.err.count("\n")) == ("", 1)
    assert sentence in printed.err


def test_unknown_answers_are_one_sentence(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("qa1_where", "qa2_whether"):
        (tmp_path / f"{name}_test.txt").write_text("1 Al went to the moon.\n2 Where is Al?\tmoon\t1\n")
    assert main(["evaluate", str(run), "--test", str(tmp_path)]) == 2
    printed = capsys.readouterr()
    assert (printed.out, printed.err.count("regard: ")) == ("", 1)
    expected = (
        "qa1_where_test.txt has no answer that the run knows, only 'moon'; the run knows attic, hall, park: name other"
    )
    assert expected in printed.err


def test_one_network_for_all_tasks(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = train(folder, tmp_path / "run", 2, joint=True)
    predictor = regard.load(run, device="cpu")
    assert len(predictor.model) == 1  # type: ignore[arg-type]
    (output,) = predictor.predict(["Al went to the hall. Where is Al?"])
    assert {name for name, _ in output.probabilities} == {*PLACES, "in", "in,out"}
    assert main(["evaluate", str(run), "--json"]) == 0
    assert [each["name"] for each in json.loads(capsys.readouterr().out)["tasks"]] == ["qa1_where", "qa2_whether"]


def test_restarts_are_chosen_on_validation(folder: Path, tmp_path: Path) -> None:
    task = Answer.of(train=(folder / "qa1_where_train.txt",), **{**SMALL, "restarts": 3})
    problem = task.prepare(tmp_path)
    torch.manual_seed(0)
    model = problem.build_model().eval()
    errors, losses = model.restart_scores(0, problem.valid["qa1_where"])
    best = min(range(3), key=lambda n: (float(errors[n]), float(losses[n])))
    result = problem.validate(model)
    assert model[0].best_restart == best
    assert result.values["error"] == pytest.approx(float(errors[best]))
    # the answers are those of that restart
    encoded = problem.valid["qa1_where"]
    rows = np.arange(len(encoded))
    logits = model[0](encoded.inputs(rows), restart=best).logits[0]
    wrong = (logits.argmax(-1) != encoded.targets(rows)).double().mean()
    assert 100 * float(wrong) == pytest.approx(result.values["error"])


def test_a_linear_start_ends_after_its_epochs(folder: Path, tmp_path: Path) -> None:
    problem = Answer.of(train=(folder,), **{**SMALL, "linear_epochs": 2}).prepare(tmp_path)
    for epoch in range(4):
        plan = problem.plan_epoch(epoch)
        assert all(planned.linear == (epoch < 2) for planned in plan)
        assert problem.load_batch(plan[0], 0, 1).linear == (epoch < 2)


def test_processes_share_the_questions_of_a_step(folder: Path, tmp_path: Path) -> None:
    problem = Answer.of(train=(folder,), **SMALL).prepare(tmp_path)
    (planned, *_) = problem.plan_epoch(0)
    parts = [problem.load_batch(planned, rank, 2) for rank in range(2)]
    assert sum(problem.num_terms(part) for part in parts) == sum(map(len, planned.rows))
    few = planned._replace(rows=(planned.rows[0][:1], planned.rows[1][:1]))
    assert problem.load_batch(few, 1, 2) is None
    half = planned._replace(rows=(planned.rows[0][:1], planned.rows[1][:2]))
    model = problem.build_model()
    problem.loss(model, problem.load_batch(half, 1, 2)).total.backward()
    assert all(p.grad is not None for p in model.parameters())


def test_noise_inserts_empty_slots_and_keeps_the_order() -> None:
    rng = np.random.default_rng(0)
    slots = np.array([[0, 1, 2, 3], [4, 5, -1, -1]] * 200)
    moved = insert_empty(slots, 0.1, 10, rng)
    assert all(row[row >= 0].tolist() == before[before >= 0].tolist() for row, before in zip(moved, slots, strict=True))
    shifted = sum(int(np.flatnonzero(row == 0)[0]) for row in moved[::2])
    assert 5 < shifted < 40  # a tenth of 200
    assert insert_empty(slots, 0.9, 3, rng).shape[1] <= 3
    np.testing.assert_array_equal(insert_empty(slots, 0.0, 4, rng), slots)


def test_noise_is_of_training_only(folder: Path, tmp_path: Path) -> None:
    problem = Answer.of(train=(folder / "qa1_where_train.txt",), **{**SMALL, "noise": 0.9}).prepare(tmp_path)
    (planned, *_) = problem.plan_epoch(0)
    (noisy, _) = problem.load_batch(planned, 0, 1).parts[0]
    plain = problem.train[0].inputs(planned.rows[0])
    assert (noisy.slots[:, 0] < 0).float().mean() > 0.5
    assert (plain.slots[:, 0] >= 0).all()


def test_every_distinct_sentence_is_encoded_once() -> None:
    questions = parse_babi(["1 A b.", "2 C d.", "3 A b.", "4 Who?\tx", "5 A b.", "6 Who?\ty"], "text")
    encoded = EncodedQuestions(questions, StoryEncoder(["a", "b", "c", "d", "who", "x", "y"], ["x", "y"]), 3)
    inputs = encoded.inputs(np.arange(2))
    assert inputs.sentences.tolist() == [[2, 3], [4, 5]]
    # the newest first, and the oldest of four sentences is beyond the memory
    assert inputs.slots.tolist() == [[0, 1, 0], [0, 0, 1]]


def test_no_story_is_in_both_parts(tmp_path: Path) -> None:
    path = tmp_path / "mine.txt"
    path.write_text("".join(f"1 A {n % 6}.\n2 Who?\tx\n3 B {n % 3}.\n4 Who?\ty\n" for n in range(12)))
    splits = read(Answer.of(train=(path,), valid_share=0.2))["mine"]
    assert len(splits.train) + len(splits.valid) == 24
    assert splits.valid
    assert not {q.sentences for q in splits.train} & {q.sentences for q in splits.valid}
    path.write_text("1 A.\n2 Who?\tx\n" * 2)
    with pytest.raises(ValueError, match=r"mine.txt has 2 questions and too few different ones to hold some out"):
        read(Answer.of(train=(path,)))


def test_a_small_task_repeats_its_questions() -> None:
    rng = np.random.default_rng(0)
    parts = plan_questions(np.array([2, 3, 1]), 4, 5, rng)
    assert len(parts) == 5
    assert all(len(part) for part in parts)
    assert {int(n) for part in parts for n in part} == {0, 1, 2}


def test_the_last_answer_named() -> None:
    questions = [*where(1, 0), Question(("Nothing.",), "Where?", "hall")]
    place = questions[0].sentences[-1].split()[-1].rstrip(".")
    assert last_named(questions, PLACES, "park") == [place, "park"]


def test_a_task_with_one_answer_and_other_tasks_than_those_to_start_from(
    folder: Path, run: Path, tmp_path: Path
) -> None:
    (tmp_path / "one.txt").write_text("1 A.\n2 Who?\tx\n1 B.\n2 Who?\tx\n")
    with pytest.raises(ValueError, match="'one' has one answer, 'x', so .*; give questions with other answers as well"):
        Answer.of(train=(tmp_path / "one.txt",), **SMALL).prepare(tmp_path)
    task = Answer.of(train=(folder / "qa1_where_train.txt",), **SMALL)
    events = fit(task, tmp_path / "run", TrainingConfig(steps=1, threads=1, device="cpu"), init_from=run)
    with pytest.raises(
        ValueError, match="the run starts from one of the tasks qa1_where, qa2_whether, and has qa1_where"
    ):
        list(events)


def test_a_memory_that_is_too_small_gives_a_warning(folder: Path, tmp_path: Path) -> None:
    problem = Answer.of(train=(folder,), **{**SMALL, "memory": 3}).prepare(tmp_path)
    (text,) = problem.warnings()
    assert text.startswith("the memory holds 3 sentences, and stories have up to 5: older ones are not read")
    assert not Answer.of(train=(folder,), **SMALL).prepare(tmp_path).warnings()
