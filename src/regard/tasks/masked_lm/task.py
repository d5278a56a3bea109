"""The task masked-lm: its training problem and its evaluation."""

from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch import nn

from regard.common.options.checks import large_batch_warnings
from regard.data.text.masking import mask_token
from regard.data.text.running_text import token_stream
from regard.data.text.special_tokens import UNK
from regard.data.text.tokenizer import Tokenizer
from regard.inference.evaluation import Evaluation, Progress, timed
from regard.models.bert import BERTMaskedLM
from regard.tasks.base import Task
from regard.tasks.masked_lm.baseline import NeighbourCounts
from regard.tasks.masked_lm.data import MaskedBatch, Masking, PlannedRows, plan_rows
from regard.tasks.masked_lm.masked_texts import MASK, RunMaskedTexts
from regard.tasks.masked_lm.options import MaskedLM
from regard.tasks.masked_lm.predictor import MaskedLMPredictor
from regard.tasks.masked_lm.scoring import score_masked
from regard.tasks.shared.running_text import (
    TOKENS,
    RunningTextProblem,
    RunText,
    evaluation_documents,
    prepare_text,
    read,
)
from regard.tasks.shared.text_generation import read_tokenizer
from regard.tasks.shared.text_options import EvaluateTextFiles
from regard.training.protocol import Loss, ValidationResult

# characters of an example, and its samples in an evaluation
_EXAMPLE, _SAMPLES = 60, 5


class MaskedLMProblem(RunningTextProblem[BERTMaskedLM, MaskedBatch]):
    """−log p(token | text with masks), over the chosen tokens."""

    unit = "masked tokens"

    def __init__(self, config: MaskedLM, text: RunText, counts: NeighbourCounts) -> None:
        super().__init__(config, text)
        self.valid_stream = token_stream(self.tokenizer, self.valid)[: config.valid_tokens]
        self.counts, self.masking = counts, masking_of(config, self.tokenizer)
        self.summary = self.token_counts(len(self.stream), len(self.valid_stream))

    def build_model(self) -> BERTMaskedLM:
        return build(self.config, self.tokenizer)

    def plan_epoch(self, epoch: int) -> Sequence[PlannedRows]:
        return plan_rows(len(self.stream), self.config.batch, self.config.segment, self.config.seed, epoch)

    def warnings(self) -> Sequence[str]:
        return large_batch_warnings(self.config.batch, len(self.stream) // self.config.segment, "rows of text")

    def load_batch(self, planned: PlannedRows, rank: int, world: int) -> MaskedBatch | None:
        return self.masking.load(self.stream, planned, self.config.segment, rank, world)

    def num_terms(self, batch: MaskedBatch) -> int:
        return len(batch.targets)

    def loss(self, model: BERTMaskedLM, batch: MaskedBatch) -> Loss:
        states = model.encoder(batch.tokens)[batch.is_chosen]
        total, nll = model.token_loss(states, batch.targets)
        return Loss(total, len(batch.targets), {"nll": nll.sum()})

    def validate(self, model: BERTMaskedLM) -> ValidationResult:
        scores = score_masked(model, self.valid_stream, self.masking, self.config.segment, self.counts)
        predictor = MaskedLMPredictor(model, RunMaskedTexts(self.tokenizer), longest=self.config.segment)
        sample = next(iter(_samples(predictor, self.valid, 1)), "")
        return ValidationResult(scores.summary(), "accuracy", True, sample)


class MaskedLMTask(Task[MaskedLM, MaskedLMPredictor]):
    """Trains, loads and evaluates masked language models."""

    def prepare(self, folder: Path, new: bool) -> MaskedLMProblem:
        def write_counts(stream: NDArray[np.int32], tokenizer: Tokenizer) -> None:
            NeighbourCounts.of(stream, len(tokenizer)).write(folder)

        text = prepare_text(self.config, folder, new, unpredicted=0, shortest=3, write=write_counts)
        return MaskedLMProblem(self.config, text, NeighbourCounts.read(folder))

    def sketch(self) -> nn.Module:
        return self.config.model.build(11, longest=self.config.segment)

    def predictor(self, folder: Path) -> MaskedLMPredictor:
        tokenizer = read_tokenizer(folder / TOKENS)
        texts = RunMaskedTexts(tokenizer)
        return MaskedLMPredictor(build(self.config, tokenizer), texts, longest=self.config.segment)

    def example(self, folder: Path) -> str | None:
        return next(iter(_examples(read(self.config).valid, self.config.segment)), None)

    def evaluate(
        self, predictor: MaskedLMPredictor, folder: Path, options: EvaluateTextFiles, progress: Progress
    ) -> Evaluation:
        split = evaluation_documents(self.config, folder, options)
        documents = split.data
        tokenizer = read_tokenizer(folder / TOKENS)
        stream = token_stream(tokenizer, documents)
        scores, seconds = timed(
            lambda done: score_masked(
                predictor.model,
                stream,
                masking_of(self.config, tokenizer),
                self.config.segment,
                NeighbourCounts.read(folder),
                done,
            ),
            len(stream),
            progress,
        )
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


def build(config: MaskedLM, tokenizer: Tokenizer) -> BERTMaskedLM:
    return config.model.build(mask_token(tokenizer) + 1, longest=config.segment)


def masking_of(config: MaskedLM, tokenizer: Tokenizer) -> Masking:
    return Masking(tokenizer, config.mask_share, config.masking == "words")


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
