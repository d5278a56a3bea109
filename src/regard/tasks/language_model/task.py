"""The task language-model: its training problem and its evaluation."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.data.text.running_text import token_stream
from regard.data.text.special_tokens import UNK
from regard.data.text.tokenizer import Tokenizer
from regard.inference.evaluation import Evaluation
from regard.models.language_model import LanguageModel
from regard.tasks._running_text import RunningTextFacts, evaluation_documents, read, train_tokenizer
from regard.tasks._text_generation import initial_tokenizer, read_tokenizer, write_tokenizer
from regard.tasks.base import Progress, Task
from regard.tasks.language_model.data import PlannedSegments, SegmentBatch, load_segments, num_rows, plan_segments
from regard.tasks.language_model.options import EvaluateLanguageModel, LanguageModelConfig
from regard.tasks.language_model.predictor import LanguageModelPredictor
from regard.tasks.language_model.row_memory import RowMemory
from regard.tasks.language_model.scoring import loss_by_context, score_tokens, summarize
from regard.training.protocol import Loss, TrainingProblem, ValidationResult
from regard.viz.plots.curve import curve
from regard.viz.plots.figure_file import check_figure_path

_TOKENS = "tokens.json"
# of the sample of a validation: characters of the held-out text, and tokens that continue them
_PROMPT, _SAMPLE = 40, 60
_EXAMPLE = 100


class LanguageModelProblem(TrainingProblem[LanguageModel, SegmentBatch]):
    """−log p(token | tokens before it in its row).

    The memory of the rows is the state of the problem: it is made by the weights of earlier steps, so a checkpoint
    holds it.
    """

    unit = "tokens"

    def __init__(
        self, task: LanguageModelConfig, tokenizer: Tokenizer, stream: NDArray[np.int32], valid: list[str]
    ) -> None:
        self.task, self.tokenizer, self.stream = task, tokenizer, stream
        self.valid_text, self.valid_stream = valid, token_stream(tokenizer, valid)
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
        return LanguageModelProblem(task, tokenizer, stream, splits.valid)

    def build_model(self) -> LanguageModel:
        return self.task.model.build(len(self.tokenizer), self.task.segment)

    def plan_epoch(self, epoch: int) -> Sequence[PlannedSegments]:
        task = self.task
        contiguous = task.model.has_memory
        return plan_segments(len(self.stream), task.batch, task.segment, task.seed, epoch, contiguous=contiguous)

    def load_batch(self, planned: PlannedSegments, rank: int, world: int) -> SegmentBatch | None:
        return load_segments(self.stream, planned, self.task.segment, rank, world)

    def num_terms(self, batch: SegmentBatch) -> int:
        return batch.tokens[:, 1:].numel()

    def loss(self, model: LanguageModel, batch: SegmentBatch) -> Loss:
        memory = None if self.memory is None or batch.is_first else self.memory.load(model, batch.tokens.device)
        output = model.hidden_states(batch.tokens[:, :-1], memory)
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
        predictor = LanguageModelPredictor(model, self.tokenizer, self.task)
        prompt = self.valid_text[0][:_PROMPT]
        return ValidationResult(
            summarize(scores, max(characters, 1)), "nll", False, predictor.sample_line(prompt, _SAMPLE)
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
        return LanguageModelPredictor(model, tokenizer, self.config)

    def example(self, folder: Path) -> str:
        return read(self.config).valid[0][:_EXAMPLE]

    def evaluate(
        self, predictor: LanguageModelPredictor, folder: Path, options: EvaluateLanguageModel, progress: Progress
    ) -> Evaluation:
        if options.picture is not None:
            check_figure_path(options.picture)
        window, stride, has_memory = self._window(options)
        documents, split = evaluation_documents(self.config, folder, options)
        stream = token_stream(predictor.tokenizer, documents)
        count, characters = len(stream) - 1, sum(map(len, documents))
        progress(0, count)
        start = time.perf_counter()
        scores = score_tokens(
            predictor.model,
            stream,
            window=window,
            stride=stride,
            has_memory=has_memory,
            memory=options.memory,
            done=lambda done: progress(done, count),
        )
        seconds = time.perf_counter() - start
        by_context = loss_by_context(scores)
        facts: dict[str, Any] = {
            "window": window,
            "stride": stride,
            "memory": self._memory(options) if has_memory else 0,
            "characters": characters,
            "loss_by_context": [None if value != value else value for value in by_context],
        }
        method = f"segments of {window} with a memory" if has_memory else f"window {window}, stride {stride}"
        notes = [f"{method}; each token is scored once; {predictor.tokenizer.kind} in {characters:,} characters"]
        if unknown := int((stream == UNK).sum()):
            notes.append(f"{unknown:,} of the tokens are not in the vocabulary, and scored as the unknown token")
        if options.picture is not None:
            points = [(float(n), value) for n, value in enumerate(by_context, 1) if value == value]
            curve({"loss": points}, options.picture, "tokens before, in the window", "nats per token")
            notes.append(f"the loss against the context is drawn in {options.picture}")
        lines = [f"{value:.6f}" for value in scores.nll]
        prompt = documents[0][:_PROMPT]
        samples = [predictor.sample_line(prompt, _SAMPLE)]
        return Evaluation(summarize(scores, characters), count, "tokens", split, seconds, lines, samples, notes, facts)

    def _window(self, options: EvaluateLanguageModel) -> tuple[int, int, bool]:
        """The window, the stride, and whether the model reads with a memory."""
        config = self.config
        has_memory = config.model.has_memory
        window = config.segment if options.window is None else options.window
        if not has_memory and window > config.segment:
            raise ValueError(
                f"--window {window} exceeds the context of {config.segment} tokens that this model was trained with; "
                f"try --window {config.segment}"
            )
        if options.memory is not None and not has_memory:
            raise ValueError(f"--memory {options.memory} is for models with a memory, and this one has none")
        if has_memory and options.stride not in (None, window):
            raise ValueError(
                f"--stride {options.stride} is for models without a memory, which read a token again as context; "
                "leave it out"
            )
        stride = options.stride or (window if has_memory else max(window // 2, 1))
        if stride > window:
            raise ValueError(f"--stride {stride} exceeds the window of {window} tokens; try --stride {window}")
        return window, stride, has_memory

    def _memory(self, options: EvaluateLanguageModel) -> int | None:
        return getattr(self.config.model, "memory", None) if options.memory is None else options.memory
