"""The task read: its training problem and its evaluation."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from regard.common.wording import plural
from regard.data.questions.squad import SpanQuestion, SpanQuestions, write_question
from regard.data.text.words import WordEncoder
from regard.inference.evaluation import Evaluation, Progress, sample_rows, timed
from regard.inference.evaluation_split import EvaluationSplit, record_splits
from regard.losses.functional import span_nll
from regard.metrics.answers import AnswerScores, answer_scores, exact_match
from regard.metrics.intervals import nats_interval
from regard.models.reading.bidaf import BiDAF, ReaderSizes
from regard.tasks.base import Task
from regard.tasks.read.baseline import baseline_answers
from regard.tasks.read.data import (
    ReadBatch,
    ReadVocabulary,
    WordedQuestion,
    contents,
    describe,
    read,
    read_file,
    split_questions,
    to_batch,
)
from regard.tasks.read.options import DIALOGUE_HISTORY, ReadConfig
from regard.tasks.read.predictor import ReadOutput, ReadPredictor
from regard.tasks.shared.row_batches import BatchedByLength
from regard.tasks.shared.text_options import EvaluateTextFile
from regard.training.protocol import BaselineReport, Loss, ValidationResult


@dataclass(frozen=True, eq=False)
class ReadProblem(BatchedByLength[BiDAF, ReadBatch]):
    """−(log p1 + log p2) of the first and the last word of every answer."""

    config: ReadConfig
    vocabulary: ReadVocabulary
    encoder: WordEncoder
    train: Sequence[WordedQuestion]
    valid: SpanQuestions
    summary: str
    shared: Sequence[str] = ()
    unit: str = "questions"

    def build_model(self) -> BiDAF:
        return self.config.model.build(self.vocabulary.sizes)

    def resolved_options(self) -> dict[str, Any] | None:
        return {"history": self.config.history}

    def warnings(self) -> Sequence[str]:
        notes = [*super().warnings()]
        long = _too_long([each.span for each in self.train], self.config.limit)
        if long is not None:
            notes.append(f"{long}: they are trained on, but never given as answers; try a larger --limit")
        return notes

    def lengths(self) -> list[NDArray[np.integer]]:  # "n" each
        sides = ([each.question for each in self.train], [each.passage.words for each in self.train])
        return [np.array(list(map(len, side))) for side in sides]

    def load_rows(self, rows: NDArray[np.int64], rng: np.random.Generator) -> ReadBatch:
        questions = [self.train[n] for n in rows]
        dropped: frozenset[str] = frozenset()
        if self.config.word_dropout:
            # a word is dropped from a passage and from its question together, so that they still match
            words = sorted({word for each in questions for word in (*each.passage.words, *each.question)})
            dropped = frozenset(np.array(words)[rng.random(len(words)) < self.config.word_dropout].tolist())
        return to_batch(questions, self.encoder, dropped)

    def loss(self, model: BiDAF, batch: ReadBatch) -> Loss:
        start, end = model(batch.passages, batch.questions)
        return Loss(span_nll(start, end, batch.spans).sum(), len(batch), {})

    def validate(self, model: BiDAF) -> ValidationResult:
        predictor = ReadPredictor(model, self.vocabulary, self.config)
        questions = self.valid.questions
        outputs = predictor.answer(questions)
        scores = _named(score([output.best.text for output in outputs], questions))
        if len(nats := predictor.nats(questions)):
            scores["nll"] = float(nats.mean())
        return ValidationResult(scores, "exact match", True, _sample(questions[0], outputs[0]))

    def baselines(self) -> BaselineReport:
        questions = self.valid.questions
        baselines = _baselines(questions, split_questions(questions, self.config.num_turns), self.config.limit)
        return BaselineReport("exact match", True, {name: scores.exact_match for name, scores in baselines.items()})

    def describe_rows(self, rows: NDArray[np.int64]) -> str:
        first = " ".join(self.train[rows[0]].question)
        return f"{len(rows)} questions of {self.config.dataset_label}, the first {first[:60]!r}"


class ReadTask(Task[ReadConfig, ReadPredictor]):
    """Trains, loads and evaluates readers."""

    def prepare(self, folder: Path, new: bool) -> ReadProblem:
        config = self.config
        splits = read(config)
        if config.history is None:
            has_dialogues = any(question.history for question in splits.train.questions)
            config = replace(config, history=DIALOGUE_HISTORY if has_dialogues else 0)
        train = split_questions(splits.train.questions, config.num_turns)
        kept = [each for each in train if each.span is not None]
        if not kept:
            raise ValueError(
                f"train={config.train} has no answer that begins and ends with words, so there is nothing to learn; "
                "correct its answers"
            )
        known = ReadVocabulary.of_initial(folder)
        vocabulary = ReadVocabulary.of(config, splits, train) if known is None else known.for_data(splits)
        vocabulary = vocabulary.saved(folder, new)
        shared = record_splits(config, folder, splits, "questions", contents, new)
        summary = f"{describe(splits, train, config.num_turns)}, {plural(len(vocabulary.words), 'word')}"
        return ReadProblem(config, vocabulary, vocabulary.encoder(), kept, splits.valid, summary, shared)

    def sketch(self) -> nn.Module:
        return self.config.model.build(ReaderSizes(11, 9))

    def predictor(self, folder: Path) -> ReadPredictor:
        vocabulary = ReadVocabulary.read(folder)
        return ReadPredictor(self.config.model.build(vocabulary.sizes), vocabulary, self.config)

    def example(self, folder: Path) -> str:
        return write_question(read(self.config).valid.questions[0], self.config.num_turns)

    def evaluate(
        self, predictor: ReadPredictor, folder: Path, options: EvaluateTextFile, progress: Progress
    ) -> Evaluation:
        split = self._questions(folder, options)
        data, questions = split.data, split.data.questions
        outputs, seconds = timed(lambda done: predictor.answer(questions, done=done), len(questions), progress)
        texts = [output.best.text for output in outputs]
        result = score(texts, questions)
        worded = split_questions(questions, self.config.num_turns)
        baselines = _baselines(questions, worded, self.config.limit)
        notes = [_baseline_note(name, each) for name, each in baselines.items()]
        notes += _turn_notes(texts, questions)
        if long := _too_long([each.span for each in worded], self.config.limit):
            notes.append(f"{long}, so that they cannot be matched")
        if count := sum(each.span is None for each in worded):
            notes.append(f"{plural(count, 'question')} cannot be matched: no word begins or ends where the answers do")
        if data.num_impossible:
            left_out = plural(data.num_impossible, "question")
            notes.append(f"{left_out} left out, because they have no answer and this reader always answers")
        facts = {
            "baselines": {name: _named(each) for name, each in baselines.items()},
            "impossible": data.num_impossible,
        }
        scores = _named(result)
        intervals = {"exact match": result.exact_match_interval, "f1": result.f1_interval}
        if len(nats := predictor.nats(questions)):
            scores["nll"], intervals["nll"] = float(nats.mean()), nats_interval(nats)
        samples = [_sample(questions[n], outputs[n]) for n in sample_rows(len(questions))]
        evaluation = Evaluation(
            scores,
            len(questions),
            "questions",
            split.name,
            seconds,
            [" ".join(text.split()) for text in texts],
            samples,
            notes,
            facts,
            intervals,
        )
        return split.annotate(evaluation)

    def _questions(self, folder: Path, options: EvaluateTextFile) -> EvaluationSplit[SpanQuestions]:
        """The questions to answer."""
        return EvaluationSplit.of(
            self.config,
            options,
            folder,
            "questions",
            read_files=lambda files: read_file(self.config, files[0]),
            read_part=lambda part: getattr(read(self.config), part),
            contents=contents,
        )


def score(predictions: Sequence[str], questions: Sequence[SpanQuestion]) -> AnswerScores:
    """Exact match and F1 of one predicted answer per question."""
    return answer_scores(predictions, [[answer.text for answer in question.answers] for question in questions])


def _baselines(
    questions: Sequence[SpanQuestion], worded: Sequence[WordedQuestion], limit: int
) -> dict[str, AnswerScores]:
    answers = [
        baseline_answers(question.passage, each.question, limit)
        for question, each in zip(questions, worded, strict=True)
    ]
    return {
        "sliding window": score([answer.window for answer in answers], questions),
        "best sentence": score([answer.sentence for answer in answers], questions),
    }


def _too_long(spans: Sequence[tuple[int, int] | None], limit: int) -> str | None:
    """The number of right answers of more words than a reader gives, in words; None without one."""
    known = [span for span in spans if span is not None]
    count = sum(last - first + 1 > limit for first, last in known)
    return f"{count:,} of {plural(len(known), 'right answer')} are longer than --limit {limit}" if count else None


def _named(scores: AnswerScores) -> dict[str, float]:
    return {"exact match": scores.exact_match, "f1": scores.f1}


def _baseline_note(name: str, scores: AnswerScores) -> str:
    (low, high), (f1_low, f1_high) = scores.exact_match_interval, scores.f1_interval
    return (
        f"{name}, a baseline: exact match {scores.exact_match:.2f} (95 % interval {low:.2f} to {high:.2f}), "
        f"f1 {scores.f1:.2f} ({f1_low:.2f} to {f1_high:.2f})"
    )


def _turn_notes(texts: Sequence[str], questions: Sequence[SpanQuestion]) -> list[str]:
    """The exact match of first questions and of those that follow others, if there are both."""
    right: dict[bool, list[bool]] = {False: [], True: []}
    for text, question in zip(texts, questions, strict=True):
        right[bool(question.history)].append(exact_match(text, [answer.text for answer in question.answers]))
    if not all(right.values()):
        return []
    parts = [
        f"{100 * sum(right[follows]) / len(right[follows]):.2f} of {len(right[follows]):,} {name}"
        for follows, name in ((False, "first questions"), (True, "follow-up questions"))
    ]
    return [f"exact match: {' and '.join(parts)}"]


def _sample(question: SpanQuestion, output: ReadOutput) -> str:
    predicted, right = output.best.text, question.answers[0].text
    wrong = "" if exact_match(predicted, [answer.text for answer in question.answers]) else f"   right: {right}"
    return " ".join(f"{question.question} → {predicted}{wrong}".split())
