"""Questions about passages: offsets into the original text, three layouts, dialogues, and bad input."""

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.for_each import for_each

from regard.data.questions.squad import GoldAnswer, SpanQuestion, parse_question, read_questions, write_question
from regard.tasks.read.data import split_questions

FIXTURES = Path(__file__).parents[2] / "fixtures" / "reading"


def squad(context: str, *answers: tuple[str, int], **more: Any) -> dict[str, Any]:
    given = [{"text": text, "answer_start": start} for text, start in answers]
    entry = {"id": "q1", "question": "What?", "answers": given, **more}
    return {"data": [{"title": "t", "paragraphs": [{"context": context, "qas": [entry]}]}]}


def coqa(story: str, questions: list[str], answers: list[dict[str, Any]]) -> dict[str, Any]:
    asked = [{"input_text": question} for question in questions]
    return {"data": [{"id": "s", "story": story, "questions": asked, "answers": answers}]}


def write(path: Path, content: Any) -> Path:
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


TRICKY = [
    # passage, answer: surrogate pairs in JSON, combining marks, CRLF, byte order mark, answers inside words
    ("The 🚂 train 🚃 leaves", "🚃"),
    ("Cafe\u0301 re\u0301sume\u0301 open", "re\u0301sume\u0301"),
    ("café résumé", "résumé"),
    ("line one\r\nline two\r\nline three", "two\r\nline three"),
    ("\ufeffmark first", "mark"),
    ("tabs\tand\u00a0spaces\u2003wide", "spaces"),
    ("Ford's Victory in the 1990s", "Ford"),
    ("Ford's Victory in the 1990s", "1990"),
    ("数字化的问题和答案", "问题"),
    ("हिन्दी में उत्तर", "उत्तर"),
    ("a\u200db zero\u200bwidth", "width"),
    ("e\u0301e\u0301 e\u0301", "e\u0301e\u0301"),
    ("İstanbul ß ǅ", "ß"),
]


@pytest.mark.parametrize(("passage", "answer"), TRICKY)
@pytest.mark.parametrize("escaped", [True, False])
def test_no_answer_is_off_by_a_character(passage: str, answer: str, escaped: bool, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    content = squad(passage, (answer, passage.index(answer)))
    path.write_bytes(json.dumps(content, ensure_ascii=escaped).encode())
    (question,) = read_questions(path).questions
    (gold,) = question.answers
    assert question.passage == passage  # to the character, line breaks included
    assert passage[gold.start : gold.end] == gold.text == answer
    (worded,) = split_questions([question], 0)
    if worded.span is not None:
        start, end = worded.passage.place(*worded.span)
        assert passage[start:end] == answer


def test_answers_that_no_word_boundary_meets_have_no_span() -> None:
    question = SpanQuestion("1", "all 2,700,000 of them", "?", (GoldAnswer("2,70", 4), GoldAnswer("ll", 1)))
    (worded,) = split_questions([question], 0)
    assert worded.span is None
    # the first answer that fits is taken
    (worded,) = split_questions([SpanQuestion("1", "all of them", "?", (GoldAnswer("l", 1), GoldAnswer("of", 4)))], 0)
    assert worded.span == (1, 1)


def test_squad_2_counts_questions_without_an_answer(tmp_path: Path) -> None:
    content = squad("a b c", ("b", 2))
    qas = content["data"][0]["paragraphs"][0]["qas"]
    qas += [
        {"id": "q2", "question": "?", "answers": [], "is_impossible": True, "plausible_answers": []},
        {"id": "q3", "question": "?", "answers": []},
    ]
    found = read_questions(write(tmp_path / "a.json", content))
    assert [question.id for question in found.questions] == ["q1"]
    assert found.num_impossible == 2


def test_a_turn_of_quac_without_an_answer_stays_in_the_history(tmp_path: Path) -> None:
    content = squad("a b c", ("b", 2))
    qas = content["data"][0]["paragraphs"][0]["qas"]
    qas[0]["orig_answer"] = {"text": "b", "answer_start": 2}
    said = {"text": "CANNOTANSWER", "answer_start": 5}
    qas += [
        {"id": "q2", "question": "why?", "answers": [], "is_impossible": True, "orig_answer": said},
        {"id": "q3", "question": "how?", "answers": [], "followup": "y"},
        {"id": "q4", "question": "who?", "answers": [{"text": "c", "answer_start": 4}], "followup": "y"},
    ]
    found = read_questions(write(tmp_path / "a.json", content))
    assert found.num_impossible == 2
    assert [question.id for question in found.questions] == ["q1", "q4"]
    first = (found.questions[0].question, "b")
    assert found.questions[1].history == (first, ("why?", "CANNOTANSWER"))


def test_gzip_and_byte_order_mark(tmp_path: Path) -> None:
    text = b"\xef\xbb\xbf" + json.dumps(squad("a b", ("b", 2))).encode()
    (tmp_path / "a.json.gz").write_bytes(gzip.compress(text))
    assert len(read_questions(tmp_path / "a.json.gz")) == 1


def test_equal_answers_are_kept_once(tmp_path: Path) -> None:
    found = read_questions(write(tmp_path / "a.json", squad("b b", ("b", 0), ("b", 2), ("b", 0))))
    assert found.questions[0].answers == (GoldAnswer("b", 0), GoldAnswer("b", 2))


def test_a_free_answer_is_found_as_whole_words(tmp_path: Path) -> None:
    evidence = "Someone did not know now. No."
    said = {"no": ("No", 26), "one": (evidence, 0), "someone": ("Someone", 0), "yes": (evidence, 0)}
    answers = [{"span_start": 0, "span_text": evidence, "input_text": word} for word in said]
    content = coqa(evidence, [f"{word}?" for word in said], answers)
    questions = read_questions(write(tmp_path / "a.json", content)).questions
    assert [(each.answers[0].text, each.answers[0].start) for each in questions] == list(said.values())


def test_three_dialogues_in_the_layout_of_coqa() -> None:
    found = read_questions(FIXTURES / "coqa.json")
    assert found.num_impossible == 1
    by_id = {question.id: question for question in found.questions}
    assert list(by_id) == [
        *("ferry turn 1", "ferry turn 2", "ferry turn 3"),
        *("bakery turn 1", "bakery turn 2", "bakery turn 4"),
        *("kite turn 1", "kite turn 2"),
    ]
    assert by_id["ferry turn 1"].history == ()
    assert by_id["ferry turn 3"].history == (("Who owns the ferry?", "Marta"), ("What colour is it?", "green"))
    assert by_id["ferry turn 3"].recent(1) == (("What colour is it?", "green"),)
    assert by_id["ferry turn 3"].recent(0) == ()
    # an answer in other words than the text is the evidence for it, without white space around it
    assert by_id["ferry turn 3"].answers[0].text == "carries nine passengers"
    assert {answer.text for answer in by_id["ferry turn 1"].answers} == {"Marta", "Old Marta"}
    # a turn without an answer is still part of the dialogue
    assert by_id["bakery turn 4"].history[-1] == ("Who bakes at night?", "unknown")
    for question in found.questions:
        for answer in question.answers:
            assert question.passage[answer.start : answer.end] == answer.text


def test_three_dialogues_in_the_layout_of_quac() -> None:
    found = read_questions(FIXTURES / "quac.json")
    by_id = {question.id: question for question in found.questions}
    assert len(by_id) == 8
    assert by_id["C_1_q#0"].history == ()
    assert by_id["C_1_q#2"].history == (
        ("Where did she learn to fly?", "at a small airfield near Brno"),
        ("When?", "in 1931"),
    )
    # a question without an answer points at the word that stands for it
    assert by_id["C_2_q#1"].answers[0].text == "CANNOTANSWER"
    assert by_id["C_2_q#2"].history[-1][1] == "CANNOTANSWER"
    (worded,) = split_questions([by_id["C_1_q#2"]], 1)
    assert " ".join(worded.question) == "When ? in 1931 And her first plane ?"


def test_questions_of_squad_are_no_dialogue(tmp_path: Path) -> None:
    content = squad("a b c", ("b", 2))
    content["data"][0]["paragraphs"][0]["qas"].append(
        {"id": "q2", "question": "And?", "answers": [{"text": "c", "answer_start": 4}]}
    )
    assert all(not each.history for each in read_questions(write(tmp_path / "a.json", content)).questions)


TEXTS = [
    ("one passage\nwhat?", "one passage", "what?", ()),
    ("one passage\twhat?", "one passage", "what?", ()),
    ("line\r\nline\r\nwhat?\r\n", "line\r\nline\r", "what?", ()),
    ("p\tq1\ta1\tq2", "p", "q2", (("q1", "a1"),)),
    ("p\n\nq1\na1\nq2\na2\nq3\n", "p\n", "q3", (("q1", "a1"), ("q2", "a2"))),
    ("one\n\ntwo\n\nwhat?", "one\n\ntwo\n", "what?", ()),
    ("p\ttab\nwhat?", "p\ttab", "what?", ()),
]


@for_each(("text", "passage", "question", "history"), TEXTS)
def test_texts(text: str, passage: str, question: str, history: tuple) -> None:
    found = parse_question(text)
    assert (found.passage, found.question, found.history) == (passage, question, history)
    assert text.startswith(found.passage)
    again = parse_question(write_question(found, len(history)))
    assert (again.passage.rstrip("\n"), again.question, again.history) == (passage.rstrip("\n"), question, history)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a passage alone", "the text 'a passage alone' has a passage and no question; write the question on a line"),
        ("p\tq\ta", "has 2 parts behind the passage, which must be question, answer, …, question; give an odd number"),
        ("p\n\nq\na", "has 2 lines below the last empty line"),
    ],
)
def test_texts_without_a_question(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        parse_question(text)


HALF = json.loads('"\\ud800"')
BAD: dict[str, tuple[Any, str]] = {
    "off by one": (
        squad("a b c", ("b", 1)),
        "'b' of q1 is not in its text: character 1 begins ' ', and its text stands at 2; correct",
    ),
    "nowhere": (
        squad("a b c", ("x", 1)),
        "the answer 'x' of q1 is not in its text: character 1 begins ' ', and its text is nowhere",
    ),
    "empty answer": (squad("a b c", ("", 1)), "an answer has one character at least"),
    "a list": ([1], "is JSON of another layout"),
    "SNLI": ({"gold_label": "neutral"}, "is JSON of another layout"),
    "articles of another layout": ({"data": [{"text": "a"}]}, 'article 1 of data has neither "paragraphs"'),
    "no qas": ({"data": [{"paragraphs": [{"context": "a"}]}]}, "a paragraph of article 1 of data has no 'qas'"),
    "no id": (
        {"data": [{"paragraphs": [{"context": "a", "qas": [{}]}]}]},
        ": a question of article 1 of data has no id; ",
    ),
    "a question in numbers": (squad("a", ("a", 0), question=3), "'question' of q1 must be a text, got 3"),
    "a truth": (squad("a", ("a", True)), "'answer_start' of q1 must be a whole number, got True"),
    "nothing": ({"data": []}, "has no question with an answer (0 without one)"),
    "impossible": (squad("a", is_impossible=True), "has no question with an answer (1 without one)"),
    "half a character": (squad("a " + HALF, ("a", 0)), "'context' of a paragraph of article 1 of data holds half a"),
    "turns": (coqa("a", [], [{}]), "s has 0 questions and 1 answers; give one answer per question"),
    "a span of CoQA": (
        coqa("a b", ["?"], [{"span_start": 1, "span_text": "b", "input_text": "b"}]),
        "the answer 'b' of turn 1 of s is not in its text",
    ),
}


@for_each("case", BAD)
def test_bad_input(case: str, tmp_path: Path) -> None:
    content, message = BAD[case]
    path = write(tmp_path / "a.json", content)
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        read_questions(path)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_two_questions_with_one_id(tmp_path: Path) -> None:
    content = squad("a", ("a", 0))
    content["data"] *= 2
    with pytest.raises(ValueError, match="has two questions with the id q1; give every question its own"):
        read_questions(write(tmp_path / "a.json", content))


@for_each(
    ("name", "content", "message"),
    [
        ("a.json", b"{", "is no JSON"),
        ("a.json", b" \n", "a.json is empty; it must hold"),
        ("a.json", b"[" * 100_000, "is no JSON (it is nested too deeply)"),
        ("a.json", b'"\xff"', "byte 2 is not UTF-8; convert it to UTF-8"),
        ("a.json.gz", b"no gzip", "cannot be unpacked"),
        ("missing", None, "there is no file"),
        (".", None, "is a directory; name the file in it"),
    ],
)
def test_files_that_are_no_json(name: str, content: bytes | None, message: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=re.escape(message)):
        read_questions(tmp_path / name)


def test_a_file_that_unpacks_to_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.data.gzip_bound._ALWAYS", 10)
    (tmp_path / "a.json.gz").write_bytes(gzip.compress(b" " * 100_000))
    with pytest.raises(ValueError, match="unpacks to more than"):
        read_questions(tmp_path / "a.json.gz")
