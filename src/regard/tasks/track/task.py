"""The task track: its training problem and its evaluation."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.common.wording import clipped, corrected, plural
from regard.data.text.special_tokens import SPECIAL
from regard.data.text.subword_inputs import SubwordEncoder
from regard.data.text.words import WordEncoder
from regard.data.tracking.dialogue import TrackedDialogue, TrackedTurn
from regard.data.tracking.files import read_ontology, read_tracked
from regard.inference.evaluation import Evaluation, Progress, sample_rows, timed
from regard.inference.evaluation_split import EvaluationSplit, record_splits
from regard.metrics.intervals import nats_interval
from regard.metrics.tracking import DEFINITIONS, TurnLabels, states, tracking_scores
from regard.models.tracking.inputs import TrackingInputs
from regard.models.tracking.slot_tracker import SlotTracker
from regard.tasks.base import Task
from regard.tasks.shared.encoder import PretrainedEncoder, smallest_pretrained
from regard.tasks.shared.encoder_options import EncoderOptions
from regard.tasks.shared.row_batches import RowProblem
from regard.tasks.track.candidates import SlotCandidates
from regard.tasks.track.data import (
    TrackingFacts,
    contents,
    matched_labels,
    read,
    right_labels,
    unseen_value_notes,
    write_conversation,
)
from regard.tasks.track.options import EvaluateStates, Track
from regard.tasks.track.predictor import TrackPredictor
from regard.tasks.track.turn_encoder import EncodedTurn, TurnEncoder, whole_batches
from regard.training.protocol import BaselineReport, Loss, TensorBatch, ValidationResult

# corrections of labels that a note lists
_LISTED = 20


@dataclass(frozen=True, eq=False)
class TrackBatch(TensorBatch):
    """Turns with their labels."""

    inputs: TrackingInputs
    values: Tensor  # "n s", 0 for no value
    requests: Tensor  # "n r", 1.0 or 0.0


def turn_encoder(config: Track, facts: TrackingFacts, pretrained: PretrainedEncoder | None) -> TurnEncoder:
    """Turns to the inputs of the model."""
    words: WordEncoder | SubwordEncoder = WordEncoder(facts.words, ())
    if pretrained is not None:
        words = SubwordEncoder(pretrained.tokenizer, pretrained.longest)
    return TurnEncoder(
        SlotCandidates(facts.ontology), words, acts=config.acts, history=config.history, max_length=config.max_length
    )


def build(config: Track, facts: TrackingFacts, pretrained: PretrainedEncoder | None) -> SlotTracker:
    """The model with initial weights; those of an encoder come from its folder if the run has none yet."""
    names = len(SlotCandidates(facts.ontology).names)
    options = config.model
    if isinstance(options, EncoderOptions):
        assert pretrained is not None
        return options.build(pretrained.build(options), names)
    return options.build(SPECIAL + len(facts.words), names)


def encode_all(
    encoder: TurnEncoder, dialogues: Sequence[TrackedDialogue], path: Path | None = None
) -> list[list[EncodedTurn]]:
    """The turns of every dialogue; an error names the dialogue."""
    return [encoder.encode(each.turns, f"dialogue {each.name}", path) for each in dialogues]


@dataclass(frozen=True, eq=False)
class TrackProblem(RowProblem[SlotTracker, TrackBatch]):
    """−log p of the value of every slot, none included, and of every request, per turn."""

    config: Track
    facts: TrackingFacts
    encoder: TurnEncoder
    turns: Sequence[TrackedTurn]
    encoded: Sequence[EncodedTurn]
    examples: Sequence[Sequence[int]]  # the turns that a batch has all or none of: single ones, or those of a dialogue
    valid: Sequence[TrackedDialogue]
    valid_encoded: Sequence[Sequence[EncodedTurn]]
    summary: str
    corrections: str
    pretrained: PretrainedEncoder | None = None
    shared: Sequence[str] = ()
    unit: str = "turns"

    def build_model(self) -> SlotTracker:
        return build(self.config, self.facts, self.pretrained)

    def warnings(self) -> Sequence[str]:
        unseen = unseen_value_notes(self.valid, self.facts.ontology)
        return [*([self.corrections] if self.corrections else []), *unseen]

    def plan_rows(self, epoch: int) -> Sequence[NDArray[np.int64]]:
        order = np.random.default_rng([self.config.seed, epoch]).permutation(len(self.examples))
        return [order[rows] for rows in whole_batches([len(self.examples[n]) for n in order], self.config.batch)]

    def load_rows(self, rows: NDArray[np.int64], rng: np.random.Generator) -> TrackBatch:
        turns = self._turns(rows)
        inputs = self.encoder.inputs(
            [self.encoded[n] for n in turns], rng, self.config.word_dropout, self.config.value_dropout
        )
        return TrackBatch(inputs, *self.encoder.candidates.targets([self.turns[n] for n in turns]))

    def _turns(self, examples: NDArray[np.int64]) -> list[int]:
        return [turn for n in examples for turn in self.examples[n]]

    def num_terms(self, batch: TrackBatch) -> int:
        return len(batch.values)

    def loss(self, model: SlotTracker, batch: TrackBatch) -> Loss:
        scores = model(batch.inputs).float()
        return Loss(self.encoder.candidates.nll(scores, batch.values, batch.requests).sum(), len(batch.values), {})

    def validate(self, model: SlotTracker) -> ValidationResult:
        tracked = track_dialogues(TrackPredictor(model, self.encoder), self.valid, self.valid_encoded)
        return ValidationResult(tracked.scores, "joint goal", True, _sample(self.valid[0], tracked.labels[0]))

    def baselines(self) -> BaselineReport:
        matched = matched_labels(self.valid, self.encoder.candidates.ontology)
        scores, _ = tracking_scores(matched, right_labels(self.valid))
        return BaselineReport("joint goal", True, {"string matching": scores["joint goal"]})

    def describe_rows(self, rows: NDArray[np.int64]) -> str:
        index = self._turns(rows)
        first = self.turns[index[0]].user[:60]
        return f"{plural(len(index), 'turn')} of {self.config.dataset_label}, the first {first!r}"


class TrackTask(Task[Track, TrackPredictor]):
    """Trains, loads and evaluates trackers."""

    def prepare(self, folder: Path, new: bool) -> TrackProblem:
        config = self.config
        splits = read(config)
        options = config.model
        pretrained = PretrainedEncoder.prepare(options, folder, new) if isinstance(options, EncoderOptions) else None
        known = TrackingFacts.of_initial(folder)
        facts = TrackingFacts.of(splits, config.vocabulary) if known is None else known.for_data(splits)
        facts = facts.saved(folder, new)
        shared = record_splits(config, folder, splits, "dialogues", contents, new)
        encoder = turn_encoder(config, facts, pretrained)
        encoded = encode_all(encoder, splits.train, config.train)
        valid = encode_all(encoder, splits.valid, config.valid or config.train)
        turns = [turn for dialogue in splits.train for turn in dialogue.turns]
        ontology = facts.ontology
        summary = f"{plural(len(splits.train), 'dialogue')} to train on with {plural(len(turns), 'turn')}, "
        summary += f"{len(splits.valid):,} to validate, {plural(len(ontology.slots), 'slot')} with "
        summary += f"{plural(sum(map(len, ontology.slots.values())), 'value')}, "
        summary += f"{plural(len(ontology.requests), 'request')}, {plural(len(facts.words), 'word')}"
        flat = [turn for dialogue in encoded for turn in dialogue]
        examples = [[n] for n in range(len(flat))]
        if config.model.context != "acts":
            ends = accumulate(map(len, encoded))
            examples = [[*range(end - len(dialogue), end)] for end, dialogue in zip(ends, encoded, strict=True)]
        corrections = describe(splits.corrections)
        return TrackProblem(
            config, facts, encoder, turns, flat, examples, splits.valid, valid, summary, corrections, pretrained, shared
        )

    def sketch(self) -> nn.Module:
        facts = TrackingFacts(slots={"x": ["y", "z"]}, requests=["w"], words=["x", "y"])
        is_pretrained = isinstance(self.config.model, EncoderOptions)
        return build(self.config, facts, smallest_pretrained() if is_pretrained else None)

    def predictor(self, folder: Path) -> TrackPredictor:
        is_pretrained = isinstance(self.config.model, EncoderOptions)
        encoder = PretrainedEncoder.of_run(folder) if is_pretrained else None
        parts = self.config, TrackingFacts.read(folder), encoder
        return TrackPredictor(build(*parts), turn_encoder(*parts))

    def example(self, folder: Path) -> str:
        return write_conversation(read(self.config).valid[0])

    def evaluate(
        self, predictor: TrackPredictor, folder: Path, options: EvaluateStates, progress: Progress
    ) -> Evaluation:
        if options.ontology is not None:
            predictor = predictor.with_ontology(read_ontology(options.ontology))
        ontology = predictor.candidates.ontology
        split, corrections = self._dialogues(folder, options)
        dialogues = split.data
        encoded = encode_all(predictor.encoder, dialogues)
        count = sum(map(len, encoded))
        tracked, seconds = timed(lambda done: track_dialogues(predictor, dialogues, encoded, done), count, progress)
        labels = tracked.labels
        of_baseline, _ = tracking_scores(matched_labels(dialogues, ontology), right_labels(dialogues))
        named = ", ".join(f"{name} {value:.2f}" for name, value in of_baseline.items())
        definitions = {name: definition for name, definition in DEFINITIONS.items() if name in tracked.scores}
        notes = [
            *(f"{name}: the share of {definition}" for name, definition in definitions.items()),
            f"string matching on the words of the user, the baseline: {named}",
            *([corrections] if corrections else []),
            *unseen_value_notes(dialogues, ontology),
        ]
        samples = [_sample(dialogues[n], labels[n]) for n in sample_rows(len(dialogues))]
        predictions = [_written(state) for dialogue in labels for state in states(dialogue)]
        evaluation = Evaluation(
            tracked.scores,
            count,
            "turns",
            split.name,
            seconds,
            predictions,
            samples,
            notes,
            {"baseline": {"scores": of_baseline}, "definitions": definitions},
            tracked.intervals,
        )
        return split.annotate(evaluation)

    def _dialogues(
        self, folder: Path, options: EvaluateStates
    ) -> tuple[EvaluationSplit[Sequence[TrackedDialogue]], str]:
        """The dialogues to evaluate, and the corrections of their labels."""
        corrections: Counter[str] = Counter()

        def read_files(files: tuple[Path, ...]) -> Sequence[TrackedDialogue]:
            file = read_tracked(files[0])
            corrections.update(file.corrections)
            return file.dialogues

        def read_part(part: str) -> Sequence[TrackedDialogue]:
            splits = read(self.config)
            corrections.update(splits.corrections)
            dialogues: Sequence[TrackedDialogue] = getattr(splits, part)
            return dialogues

        split = EvaluationSplit[Sequence[TrackedDialogue]].of(
            self.config, options, folder, "dialogues", read_files=read_files, read_part=read_part, contents=contents
        )
        return split, describe(corrections)


class TrackedLabels(NamedTuple):
    """The labels that a predictor gives to dialogues, and how they score."""

    labels: list[list[TurnLabels]]
    scores: dict[str, float]
    intervals: dict[str, tuple[float, float]]


def track_dialogues(
    predictor: TrackPredictor,
    dialogues: Sequence[TrackedDialogue],
    encoded: Sequence[Sequence[EncodedTurn]],
    done: Callable[[int], object] = lambda count: None,
) -> TrackedLabels:
    """The labels of all turns, their metrics, and −log p of the right ones per turn, of those in the ontology."""
    scores = predictor.all_scores(encoded, done)
    decided = [
        TurnLabels({slot: value for slot, (value, _) in turn.informs.items()}, frozenset(turn.requests))
        for turn in predictor.candidates.decide(scores)
    ]
    ends = accumulate(map(len, encoded))
    labels = [decided[end - len(dialogue) : end] for end, dialogue in zip(ends, encoded, strict=True)]
    named, intervals = tracking_scores(labels, right_labels(dialogues))
    candidates, turns = predictor.candidates, [turn for dialogue in dialogues for turn in dialogue.turns]
    known = [n for n, turn in enumerate(turns) if not candidates.ontology.unseen(turn)]
    if known:
        nats = candidates.nll(scores[known], *candidates.targets([turns[n] for n in known])).cpu().double().numpy()
        named["nll"], intervals["nll"] = float(nats.mean()), nats_interval(nats)
    return TrackedLabels(labels, named, intervals)


def describe(corrections: Mapping[str, int]) -> str:
    """A sentence about corrected labels; empty if there are none."""
    if not corrections:
        return ""
    listed = [f"{arrow} ({count:,})" for arrow, count in list(corrections.items())[:_LISTED]]
    more = f" and {len(corrections) - _LISTED:,} more" if len(corrections) > _LISTED else ""
    return f"labels were corrected: {', '.join(listed)}{more}"


def _written(state: dict[str, str]) -> str:
    return "; ".join(f"{slot}={value}" for slot, value in sorted(state.items()))


def _sample(dialogue: TrackedDialogue, labels: Sequence[TurnLabels]) -> str:
    predicted, reference = (
        _written(states(labels)[-1]) or "no slots",
        _written(dict(dialogue.turns[-1].state)) or "no slots",
    )
    text = clipped(dialogue.turns[-1].user, 80)
    return f"{text} → {corrected(predicted, reference)}"
