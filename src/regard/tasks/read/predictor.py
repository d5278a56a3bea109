"""ReadPredictor: a passage and a question in, the span that answers and its runners-up out."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.common.eval_mode import eval_mode
from regard.data.questions.squad import GoldAnswer, SpanQuestion, parse_question
from regard.inference.batches import similar_batches
from regard.inference.margins import ranking_margin
from regard.inference.predictor import Observe
from regard.inference.text_predictor import TextPredictor
from regard.layers.span_search import best_spans
from regard.losses.functional import span_nll
from regard.models.reading.bidaf import BiDAF, SpanLogits
from regard.recording.recorded_map import RecordedMap
from regard.recording.recording import Recording
from regard.tasks.read.data import ReadVocabulary, WordedQuestion, check_turns, check_words, split_questions, to_inputs
from regard.tasks.read.options import PredictSpans, ReadConfig
from regard.viz.recording.figures.flow import flow_figure

# a passage and a question, for GET / of a service, and to see whether a model attends
EXAMPLE = "The express to Elmwick leaves at 7.40.\nWhen does the express leave?"


@dataclass(frozen=True)
class PredictedAnswer:
    """A span of the passage: its words and its characters, both ends before `end`, and p1 p2 of its ends."""

    text: str
    start: int
    end: int
    words: tuple[int, int]
    probability: float


@dataclass(frozen=True)
class ReadOutput:
    """The likeliest spans of a passage, the best first."""

    asked: SpanQuestion
    answers: tuple[PredictedAnswer, ...]
    count: int  # answers that were asked for; the others are runners-up
    margin: float = field(default=math.inf, compare=False)  # margin of the ranking, relative to the probabilities

    @property
    def best(self) -> PredictedAnswer:
        return self.answers[0]


class ReadPredictor(TextPredictor[ReadOutput]):
    """text -> passage and question -> words -> spans, in batches of passages of similar length."""

    served_as = ReadConfig.name
    page_title = "Ask {run} about a passage"
    page_example = EXAMPLE
    request_options = PredictSpans
    text_schema = MappingProxyType({"format": "passage"})
    model_noun = "this reader"

    model: BiDAF

    def __init__(self, model: BiDAF, vocabulary: ReadVocabulary, config: ReadConfig, *, batch: int = 32) -> None:
        self.model, self.vocabulary, self.config, self.batch = model, vocabulary, config, batch
        self.encoder = vocabulary.encoder()

    # Prediction

    def _parse(self, text: str, asked: str | None = None) -> SpanQuestion:
        """The passage and the question of a text, or of a passage alone if the question is given.

        Raises for a text that this run does not read.
        """
        question = parse_question(text) if asked is None else SpanQuestion("", text, asked, ())
        check_words(question.passage, "the passage", self.config.max_length)
        check_words(question.question, "the question", self.config.max_length)
        if question.history and not self.config.num_turns:
            raise ValueError(
                f"the text has {len(question.history)} earlier questions, and this run was trained with --history 0; "
                "leave them out, or train with --history"
            )
        check_turns(question, self.config.num_turns, "of the text", self.config.max_length)
        return question

    def predict(
        self, inputs: Sequence[str], options: Any = None, observe: Observe = nullcontext, *, first: int = 0
    ) -> list[ReadOutput]:
        options = PredictSpans() if options is None else options
        questions = [self._parse(text, options.question) for text in inputs]
        with observe():
            return self.answer(questions, options.spans)

    @torch.no_grad()
    def answer(
        self, questions: Sequence[SpanQuestion], count: int = 1, done: Callable[[int], object] | None = None
    ) -> list[ReadOutput]:
        """The best spans of every question, and one runner-up at least."""
        outputs: list[ReadOutput | None] = [None] * len(questions)
        worded = split_questions(questions, self.config.num_turns)
        for index, scores in self._batches(worded, done):
            logs = [part.cpu().double().log_softmax(-1) for part in scores]
            # one more than is shown, for the margin
            places, values = best_spans(logs[0], logs[1], self.config.limit, max(count, 2) + 1)
            for n, spans, row in zip(index, places.tolist(), values.tolist(), strict=True):
                outputs[n] = self._output(questions[n], worded[n], spans, row, count)
        return [output for output in outputs if output is not None]

    def _output(
        self, question: SpanQuestion, worded: WordedQuestion, spans: list[list[int]], logs: list[float], count: int
    ) -> ReadOutput:
        shares = [math.exp(value) for value in logs]
        answers: list[PredictedAnswer] = []
        for (first, last), share in list(zip(spans, shares, strict=True))[: max(count, 2)]:
            if share > 0 or not answers:
                start, end = worded.passage.place(first, last)
                answers.append(PredictedAnswer(question.passage[start:end], start, end, (first, last + 1), share))
        return ReadOutput(question, tuple(answers), count, ranking_margin(shares, len(answers)))

    def _batches(
        self, questions: Sequence[WordedQuestion], done: Callable[[int], object] | None
    ) -> Iterator[tuple[list[int], SpanLogits]]:
        """The scores in batches of passages of similar length, with the numbers of their questions."""
        with eval_mode(self.model):
            for index in similar_batches([len(each.passage.words) for each in questions], self.batch, done):
                yield index, self._scores([questions[n] for n in index])

    def _scores(self, questions: Sequence[WordedQuestion]) -> SpanLogits:
        passages, question_inputs = to_inputs(questions, self.encoder)
        return self.model(passages.to(self.device), question_inputs.to(self.device))

    def text(self, output: ReadOutput) -> str:
        def said(answer: PredictedAnswer) -> str:
            return f"{' '.join(answer.text.split())} {100 * answer.probability:.1f} %"

        best = output.best
        others = "".join(f"\telse {said(answer)}" for answer in output.answers[1:2])
        return f"{said(best)}\tcharacters {best.start} to {best.end}{others}"

    def json(self, output: ReadOutput) -> dict[str, Any]:
        spans = [
            {"text": each.text, "start": each.start, "end": each.end, "probability": each.probability}
            for each in output.answers[: output.count]
        ]
        return {"answer": output.best.text, "start": output.best.start, "end": output.best.end, "spans": spans}

    def margin(self, output: ReadOutput) -> float:
        return output.margin

    # Gradients

    def loss(self, inputs: Sequence[str], targets: Sequence[str]) -> Tensor:  # -> "b"
        """−(log p1 + log p2) of the first place of the target that begins and ends with words."""
        questions = [
            replace(question, answers=_places(question.passage, target))
            for question, target in zip(map(self._parse, inputs), targets, strict=True)
        ]
        worded = split_questions(questions, self.config.num_turns)
        for each, target in zip(worded, targets, strict=True):
            if each.span is None:
                raise ValueError(
                    f"target {target!r} is not in its passage from the beginning to the end of words; give words of it"
                )
        return self._nll(worded)

    def _nll(self, questions: Sequence[WordedQuestion]) -> Tensor:  # -> "b"
        spans = torch.tensor([each.span for each in questions], device=self.device)
        with eval_mode(self.model):
            return span_nll(*self._scores(questions), spans)

    @torch.no_grad()
    def nats(self, questions: Sequence[SpanQuestion]) -> NDArray[np.float64]:  # "n"
        """−(log p1 + log p2) of the questions whose answers begin and end with words."""
        known = [each for each in split_questions(questions, self.config.num_turns) if each.span is not None]
        parts = (known[n : n + self.batch] for n in range(0, len(known), self.batch))
        return np.concatenate([np.zeros(0), *(self._nll(part).cpu().double().numpy() for part in parts)])

    @property
    def embedding(self) -> nn.Module:
        return self.model.words

    def embeddings(self, inputs: Sequence[str]) -> Tensor:  # -> "b t d"
        """The vectors of the words of the passages."""
        worded = split_questions(map(self._parse, inputs), self.config.num_turns)
        return self.model.words(to_inputs(worded, self.encoder)[0].words.to(self.device))

    # The attention behind an answer

    def label(self, recording: Recording, example: str, output: ReadOutput) -> Recording:
        """Rows are the words of the passage, columns those of the question; reversed maps are the way back."""
        (worded,) = split_questions([output.asked], self.config.num_turns)
        first, end = output.best.words
        axes = {"queries": "passage", "keys": "question", "answer": f"words {first + 1} to {end} of the passage"}
        maps = tuple(replace(item, is_reversed=_is_way_back(item)) for item in recording)
        recording = replace(recording, maps=maps)
        return self.labelled(recording, example, self.text(output), worded.passage.words, worded.question, axes)

    def draw_figure(self, recording: Recording, example: str, output: ReadOutput, path: Path) -> Path:
        """The passage with its answer, tinted by the question's attention, and the question by that of the answer."""
        return flow_figure(recording, path, span=output.best.words)

    # Services

    def about(self) -> dict[str, object]:
        config = self.config
        return {"max_length": config.max_length, "history": config.num_turns, "limit": config.limit}

    def example(self) -> str:
        return EXAMPLE


def _places(passage: str, target: str) -> tuple[GoldAnswer, ...]:
    """All places of a text in a passage."""
    starts = []
    at = passage.find(target) if target else -1
    while at >= 0:
        starts.append(at)
        at = passage.find(target, at + 1)
    return tuple(GoldAnswer(target, start) for start in starts)


def _is_way_back(item: RecordedMap) -> bool:
    """Whether the question attends to the passage: by a module of its own, or in the second map of one module."""
    return "to_passage" in item.name or ("to_question" not in item.name and item.call == 1)
