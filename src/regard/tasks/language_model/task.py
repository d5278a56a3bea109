"""The task language-model: its training problem and its evaluation."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from torch import Tensor, nn

from regard.common.options.checks import large_batch_warnings
from regard.data.text.running_text import token_stream
from regard.inference.evaluation import Evaluation, Progress
from regard.models.language_model import LanguageModel
from regard.tasks.base import Task
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
    TOKENS,
    RunningTextProblem,
    RunText,
    evaluation_documents,
    prepare_text,
    read,
)
from regard.tasks.shared.text_generation import read_tokenizer
from regard.tasks.shared.text_options import RECALL
from regard.training.protocol import Loss, ValidationResult

_EXAMPLE = 100


class LanguageModelProblem(RunningTextProblem[LanguageModel, SegmentBatch]):
    """−log p(token | tokens before it in its row).

    The memory of the rows is the state of the problem: it is made by the weights of earlier steps, so a checkpoint
    holds it.
    """

    unit = "tokens"

    def __init__(self, config: LanguageModelConfig, text: RunText) -> None:
        super().__init__(config, text)
        self.valid_stream = token_stream(self.tokenizer, self.valid)
        # the memory before a token, and the token whose document a recurrent state belongs to
        self.documents = document_numbers(self.stream, max(getattr(config.model, "memory", 0), 1))
        rows = num_rows(len(self.stream), config.batch, config.segment)
        self.memory = RowMemory(rows) if config.model.has_memory else None
        scored = min(len(self.valid_stream) - 1, config.valid_tokens)
        self.summary = self.token_counts(len(self.stream) - 1, scored)

    def build_model(self) -> LanguageModel:
        return self.config.model.build(len(self.tokenizer), self.config.segment)

    def plan_epoch(self, epoch: int) -> Sequence[PlannedSegments]:
        config, length = self.config, len(self.stream)
        contiguous = config.model.has_memory
        return plan_segments(length, config.batch, config.segment, config.seed, epoch, contiguous=contiguous)

    def warnings(self) -> Sequence[str]:
        return large_batch_warnings(self.config.batch, (len(self.stream) - 1) // self.config.segment, "rows of text")

    def load_batch(self, planned: PlannedSegments, rank: int, world: int) -> SegmentBatch | None:
        return load_segments(self.stream, planned, self.config.segment, rank, world, self.documents)

    def num_terms(self, batch: SegmentBatch) -> int:
        return batch.tokens[:, 1:].numel()

    def loss(self, model: LanguageModel, batch: SegmentBatch) -> Loss:
        memory = None if self.memory is None or batch.is_first else self.memory.load(model, batch.tokens.device)
        output = model.hidden_states(batch.tokens[:, :-1], memory, documents=batch.documents)
        if self.memory is not None:
            self.memory.store(model, output.memory)
        targets = batch.tokens[:, 1:].flatten()
        total, nll = model.token_loss(output.states.flatten(0, 1), targets, smoothing=self.config.smoothing)
        return Loss(total, len(targets), {"nll": nll.sum()})

    def state_dict(self) -> dict[str, Tensor]:
        return {} if self.memory is None else self.memory.state_dict()

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        if self.memory is not None:
            self.memory.load_state_dict(state)

    def validate(self, model: LanguageModel) -> ValidationResult:
        segment, has_memory = self.config.segment, self.config.model.has_memory
        stream = self.valid_stream[: self.config.valid_tokens + 1]
        scores = score_tokens(model, stream, window=segment, stride=segment, has_memory=has_memory)
        characters = len(self.tokenizer.decode_text(stream[1:].tolist()))
        predictor = LanguageModelPredictor(model, self.tokenizer, longest=self.config.context)
        prompt = self.valid[0][:PROMPT]
        return ValidationResult(
            summarize(scores, max(characters, 1)), "nll", False, predictor.sample_line(prompt, SAMPLE)
        )


class LanguageModelTask(Task[LanguageModelConfig, LanguageModelPredictor]):
    """Trains, loads and evaluates language models."""

    def prepare(self, folder: Path, new: bool) -> LanguageModelProblem:
        # the first token of the text has none before it that could predict it
        return LanguageModelProblem(self.config, prepare_text(self.config, folder, new, unpredicted=1, shortest=1))

    def sketch(self) -> nn.Module:
        return self.config.model.build(11, self.config.segment)

    def predictor(self, folder: Path) -> LanguageModelPredictor:
        tokenizer = read_tokenizer(folder / TOKENS)
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
            predictor, split.data, split.name, options, self.config.segment, memory, progress, has_answers=has_answers
        )
        return split.annotate(evaluation)
