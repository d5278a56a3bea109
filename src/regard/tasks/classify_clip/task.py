"""The task classify-clip: its training problem, its data, its evaluation."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from regard.common.options.checks import large_batch_warnings
from regard.data.clips.labelled import Clips
from regard.inference.evaluation import Evaluation, Progress, sample_rows, timed
from regard.inference.evaluation_split import EvaluationSplit, record_folder
from regard.models.clips.clip_model import ClipModel
from regard.tasks.base import Task
from regard.tasks.classify_clip.baseline import fit_single_frame, read_single_frame, single_frame_accuracy
from regard.tasks.classify_clip.data import (
    ClipBatch,
    ClipFacts,
    check_trainable,
    contents,
    pad,
    parts_with_files,
    plan_batches,
    read_splits,
)
from regard.tasks.classify_clip.options import ClassifyClip
from regard.tasks.classify_clip.predictor import ClipClassifier
from regard.tasks.shared.classification import (
    class_evaluation,
    class_loss,
    class_sample,
    class_scores,
    is_baseline_saved,
    unseen_class_notes,
    write_baseline,
)
from regard.tasks.shared.image_options import EvaluateImages
from regard.training.protocol import BaselineReport, Loss, TrainingProblem, ValidationResult
from regard.training.run_folder import initial_folder


@dataclass(frozen=True, eq=False)
class ClassifyClipProblem(TrainingProblem[ClipModel, ClipBatch]):
    """−log p(class | clip), with label smoothing."""

    config: ClassifyClip
    facts: ClipFacts
    train: Clips
    valid: Clips
    summary: str
    folder: Path
    shared: Sequence[str] = ()
    unit: str = "clips"

    def build_model(self) -> ClipModel:
        return _build(self.config, self.facts)

    def plan_epoch(self, epoch: int) -> Sequence[NDArray[np.int64]]:
        return plan_batches(self.train.lengths, self.config.batch, self.config.seed, epoch)

    def warnings(self) -> Sequence[str]:
        large = large_batch_warnings(self.config.batch, len(self.train), "clips")
        return [*large, *unseen_class_notes(self.valid, self.facts.classes)]

    def load_batch(self, planned: NDArray[np.int64], rank: int, world: int) -> ClipBatch | None:
        rows = planned[rank::world]
        if not len(rows):
            return None
        x, lengths = pad([self.train.clips[n] for n in rows.tolist()], self.facts)
        return ClipBatch(x, lengths, torch.from_numpy(self.train.labels[rows]))

    def loss(self, model: ClipModel, batch: ClipBatch) -> Loss:
        return class_loss(model(batch.x, batch.lengths), batch.labels, self.config.smoothing)

    def validate(self, model: ClipModel) -> ValidationResult:
        probabilities = ClipClassifier(model, self.facts).probabilities(self.valid.clips)
        return ValidationResult(class_scores(probabilities, self.valid.labels), self.config.metric, False)

    def baselines(self) -> BaselineReport:
        alone = single_frame_accuracy(read_single_frame(self.folder, self.facts), self.valid, self.facts)
        name = f"network that sees a single {'sample' if self.facts.size is None else 'frame'}"
        return BaselineReport("accuracy", True, {name: alone})


class ClassifyClipTask(Task[ClassifyClip, ClipClassifier]):
    """Trains, loads and evaluates classifiers of clips."""

    def prepare(self, folder: Path, new: bool) -> ClassifyClipProblem:
        config = self.config
        initial = initial_folder(folder)
        before = None if initial is None else ClipFacts.read(initial)
        splits = read_splits(config, None if before is None else before.classes)
        name = config.train or config.dataset
        check_trainable(splits, name, before is not None)
        facts = ClipFacts.of(splits)
        if before is not None:
            if (facts.size, facts.channels) != (before.size, before.channels):
                raise ValueError(
                    f"the clips of {name} have frames of {facts.size} and {facts.channels} channels, those of the run "
                    f"to start from {before.size} and {before.channels}; resize them, or train from scratch"
                )
            # its weights have learned these
            facts = replace(facts, mean=before.mean, spread=before.spread)
        # a run that was killed while it read its data has nothing to load yet
        if new or not (ClipFacts.is_saved(folder) and is_baseline_saved(folder)):
            write_baseline(fit_single_frame(splits.train, facts, config.seed), folder)
            facts.write(folder)
        else:
            facts.check_same(folder)
        summary = f"{len(splits.train):,} clips to train on, {len(splits.valid):,} to validate"
        summary += f", {len(facts.classes)} classes"
        shared = record_folder(config.train, folder, splits, "clips", contents, new, parts_with_files(config))
        return ClassifyClipProblem(config, facts, splits.train, splits.valid, summary, folder, shared)

    def sketch(self) -> nn.Module:
        # whether files hold signals or pictures is not known before they are read
        return self.config.model.build(1, None if self.config.dataset == "signals" else (16, 16), 2)

    def predictor(self, folder: Path) -> ClipClassifier:
        facts = ClipFacts.read(folder)
        return ClipClassifier(_build(self.config, facts), facts, lambda: read_splits(self.config, facts.classes))

    def example(self, folder: Path) -> str:
        return "test:0"

    def evaluate(
        self, predictor: ClipClassifier, folder: Path, options: EvaluateImages, progress: Progress
    ) -> Evaluation:
        facts = predictor.facts
        config, data = self.config, getattr(read_splits(self.config, facts.classes), options.split)
        split: EvaluationSplit[Clips] = EvaluationSplit.of_folder(
            data, options.split, config.train, folder, "clips", contents, parts_with_files(config)
        )
        clips = split.data
        probabilities, seconds = timed(lambda done: predictor.probabilities(clips.clips, done), len(clips), progress)
        alone = single_frame_accuracy(read_single_frame(folder, facts), clips, facts)
        step = "sample" if facts.size is None else "frame"
        notes = [f"a network that sees a single {step}, the baseline: accuracy {alone:.2f}"]
        share = None if clips.intervals is None else predictor.evidence(clips)
        if share is not None:
            notes.append(
                f"evidence: the share of the attention over time that is on the {step}s that decide the class, in "
                "percent"
            )
        rows = sample_rows(len(clips), 4)
        return class_evaluation(
            split,
            probabilities,
            facts.classes,
            "clips",
            seconds,
            names=("nll", "accuracy", "macro f1"),
            samples=[class_sample(f"{options.split}:{n}", clips, probabilities, n) for n in rows],
            notes=notes,
            facts={"split": options.split, "baseline": {"accuracy": alone}},
            evidence=share,
        )


def _build(config: ClassifyClip, facts: ClipFacts) -> ClipModel:
    return config.model.build(facts.channels, facts.size, len(facts.classes))
