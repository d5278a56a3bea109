"""AnswerPredictor: a story and a question in, the answer and the sentences that it attended to out."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from regard.attn.maps.attention_map import DenseMap
from regard.common.eval_mode import eval_mode
from regard.common.suggestions import known
from regard.data.questions.babi import Question, parse_story, words_of
from regard.inference.counted_note import UNKNOWN_WORDS, CountedNote
from regard.inference.margins import ranking_margin
from regard.inference.predictor import Observe, PredictionSession
from regard.inference.text_predictor import TextPredictor
from regard.recording.analysis.derived_maps import derive
from regard.recording.recording import Recording
from regard.tasks.answer.data import EncodedQuestions, StoryFacts
from regard.tasks.answer.networks import AnswerNetworks
from regard.tasks.answer.options import Answer
from regard.viz.recording.figures import draw_recording
from regard.viz.show import show

# begins the line that names the task of a text, in runs with one network per task
_TASK = "task:"
# marks sentences that support the answer
_MARK = " (supports the answer)"
_EXAMPLE = "Mary moved to the office. Where is Mary?"


@dataclass(frozen=True)
class StoryAnswer:
    """The answers to one question with their probabilities, the likeliest first, and the weights of every hop.

    The weights are of `sentences`, the oldest first; `first` counts the sentences before them, which are older than the
    memory.
    """

    probabilities: tuple[tuple[str, float], ...]
    sentences: tuple[str, ...]
    hops: tuple[tuple[float, ...], ...]
    support: tuple[int, ...] = ()
    first: int = 0
    unknown: tuple[str, ...] = ()  # words that are not in the vocabulary

    @property
    def best(self) -> str:
        return self.probabilities[0][0]

    def probability(self, answer: str) -> float | None:
        """The probability of an answer; None for one that the network cannot give."""
        return dict(self.probabilities).get(answer)

    @property
    def attended(self) -> tuple[int, ...]:
        """The sentence of the story with the largest weight in every hop."""
        return tuple(self.first + int(np.argmax(hop)) for hop in self.hops)

    @property
    def strongest(self) -> int:
        """The sentence of the story with the largest weight of all hops."""
        return self.first + int(np.argmax(np.max(self.hops, axis=0)))


class AnswerPredictor(TextPredictor[StoryAnswer]):
    """text -> story and question -> answer, in batches of stories of similar length."""

    served_as = Answer.name
    page_title = "Answer questions with {run}"
    page_example = _EXAMPLE
    text_schema = MappingProxyType({"format": "story"})

    model: AnswerNetworks

    def __init__(self, model: AnswerNetworks, facts: StoryFacts, config: Answer, *, batch: int = 64) -> None:
        self.model, self.facts, self.config, self.batch = model, facts, config, batch
        self.encoders = facts.encoders()

    # Prediction

    def read(self, argument: str) -> str:
        self._parse(argument)
        return argument

    def _parse(self, text: str) -> tuple[str, Question]:
        """The task of a text, and its question with its story."""
        name, text = self._split_task(text)
        question = parse_story(text, self.config.max_length)
        if name is not None:
            return name, question
        if len(self.encoders) > 1:
            raise ValueError(
                f"this run has one network for each of {len(self.facts.tasks)} tasks; begin the text with one of "
                f"them, such as: {_TASK} {self.facts.tasks[0]}"
            )
        return self.facts.tasks[0], question

    def _split_task(self, text: str) -> tuple[str | None, str]:
        """The task that a text names, in its first line or as its first word, and the rest of the text."""
        if not text.lstrip().lower().startswith(_TASK):
            return None, text
        text = text.lstrip()[len(_TASK) :].lstrip()
        line, _, rest = text.partition("\n")
        if line.strip() not in self.facts.tasks:
            line, rest = [*text.split(maxsplit=1), "", ""][:2]
        # qa1 is short for qa1_single-supporting-fact
        for name in self.facts.tasks:
            if line.strip() in (name, name.split("_")[0]):
                return name, rest
        known("task", line, self.facts.tasks)
        raise AssertionError(line)

    def predict(
        self, inputs: Sequence[str], options: Any = None, observe: Observe = nullcontext, *, first: int = 0
    ) -> list[StoryAnswer]:
        parsed = [self._parse(text) for text in inputs]
        answers: list[StoryAnswer | None] = [None] * len(inputs)
        with observe():
            for name in dict.fromkeys(task for task, _ in parsed):
                rows = [n for n, (task, _) in enumerate(parsed) if task == name]
                for n, answer in zip(rows, self.answer(name, [parsed[n][1] for n in rows]), strict=True):
                    answers[n] = answer
        return [answer for answer in answers if answer is not None]

    @torch.no_grad()
    def answer(self, task: str, questions: Sequence[Question]) -> list[StoryAnswer]:
        """The answers to questions of one task."""
        number = self.facts.network(task)
        encoder, network = self.encoders[number], self.model[number]
        encoded = EncodedQuestions(questions, encoder, network.memory)
        order = np.argsort(encoded.lengths, kind="stable")
        answers: list[StoryAnswer | None] = [None] * len(questions)
        with eval_mode(self.model):
            for start in range(0, len(order), self.batch):
                rows = order[start : start + self.batch]
                inputs = encoded.inputs(rows).to(self.device)
                output = network(inputs, restart=network.best_restart, need_weights=True)
                assert output.weights is not None
                shares = output.logits[0].cpu().double().softmax(-1).numpy()
                weights = output.weights[0].cpu().double().numpy()  # "b h m"
                for n, row in enumerate(rows.tolist()):
                    length = int(encoded.lengths[row])
                    answers[row] = self._output(questions[row], shares[n], weights[n, :, :length][:, ::-1], number)
        return [answer for answer in answers if answer is not None]

    def _output(self, question: Question, shares: np.ndarray, weights: np.ndarray, number: int) -> StoryAnswer:
        encoder = self.encoders[number]
        named = tuple((encoder.answers[k], float(shares[k])) for k in np.argsort(-shares, kind="stable").tolist())
        first = len(question.sentences) - weights.shape[1]
        kept = question.sentences[first:]
        words = (word for sentence in (*kept, question.question) for word in words_of(sentence))
        unknown = tuple(dict.fromkeys(word for word in words if word not in encoder.words))
        hops = tuple(tuple(hop) for hop in weights.tolist())
        return StoryAnswer(named, kept, hops, question.support, first, unknown)

    def text(self, output: StoryAnswer) -> str:
        (best, share), *others = output.probabilities
        parts = [f"{best} {100 * share:.1f} %"]
        if others:
            parts[0] += f" (else {others[0][0]} {100 * others[0][1]:.1f} %)"
        for n, (hop, attended) in enumerate(zip(output.hops, output.attended, strict=True), 1):
            sentence = output.sentences[attended - output.first]
            parts.append(f"hop {n}: {attended + 1} {sentence} {100 * max(hop):.0f} %")
        return "\t".join(parts)

    def json(self, output: StoryAnswer) -> dict[str, Any]:
        (best, share), *others = output.probabilities
        return {
            "answer": best,
            "probability": share,
            "runner_up": {"answer": others[0][0], "probability": others[0][1]} if others else None,
            "hops": [
                {
                    "line": attended + 1,
                    "sentence": output.sentences[attended - output.first],
                    "weight": max(hop),
                    "weights": list(hop),
                }
                for hop, attended in zip(output.hops, output.attended, strict=True)
            ],
            "unknown": list(output.unknown),
        }

    def margin(self, output: StoryAnswer) -> float:
        of_answers = ranking_margin([share for _, share in output.probabilities], 2)
        return min([of_answers, *(ranking_margin(sorted(hop, reverse=True), 1) for hop in output.hops)])

    # Gradients

    def loss(self, inputs: Sequence[str], targets: Sequence[str]) -> Tensor:  # -> "b"
        """−log p(target | input), of answers that the network of the input knows."""
        losses = []
        with eval_mode(self.model):
            for text, target in zip(inputs, targets, strict=True):
                task, question = self._parse(text)
                number = self.facts.network(task)
                encoder, network = self.encoders[number], self.model[number]
                known("target", target, encoder.answers)
                encoded = EncodedQuestions([replace(question, answer=target)], encoder, network.memory)
                rows = np.zeros(1, np.int64)
                logits = network(encoded.inputs(rows).to(self.device), restart=network.best_restart).logits[0]
                losses.append(F.cross_entropy(logits, encoded.targets(rows).to(self.device)))
        return torch.stack(losses)

    # The attention behind an answer

    def label(self, recording: Recording, example: str, output: StoryAnswer) -> Recording:
        """One row per hop, one column per sentence, the oldest first; sentences that support the answer are marked."""
        keys = tuple(
            f"{n + 1} {sentence}{_MARK if n in output.support else ''}"
            for n, sentence in enumerate(output.sentences, output.first)
        )
        queries = tuple(f"hop {n + 1}" for n in range(len(output.hops)))
        hops = [item for item in recording if item.shape[-1] == len(keys)]
        if len(hops) == len(queries):  # all hops were recorded
            rows = torch.cat([item.weights.dense().flatten(0, -3)[:1] for item in hops], -2).flip(-1)  # "1 h m"
            joined = derive("hops", hops[0].kind, DenseMap(rows), hops, "hops")
            recording = replace(recording, maps=(joined,))
        said = self.text(output).partition("\t")[0]
        return self.labelled(recording, example, said, queries, keys, {"keys": "sentences", "queries": "hops"})

    def draw_figure(self, recording: Recording, example: str, output: StoryAnswer, path: Path) -> Path:
        """One row per sentence, one column per hop; sentences that support the answer are marked."""
        if recording.keys is None:
            return show(recording).save(path)
        _, question = self._parse(example)
        best, share = output.probabilities[0]
        said = f"{question.question} {best} {100 * share:.1f} %"
        return draw_recording(replace(recording, about={**recording.about, "said": said}), path, what="hops")

    # Services

    def about(self) -> dict[str, object]:
        return {"tasks": self.facts.tasks, "memory": self.config.memory}

    def example(self) -> str:
        return _EXAMPLE if len(self.encoders) == 1 else f"{_TASK} {self.facts.tasks[0]}\n{_EXAMPLE}"

    def notes(self, output: StoryAnswer) -> dict[CountedNote, int]:
        rest = f"older than the memory of {self.config.memory:,} and not read"
        return {CountedNote("sentence", f"was {rest}", f"were {rest}"): output.first}

    def session(self, options: Any, picture: Path | None) -> PredictionSession:
        return AnswerSession(self, options, picture)


class AnswerSession(PredictionSession):
    """Names unknown words, each once."""

    def __init__(self, predictor: AnswerPredictor, options: Any, picture: Path | None) -> None:
        super().__init__(predictor, options, picture)
        self.unknown: dict[str, None] = {}

    def add(self, inputs: Sequence[str], outputs: Sequence[StoryAnswer], first: int) -> None:
        super().add(inputs, outputs, first)
        for output in outputs:
            self.unknown.update(dict.fromkeys(output.unknown))

    def notes(self) -> list[str]:
        if not self.unknown:
            return super().notes()
        words = ", ".join(list(self.unknown)[:5]) + (" …" if len(self.unknown) > 5 else "")
        return [f"{UNKNOWN_WORDS.text(len(self.unknown))}: {words}", *super().notes()]


def story_text(question: Question, task: str | None) -> str:
    """A question in the format of bAbI, as `regard predict` reads it."""
    lines = [] if task is None else [f"{_TASK} {task}"]
    lines += [f"{n} {sentence}" for n, sentence in enumerate(question.sentences, 1)]
    support = " ".join(str(n + 1) for n in question.support)
    last = f"{len(question.sentences) + 1} {question.question}"
    return "\n".join([*lines, f"{last}\t{question.answer}" + (f"\t{support}" if support else "")])
