"""Stories of bAbI: files, folders, single texts, and sentences about bad input."""

import gzip
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.for_each import for_each

from regard.data.questions.babi import (
    Question,
    match_files,
    parse_babi,
    parse_story,
    read_babi,
    task_files,
    task_name,
    words_of,
)

TWO = """1 Mary moved to the bathroom.
2 John went to the hallway.
3 Where is Mary? \tbathroom\t1
4 Daniel got the football.
5 What is Daniel carrying?\tfootball,milk\t4 2
1 Wolves are afraid of mice.
2 What is Emily afraid of?\tmouse
"""


def write_babi(questions: Sequence[Question], path: Path) -> None:
    """Writes questions, each with its own story, in the format of bAbI."""
    lines = []
    for each in questions:
        lines += [f"{n} {sentence}" for n, sentence in enumerate(each.sentences, 1)]
        support = " ".join(str(n + 1) for n in each.support)
        lines.append(f"{len(each.sentences) + 1} {each.question}\t{each.answer}\t{support}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def test_questions_have_the_sentences_before_them_and_their_support(tmp_path: Path) -> None:
    path = tmp_path / "qa1_train.txt"
    path.write_text(TWO)
    first, second, third = read_babi(path)
    assert first == Question(
        ("Mary moved to the bathroom.", "John went to the hallway."), "Where is Mary?", "bathroom", (0,), 0, 3
    )
    # support counts sentences, not lines: line 4 is the third sentence
    assert (second.answer, second.support, len(second.sentences)) == ("football,milk", (2, 1), 3)
    assert (third.story, third.support, third.sentences) == (1, (), ("Wolves are afraid of mice.",))
    with gzip.open(tmp_path / "packed.txt.gz", "wt") as file:
        file.write(TWO)
    assert read_babi(tmp_path / "packed.txt.gz") == [first, second, third]


def test_write_and_read_again(tmp_path: Path) -> None:
    questions = parse_babi(TWO.splitlines(), "text")
    write_babi(questions, tmp_path / "again.txt")
    again = read_babi(tmp_path / "again.txt")
    assert [(q.text, q.answer, q.support) for q in again] == [(q.text, q.answer, q.support) for q in questions]


@for_each(
    ("text", "sentence"),
    [
        ("Mary moved.\n", "x:1: the line has no number and sentence, got 'Mary moved.'; a line of bAbI is such as"),
        ('{"story": []}\n', "x:1: the line is JSON, got"),
        ("1 Where is Mary?\thall\t1\n", "x:1: the answer 'hall' is supported by line 1, which is no earlier sentence"),
        ("1 Where is Mary?\thall\n", "x:1: the story has no sentences before its question 'Where is Mary?'; add some"),
        ("1 A.\n2 Where is Mary?\n", "x:2: the question 'Where is Mary?' has no answer; write it after a tab"),
        ("1 A.\n2 Where is Mary?\t\t1\n", "x:2: the question 'Where is Mary?' has no answer; write it after a tab"),
        ("1 A.\n2 Where?\ta\t7\n", "supported by line 7, which is no earlier sentence of its story (its sentences are"),
        ("1 A.\n2 Where?\ta\tone\n", "supported by line one, which is no earlier sentence"),
        ("1 A.\n2 Where?\ta\t1\tmore\n", "x:2: a question has at most three columns"),
        ("1 A.\n1 B.\n1 C.\n", "x has no questions; a question is a line such as"),
        ("2 A.\n", "x:1: the number 2 does not follow a line 1; number the lines of every story from 1"),
        ("1 A.\n3 B.\n2 C?\ta\n", "x:3: the number 2 does not follow 3"),
        ("1 A.\n" + "2 " + "word " * 100_000 + "\n", "x:2: the story has more than max_length=500 words; split it"),
    ],
)
def test_bad_files(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)):
        parse_babi(text.splitlines(), "x", 500)


def test_texts_of_a_story_and_a_question() -> None:
    expected = (("Mary moved to the bathroom.", "John left."), "Where is Mary?")
    for text in (
        "Mary moved to the bathroom. John left. Where is Mary?",
        "Mary moved to the bathroom.\nJohn left.\n\nWhere is Mary?\n",
        "1 Mary moved to the bathroom.\n2 John left.\n3 Where is Mary?",
        "1 Gone.\n1 Mary moved to the bathroom.\n2 Is it left out?\tno\t1\n3 John left.\n4 Where is Mary?\tbath\t1 3",
    ):
        found = parse_story(text)
        assert (found.sentences, found.question) == expected
    assert (found.answer, found.support) == ("bath", (0, 1))


@for_each(
    ("text", "sentence"),
    [
        ("", "the text '' has no question at its end"),
        ("a b c", "the text 'a b c' has no question at its end; end it, such as: Where is Mary?"),
        ("Mary left. ?", "has no question at its end"),
        ("Where is Mary?", "the story before the question 'Where is Mary?' is empty; write its sentences before"),
        ('{"story": "x"}', "is JSON; give sentences and a question"),
        ("1 A.\n2 Where?\tx\t9", "is supported by line 9, which is no earlier sentence of its story"),
        ("word " * 100_000 + "Where?", "has 100,001 words, more than max_length=500 of this run; leave out"),
    ],
)
def test_bad_texts(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)):
        parse_story(text, 500)


def test_words() -> None:
    assert words_of("Where is Mary's box, Fred?") == ["where", "is", "mary's", "box", "fred"]
    assert words_of("...") == []


def test_files_of_folders(tmp_path: Path) -> None:
    for name in ("qa10_b_train.txt.gz", "qa2_a_train.txt", "qa2_a_test.txt", "notes.md"):
        (tmp_path / name).write_text("")
    assert list(task_files([tmp_path], "train")) == ["qa2_a", "qa10_b"]
    assert task_files([tmp_path], "test") == {"qa2_a": tmp_path / "qa2_a_test.txt"}
    assert task_name(Path("x/plain.txt")) == "plain"
    assert match_files(["other"], [tmp_path], "test") == {"other": tmp_path / "qa2_a_test.txt"}
    with pytest.raises(ValueError, match=r"lacks the file of 1 task, qa10_b; add a file such as qa10_b_test\.txt"):
        match_files(["qa2_a", "qa10_b"], [tmp_path], "test")
    with pytest.raises(ValueError, match=r"are both of the task 'qa2_a'; name one of them"):
        task_files([tmp_path / "qa2_a_train.txt", tmp_path / "qa2_a_test.txt"], "train")
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(ValueError, match=r"has no file of bAbI, such as qa1_train\.txt or qa1_train\.txt\.gz"):
        task_files([empty], "train")
    (empty / "mine.txt").write_text("")
    assert list(task_files([empty], "train")) == ["mine"]
