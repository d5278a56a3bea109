"""The task embed: its training problem and its evaluation."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import nn

from regard.common.wording import plural, shortened
from regard.data.text.pairs import Pairs
from regard.data.text.subwords import RunSubwords
from regard.data.text.tf_idf import TfIdf
from regard.data.text.tokenizer import Tokenizer
from regard.inference.evaluation import Evaluation, Progress, sample_rows
from regard.inference.evaluation_split import EvaluationSplit, record_splits
from regard.losses import info_nce
from regard.metrics.intervals import nats_interval
from regard.metrics.retrieval import (
    mean_reciprocal_rank,
    ranks,
    recall_at,
    recall_interval,
    reciprocal_rank_interval,
    without_other_right,
)
from regard.models.transfer.text_embedder import TextEmbedder
from regard.models.transfer.text_encoder import TextEncoder
from regard.tasks.base import Task
from regard.tasks.embed.data import (
    ContrastiveBatch,
    EncodedPairs,
    PairFingerprint,
    contents,
    contrastive_batch,
    encode_pairs,
    plan_pairs,
    read,
    read_pairs,
    with_text,
)
from regard.tasks.embed.options import BERTEmbedderOptions, Embed
from regard.tasks.embed.predictor import EmbedPredictor
from regard.tasks.shared.classification import baseline_note
from regard.tasks.shared.encoder import EncoderFacts, PretrainedEncoder, smallest_encoder
from regard.tasks.shared.encoder_options import EncoderOptions
from regard.tasks.shared.text_options import EvaluateTextFiles
from regard.training.protocol import BaselineReport, Loss, TrainingProblem, ValidationResult
from regard.training.run_folder import initial_folder

# queries that are compared with all candidates at once
_QUERIES = 512


@dataclass(frozen=True, eq=False)
class EmbedProblem(TrainingProblem[TextEmbedder, ContrastiveBatch]):
    """InfoNCE between the vectors of the two texts of a pair, among the pairs of a batch."""

    config: Embed
    encoder: PretrainedEncoder
    pairs: EncodedPairs
    texts: Sequence[tuple[str, str]]
    valid: Sequence[tuple[str, str]]
    summary: str
    shared: Sequence[str] = ()
    unit: str = "pairs"

    def build_model(self) -> TextEmbedder:
        return build(self.config, self.encoder)

    def plan_epoch(self, epoch: int) -> Sequence[NDArray[np.int64]]:
        return plan_pairs(len(self.pairs.source), self.config.batch, self.config.seed, epoch)

    def load_batch(self, planned: NDArray[np.int64], rank: int, world: int) -> ContrastiveBatch | None:
        if world > 1 and len(planned) < 2 * world:
            raise ValueError(
                f"a batch of {len(planned)} pairs leaves one of {world} processes fewer than two, and a pair is only "
                f"right among others; give {2 * world} pairs and batch={2 * world} or more, or use fewer processes"
            )
        return contrastive_batch(self.pairs, planned[rank::world])

    def loss(self, model: TextEmbedder, batch: ContrastiveBatch) -> Loss:
        a, b = model(batch.texts).float().chunk(2)
        nats = info_nce(a, b, self.config.temperature, same=batch.same)
        with torch.no_grad():
            scores = (a @ b.t()).masked_fill(batch.same, -torch.inf)
            right = ((a * b).sum(-1) > scores.amax(-1)).sum()
        return Loss(nats.sum(), len(batch), {"recall@1": 100.0 * right})

    def validate(self, model: TextEmbedder) -> ValidationResult:
        predictor = _predictor(self.config, self.encoder, model)
        retrieval = Retrieval.of(predictor, self.valid, self.config.temperature)
        return ValidationResult(retrieval.scores, "recall@1", True, retrieval.sample(0))

    def baselines(self) -> BaselineReport:
        scores = retrieval_scores(_baseline_ranks(*retrieval_of(self.valid)))
        return BaselineReport("recall@1", True, {"tf-idf": scores["recall@1"]})

    def warnings(self) -> Sequence[str]:
        count = len(self.pairs.source)
        if count >= self.config.batch:
            return ()
        return (
            f"--batch {self.config.batch} is more than the {count:,} pairs to train on, so every batch has all of them",
        )

    def locate(self, planned: Sequence[NDArray[np.int64]]) -> str:
        index = np.concatenate(planned)
        first = shortened(self.texts[index[0]][0])
        return f"{len(index)} pairs of {self.config.dataset_label}, the first of them {first}"


def _new_encoder(config: Embed, pairs: Sequence[tuple[str, str]], folder: Path, new: bool) -> PretrainedEncoder:
    """The sizes and the tokenizer of an encoder that is trained from random weights."""
    assert isinstance(config.model, BERTEmbedderOptions)
    if not new:
        return PretrainedEncoder.of_run(folder)
    initial = initial_folder(folder)
    if initial is None:
        texts = [text for pair in pairs for text in pair]
        tokenizer = RunSubwords(Tokenizer.train(config.model.tokens, texts, config.model.vocabulary))
        with torch.device("meta"):
            bert = config.model.bert(tokenizer.size, config.max_length)
        facts = EncoderFacts.of(bert, config.model.attention, Path(), {})
        encoder = PretrainedEncoder(facts, tokenizer)
    else:
        encoder = PretrainedEncoder.of_run(initial)
    encoder.write(folder)
    return encoder


def build(config: Embed, encoder: PretrainedEncoder) -> TextEmbedder:
    """The model with initial weights; those of a pretrained encoder come from its folder if the run has none yet."""
    if isinstance(config.model, EncoderOptions):
        return config.model.build(encoder.build(config.model))
    return config.model.build(TextEncoder(encoder.facts.build()), layer_decay=1.0)


def _predictor(config: Embed, encoder: PretrainedEncoder, model: TextEmbedder) -> EmbedPredictor:
    return EmbedPredictor(
        model, encoder.tokenizer, longest=encoder.longest, max_length=encoder.longest_input(config.max_length)
    )


@dataclass(frozen=True, eq=False)
class Retrieval:
    """The second text of every pair, sought by the first among all different second texts.

    Other second texts of the same first text are right, too, and left out of its candidates.
    """

    queries: list[str]
    candidates: list[str]
    right: NDArray[np.int64]  # "q"
    answers: list[NDArray[np.int64]]  # all right candidates of every query
    ranks: NDArray[np.int64]  # "q"
    best: NDArray[np.int64]  # "q", the nearest candidate
    nats: NDArray[np.float64]  # "q"

    @staticmethod
    def of(
        predictor: EmbedPredictor,
        pairs: Sequence[tuple[str, str]],
        temperature: float,
        progress: Progress | None = None,
    ) -> "Retrieval":
        queries, candidates, right, answers = retrieval_of(pairs)
        total = len(queries) + len(candidates)

        def done(before: int) -> Any:
            return None if progress is None else lambda count: progress(before + count, total)

        vectors = [
            predictor.vectors(texts, done(n)).cpu().double() for n, texts in ((0, queries), (len(queries), candidates))
        ]
        places, best, nats = [], [], []
        for start in range(0, len(queries), _QUERIES):
            rows = right[start : start + _QUERIES]
            cosines = vectors[0][start : start + _QUERIES] @ vectors[1].t()
            best.append(cosines.argmax(-1).numpy())
            rivals = without_other_right(cosines.numpy(), rows, answers[start : start + _QUERIES])
            places.append(ranks(rivals, rows))
            logits = torch.from_numpy(rivals) / temperature
            nats.append(F.cross_entropy(logits, torch.from_numpy(rows), reduction="none").numpy())
        return Retrieval(queries, candidates, right, answers, *map(np.concatenate, (places, best, nats)))

    @property
    def scores(self) -> dict[str, float]:
        return {**retrieval_scores(self.ranks), "nll": float(self.nats.mean())}

    @property
    def intervals(self) -> dict[str, tuple[float, float]]:
        return {**retrieval_intervals(self.ranks), "nll": nats_interval(self.nats)}

    def sample(self, n: int) -> str:
        nearest, right = self.candidates[self.best[n]], self.candidates[self.right[n]]
        return f"{self.queries[n]} → {nearest}" + ("" if self.best[n] in self.answers[n] else f"   right: {right}")


def retrieval_of(
    pairs: Sequence[tuple[str, str]],
) -> tuple[list[str], list[str], NDArray[np.int64], list[NDArray[np.int64]]]:
    """The queries, the different candidates, the candidate of every pair, and all right candidates of its query."""
    numbers: dict[str, int] = {}
    right = [numbers.setdefault(target, len(numbers)) for _, target in pairs]
    by_query: dict[str, dict[int, None]] = {}
    for (source, _), number in zip(pairs, right, strict=True):
        by_query.setdefault(source, {})[number] = None
    # one array per different query, however many pairs it has
    answers = {source: np.array(list(columns), np.int64) for source, columns in by_query.items()}
    queries = [source for source, _ in pairs]
    return queries, list(numbers), np.array(right, np.int64), [answers[source] for source in queries]


def retrieval_scores(places: NDArray[np.int64]) -> dict[str, float]:
    return {
        "recall@1": recall_at(places, 1),
        "recall@10": recall_at(places, 10),
        "mrr": mean_reciprocal_rank(places),
    }


def retrieval_intervals(places: NDArray[np.int64]) -> dict[str, tuple[float, float]]:
    return {
        "recall@1": recall_interval(places, 1),
        "recall@10": recall_interval(places, 10),
        "mrr": reciprocal_rank_interval(places),
    }


class EmbedTask(Task[Embed, EmbedPredictor]):
    """Trains, loads and evaluates encoders of texts."""

    def prepare(self, folder: Path, new: bool) -> EmbedProblem:
        config = self.config
        splits = read(config)
        fingerprint = PairFingerprint().for_data(splits)
        # a run that was killed while it read its data has nothing to load yet
        new = new or not PairFingerprint.is_saved(folder)
        if not new:
            fingerprint.check_same(folder)
        train, valid = with_text(splits.train), with_text(splits.valid)
        if isinstance(config.model, EncoderOptions):
            encoder = PretrainedEncoder.prepare(config.model, folder, new)
            config.model.check_trains(encoder.facts.layers)
        else:
            encoder = _new_encoder(config, train, folder, new)
        if new:
            fingerprint.write(folder)
        shared = record_splits(config, folder, splits, "pairs", contents, new)
        longest = encoder.longest_input(config.max_length)
        pairs = encode_pairs(encoder.tokenizer, train, longest)
        summary = f"{len(train):,} pairs to train on, {len(valid):,} to validate, {encoder.tokenizer.size:,} tokens"
        if pairs.num_cut:
            are = "is" if pairs.num_cut == 1 else "are"
            summary += f"; {plural(pairs.num_cut, 'text')} {are} cut off after {longest:,} tokens"
        if dropped := len(splits.train) - len(train):
            summary += f"; {plural(dropped, 'pair')} without text on both sides left out"
        return EmbedProblem(config, encoder, pairs, train, valid, summary, shared)

    def sketch(self) -> nn.Module:
        options = self.config.model
        if isinstance(options, EncoderOptions):
            return options.build(smallest_encoder(options))
        return options.build(TextEncoder(options.bert(11, self.config.max_length)), layer_decay=1.0)

    def predictor(self, folder: Path) -> EmbedPredictor:
        encoder = PretrainedEncoder.of_run(folder)
        return _predictor(self.config, encoder, build(self.config, encoder))

    def example(self, folder: Path) -> str:
        return with_text(read(self.config).valid)[0][0]

    def evaluate(
        self, predictor: EmbedPredictor, folder: Path, options: EvaluateTextFiles, progress: Progress
    ) -> Evaluation:
        split = EvaluationSplit.of(
            self.config,
            options,
            folder,
            "pairs",
            read_files=read_pairs,
            read_part=lambda part: getattr(read(self.config), part),
            contents=contents,
        )
        return split.annotate(evaluate_pairs(predictor, split.data, split.name, progress, self.config.temperature))


def evaluate_pairs(
    predictor: EmbedPredictor, pairs: Pairs, split: str, progress: Progress, temperature: float
) -> Evaluation:
    """Retrieval by vectors, and by tf-idf beside it."""
    texts = with_text(pairs)
    if len(texts) < 2:
        raise ValueError(
            f"{split} has {len(texts)} of {len(pairs)} pairs with text on both sides, and retrieval compares two or "
            "more; give more pairs"
        )
    start = time.perf_counter()
    retrieval = Retrieval.of(predictor, texts, temperature, progress)
    seconds = time.perf_counter() - start
    baseline = _baseline_ranks(retrieval.queries, retrieval.candidates, retrieval.right, retrieval.answers)
    intervals = retrieval.intervals
    of_baseline = retrieval_scores(baseline), retrieval_intervals(baseline)
    facts = {
        "candidates": len(retrieval.candidates),
        "baseline": {"scores": of_baseline[0], "intervals": of_baseline[1]},
    }
    notes = [
        f"sought among {len(retrieval.candidates):,} different texts; ties count against the model",
        baseline_note(*of_baseline, "tf-idf of words, the baseline", ("recall@1", "mrr")),
    ]
    if several := sum(len(each) > 1 for each in retrieval.answers):
        notes.append(
            f"the first text of {plural(several, 'pair')} has several right second texts; the others are no candidates "
            "while one is sought"
        )
    if dropped := len(pairs) - len(texts):
        notes.append(f"{plural(dropped, 'pair')} without text on both sides left out")
    if cut := predictor.num_cut([*retrieval.queries, *retrieval.candidates]):
        were = "was" if cut == 1 else "were"
        notes.append(f"{plural(cut, 'text')} {were} cut off after {predictor.max_length:,} tokens")
    count = len(texts)
    samples = [retrieval.sample(n) for n in sample_rows(count)]
    predictions = [retrieval.candidates[n] for n in retrieval.best]
    return Evaluation(retrieval.scores, count, "pairs", split, seconds, predictions, samples, notes, facts, intervals)


def _baseline_ranks(
    queries: Sequence[str],
    candidates: Sequence[str],
    right: NDArray[np.int64],  # "q"
    answers: Sequence[NDArray[np.int64]],
) -> NDArray[np.int64]:  # -> "q"
    """The rank of the right candidate of every query by tf-idf."""
    index = TfIdf(candidates)
    places = []
    # query by query: a matrix of all queries and candidates may not fit into memory
    for query, place, others in zip(queries, right, answers, strict=True):
        rivals = without_other_right(index.similarity(query)[None], place[None], [others])
        places.append(ranks(rivals, place[None]))
    return np.concatenate(places)
