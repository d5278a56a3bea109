"""SelectResponsePredictor: the turns of a dialogue and candidates in, the candidates in order out."""

import copy
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from regard.attn.maps.attention_map import DenseMap
from regard.common.eval_mode import eval_mode
from regard.data.dialogues import CandidateGroup
from regard.inference.endpoint import Endpoint
from regard.inference.limits import Limits
from regard.inference.margins import ranking_margin
from regard.inference.predictor import Observe
from regard.inference.text_predictor import TextPredictor
from regard.models.matching.response_selector import DialogueInputs, ResponseSelector
from regard.recording.analysis.derived_maps import derive
from regard.recording.recording import Recording
from regard.tasks.select_response.data import parse_group
from regard.tasks.select_response.options import PredictResponses, SelectResponse
from regard.tasks.select_response.readers import TurnReader, dialogue_inputs
from regard.tasks.shared.ranked_classes import percentages
from regard.viz.recording.figures import draw_recording

# candidates of one text in a request
_MOST_SERVED = 100
# the modules whose attention is shown: of models that read turn by turn, and of those that read all turns as one text
_OF_TURNS, _OF_ALL = "matcher.turn_reads", "matcher.matcher.attention"


@dataclass(frozen=True)
class RankedResponses:
    """The candidates and the probability of each, if one of them is the response, the best first; `top` are printed."""

    candidates: tuple[tuple[str, float], ...]
    top: int = 1


class SelectResponsePredictor(TextPredictor[RankedResponses]):
    """turns and candidates -> scores; every candidate is scored by itself, and a softmax makes them shares.

    An input has the turns on its first line, separated by tabs, and a candidate on every further line.
    """

    served_as = SelectResponse.name
    page_title = "Select a response with {run}: turns on the first line, a candidate on every further line"
    page_example = "I cannot find my keys.\nDid you look under the bed?\nThe sun rises in the east."
    request_options = PredictResponses
    text_schema = MappingProxyType({"format": "dialogue"})

    model: ResponseSelector

    def __init__(
        self,
        model: ResponseSelector,
        reader: TurnReader,
        *,
        turns: int,
        max_length: int,
        max_candidates: int | None = None,
        batch: int = 32,
    ) -> None:
        self.model, self.reader, self.batch = model, reader, batch
        self.turns, self.max_length, self.max_candidates = turns, max_length, max_candidates

    # Prediction

    def read(self, argument: str) -> str:
        self._parse(argument)
        return argument

    def _parse(self, text: str) -> CandidateGroup:
        return parse_group(text, self.max_length, self.max_candidates)

    def predict(
        self, inputs: Sequence[str], options: Any = None, observe: Observe = nullcontext, *, first: int = 0
    ) -> list[RankedResponses]:
        options = PredictResponses() if options is None else options
        groups = [self._parse(text) for text in inputs]
        with observe():
            scores = self.scores(groups)
        outputs = []
        for group, row in zip(groups, scores, strict=True):
            order = np.argsort(-row, kind="stable").tolist()
            shares = torch.from_numpy(row).softmax(0)
            outputs.append(RankedResponses(tuple((group.candidates[n], float(shares[n])) for n in order), options.top))
        return outputs

    def inputs(self, pairs: Sequence[tuple[Sequence[str], str]]) -> DialogueInputs:
        return dialogue_inputs(self.reader, pairs, self.turns)

    @torch.no_grad()
    def scores(
        self,
        groups: Sequence[CandidateGroup],
        done: Callable[[int], object] | None = None,
        prepare: Callable[[DialogueInputs], DialogueInputs] = lambda inputs: inputs,
    ) -> list[NDArray[np.float64]]:  # "c" each
        """The score of every candidate; `prepare` is called with the inputs of every batch."""
        pairs = [(group.turns, candidate) for group in groups for candidate in group.candidates]
        flat = np.empty(len(pairs))
        with eval_mode(self.model):
            for start in range(0, len(pairs), self.batch):
                part = pairs[start : start + self.batch]
                flat[start : start + len(part)] = self.model(prepare(self.inputs(part).to(self.device))).cpu().double()
                if done is not None:
                    done(min((start + len(part)) * len(groups) // len(pairs), len(groups)))
        ends = np.cumsum([len(group.candidates) for group in groups]).tolist()
        return [flat[start:end] for start, end in pairwise([0, *ends])]

    def text(self, output: RankedResponses) -> str:
        return "\t".join(percentages(output.candidates, output.top))

    def json(self, output: RankedResponses) -> dict[str, Any]:
        return {"candidates": [{"text": text, "probability": p} for text, p in output.candidates]}

    def margin(self, output: RankedResponses) -> float:
        return ranking_margin([probability for _, probability in output.candidates], len(output.candidates))

    # Gradients

    def loss(self, inputs: Sequence[str], targets: Sequence[str]) -> Tensor:  # -> "b"
        """−log softmax of the scores of all candidates, at the target, which is one of them."""
        losses = []
        for text, target in zip(inputs, targets, strict=True):
            group = self._parse(text)
            if target not in group.candidates:
                raise ValueError(
                    f"target must be one of the candidates, got {target!r}; theirs: {', '.join(group.candidates)}"
                )
            with eval_mode(self.model):
                pairs = [(group.turns, candidate) for candidate in group.candidates]
                scores = self.model(self.inputs(pairs).to(self.device))
            label = torch.tensor(group.candidates.index(target), device=self.device)
            losses.append(F.cross_entropy(scores, label))
        return torch.stack(losses)

    # The attention behind a choice

    def label(self, recording: Recording, example: str, output: RankedResponses) -> Recording:
        """One map per turn: its words attend to the best candidate; rows are the words of all turns."""
        group = self._parse(example)
        # the maps of the best candidate are shown: one row of one of the batches
        best = group.candidates.index(output.candidates[0][0])
        batch, row = divmod(best, self.batch)
        turns = [*[""] * (self.turns - len(group.turns)), *group.turns[-self.turns :]]
        first = 1 + len(group.turns) - self.turns  # the number of the first of them in the dialogue
        *tokens, response = self.reader.tokenize([*turns, group.candidates[best]])
        names = [f"{n}: {name}" for n, each in enumerate(tokens, first) for name in self.reader.names(each)]
        maps = []
        of_turns = [item for item in recording if item.name.startswith(_OF_TURNS) and item.call == batch]
        # a call from the turns to the response is followed by one back
        of_all = [item for item in recording if item.name.startswith(_OF_ALL) and item.call == 2 * batch]
        if of_turns:
            item, start = of_turns[-1], 0
            weights = item.weights.dense()  # "c·s n m"
            for n, each in enumerate(tokens):
                if each:
                    rows = weights[row * self.turns + n, : len(each), : len(response)].unsqueeze(0)
                    turn = derive(f"turn {n + first}", "cross", DenseMap(rows), [item], "turn")
                    maps.append(replace(turn, step=start))
                    start += len(each)
        for item in of_all:
            rows = item.weights.dense()[row, : len(names), : len(response)].unsqueeze(0)
            maps.append(derive("all turns", "cross", DenseMap(rows), [item], "turns"))
        recording = replace(recording, maps=tuple(maps))
        said, keys = self.text(replace(output, top=1)), self.reader.names(response)
        return self.labelled(recording, example, said, names, keys, {"queries": "turns", "keys": "response"})

    def draw_figure(self, recording: Recording, example: str, output: RankedResponses, path: Path) -> Path:
        """The maps of all turns below each other."""
        rows = torch.cat([item.weights.dense() for item in recording], dim=-2)
        whole = derive("turns", "cross", DenseMap(rows), list(recording), "all turns")
        return draw_recording(replace(recording, maps=(whole,)), path, what="map", layer=0)

    # Services

    def about(self) -> dict[str, object]:
        return {"turns": self.turns, "candidates": _MOST_SERVED, "max_length": self.max_length}

    def example(self) -> str:
        return "a b\nc"

    def endpoint(self, limits: Limits, *, run: str, step: int) -> Endpoint:
        # a text of a request has room for thousands of candidates, each of which costs as much as a text
        served = copy.copy(self)
        served.max_candidates = _MOST_SERVED
        return super(SelectResponsePredictor, served).endpoint(limits, run=run, step=step)
