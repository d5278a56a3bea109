"""The task masked-lm: its training problem and its evaluation."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from regard.common.options.checks import large_batch_warnings
from regard.data.text.masking import mask_token
from regard.data.text.running_text import token_stream
from regard.data.text.special_tokens import UNK
from regard.data.text.tokenizer import Tokenizer
from regard.inference.evaluation import Evaluation
from regard.models.bert import BERTMaskedLM
from regard.tasks.base import Progress, Task
from regard.tasks.masked_lm.baseline import NeighbourCounts
from regard.tasks.masked_lm.data import MaskedBatch, Masking, PlannedRows, plan_rows
from regard.tasks.masked_lm.masked_texts import MASK, RunMaskedTexts
from regard.tasks.masked_lm.options import MaskedLM
from regard.tasks.masked_lm.predictor import MaskedLMPredictor
from regard.tasks.masked_lm.scoring import score_masked
from regard.tasks.shared.running_text import (
    RunningTextFacts,
    evaluation_documents,
    read,
    record_documents,
    train_tokenizer,
)
from regard.tasks.shared.text_generation import initial_tokenizer, read_tokenizer, write_tokenizer
from regard.tasks.shared.text_options import EvaluateTextFiles
from regard.training.protocol import Loss, TrainingProblem, ValidationResult

_TOKENS = "tokens.json"
# characters of an example, and its samples in an evaluation
_EXAMPLE, _SAMPLES = 60, 5


@dataclass(frozen=True, eq=False)
class MaskedLMProblem(TrainingProblem[BERTMaskedLM, MaskedBatch]):
    """−log p(token | text with masks), over the chosen tokens."""

    task: MaskedLM
    tokenizer: Tokenizer
    stream: NDArray[np.int32]  # "n"
    valid: Sequence[str]
    valid_stream: NDArray[np.int32]  # "n"
    counts: NeighbourCounts
    masking: Masking
    summary: str
    shared: Sequence[str] = ()
    unit: str = "masked tokens"

    @staticmethod
    def of(task: MaskedLM, folder: Path, new: bool) -> "MaskedLMProblem":
        splits = read(task)
        facts = RunningTextFacts.of(splits)
        # a run that was killed while it read its data has nothing to load yet
        new = new or not RunningTextFacts.is_saved(folder)
        if new:
            tokenizer = initial_tokenizer(folder, _TOKENS, lambda: train_tokenizer(task, splits.train))
        else:
            facts.check_same(folder)
            tokenizer = read_tokenizer(folder / _TOKENS)
        stream = token_stream(tokenizer, splits.train)
        if len(stream) < task.segment:
            raise ValueError(
                f"segment={task.segment} tokens are more than the {len(stream)} of the training text; "
                f"give more text, or segment={max(len(stream) // 2, 3)}"
            )
        if new:
            write_tokenizer(tokenizer, folder / _TOKENS)
            NeighbourCounts.of(stream, len(tokenizer)).write(folder)
            facts.write(folder)
        valid = token_stream(tokenizer, splits.valid)[: task.valid_tokens]
        summary = f"{len(stream):,} tokens to train on, {len(valid):,} to validate, {len(tokenizer):,} different ones"
        masking = masking_of(task, tokenizer)
        counts = NeighbourCounts.read(folder)
        shared = record_documents(task, folder, splits, new)
        return MaskedLMProblem(task, tokenizer, stream, splits.valid, valid, counts, masking, summary, shared)

    def build_model(self) -> BERTMaskedLM:
        return build(self.task, self.tokenizer)

    def plan_epoch(self, epoch: int) -> Sequence[PlannedRows]:
        return plan_rows(len(self.stream), self.task.batch, self.task.segment, self.task.seed, epoch)

    def warnings(self) -> Sequence[str]:
        return large_batch_warnings(self.task.batch, len(self.stream) // self.task.segment, "rows of text")

    def load_batch(self, planned: PlannedRows, rank: int, world: int) -> MaskedBatch | None:
        return self.masking.load(self.stream, planned, self.task.segment, rank, world)

    def num_terms(self, batch: MaskedBatch) -> int:
        return len(batch.targets)

    def loss(self, model: BERTMaskedLM, batch: MaskedBatch) -> Loss:
        states = model.encoder(batch.tokens)[batch.is_chosen]
        total, nll = model.token_loss(states, batch.targets)
        return Loss(total, len(batch.targets), {"nll": nll.sum()})

    def validate(self, model: BERTMaskedLM) -> ValidationResult:
        scores = score_masked(model, self.valid_stream, self.masking, self.task.segment, self.counts)
        predictor = MaskedLMPredictor(model, RunMaskedTexts(self.tokenizer), longest=self.task.segment)
        sample = next(iter(_samples(predictor, self.valid, 1)), "")
        return ValidationResult(scores.summary(), "accuracy", True, sample)

    def locate(self, planned: Sequence[PlannedRows]) -> str:
        """The first token of these batches, and the text there."""
        start = int(planned[0].starts[0])
        text = self.tokenizer.decode_text(self.stream[start : start + 20].tolist())
        return f"token {start:,} of {self.task.dataset_label}, {text!r}"


class MaskedLMTask(Task[MaskedLM, MaskedLMPredictor]):
    """Trains, loads and evaluates masked language models."""

    def prepare(self, folder: Path, new: bool) -> MaskedLMProblem:
        return MaskedLMProblem.of(self.config, folder, new)

    def dry_run(self) -> None:
        tokens = torch.tensor([[5, 6, 7], [8, 9, 5]])
        with torch.random.fork_rng(devices=[]):
            self.config.model.build(11, self.config.segment)(tokens)

    def predictor(self, folder: Path) -> MaskedLMPredictor:
        tokenizer = read_tokenizer(folder / _TOKENS)
        texts = RunMaskedTexts(tokenizer)
        return MaskedLMPredictor(build(self.config, tokenizer), texts, longest=self.config.segment)

    def example(self, folder: Path) -> str | None:
        return next(iter(_examples(read(self.config).valid, self.config.segment)), None)

    def evaluate(
        self, predictor: MaskedLMPredictor, folder: Path, options: EvaluateTextFiles, progress: Progress
    ) -> Evaluation:
        split = evaluation_documents(self.config, folder, options)
        documents = split.data
        tokenizer = read_tokenizer(folder / _TOKENS)
        stream = token_stream(tokenizer, documents)
        progress(0, len(stream))
        start = time.perf_counter()
        scores = score_masked(
            predictor.model,
            stream,
            masking_of(self.config, tokenizer),
            self.config.segment,
            NeighbourCounts.read(folder),
            lambda done: progress(done, len(stream)),
        )
        seconds = time.perf_counter() - start
        kind = "whole words" if self.config.masking == "words" else "single tokens"
        notes = [
            f"{100 * self.config.mask_share:g} % of {len(stream):,} tokens are {MASK} in the text: {kind}",
            "unigram: the most frequent token; bigram: by the token before the mask; two-sided: by both neighbours",
        ]
        if unknown := int((stream == UNK).sum()):
            notes.append(f"{unknown:,} of the tokens are not in the vocabulary, and none of them is asked for")
        right, guesses = (tokenizer.pieces(tokens.tolist()) for tokens in (scores.targets, scores.guesses))
        lines = [f"{token}\t{guess}" for token, guess in zip(right, guesses, strict=True)]
        count = len(scores.targets)
        samples = _samples(predictor, documents, _SAMPLES)
        facts = {"tokens": len(stream), "masking": self.config.masking, "mask_share": self.config.mask_share}
        named, intervals = scores.summary(), scores.intervals()
        evaluation = Evaluation(
            named, count, "masked tokens", split.name, seconds, lines, samples, notes, facts, intervals
        )
        return split.annotate(evaluation)


def build(task: MaskedLM, tokenizer: Tokenizer) -> BERTMaskedLM:
    return task.model.build(mask_token(tokenizer) + 1, task.segment)


def masking_of(task: MaskedLM, tokenizer: Tokenizer) -> Masking:
    return Masking(tokenizer, task.mask_share, task.masking == "words")


def _samples(predictor: MaskedLMPredictor, documents: Sequence[str], count: int) -> list[str]:
    """Lines of the text with a masked word, and the candidates for it."""
    texts = _examples(documents, predictor.longest)
    texts = texts[:: max(len(texts) // count, 1)][:count]
    outputs = predictor.predict(texts)
    return [f"{text} → {predictor.text(each)}".replace("\t", ", ") for text, each in zip(texts, outputs, strict=True)]


def _examples(documents: Sequence[str], longest: int) -> list[str]:
    """The beginnings of lines of three words and more, with a mask for the one in the middle; at most a thousand."""
    examples: list[str] = []
    for line in chain.from_iterable(map(str.splitlines, documents)):
        words = line[:_EXAMPLE].split()
        # a token has at least one byte, and the begin and the end of a text are tokens as well
        while words and len(" ".join(words).encode()) > longest - 2:
            words.pop()
        if len(words) >= 3 and MASK not in line:
            words[len(words) // 2] = MASK
            examples.append(" ".join(words))
        if len(examples) == 1000:
            break
    return examples
