"""Questions about passages whose answers are spans of the passage: files of SQuAD, QuAC and CoQA.  No torch here.

SQuAD   {"data": [{"paragraphs": [{"context": …, "qas": [{"id", "question", "answers": [{"text", "answer_start"}]}]}]}]}
QuAC    the same with "orig_answer" or "followup" in every question: the questions of a paragraph are a dialogue
CoQA    {"data": [{"id", "story", "questions": [{"input_text"}], "answers": [{"input_text", "span_start", "span_text"}]}

Offsets count the characters (code points) of the original text, and every answer is checked against the text at its
place. `.gz` is unpacked.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.common.word_splitting import find_phrase
from regard.common.wording import shortened
from regard.data.json_layout import JsonLayout
from regard.data.splitting import Parts

_LAYOUTS = 'it must hold {"data": […]} in the layout of SQuAD, QuAC or CoQA'


@dataclass(frozen=True)
class GoldAnswer:
    """An answer: characters of its passage, from `start`."""

    text: str
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)


@dataclass(frozen=True)
class SpanQuestion:
    """A question about a passage with its right answers, and the questions and answers before it, the oldest first."""

    id: str
    passage: str
    question: str
    answers: tuple[GoldAnswer, ...]
    history: tuple[tuple[str, str], ...] = ()

    def recent(self, count: int) -> tuple[tuple[str, str], ...]:
        """The last questions and answers before this one."""
        return self.history[-count:] if count else ()


@dataclass(frozen=True)
class SpanQuestions:
    """The questions of a file that have answers, and the number of those without, which are left out."""

    questions: tuple[SpanQuestion, ...]
    num_impossible: int = 0

    def __len__(self) -> int:
        return len(self.questions)


# no passage is in two of them
SpanQuestionSplits = Parts[SpanQuestions]


def read_questions(path: Path) -> SpanQuestions:
    """The questions of a file of SQuAD (1.1 or 2.0), QuAC or CoQA; questions without an answer are counted."""
    file = JsonLayout(path, _LAYOUTS)
    content = file.parse()
    data = content.get("data") if isinstance(content, Mapping) else None
    if not isinstance(data, Sequence) or isinstance(data, str):
        raise ValueError(f"{path} is JSON of another layout: {_LAYOUTS}; convert it")
    read: list[SpanQuestion | None] = []
    for number, article in enumerate(data, 1):
        place = f"article {number} of data"
        if isinstance(article, Mapping) and "paragraphs" in article:
            for paragraph in file.get(article, "paragraphs", list, place):
                read += _paragraph(file.checked(paragraph, dict, f"a paragraph of {place}"), file, place)
        elif isinstance(article, Mapping) and "story" in article:
            read += _story(article, file, place)
        else:
            raise ValueError(
                f'{path}: {place} has neither "paragraphs" (SQuAD, QuAC) nor "story" (CoQA); {_LAYOUTS}; convert it'
            )
    questions = tuple(question for question in read if question is not None)
    if not questions:
        raise ValueError(
            f"{path} has no question with an answer ({len(read)} without one); give a file with answered questions"
        )
    _check_ids(questions, path)
    return SpanQuestions(questions, len(read) - len(questions))


def _paragraph(paragraph: Mapping[str, Any], file: JsonLayout, place: str) -> Iterator[SpanQuestion | None]:
    passage = file.text(paragraph, "context", f"a paragraph of {place}")
    turns: list[tuple[str, str]] = []
    for entry in file.get(paragraph, "qas", list, f"a paragraph of {place}"):
        item = file.checked(entry, dict, f"a question of {place}")
        name = _id(item.get("id"), file.path, place)
        question = file.text(item, "question", name)
        is_turn = "orig_answer" in item or "followup" in item
        said = item.get("orig_answer")
        answers: list[GoldAnswer] = []
        if item.get("is_impossible") is not True:
            answers = [
                _gold(file.checked(answer, dict, f"an answer of {name}"), passage, file, name)
                for answer in file.get(item, "answers", list, name)
            ]
        if answers:
            yield SpanQuestion(name, passage, question, tuple(dict.fromkeys(answers)), tuple(turns) if is_turn else ())
        else:
            yield None
        # a turn without an answer in the passage has its reply, such as CANNOTANSWER, and later turns may refer to it
        if is_turn and isinstance(said, Mapping):
            turns.append((question, file.text(said, "text", name)))
        elif is_turn and answers:
            turns.append((question, answers[0].text))


def _story(article: Mapping[str, Any], file: JsonLayout, place: str) -> Iterator[SpanQuestion | None]:
    """The turns of a dialogue about a story; an answer is the place of what was said, or the evidence for it."""
    story, name = file.text(article, "story", place), _id(article.get("id"), file.path, place)
    questions, answers = (file.get(article, key, list, name) for key in ("questions", "answers"))
    if len(questions) != len(answers):
        raise ValueError(
            f"{file.path}: {name} has {len(questions)} questions and {len(answers)} answers; give one answer per "
            "question"
        )
    extra = article.get("additional_answers", {})
    others = list(extra.values()) if isinstance(extra, Mapping) else []
    turns: list[tuple[str, str]] = []
    for n, (asked, replied) in enumerate(zip(questions, answers, strict=True)):
        turn = f"turn {n + 1} of {name}"
        question = file.text(file.checked(asked, dict, turn), "input_text", turn)
        replies = [replied, *(each[n] for each in others if isinstance(each, list) and n < len(each))]
        spans = [_based_on(file.checked(reply, dict, turn), story, file, turn) for reply in replies]
        gold = tuple(dict.fromkeys(answer for answer in spans if answer is not None))
        yield SpanQuestion(f"{name} turn {n + 1}", story, question, gold, tuple(turns)) if gold else None
        turns.append((question, file.text(replied, "input_text", turn)))


def _based_on(reply: Mapping[str, Any], story: str, file: JsonLayout, turn: str) -> GoldAnswer | None:
    """The span of a free answer; None without evidence.

    The answer itself if its evidence has it as whole words, else the evidence.
    """
    evidence_start = file.get(reply, "span_start", int, turn)
    if evidence_start < 0:
        return None
    evidence = file.text(reply, "span_text", turn)
    stripped = evidence.strip()
    answer = GoldAnswer(stripped, evidence_start + len(evidence) - len(evidence.lstrip()))
    _check_place(answer, story, file.path, turn)
    said = file.text(reply, "input_text", turn).strip()
    if not said or (place := find_phrase(said, stripped)) is None:
        return answer
    start, end = place
    return GoldAnswer(stripped[start:end], answer.start + start)


def _gold(answer: Mapping[str, Any], passage: str, file: JsonLayout, name: str) -> GoldAnswer:
    gold = GoldAnswer(file.text(answer, "text", name), file.get(answer, "answer_start", int, name))
    _check_place(gold, passage, file.path, name)
    return gold


def _check_place(answer: GoldAnswer, passage: str, path: Path, name: str) -> None:
    span = passage[answer.start : answer.end] if answer.start >= 0 else ""
    if not answer.text or span != answer.text:
        at = passage.find(answer.text) if answer.text else -1
        way = f"its text stands at {at:,}" if at >= 0 else "its text is nowhere in the passage"
        way = way if answer.text else "an answer has one character at least"
        raise ValueError(
            f"{path}: the answer {shortened(answer.text, 40)} of {name} is not in its text: character {answer.start:,} "
            f"begins {shortened(span, 40)}, and {way}; correct answer_start or the text"
        )


def _check_ids(questions: Sequence[SpanQuestion], path: Path) -> None:
    seen: set[str] = set()
    for question in questions:
        if question.id in seen:
            raise ValueError(f"{path} has two questions with the id {question.id}; give every question its own")
        seen.add(question.id)


def _id(value: object, path: Path, place: str) -> str:
    if isinstance(value, str | int) and not isinstance(value, bool):
        return str(value)
    raise ValueError(f"{path}: a question of {place} has no id; {_LAYOUTS}; give it one")


def parse_question(text: str) -> SpanQuestion:
    """A passage and a question in one text: the question is the last line, or the part behind the last tab.

    After an empty line, or in more parts, earlier questions and answers take turns before the question. The passage is
    the beginning of the text, so that its offsets are those of the text.
    """
    body = text.rstrip()
    if "\n" in body:
        lines = body.split("\n")
        empty = max((n for n, line in enumerate(lines) if not line.strip()), default=None)
        turns = lines[-1:] if empty is None else lines[empty + 1 :]
        passage = "\n".join(lines[: len(lines) - len(turns)])
        said = "lines below the last empty line"
    else:
        passage, *turns = body.split("\t")
        said = "parts behind the passage"
    if not turns:
        raise ValueError(
            f"the text {shortened(text, 40)} has a passage and no question; write the question on a line below it, "
            "behind a tab, or behind a command by --question"
        )
    if len(turns) % 2 == 0:
        raise ValueError(
            f"the text {shortened(text, 40)} has {len(turns)} {said}, which must be question, answer, …, question; "
            "give an odd number"
        )
    pairs = tuple((turns[n].strip(), turns[n + 1].strip()) for n in range(0, len(turns) - 1, 2))
    return SpanQuestion("", passage, turns[-1].strip(), (), pairs)


def write_question(question: SpanQuestion, history: int) -> str:
    """The text that `parse_question` reads, with at most this many earlier questions and answers."""
    turns = [line for turn in question.recent(history) for line in turn]
    lines = [" ".join(line.split()) for line in (*turns, question.question)]
    # an empty line of the passage would end it
    separator = "\n\n" if turns or re.search(r"\n[^\S\n]*\n", question.passage) else "\n"
    return question.passage + separator + "\n".join(lines)
