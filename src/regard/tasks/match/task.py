"""The task match: its training problem and its evaluation."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from regard.common.wording import clipped, plural, shortened
from regard.data.text.sentence_pairs import LabelledPairs
from regard.inference.evaluation import Evaluation, Progress, sample_rows, timed
from regard.inference.evaluation_split import EvaluationSplit, record_splits
from regard.models.matching.word_matcher import BagOfPairs, PairModel
from regard.tasks.base import Task
from regard.tasks.match.baseline import baseline_reader, fit_baseline
from regard.tasks.match.building import PairParts, model_parts
from regard.tasks.match.data import MatchBatch, PairFacts, contents, read, read_file
from regard.tasks.match.encoders import (
    EncoderReader,
    FrozenVectors,
    run_source,
    smallest_source,
    training_source,
)
from regard.tasks.match.options import AttackPairs, BagOfPairsOptions, CoEncoderOptions, EvaluatePairs, Match
from regard.tasks.match.predictor import MatchPredictor
from regard.tasks.match.readers import PairReader
from regard.tasks.shared.classification import (
    baseline_note,
    class_evaluation,
    class_intervals,
    class_loss,
    class_sample,
    class_scores,
    is_baseline_saved,
    known_rows,
    load_baseline,
    unseen_class_notes,
    write_baseline,
)
from regard.tasks.shared.row_batches import BatchedByLength
from regard.training.protocol import BaselineReport, Loss, ValidationResult


@dataclass(frozen=True, eq=False)
class MatchProblem(BatchedByLength[PairModel, MatchBatch]):
    """−log p(class | first text, second text), with label smoothing."""

    config: Match
    facts: PairFacts
    parts: PairParts
    tokens: Sequence[Any]  # tokens of each pair to train on
    train: LabelledPairs
    valid: LabelledPairs
    valid_tokens: Sequence[Any]
    vectors: FrozenVectors | None  # vectors of the texts, where a frozen encoder reads them
    summary: str
    folder: Path
    shared: Sequence[str] = ()  # warnings about pairs that files share
    unit: str = "pairs"

    @property
    def reader(self) -> PairReader[Any]:
        return self.parts.reader

    def build_model(self) -> PairModel:
        return self.parts.build()

    def _read_states(self, model: PairModel, inputs: Any) -> Any:
        """The inputs, with the states of frozen encoders in place of their tokens."""
        return inputs if self.vectors is None else self.vectors.pairs(model, inputs)

    def lengths(self) -> list[NDArray[np.int64]]:  # "n" each
        return list(np.array([self.reader.lengths(each) for each in self.tokens], np.int64).T)

    def warnings(self) -> Sequence[str]:
        return [*super().warnings(), *unseen_class_notes(self.valid, self.facts.classes)]

    def baselines(self) -> BaselineReport | None:
        if isinstance(self.config.model, BagOfPairsOptions):
            return None
        probabilities = baseline_probabilities(self.folder, self.facts, self.valid)
        advice = "" if isinstance(self.config.model, CoEncoderOptions) else "--encoder FOLDER --model co-encoder"
        accuracy = class_scores(probabilities, self.valid.labels)["accuracy"]
        return BaselineReport("accuracy", True, {"bag of words": accuracy}, advice)

    def load_rows(self, rows: NDArray[np.int64], rng: np.random.Generator) -> MatchBatch:
        inputs = self.reader.inputs([self.tokens[n] for n in rows], self.config.word_dropout, rng)
        return MatchBatch(inputs, torch.from_numpy(self.train.labels[rows]))

    def loss(self, model: PairModel, batch: MatchBatch) -> Loss:
        return class_loss(model(self._read_states(model, batch.inputs)), batch.labels, self.config.smoothing)

    def validate(self, model: PairModel) -> ValidationResult:
        predictor = MatchPredictor(model, self.reader, self.facts.classes, max_length=self.config.max_length)
        probabilities = predictor.probabilities(
            self.valid_tokens,
            logits=lambda part: model(self._read_states(model, self.reader.inputs(part).to(predictor.device))),
        )
        sample = _sample(self.valid, probabilities, 0)
        return ValidationResult(class_scores(probabilities, self.valid.labels), "accuracy", True, sample)

    def describe_rows(self, rows: NDArray[np.int64]) -> str:
        first = shortened(self.train.first[int(rows[0])])
        return f"{len(rows)} pairs of {self.config.dataset_label}, the first of them {first}"


def baseline_probabilities(folder: Path, facts: PairFacts, data: LabelledPairs) -> NDArray[np.float64]:  # -> "n k"
    """p(class | pair) by the bag of words of the run."""
    reader = baseline_reader(facts)
    model = load_baseline(BagOfPairs(reader.size, len(facts.classes)), folder)
    bag = MatchPredictor(model, reader, facts.classes, max_length=0)
    return bag.probabilities(reader.tokenize(data.first, data.second))


class MatchTask(Task[Match, MatchPredictor]):
    """Trains, loads and evaluates models of pairs of texts."""

    def prepare(self, folder: Path, new: bool) -> MatchProblem:
        config = self.config
        known = PairFacts.of_initial(folder)
        splits = read(config, None if known is None else known.classes)
        facts = PairFacts.of(splits, config.vocabulary) if known is None else known.for_data(splits)
        # a run that was killed while it read its data has nothing to load yet
        if new or not (PairFacts.is_saved(folder) and is_baseline_saved(folder)):
            write_baseline(fit_baseline(splits.train, facts), folder)
            facts.write(folder)
        else:
            facts = facts.check_same(folder)
        shared = record_splits(config, folder, splits, "pairs", contents, new)
        parts = model_parts(config.model, facts, training_source(folder, new))
        train, valid = splits.train, splits.valid
        summary = f"{plural(len(train), 'pair')} to train on, {len(splits.valid):,} to validate, "
        summary += f"{len(facts.classes)} classes, {plural(len(facts.words), 'word')}"
        if train.num_unlabelled:
            are = "is" if train.num_unlabelled == 1 else "are"
            summary += f"; {plural(train.num_unlabelled, 'pair')} without a label {are} left out"
        if train.num_windows:
            are = "is" if train.num_windows == 1 else "are"
            summary += f"; {plural(train.num_windows, 'line')} {are} not UTF-8 and read as Windows-1252"
        tokens, valid_tokens = (parts.reader.tokenize(data.first, data.second) for data in (train, valid))
        vectors = None
        if parts.frozen is not None:
            assert isinstance(parts.reader, EncoderReader)
            vectors = FrozenVectors(parts.reader, [*tokens, *valid_tokens], parts.frozen)
            # states that do not fit into memory are computed again in every step
            vectors = vectors if vectors.fits else None
        return MatchProblem(config, facts, parts, tokens, train, valid, valid_tokens, vectors, summary, folder, shared)

    def sketch(self) -> nn.Module:
        facts = PairFacts(classes=["a", "b", "c"], words=["x", "y"], characters=["x", "y"])
        return model_parts(self.config.model, facts, smallest_source).build()

    def predictor(self, folder: Path) -> MatchPredictor:
        facts, config = PairFacts.read(folder), self.config
        reader, build, _ = model_parts(config.model, facts, run_source(folder))
        return MatchPredictor(build(), reader, facts.classes, max_length=config.max_length)

    def example(self, folder: Path) -> str:
        valid = read(self.config).valid
        return f"{valid.first[0]}\t{valid.second[0]}"

    def evaluate(
        self, predictor: MatchPredictor, folder: Path, options: EvaluatePairs, progress: Progress
    ) -> Evaluation:
        facts = PairFacts.read(folder)
        split = self._pairs(facts, folder, options)
        data = split.data
        probabilities, seconds = timed(
            lambda done: predictor.probabilities(predictor.reader.tokenize(data.first, data.second), done),
            len(data),
            progress,
        )
        baseline = baseline_probabilities(folder, facts, data)
        of_baseline = class_scores(baseline, data.labels), class_intervals(baseline, data.labels)
        notes = [baseline_note(*of_baseline)]
        if data.num_unlabelled:
            notes.append(f"{plural(data.num_unlabelled, 'pair')} without a label left out")
        samples = [_sample(data, probabilities, n) for n in sample_rows(len(data))]
        values = {"baseline": {"scores": of_baseline[0], "intervals": of_baseline[1]}}
        return class_evaluation(
            split,
            probabilities,
            facts.classes,
            "pairs",
            seconds,
            samples=samples,
            notes=notes,
            facts=values,
            inputs=contents(data),
        )

    def attack_examples(
        self, predictor: MatchPredictor, folder: Path, options: AttackPairs
    ) -> tuple[list[str], list[str], str]:
        split = self._pairs(PairFacts.read(folder), folder, options)
        data = split.data[known_rows(split.data.labels, len(predictor.classes))]
        return contents(data), [data.classes[n] for n in data.labels], split.title

    def _pairs(self, facts: PairFacts, folder: Path, options: EvaluatePairs) -> EvaluationSplit[LabelledPairs]:
        """The pairs to classify."""
        config = self.config if options.columns is None else replace(self.config, columns=options.columns)
        return EvaluationSplit.of(
            self.config,
            options,
            folder,
            "pairs",
            read_files=lambda paths: read_file(config, paths[0], facts.classes),
            read_part=lambda part: getattr(read(self.config, facts.classes), part),
            contents=contents,
        )


def _sample(data: LabelledPairs, probabilities: NDArray[np.float64], n: int) -> str:
    texts = [clipped(text, 80) for text in (data.first[n], data.second[n])]
    return class_sample(" | ".join(texts), data, probabilities, n)
