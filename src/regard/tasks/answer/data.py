"""The stories of a run: their splits, the vocabularies that the run records, and tensors of batches."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.data.embedded import stories
from regard.data.questions.babi import Question, QuestionSplits, match_files, read_babi, task_files, words_of
from regard.data.splitting import Parts, held_out, require_held_out, split_items
from regard.models.reading.memn2n import NIL, RESERVED, UNKNOWN, StoryInputs
from regard.tasks.answer.options import Answer
from regard.tasks.shared.data_fingerprint import DataFingerprint, sha256_of

# stories are sorted by length within pools of about this many batches
_POOL = 32


def read(config: Answer) -> dict[str, QuestionSplits]:
    """The questions of every task to train on, to validate and to test on."""
    if config.dataset != "files":
        return stories.splits(config.seed)
    files = task_files(config.train, "train")
    valid = match_files(list(files), config.valid, "valid") if config.valid else {}
    test = match_files(list(files), config.test, "test") if config.test else {}
    splits: dict[str, QuestionSplits] = {}
    for name, path in files.items():
        train = read_babi(path, config.max_length)
        if name in valid:
            to_validate = read_babi(valid[name], config.max_length)
        else:
            held = held_out(contents({name: train}), config.valid_share, config.seed)
            require_held_out(held, path, "questions")
            train, to_validate = split_items(train, held)
        to_test = read_babi(test[name], config.max_length) if name in test else to_validate
        splits[name] = QuestionSplits(train, to_validate, to_test)
    return splits


def contents(questions: Mapping[str, Sequence[Question]]) -> list[str]:
    """The story of every question of all tasks, by which copies are known: that of the last question about it."""
    stories_read = [{question.story: question.text for question in each} for each in questions.values()]
    pairs = zip(stories_read, questions.values(), strict=True)
    return [texts[question.story] for texts, each in pairs for question in each]


def by_part(splits: Mapping[str, QuestionSplits]) -> Parts[dict[str, Sequence[Question]]]:
    """The questions of every task to train on, to validate and to test on."""
    parts = ("train", "valid", "test")
    return Parts(*({name: getattr(each, part) for name, each in splits.items()} for part in parts))


@dataclass(frozen=True, kw_only=True)
class StoryFacts(DataFingerprint):
    """The tasks of a run, the words and answers of its networks, and the most frequent answer of every task.

    There is one network per task, or one for all of them.
    """

    file: ClassVar[str] = "stories.json"
    unit: ClassVar[str] = "questions"

    tasks: list[str]
    frequent: list[str]
    words: list[list[str]]
    answers: list[list[str]]

    @staticmethod
    def digest(questions: Sequence[Question]) -> str:
        return sha256_of(f"{question.text}\t{question.answer}\n" for question in questions)

    @staticmethod
    def of(splits: dict[str, QuestionSplits], joint: bool, known: "StoryFacts | None" = None) -> "StoryFacts":
        """The facts of these questions; with `known`, those of an earlier run, its words and answers."""
        words, answers = ([], []) if known is None else (known.words, known.answers)
        if known is None:
            for names in [list(splits)] if joint else [[name] for name in splits]:
                vocabulary = _vocabulary(names, [splits[name] for name in names])
                words.append(vocabulary[0])
                answers.append(vocabulary[1])
        elif known.tasks != list(splits):
            raise ValueError(
                f"the run starts from one of the tasks {', '.join(known.tasks)}, and has {', '.join(splits)}; give "
                "files of the same names, or train from scratch"
            )
        parts = by_part(splits)
        train, valid = ([*chain.from_iterable(part.values())] for part in (parts.train, parts.valid))
        facts = StoryFacts(
            tasks=list(splits),
            frequent=[Counter(q.answer for q in each.train).most_common(1)[0][0] for each in splits.values()],
            words=words,
            answers=answers,
        ).for_data(QuestionSplits(train, valid, valid))
        if known is not None:
            encoders = facts.encoders()
            for name, each in splits.items():
                encoders[facts.network(name)].check([*each.train, *each.valid], f"the stories of {name}")
        return facts

    def network(self, task: str) -> int:
        """The number of the network of a task."""
        return 0 if len(self.words) == 1 else self.tasks.index(task)

    def encoders(self) -> list["StoryEncoder"]:
        return [StoryEncoder(words, answers) for words, answers in zip(self.words, self.answers, strict=True)]


def _vocabulary(names: Sequence[str], splits: Sequence[QuestionSplits]) -> tuple[list[str], list[str]]:
    """The words and the answers of tasks that share a network."""
    train = [question for each in splits for question in each.train]
    answers = sorted({question.answer for question in chain(train, *(each.valid for each in splits))})
    if len(answers) < 2:
        raise ValueError(
            f"the task {names[0]!r} has one answer, {answers[0]!r}, so there is nothing to learn; give questions with "
            "other answers as well"
        )
    texts = {text for question in train for text in (*question.sentences, question.question)}
    words = {word for text in texts for word in words_of(text)}
    return sorted(words | {answer.lower() for answer in answers}), answers


class StoryEncoder:
    """Words and answers of one network to their numbers."""

    def __init__(self, words: Sequence[str], answers: Sequence[str]) -> None:
        self.words = {word: RESERVED + n for n, word in enumerate(words)}
        self.answers = list(answers)
        self.numbers = {answer: n for n, answer in enumerate(answers)}

    @property
    def vocabulary(self) -> int:
        return RESERVED + len(self.words)

    @property
    def answer_words(self) -> list[int]:
        """The words that are the answers."""
        return [self.words[answer.lower()] for answer in self.answers]

    def encode(self, text: str) -> list[int]:
        return [self.words.get(word, UNKNOWN) for word in words_of(text)]

    def check(self, questions: Sequence[Question], path: Path | str) -> None:
        """Raises at the first answer that the network cannot give."""
        for question in questions:
            if question.answer not in self.numbers:
                raise ValueError(
                    f"{path}:{question.line}: the answer {question.answer!r} is none of the training; this run knows "
                    f"{', '.join(self.answers[:10])}{' …' if len(self.answers) > 10 else ''}; correct it, or leave "
                    "the question out"
                )


class EncodedQuestions:
    """Questions as numbers; every distinct sentence is stored once."""

    def __init__(self, questions: Sequence[Question], encoder: StoryEncoder, memory: int) -> None:
        numbers: dict[str, int] = {}
        self.memory = memory
        self.stories = [
            np.array([numbers.setdefault(s, len(numbers)) for s in question.sentences[::-1][:memory]], np.int64)
            for question in questions
        ]
        self.lengths = np.array([len(story) for story in self.stories], np.int64)
        self.sentences = _pad([encoder.encode(text) for text in numbers])  # "s j"
        self.questions = _pad([encoder.encode(question.question) for question in questions])  # "n j"
        # −1 stands for no answer, as of a question that is to be answered
        self.labels = np.array([encoder.numbers.get(question.answer, -1) for question in questions], np.int64)

    def __len__(self) -> int:
        return len(self.stories)

    def inputs(
        self, rows: NDArray[np.int64], noise: float = 0.0, rng: np.random.Generator | None = None
    ) -> StoryInputs:
        """The tensors of these questions, with empty slots before a share of the sentences if there is noise."""
        slots = np.full((len(rows), max(1, int(self.lengths[rows].max(initial=0)))), -1, np.int64)
        for n, row in enumerate(rows.tolist()):
            slots[n, : self.lengths[row]] = self.stories[row]
        if noise and rng is not None:
            slots = insert_empty(slots, noise, self.memory, rng)
        numbers, index = np.unique(slots, return_inverse=True)
        index = index.reshape(slots.shape)
        if len(numbers) and numbers[0] < 0:
            numbers, index = numbers[1:], index - 1
        sentences = self.sentences[numbers]
        width = max(1, int((sentences != NIL).sum(1).max(initial=0)))
        return StoryInputs(
            torch.from_numpy(np.ascontiguousarray(sentences[:, :width])),
            torch.from_numpy(index),
            torch.from_numpy(self.questions[rows]),
        )

    def targets(self, rows: NDArray[np.int64]) -> Tensor:  # "b"
        return torch.from_numpy(self.labels[rows])


def insert_empty(
    slots: NDArray[np.int64], share: float, most: int, rng: np.random.Generator
) -> NDArray[np.int64]:  # "b m" -> "b m'"
    """The same with an empty slot before about this share of the sentences; sentences beyond `most` slots are lost."""
    places = np.arange(slots.shape[1]) + np.cumsum(rng.random(slots.shape) < share, 1)
    kept = (slots >= 0) & (places < most)
    moved = np.full((len(slots), 1 + int(places[kept].max(initial=0))), -1, np.int64)
    moved[np.nonzero(kept)[0], places[kept]] = slots[kept]
    return moved


def plan_questions(
    lengths: NDArray[np.int64], batch: int, batches: int, rng: np.random.Generator
) -> list[NDArray[np.int64]]:  # "b" each
    """The questions of one task in this many batches, similar lengths together; those of a small task repeat."""
    order = rng.permutation(len(lengths))
    order = np.concatenate([order] * max(1, -(-batches // max(1, len(order)))))
    pools = np.array_split(order, max(1, len(order) // (batch * _POOL)))
    order = np.concatenate([pool[np.argsort(lengths[pool], kind="stable")] for pool in pools])
    parts = np.array_split(order, batches)
    return [parts[n] for n in rng.permutation(len(parts)).tolist()]


def _pad(rows: Sequence[Sequence[int]]) -> NDArray[np.int64]:  # -> "n j"
    padded = np.full((len(rows), max([1, *map(len, rows)])), NIL, np.int64)
    for n, row in enumerate(rows):
        padded[n, : len(row)] = row
    return padded


@dataclass(frozen=True, eq=False)
class StoryBatch:
    """Questions of every network with their answers; None for a network without questions in this process."""

    parts: tuple[tuple[StoryInputs, Tensor] | None, ...]
    linear: bool

    def to(self, device: torch.device) -> "StoryBatch":
        moved = (None if part is None else (part[0].to(device), part[1].to(device)) for part in self.parts)
        return StoryBatch(tuple(moved), self.linear)
