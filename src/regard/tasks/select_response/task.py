"""The task select-response: its training problem and its evaluation."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.common.wording import clipped, plural
from regard.data.dialogues import CandidateGroup, Context, contexts_of
from regard.data.text.special_tokens import PAD, SPECIAL
from regard.inference.evaluation import Evaluation, Progress, sample_rows, timed
from regard.inference.evaluation_split import record_splits
from regard.metrics.intervals import nats_interval
from regard.metrics.retrieval import mean_reciprocal_rank, ranks, recall_at, recall_interval, reciprocal_rank_interval
from regard.models.matching.response_selector import (
    DialogueInputs,
    EncoderVectors,
    ResponseSelector,
    StateTexts,
    TextSimilarity,
    TokenTexts,
    WordVectors,
)
from regard.tasks.base import Task
from regard.tasks.select_response.data import DialogueFacts, groups_of, tf_idf_scores
from regard.tasks.select_response.options import SelectResponse
from regard.tasks.select_response.predictor import SelectResponsePredictor
from regard.tasks.select_response.readers import TurnReader, TurnTokenReader, TurnWordReader, dialogue_inputs
from regard.tasks.shared.dialogue_data import contents, evaluation_dialogues, read
from regard.tasks.shared.encoder import MOST_BYTES, FrozenStates, PretrainedEncoder, smallest_pretrained
from regard.tasks.shared.encoder_options import FrozenEncoderOptions
from regard.tasks.shared.row_batches import RowProblem
from regard.tasks.shared.text_options import EvaluateTextFile
from regard.training.protocol import BaselineReport, LabelledBatch, Loss, ValidationResult

_RECALLS = (1, 2, 5)


@dataclass(frozen=True, eq=False)
class ResponseBatch(LabelledBatch):
    """Dialogues with one response each, and whether it is the right one."""

    inputs: DialogueInputs
    labels: Tensor  # "b", 1.0 or 0.0


def turn_reader(config: SelectResponse, facts: DialogueFacts, encoder: PretrainedEncoder | None) -> TurnReader:
    return TurnWordReader(facts.words, config.words) if encoder is None else TurnTokenReader(encoder, config.words)


def build(config: SelectResponse, facts: DialogueFacts, encoder: PretrainedEncoder | None) -> ResponseSelector:
    """The model with initial weights; `encoder` is that of the options, if they name one."""
    vectors: WordVectors | EncoderVectors
    if encoder is None:
        width = config.model.embedding or 1
        vectors = WordVectors(nn.Embedding(SPECIAL + len(facts.words), width, padding_idx=PAD), None)
    else:
        assert config.model.encoder is not None
        width = encoder.facts.width
        vectors = EncoderVectors(encoder.build(FrozenEncoderOptions(config.model.encoder)))
    matcher = config.model.build(width, turns=config.turns, words=config.words)
    similarity = TextSimilarity(width, config.turns) if config.model.similarity == "mean" else None
    return ResponseSelector(vectors, matcher, similarity)


def predictor_of(config: SelectResponse, model: ResponseSelector, reader: TurnReader) -> SelectResponsePredictor:
    return SelectResponsePredictor(model, reader, turns=config.turns, max_length=config.max_length)


@dataclass(frozen=True, eq=False)
class SelectResponseProblem(RowProblem[ResponseSelector, ResponseBatch]):
    """−log σ(score) of right responses and −log σ(−score) of wrong ones."""

    config: SelectResponse
    facts: DialogueFacts
    encoder: PretrainedEncoder | None
    reader: TurnReader
    contexts: Sequence[Context]
    valid: Sequence[CandidateGroup]
    states: FrozenStates | None
    num_cut: int  # turns with more tokens than the model reads
    summary: str
    shared: Sequence[str] = ()
    unit: str = "contexts"

    def build_model(self) -> ResponseSelector:
        return build(self.config, self.facts, self.encoder)

    def warnings(self) -> Sequence[str]:
        if not self.num_cut:
            return ()
        have = "has" if self.num_cut == 1 else "have"
        return (
            f"{plural(self.num_cut, 'turn')} to train on {have} more than words={self.config.words} tokens, and those "
            "behind them are not read; give a larger --words to read them",
        )

    def plan_rows(self, epoch: int) -> Sequence[NDArray[np.int64]]:
        order = np.random.default_rng([self.config.seed, epoch]).permutation(len(self.contexts))
        return [order[n : n + self.config.batch] for n in range(0, len(order), self.config.batch)]

    def load_rows(self, rows: NDArray[np.int64], rng: np.random.Generator) -> ResponseBatch:
        pairs, labels = [], []
        for n in rows.tolist():
            context = self.contexts[n]
            wrong = [self.contexts[k].response for k in rng.integers(len(self.contexts), size=self.config.negatives)]
            for response in (context.response, *wrong):
                pairs.append((context.turns, response))
                labels.append(float(response == context.response))
        return ResponseBatch(dialogue_inputs(self.reader, pairs, self.config.turns), torch.tensor(labels))

    def _read_states(self, model: ResponseSelector, inputs: DialogueInputs) -> DialogueInputs:
        """The inputs, with the states of a frozen encoder in place of its tokens."""
        if self.states is None:
            return inputs
        assert isinstance(inputs.texts, TokenTexts)
        assert isinstance(model.vectors, EncoderVectors)
        tokens, lengths = inputs.texts
        return inputs._replace(texts=StateTexts(self.states.read(model.vectors.encoder, tokens, lengths), lengths))

    def loss(self, model: ResponseSelector, batch: ResponseBatch) -> Loss:
        scores = model(self._read_states(model, batch.inputs)).float()
        total = F.binary_cross_entropy_with_logits(scores, batch.labels, reduction="sum")
        right = ((scores > 0) == (batch.labels > 0.5)).sum()
        return Loss(total, len(batch.labels), {"accuracy": 100.0 * right})

    def validate(self, model: ResponseSelector) -> ValidationResult:
        predictor = predictor_of(self.config, model, self.reader)
        rows = predictor.scores(self.valid, prepare=lambda inputs: self._read_states(model, inputs))
        sample = _sample(self.valid[0], rows[0])
        return ValidationResult(ranking_scores(np.stack(rows)), "recall at 1", True, sample)

    def baselines(self) -> BaselineReport:
        scores = {"tf-idf": ranking_scores(tf_idf_scores(self.valid))["recall at 1"]}
        return BaselineReport("recall at 1", True, scores, "" if self.config.model.encoder else "--encoder FOLDER")

    def describe_rows(self, rows: NDArray[np.int64]) -> str:
        turn = self.contexts[int(rows[0])].turns[-1][:60]
        return f"{len(rows)} contexts of {self.config.dataset_label}, the first ends with {turn!r}"


class SelectResponseTask(Task[SelectResponse, SelectResponsePredictor]):
    """Trains, loads and evaluates selectors of responses."""

    def prepare(self, folder: Path, new: bool) -> SelectResponseProblem:
        config = self.config
        splits = read(config)
        known = DialogueFacts.of_initial(folder)
        facts = DialogueFacts.of(splits, config.vocabulary) if known is None else known.for_data(splits)
        facts = facts.saved(folder, new)
        shared = record_splits(config, folder, splits, "dialogues", contents, new)
        encoder = None
        if config.model.encoder is not None:
            encoder = PretrainedEncoder.prepare(FrozenEncoderOptions(config.model.encoder), folder, new)
        reader = turn_reader(config, facts, encoder)
        contexts = [context for dialogue in splits.train for context in contexts_of(dialogue, config.turns)]
        if not contexts:
            raise ValueError(
                f"train={config.train} has no response with words in the turns={config.turns} before it, so there is "
                "nothing to learn; give more turns, or other dialogues"
            )
        valid = groups_of(config, splits.valid)
        states = None
        if encoder is not None:
            texts = {turn for part in (splits.train, splits.valid) for dialogue in part for turn in dialogue if turn}
            states = FrozenStates(reader.tokenize(sorted(texts)), encoder.tokenizer.pad)
            states = states if 4 * states.num_tokens * encoder.facts.width <= MOST_BYTES else None
        summary = f"{len(splits.train):,} dialogues to train on with {len(contexts):,} responses, "
        words = plural(len(facts.words), "word")
        summary += f"{len(splits.valid):,} to validate with {config.candidates} candidates each, {words}"
        if splits.num_short:
            summary += f"; {plural(splits.num_short, 'dialogue')} without a response left out"
        num_cut = reader.num_cut([turn for dialogue in splits.train for turn in dialogue])
        return SelectResponseProblem(config, facts, encoder, reader, contexts, valid, states, num_cut, summary, shared)

    def sketch(self) -> nn.Module:
        encoder = None if self.config.model.encoder is None else smallest_pretrained()
        return build(self.config, DialogueFacts(words=["x", "y"]), encoder)

    def predictor(self, folder: Path) -> SelectResponsePredictor:
        encoder = None if self.config.model.encoder is None else PretrainedEncoder.of_run(folder)
        parts = self.config, DialogueFacts.read(folder), encoder
        return predictor_of(self.config, build(*parts), turn_reader(*parts))

    def example(self, folder: Path) -> str:
        group = groups_of(self.config, read(self.config).valid)[0]
        return "\n".join(["\t".join(group.turns), *group.candidates])

    def evaluate(
        self, predictor: SelectResponsePredictor, folder: Path, options: EvaluateTextFile, progress: Progress
    ) -> Evaluation:
        split = evaluation_dialogues(self.config, folder, options)
        groups = groups_of(self.config, split.data)
        rows, seconds = timed(lambda done: predictor.scores(groups, done), len(groups), progress)
        of_baseline = {name: value for name, value in ranking_scores(tf_idf_scores(groups)).items() if name != "nll"}
        named = ", ".join(f"{name} {value:.2f}" for name, value in of_baseline.items())
        notes = [
            f"tf-idf, the baseline: {named}",
            f"recall at k: how often the right one of {self.config.candidates} is among the k best; ties are wrong",
        ]
        scores = np.stack(rows)
        best = [group.candidates[_best(row)] for group, row in zip(groups, rows, strict=True)]
        evaluation = Evaluation(
            ranking_scores(scores),
            len(groups),
            "contexts",
            split.name,
            seconds,
            best,
            [_sample(groups[n], rows[n]) for n in sample_rows(len(groups))],
            notes,
            {"baseline": {"scores": of_baseline}, "candidates": self.config.candidates},
            ranking_intervals(scores),
        )
        return split.annotate(evaluation)


def ranking_scores(scores: NDArray[np.float64]) -> dict[str, float]:  # "n c", the right candidate first
    """Recall at k and the mean reciprocal rank in percent, ties counted as wrong, and −log softmax of the right one."""
    places = ranks(scores, np.zeros(len(scores), np.int64))
    recalls = {f"recall at {k}": recall_at(places, k) for k in _RECALLS if k < scores.shape[1]}
    return {**recalls, "mrr": mean_reciprocal_rank(places), "nll": float(_nats(scores).mean())}


def ranking_intervals(scores: NDArray[np.float64]) -> dict[str, tuple[float, float]]:  # "n c"
    places = ranks(scores, np.zeros(len(scores), np.int64))
    recalls = {f"recall at {k}": recall_interval(places, k) for k in _RECALLS if k < scores.shape[1]}
    return {**recalls, "mrr": reciprocal_rank_interval(places), "nll": nats_interval(_nats(scores))}


def _nats(scores: NDArray[np.float64]) -> NDArray[np.float64]:  # "n c" -> "n"
    shifted = scores - scores.max(1, keepdims=True)
    return np.log(np.exp(shifted).sum(1)) - shifted[:, 0]


def _best(scores: NDArray[np.float64]) -> int:  # "c"
    """The candidate with the best score; of equal ones not the first, which is the right one."""
    return len(scores) - 1 - int(scores[::-1].argmax())


def _sample(group: CandidateGroup, scores: NDArray[np.float64]) -> str:
    chosen, right = group.candidates[_best(scores)], group.candidates[0]
    turn = clipped(group.turns[-1], 80)
    return f"{turn} → {chosen[:80]}" + ("" if chosen == right else f"   right: {right[:80]}")
