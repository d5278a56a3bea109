"""The task answer: its training problem and its evaluation."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import nn

from regard.common.wording import corrected, plural, shortened
from regard.data.questions.babi import Question, match_files, read_babi
from regard.data.unseen_labels import check_any_known, unseen_notes
from regard.inference.evaluation import Evaluation, Progress, sample_rows
from regard.inference.evaluation_split import EvaluationSplit, record_splits
from regard.metrics.classification import accuracy_interval
from regard.metrics.intervals import nats_interval
from regard.models.reading.memn2n import StoryInputs
from regard.tasks.answer.baseline import bag_of_words_answers, fit_baselines, last_named, read_baselines
from regard.tasks.answer.data import (
    EncodedQuestions,
    StoryBatch,
    StoryEncoder,
    StoryFacts,
    by_part,
    contents,
    plan_questions,
    read,
)
from regard.tasks.answer.networks import AnswerNetworks
from regard.tasks.answer.options import Answer, EvaluateAnswers
from regard.tasks.answer.predictor import AnswerPredictor, StoryAnswer, story_text
from regard.tasks.base import Task
from regard.tasks.shared.classification import is_baseline_saved, write_baseline
from regard.training.protocol import BaselineReport, Loss, TrainingProblem, ValidationResult

# the error in percent above which a task has failed  (Weston et al. 2015)
FAILED = 5.0
# an empty story with an empty question
_NOTHING = StoryInputs(
    torch.zeros(1, 1, dtype=torch.int64), torch.full((1, 1), -1), torch.zeros(1, 1, dtype=torch.int64)
)


class PlannedQuestions(NamedTuple):
    """The questions of every network in one step, and the seed of the empty slots."""

    seed: tuple[int, int, int]
    rows: tuple[NDArray[np.int64], ...]  # "b" each
    linear: bool


@dataclass(frozen=True, eq=False)
class AnswerProblem(TrainingProblem[AnswerNetworks, StoryBatch]):
    """−log p(answer | story, question), the mean over restarts; a step has a batch of every network."""

    config: Answer
    facts: StoryFacts
    encoders: Sequence[StoryEncoder]
    train: Sequence[EncodedQuestions]  # questions per network
    valid: dict[str, EncodedQuestions]  # questions per task
    example: str
    longest: int  # sentences of a story to train on
    summary: str
    folder: Path
    asked: dict[str, Sequence[Question]]  # the questions of `valid`
    shared: Sequence[str] = ()
    unit: str = "questions"

    def build_model(self) -> AnswerNetworks:
        return AnswerNetworks.of(self.config, self.encoders)

    def warnings(self) -> Sequence[str]:
        if self.longest <= self.config.memory:
            return ()
        return (
            f"the memory holds {plural(self.config.memory, 'sentence')}, and stories have up to {self.longest:,}: "
            "older ones are not read; give a larger --memory to read them",
        )

    def plan_epoch(self, epoch: int) -> Sequence[PlannedQuestions]:
        batches = max(-(-len(part) // self.config.batch) for part in self.train)
        rng = np.random.default_rng([self.config.seed, epoch])
        planned = [plan_questions(part.lengths, self.config.batch, batches, rng) for part in self.train]
        linear = epoch < self.config.linear_epochs
        return [
            PlannedQuestions((self.config.seed, epoch, n), tuple(rows), linear)
            for n, rows in enumerate(zip(*planned, strict=True))
        ]

    def load_batch(self, planned: PlannedQuestions, rank: int, world: int) -> StoryBatch | None:
        parts = []
        for number, (rows, questions) in enumerate(zip(planned.rows, self.train, strict=True)):
            shard = rows[rank::world]
            rng = np.random.default_rng([*planned.seed, number, rank])
            parts.append(
                (questions.inputs(shard, self.config.noise, rng), questions.targets(shard)) if len(shard) else None
            )
        return StoryBatch(tuple(parts), planned.linear) if any(part is not None for part in parts) else None

    def num_terms(self, batch: StoryBatch) -> int:
        return sum(len(part[1]) for part in batch.parts if part is not None)

    def loss(self, model: AnswerNetworks, batch: StoryBatch) -> Loss:
        total = torch.zeros((), device=next(model.parameters()).device)
        right = torch.zeros_like(total)
        for number, part in enumerate(batch.parts):
            network = model[number]
            if part is None:
                # under torchrun every process must call the network, and every parameter needs a gradient
                total = total + 0.0 * network(_NOTHING.to(total.device), linear=batch.linear).logits.sum()
                continue
            inputs, targets = part
            logits = network(inputs, linear=batch.linear).logits.float()  # "r b a"
            repeated = targets.repeat(len(logits))
            total = total + F.cross_entropy(logits.flatten(0, 1), repeated, reduction="sum") / len(logits)
            right = right + (logits.argmax(-1) == targets).float().mean(0).sum()
        return Loss(total, self.num_terms(batch), {"accuracy": 100.0 * right})

    def validate(self, model: AnswerNetworks) -> ValidationResult:
        """Scores every restart, chooses one for every network, and scores that one."""
        scores = {
            name: model.restart_scores(self.facts.network(name), questions) for name, questions in self.valid.items()
        }
        chosen = {}
        for number in range(len(model)):
            parts = [scores[name] for name in self.facts.tasks if self.facts.network(name) == number]
            errors, losses = (torch.stack(each).mean(0) for each in zip(*parts, strict=True))
            chosen[number] = model.choose_restart(number, errors, losses)
        values = np.array(
            [[float(each[chosen[self.facts.network(name)]]) for each in scores[name]] for name in self.facts.tasks]
        )
        predictor = AnswerPredictor(model, self.facts, self.config)
        sample = predictor.text(predictor.predict([self.example])[0])
        error, loss = values.mean(0).tolist()
        failed = float((values[:, 0] > FAILED).sum())
        return ValidationResult({"error": error, "failed tasks": failed, "nll": loss}, "error", False, sample)

    def baselines(self) -> BaselineReport:
        layers = read_baselines(self.folder, self.encoders)
        errors = []
        for name, frequent in zip(self.facts.tasks, self.facts.frequent, strict=True):
            number = self.facts.network(name)
            errors.append(_baseline_errors(layers[number], self.encoders[number], self.asked[name], frequent))
        means = {name: float(np.mean([each[name] for each in errors])) for name in errors[0]}
        return BaselineReport("error", False, means)

    def locate(self, planned: Sequence[PlannedQuestions]) -> str:
        count = sum(len(rows) for each in planned for rows in each.rows)
        return f"{count} questions of {self.config.dataset_label}"


def _error(guesses: Sequence[str], questions: Sequence[Question]) -> float:
    return 100.0 * float(np.mean([guess != q.answer for guess, q in zip(guesses, questions, strict=True)]))


def _baseline_errors(
    layer: nn.Module, encoder: StoryEncoder, questions: Sequence[Question], frequent: str
) -> dict[str, float]:
    """The errors of the baselines in percent."""
    return {
        "bag of words": _error(bag_of_words_answers(layer, encoder, questions), questions),
        "answer that the story names last": _error(last_named(questions, encoder.answers, frequent), questions),
        "most frequent answer": _error([frequent] * len(questions), questions),
    }


class TaskScore(NamedTuple):
    """The errors of one task in percent, beside those of its baselines."""

    name: str
    questions: int
    error: float
    bag_of_words: float
    last_named: float
    most_frequent: float
    support: float | None  # questions whose largest weight is on a sentence that supports the answer, in percent


class AnswerTask(Task[Answer, AnswerPredictor]):
    """Trains, loads and evaluates memory networks."""

    def prepare(self, folder: Path, new: bool) -> AnswerProblem:
        config = self.config
        splits = read(config)
        facts = StoryFacts.of(splits, config.joint, StoryFacts.of_initial(folder))
        # a run that was killed while it read its data has nothing to load yet
        new = new or not (StoryFacts.is_saved(folder) and is_baseline_saved(folder))
        if not new:
            facts = facts.check_same(folder)
        encoders = facts.encoders()
        trained: list[list[Question]] = [[] for _ in encoders]
        for name, each in splits.items():
            trained[facts.network(name)] += each.train
        if new:
            write_baseline(fit_baselines(encoders, trained), folder)
            facts.write(folder)
        shared = record_splits(config, folder, by_part(splits), "questions", contents, new)
        train = [EncodedQuestions(part, each, config.memory) for part, each in zip(trained, encoders, strict=True)]
        valid = {
            name: EncodedQuestions(each.valid, encoders[facts.network(name)], config.memory)
            for name, each in splits.items()
        }
        longest = max(len(question.sentences) for part in trained for question in part)
        summary = f"{facts.train:,} questions of {plural(len(facts.tasks), 'task')} to train on, {facts.valid:,} to "
        summary += f"validate, stories of up to {plural(longest, 'sentence')}, "
        summary += f"{plural(len(encoders), 'network')} with {plural(config.restarts, 'restart')}"
        name, first = next(iter(splits.items()))
        example = story_text(first.valid[0], name if len(facts.tasks) > 1 else None)
        asked = {name: each.valid for name, each in splits.items()}
        return AnswerProblem(config, facts, encoders, train, valid, example, longest, summary, folder, asked, shared)

    def sketch(self) -> nn.Module:
        return self.config.model.build(11, [3, 5], memory=max(2, self.config.memory), restarts=self.config.restarts)

    def predictor(self, folder: Path) -> AnswerPredictor:
        facts = StoryFacts.read(folder)
        return AnswerPredictor(AnswerNetworks.of(self.config, facts.encoders()), facts, self.config)

    def example(self, folder: Path) -> str:
        facts, splits = StoryFacts.read(folder), read(self.config)
        name, first = next(iter(splits.items()))
        return story_text(first.valid[0], name if len(facts.tasks) > 1 else None)

    def evaluate(
        self, predictor: AnswerPredictor, folder: Path, options: EvaluateAnswers, progress: Progress
    ) -> Evaluation:
        split = self._questions(predictor, folder, options)
        questions = split.data
        count = sum(map(len, questions.values()))
        progress(0, count)
        start, done = time.perf_counter(), 0
        answers: dict[str, list[StoryAnswer]] = {}
        for name, each in questions.items():
            answers[name] = predictor.answer(name, each)
            done += len(each)
            progress(done, count)
        seconds = time.perf_counter() - start
        rows = self._table(predictor, folder, questions, answers)
        everything = [pair for name in questions for pair in zip(questions[name], answers[name], strict=True)]
        right = [question.answer for question, _ in everything]
        low, high = accuracy_interval([answer.best for _, answer in everything], right)
        shares = [answer.probability(question.answer) for question, answer in everything]
        nats = -np.log([max(share, 1e-30) for share in shares if share is not None])
        scores = {
            "error": float(np.mean([row.error for row in rows])),
            "failed tasks": float(sum(row.error > FAILED for row in rows)),
            "nll": float(nats.mean()),
        }
        supported = [row.support for row in rows if row.support is not None]
        notes = [_line(row) for row in rows]
        if supported:
            scores["support"] = float(np.mean(supported))
            notes.append("support: questions whose largest weight of all hops is on a line that supports the answer")
        notes.append(f"failed tasks: those with an error above {FAILED:g} %")
        unknown = {question.answer for (question, _), share in zip(everything, shares, strict=True) if share is None}
        notes += unseen_notes("answers", sorted(unknown), plural(shares.count(None), "question"))
        samples = [_sample(*everything[n]) for n in sample_rows(count)]
        # one task: the interval is that of its error
        intervals = {"error": (100 - high, 100 - low)} if len(rows) == 1 else {}
        intervals["nll"] = nats_interval(nats)
        facts: dict[str, Any] = {"tasks": [row._asdict() for row in rows]}
        predictions = [answer.best for _, answer in everything]
        evaluation = Evaluation(
            scores, count, "questions", split.name, seconds, predictions, samples, notes, facts, intervals
        )
        return split.annotate(evaluation)

    def _table(
        self,
        predictor: AnswerPredictor,
        folder: Path,
        questions: dict[str, Sequence[Question]],
        answers: dict[str, list[StoryAnswer]],
    ) -> list[TaskScore]:
        baselines = read_baselines(folder, predictor.encoders)
        rows = []
        for name, task_questions in questions.items():
            number = predictor.facts.network(name)
            encoder, frequent = predictor.encoders[number], predictor.facts.frequent[predictor.facts.tasks.index(name)]
            error = _error([answer.best for answer in answers[name]], task_questions)
            bag, last, usual = _baseline_errors(baselines[number], encoder, task_questions, frequent).values()
            hits = [
                answer.strongest in question.support
                for question, answer in zip(task_questions, answers[name], strict=True)
                if question.support
            ]
            support = 100.0 * float(np.mean(hits)) if hits else None
            rows.append(TaskScore(name, len(task_questions), error, bag, last, usual, support))
        return rows

    def _questions(
        self, predictor: AnswerPredictor, folder: Path, options: EvaluateAnswers
    ) -> EvaluationSplit[dict[str, Sequence[Question]]]:
        """The questions of every task."""
        config, facts = self.config, predictor.facts

        def read_files(paths: tuple[Path, ...]) -> dict[str, Sequence[Question]]:
            files = match_files(facts.tasks, paths, "valid" if paths == config.valid else "test")
            questions: dict[str, Sequence[Question]] = {}
            for name, path in files.items():
                questions[name] = read_babi(path, config.max_length)
                answers = (question.answer for question in questions[name])
                check_any_known("answer", answers, predictor.encoders[facts.network(name)].answers, path)
            return questions

        return EvaluationSplit[dict[str, Sequence[Question]]].of(
            config,
            options,
            folder,
            "questions",
            read_files=read_files,
            read_part=lambda part: getattr(by_part(read(config)), part),
            contents=contents,
        )


def _line(row: TaskScore) -> str:
    support = "" if row.support is None else f", support {row.support:.1f} %"
    return (
        f"{row.name}: error {row.error:.1f} % of {row.questions:,}{support}; bag of words {row.bag_of_words:.1f} %, "
        f"last answer named {row.last_named:.1f} %, most frequent answer {row.most_frequent:.1f} %"
    )


def _sample(question: Question, answer: StoryAnswer) -> str:
    story = shortened(" ".join(question.sentences[-2:]), 100)
    return f"{story} {question.question} → {corrected(answer.best, question.answer)}"
