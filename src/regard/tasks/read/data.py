"""The questions of a run: their splits, the vocabulary that the run records, and tensors of batches."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.common.word_splitting import split_words
from regard.common.wording import plural
from regard.data.embedded import timetables
from regard.data.questions.squad import GoldAnswer, SpanQuestion, SpanQuestions, SpanQuestionSplits, read_questions
from regard.data.splitting import held_out, require_held_out, split_items
from regard.data.text.special_tokens import SPECIAL
from regard.data.text.words import WordEncoder, WordInputs, repeated_characters, repeated_words
from regard.models.reading.bidaf import ReaderSizes
from regard.tasks.read.options import ReadConfig
from regard.tasks.shared.data_fingerprint import DataFingerprint, sha256_of
from regard.training.protocol import TensorBatch


def read(config: ReadConfig) -> SpanQuestionSplits:
    """The questions to train on, to validate and to test on."""
    if config.dataset != "files":
        return timetables.splits(config.seed)
    assert config.train is not None
    train = read_file(config, config.train)
    if config.valid is None:
        # all questions about a passage stay together
        passages = [question.passage for question in train.questions]
        held = held_out(passages, config.valid_share, config.seed)
        require_held_out(held, f"train={config.train}", "questions")
        rest, chosen = split_items(train.questions, held)
        train, valid = SpanQuestions(tuple(rest), train.num_impossible), SpanQuestions(tuple(chosen))
    else:
        valid = read_file(config, config.valid)
    return SpanQuestionSplits(train, valid, valid if config.test is None else read_file(config, config.test))


def read_file(config: ReadConfig, path: Path) -> SpanQuestions:
    """The questions of one file, none about a passage without words or with too many."""
    questions = read_questions(path)
    checked: set[str] = set()
    for question in questions.questions:
        if question.passage not in checked:
            check_words(question.passage, f"the passage of {question.id}", config.max_length, f"{path}: ")
            checked.add(question.passage)
        check_words(question.question, f"the question {question.id}", config.max_length, f"{path}: ")
        check_turns(question, config.num_turns, f"before the question {question.id}", config.max_length, f"{path}: ")
    return questions


def check_words(text: str, name: str, most: int, place: str = "") -> None:
    """Raises for a text without words, or with more than a run reads; `place` names the file."""
    count = len(split_words(text, "marks")[0])
    if not count:
        raise ValueError(f"{place}{name} is empty; give at least one word")
    if count > most:
        raise ValueError(
            f"{place}{name} has {count:,} words, more than --max-length {most:,}; split it into paragraphs, or train "
            "with a larger --max-length"
        )


def check_turns(question: SpanQuestion, history: int, name: str, most: int, place: str = "") -> None:
    """Raises for an earlier question or answer that is read, and is empty or too long."""
    for asked, answered in question.recent(history):
        check_words(asked, f"an earlier question {name}", most, place)
        check_words(answered, f"an earlier answer {name}", most, place)


def contents(questions: SpanQuestions) -> list[str]:
    """The passage and the words of every question, by which copies are known; their answers may differ."""
    return [f"{each.passage}\n{each.question}" for each in questions.questions]


class SplitPassage(NamedTuple):
    """The words of a passage and their places in it."""

    words: tuple[str, ...]
    offsets: tuple[tuple[int, int], ...]

    def span(self, answer: GoldAnswer) -> tuple[int, int] | None:
        """The first and the last word of an answer; None if it does not begin and end with words."""
        starts = {start: n for n, (start, _) in enumerate(self.offsets)}
        ends = {end: n for n, (_, end) in enumerate(self.offsets)}
        first, last = starts.get(answer.start), ends.get(answer.end)
        return None if first is None or last is None else (first, last)

    def place(self, first: int, last: int) -> tuple[int, int]:
        """The characters from the first to the last of these words."""
        return self.offsets[first][0], self.offsets[last][1]


class WordedQuestion(NamedTuple):
    """A question as a reader gets it: the words of its passage, and those of its history and of itself."""

    passage: SplitPassage
    question: tuple[str, ...]
    span: tuple[int, int] | None  # the words of the first answer that begins and ends with words


def split_questions(questions: Iterable[SpanQuestion], history: int) -> list[WordedQuestion]:
    """The words of questions; each distinct passage is split once."""
    passages: dict[str, SplitPassage] = {}
    worded = []
    for question in questions:
        passage = passages.get(question.passage)
        if passage is None:
            passage = passages[question.passage] = SplitPassage(*split_words(question.passage, "marks"))
        texts = [*(text for turn in question.recent(history) for text in turn), question.question]
        words = tuple(word for text in texts for word in split_words(text, "marks")[0])
        spans = (passage.span(answer) for answer in question.answers)
        worded.append(WordedQuestion(passage, words, next((span for span in spans if span is not None), None)))
    return worded


@dataclass(frozen=True, kw_only=True)
class ReadVocabulary(DataFingerprint):
    """The words and characters of a run, and fingerprints of its questions."""

    file: ClassVar[str] = "reading.json"
    unit: ClassVar[str] = "questions"

    words: list[str]
    characters: list[str]

    @staticmethod
    def of(config: ReadConfig, splits: SpanQuestionSplits, train: Sequence[WordedQuestion]) -> "ReadVocabulary":
        passages = dict.fromkeys(each.passage.words for each in train)
        sentences = [*passages, *(each.question for each in train)]
        return ReadVocabulary(
            words=repeated_words(sentences, config.vocabulary),
            characters=repeated_characters(sentences),
        ).for_data(splits)

    @staticmethod
    def digest(questions: SpanQuestions) -> str:
        rows = questions.questions
        return sha256_of(f"{each.passage}\0{each.question}\0{each.history}\0{each.answers}\n" for each in rows)

    def encoder(self) -> WordEncoder:
        return WordEncoder(self.words, self.characters)

    @property
    def sizes(self) -> ReaderSizes:
        return ReaderSizes(SPECIAL + len(self.words), SPECIAL + len(self.characters))


def describe(splits: SpanQuestionSplits, train: Sequence[WordedQuestion], history: int) -> str:
    """The numbers of questions, passages, and of those that are left out, in a line."""
    passages = len({question.passage for question in splits.train.questions})
    kept = sum(each.span is not None for each in train)
    parts = [
        f"{plural(kept, 'question')} about {plural(passages, 'passage')} to train on, the longest of "
        f"{plural(max(len(each.passage.words) for each in train), 'word')}",
        f"{len(splits.valid):,} to validate",
    ]
    if history:
        parts.append(f"each with at most {plural(history, 'earlier question')} and its answer")
    if dropped := len(train) - kept:
        parts.append(f"{plural(dropped, 'training question')} dropped: no word begins or ends where the answer does")
    if count := splits.train.num_impossible + splits.valid.num_impossible:
        parts.append(f"{plural(count, 'question')} left out, because they have no answer")
    return ", ".join(parts)


@dataclass(frozen=True, eq=False)
class ReadBatch(TensorBatch):
    """Passages and questions, and the first and last words of the answers."""

    passages: WordInputs
    questions: WordInputs
    spans: Tensor  # "b 2"

    def __len__(self) -> int:
        return len(self.spans)


def to_inputs(
    questions: Sequence[WordedQuestion], encoder: WordEncoder, dropped: frozenset[str] = frozenset()
) -> tuple[WordInputs, WordInputs]:
    """The tensors of passages and of questions; `dropped` are words whose vector is the unknown one in both."""

    def encode(texts: Sequence[Sequence[str]]) -> WordInputs:
        marks: NDArray[np.bool_] | None = None
        if dropped:
            marks = np.array([word in dropped for text in texts for word in text])
        return encoder.inputs(texts, marks)

    return encode([each.passage.words for each in questions]), encode([each.question for each in questions])


def to_batch(
    questions: Sequence[WordedQuestion], encoder: WordEncoder, dropped: frozenset[str] = frozenset()
) -> ReadBatch:
    """The tensors of questions whose answers begin and end with words."""
    return ReadBatch(*to_inputs(questions, encoder, dropped), torch.tensor([each.span for each in questions]))
