"""The task language-model: its training problem and its evaluation."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.common.options.checks import large_batch_warnings
from regard.data.text.running_text import token_stream
from regard.data.text.tokenizer import Tokenizer
from regard.inference.evaluation import Evaluation
from regard.models.language_model import LanguageModel
from regard.tasks.base import Progress, Task
from regard.tasks.language_model.data import (
    PlannedSegments,
    SegmentBatch,
    document_numbers,
    load_segments,
    num_rows,
    plan_segments,
)
from regard.tasks.language_model.evaluation import PROMPT, SAMPLE, check_options, evaluate_text
from regard.tasks.language_model.options import EvaluateLanguageModel, LanguageModelConfig
from regard.tasks.language_model.predictor import LanguageModelPredictor
from regard.tasks.language_model.row_memory import RowMemory
from regard.tasks.language_model.scoring import score_tokens, summarize
from regard.tasks.shared.running_text import (
    RunningTextFacts,
    evaluation_documents,
    read,
    record_documents,
    train_tokenizer,
)
from regard.tasks.shared.text_generation import initial_tokenizer, read_tokenizer, write_tokenizer
from regard.tasks.shared.text_options import RECALL
from regard.training.protocol import Loss, TrainingProblem, ValidationResult

_TOKENS = "tokens.json"
_EXAMPLE = 100


class LanguageModelProblem(TrainingProblem[LanguageModel, SegmentBatch]):
    """−log p(token | tokens before it in its row).

    The memory of the rows is the state of the problem: it is made by the weights of earlier steps, so a checkpoint
    holds it.
    """

    unit = "tokens"

    def __init__(
        self,
        task: LanguageModelConfig,
        tokenizer: Tokenizer,
        stream: NDArray[np.int32],
        valid: list[str],
        shared: Sequence[str] = (),
    ) -> None:
        self.task, self.tokenizer, self.stream, self.shared = task, tokenizer, stream, shared
        self.valid_text, self.valid_stream = valid, token_stream(tokenizer, valid)
        # the memory before a token, and the token whose document a recurrent state belongs to
        self.documents = document_numbers(stream, max(getattr(task.model, "memory", 0), 1))
        rows = num_rows(len(stream), task.batch, task.segment)
        self.memory = RowMemory(rows) if task.model.has_memory else None
        scored = min(len(self.valid_stream) - 1, task.valid_tokens)
        self.summary = (
            f"{len(stream) - 1:,} tokens to train on, {scored:,} to validate, {len(tokenizer):,} different ones"
        )

    @staticmethod
    def of(task: LanguageModelConfig, folder: Path, new: bool) -> "LanguageModelProblem":
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
        if len(stream) <= task.segment:
            raise ValueError(
                f"segment={task.segment} tokens are more than the {len(stream) - 1} of the training text; "
                f"give more text, or segment={max((len(stream) - 1) // 2, 1)}"
            )
        if new:
            write_tokenizer(tokenizer, folder / _TOKENS)
            facts.write(folder)
        shared = record_documents(task, folder, splits, new)
        return LanguageModelProblem(task, tokenizer, stream, splits.valid, shared)

    def build_model(self) -> LanguageModel:
        return self.task.model.build(len(self.tokenizer), self.task.segment)

    def plan_epoch(self, epoch: int) -> Sequence[PlannedSegments]:
        task = self.task
        contiguous = task.model.has_memory
        return plan_segments(len(self.stream), task.batch, task.segment, task.seed, epoch, contiguous=contiguous)

    def warnings(self) -> Sequence[str]:
        return large_batch_warnings(self.task.batch, (len(self.stream) - 1) // self.task.segment, "rows of text")

    def load_batch(self, planned: PlannedSegments, rank: int, world: int) -> SegmentBatch | None:
        return load_segments(self.stream, planned, self.task.segment, rank, world, self.documents)

    def num_terms(self, batch: SegmentBatch) -> int:
        return batch.tokens[:, 1:].numel()

    def loss(self, model: LanguageModel, batch: SegmentBatch) -> Loss:
        memory = None if self.memory is None or batch.is_first else self.memory.load(model, batch.tokens.device)
        output = model.hidden_states(batch.tokens[:, :-1], memory, documents=batch.documents)
        if self.memory is not None:
            self.memory.store(model, output.memory)
        targets = batch.tokens[:, 1:].flatten()
        total, nll = model.token_loss(output.states.flatten(0, 1), targets, smoothing=self.task.smoothing)
        return Loss(total, len(targets), {"nll": nll.sum()})

    def state_dict(self) -> dict[str, Tensor]:
        return {} if self.memory is None else self.memory.state_dict()

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        if self.memory is not None:
            self.memory.load_state_dict(state)

    def validate(self, model: LanguageModel) -> ValidationResult:
        segment, has_memory = self.task.segment, self.task.model.has_memory
        stream = self.valid_stream[: self.task.valid_tokens + 1]
        scores = score_tokens(model, stream, window=segment, stride=segment, has_memory=has_memory)
        characters = len(self.tokenizer.decode_text(stream[1:].tolist()))
        predictor = LanguageModelPredictor(model, self.tokenizer, longest=self.task.context)
        prompt = self.valid_text[0][:PROMPT]
        return ValidationResult(
            summarize(scores, max(characters, 1)), "nll", False, predictor.sample_line(prompt, SAMPLE)
        )

    def locate(self, planned: Sequence[PlannedSegments]) -> str:
        """The first token of these batches, and the text there."""
        start = int(planned[0].starts[0])
        text = self.tokenizer.decode_text(self.stream[start : start + 20].tolist())
        return f"token {start:,} of {self.task.dataset_label}, {text!r}"


class LanguageModelTask(Task[LanguageModelConfig, LanguageModelPredictor]):
    """Trains, loads and evaluates language models."""

    def prepare(self, folder: Path, new: bool) -> LanguageModelProblem:
        return LanguageModelProblem.of(self.config, folder, new)

    def dry_run(self) -> None:
        tokens = torch.tensor([[5, 6, 7], [8, 9, 5]])[:, : self.config.segment]
        with torch.random.fork_rng(devices=[]):
            model = self.config.model.build(11, self.config.segment)
            output = model.hidden_states(tokens)
            if self.config.model.has_memory:
                model.hidden_states(tokens, output.memory)
            model.step(tokens[:, :1], model.init_state(tokens[:, :0]))

    def predictor(self, folder: Path) -> LanguageModelPredictor:
        tokenizer = read_tokenizer(folder / _TOKENS)
        model = self.config.model.build(len(tokenizer), self.config.segment)
        return LanguageModelPredictor(model, tokenizer, longest=self.config.context)

    def example(self, folder: Path) -> str:
        return read(self.config).valid[0][:_EXAMPLE]

    def evaluate(
        self, predictor: LanguageModelPredictor, folder: Path, options: EvaluateLanguageModel, progress: Progress
    ) -> Evaluation:
        check_options(predictor, options, self.config.segment)
        split = evaluation_documents(self.config, folder, options)
        memory = getattr(self.config.model, "memory", None) if options.memory is None else options.memory
        has_answers = self.config.dataset == RECALL and not options.test
        evaluation = evaluate_text(
            predictor,
            split.data,
            split.name,
            options,
            self.config.segment,
            memory,
            progress,
            has_answers=has_answers,
        )
        return split.annotate(evaluation)
