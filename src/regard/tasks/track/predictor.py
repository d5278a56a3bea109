"""TrackPredictor: a conversation in, the state after its last turn out."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.attn.maps.attention_map import DenseMap
from regard.common.eval_mode import eval_mode
from regard.common.suggestions import known
from regard.common.wording import plural
from regard.data.tracking.dialogue import Ontology, TrackedTurn
from regard.inference.chat import ChatAnswer, WordWeight
from regard.inference.predictor import Observe, labelled_recording
from regard.inference.text_predictor import ConversationPredictor
from regard.models.tracking.slot_tracker import SlotTracker
from regard.recording.analysis.derived_maps import derive, normalize_rows
from regard.recording.recorded_map import RecordedMap
from regard.recording.recording import Recording
from regard.tasks.track.candidates import SlotCandidates, TurnDecision
from regard.tasks.track.data import parse_conversation
from regard.tasks.track.options import Track
from regard.tasks.track.turn_encoder import EncodedTurn, TurnEncoder, whole_batches
from regard.viz.recording.figures import draw_recording

# the modules whose attention is shown
_OF_WORDS, _OF_ACTS = "candidate_attention", "act_attention"
# words behind a slot in a conversation
_MOST_BEHIND = 3


class SlotValue(NamedTuple):
    """The value of a slot, its probability, and the turn of the user, counted from 0, that has set it."""

    value: str
    probability: float
    turn: int


@dataclass(frozen=True)
class TrackOutput:
    """The decisions of every turn of the user."""

    turns: tuple[TurnDecision, ...]

    @property
    def state(self) -> dict[str, SlotValue]:
        """The last value of every slot that was set."""
        return {
            slot: SlotValue(value, share, n)
            for n, turn in enumerate(self.turns)
            for slot, (value, share) in turn.informs.items()
        }

    @property
    def requests(self) -> dict[str, float]:
        """The requests of the last turn with their probabilities."""
        return dict(self.turns[-1].requests)


class TrackPredictor(ConversationPredictor[TrackOutput]):
    """conversation -> turns -> values of slots; every turn is scored by its own words and by the turns before.

    A conversation has a turn per line, or between tabs; the last one is of the user, before it the speakers alternate.
    """

    served_as = Track.name
    page_title = "Track dialogues with {run}"

    model: SlotTracker

    def __init__(self, model: SlotTracker, encoder: TurnEncoder, *, batch: int = 64) -> None:
        self.model, self.encoder, self.batch = model, encoder, batch

    @property
    def candidates(self) -> SlotCandidates:
        return self.encoder.candidates

    # Prediction

    def read(self, argument: str) -> str:
        self.encoder.encode(parse_conversation(argument))
        return argument

    def predict(
        self, inputs: Sequence[str], options: Any = None, observe: Observe = nullcontext, *, first: int = 0
    ) -> list[TrackOutput]:
        conversations = [self.encoder.encode(parse_conversation(text)) for text in inputs]
        with observe():
            return [TrackOutput(tuple(turns)) for turns in self.decide(conversations)]

    def decide(self, dialogues: Sequence[Sequence[EncodedTurn]]) -> list[list[TurnDecision]]:
        """The decisions of every turn of every dialogue."""
        decisions = iter(self.candidates.decide(self.all_scores(dialogues)))
        return [[next(decisions) for _ in dialogue] for dialogue in dialogues]

    @torch.no_grad()
    def all_scores(
        self, dialogues: Sequence[Sequence[EncodedTurn]], done: Callable[[int], object] = lambda count: None
    ) -> Tensor:
        """The scores of all candidates for the turns of any number of dialogues, "n c", on the processor."""
        parts, count = [], 0
        with eval_mode(self.model):
            for rows in whole_batches([len(dialogue) for dialogue in dialogues], self.batch):
                parts.append(self.scores([turn for n in rows for turn in dialogues[n]]).float().cpu())
                count += len(parts[-1])
                done(count)
        return torch.cat(parts)

    def scores(self, turns: Sequence[EncodedTurn]) -> Tensor:  # -> "n c"
        """The scores of all candidates for the turns of whole dialogues, differentiable."""
        return self.model(self.encoder.inputs(turns).to(self.device))

    def chat(self, turns: Sequence[str], options: Any = None, *, first: int = 0) -> ChatAnswer:
        """The state after the last of these turns, which is the user's as the first is, and the words behind it."""
        # a line break at the end of a text is no turn, a tab is
        text = "\t".join(" ".join(turn.split()) for turn in turns)
        return self.chat_answer(*labelled_recording(self, text))

    def chat_answer(self, output: TrackOutput, recording: Recording) -> ChatAnswer:
        """The state of a conversation, and the words behind it by the labelled recording."""
        weights, keys = _mean_of(list(recording))[0], recording.keys or ()
        behind = {}
        for row, (name, _, _) in enumerate(_rows(output, self.candidates)):
            best = weights[row].topk(min(_MOST_BEHIND, len(keys)))
            words = zip(best.values.tolist(), best.indices.tolist(), strict=True)
            # a later turn that sets the same slot replaces the words of an earlier one
            behind[name] = tuple(WordWeight(keys[n], weight) for weight, n in words if weight > 0)
        state, requests = output.state, output.requests
        notes = []
        if self.model.context is None and (count := len(output.turns) - 1 - self.encoder.history) > 0:
            notes.append(f"of the first {plural(count, 'turn')} of the system only the state is kept, not its words")
        return ChatAnswer(
            state={slot: each.value for slot, each in state.items()},
            requested=tuple(requests),
            behind={name: words for name, words in behind.items() if name in state or name in requests},
            notes=tuple(notes),
        )

    def text(self, output: TrackOutput) -> str:
        parts = [f"{slot}={each.value} {100 * each.probability:.1f} %" for slot, each in output.state.items()]
        parts += [f"request {name} {100 * share:.1f} %" for name, share in output.requests.items()]
        return "\t".join(parts) or "no slots"

    def json(self, output: TrackOutput) -> dict[str, Any]:
        return {
            "state": {slot: each._asdict() for slot, each in output.state.items()},
            "requests": output.requests,
            "turns": [
                {"informs": {slot: value for slot, (value, _) in turn.informs.items()}, "requests": list(turn.requests)}
                for turn in output.turns
            ],
        }

    def margin(self, output: TrackOutput) -> float:
        return min(turn.margin for turn in output.turns)

    # Gradients

    def loss(self, inputs: Sequence[str], targets: Sequence[str]) -> Tensor:  # -> "b"
        """−log p of the labels of the last turn, such as "food=thai; address": slots with values, and requests."""
        dialogues = [self.encoder.encode(parse_conversation(text)) for text in inputs]
        values, requests = self.candidates.targets([self._labelled(target) for target in targets])
        with eval_mode(self.model):
            scores = self.scores([turn for dialogue in dialogues for turn in dialogue])
        scores = scores[torch.tensor([len(dialogue) for dialogue in dialogues]).cumsum(0) - 1]
        return self.candidates.nll(scores, values.to(self.device), requests.to(self.device))

    def _labelled(self, target: str) -> TrackedTurn:
        """A turn with these labels."""
        labels = [part.strip() for part in target.split(";") if part.strip()]
        pairs = [label.partition("=") for label in labels if "=" in label]
        informs = {slot.strip(): value.strip() for slot, _, value in pairs}
        turn = TrackedTurn("", (), "", informs, tuple(label for label in labels if "=" not in label), {})
        self.candidates.ontology.check_turn(turn)
        return turn

    def with_ontology(self, ontology: Ontology) -> "TrackPredictor":
        """The same model with other values to choose from, of the same slots and requests."""
        trained = self.candidates.ontology
        for slot in ontology.slots:
            known("slot of the ontology", slot, trained.slots)
        if missing := [slot for slot in trained.slots if slot not in ontology.slots]:
            raise ValueError(f"the ontology has no slot {missing[0]!r}, which this run tracks; give it values")
        slots = {slot: ontology.slots[slot] for slot in trained.slots}
        candidates = SlotCandidates(Ontology(slots, trained.requests))
        return TrackPredictor(self.model, self.encoder.with_candidates(candidates), batch=self.batch)

    # The attention behind a state

    def label(self, recording: Recording, example: str, output: TrackOutput) -> Recording:
        """Rows are slots with the values that turns give them, and requests; columns the words of all turns.

        If no turn gives any, the rows are all slots, with the mean over their values, and say that none is set.

        The map "words" has the words of the user that the value attends to, "matches" those that name it, each with the
        same weight, and "acts" the words of the system that name acts.
        """
        turns = self.encoder.encode(parse_conversation(example))
        keys = [word for turn in turns for word in (*turn.system, *turn.user)]
        starts, rows = _starts(turns), _rows(output, self.candidates)
        words, matches, acts = (torch.zeros(len(rows), len(keys)) for _ in range(3))
        of_words, of_acts = (
            [item for item in recording if item.name.startswith(name)] for name in (_OF_WORDS, _OF_ACTS)
        )
        for row, (name, value, n) in enumerate(rows):
            candidates = self.candidates.candidates_of(name, value)
            user = starts[n][1]
            weights = _weights(of_words)[n, candidates, : len(turns[n].user)].mean(0)
            words[row, user : user + len(turns[n].user)] = weights
            for each in turns[n].user_mentions:
                if (each.slot, each.value) == (name, value):
                    matches[row, user + each.start : user + each.end] = 1
            shares = _weights(of_acts)[n, self.candidates.topic_of[candidates.start]]
            for share, act in zip(shares[1:].tolist(), turns[n].acts, strict=False):
                if act.mention is not None:
                    start = starts[act.turn][0]
                    span = slice(start + act.mention.start, start + act.mention.end)
                    acts[row, span] += share / (act.mention.end - act.mention.start)
        maps = [
            derive("words", "cross", DenseMap(words.unsqueeze(0)), of_words, "words"),
            derive("matches", "cross", DenseMap(normalize_rows(matches).unsqueeze(0)), of_words, "string matching"),
            derive("acts", "cross", DenseMap(acts.unsqueeze(0)), of_acts, "acts"),
        ]
        queries = [
            f"{n + 1}: {name}{' (not set)' if value is None else f' = {value}' if value else '?'}"
            for name, value, n in rows
        ]
        recording = replace(recording, maps=tuple(maps))
        axes = {"queries": "slots", "keys": "words"}
        return self.labelled(recording, example, self.text(output), queries, keys, axes)

    def draw_figure(self, recording: Recording, example: str, output: TrackOutput, path: Path) -> Path:
        """The mean of the weights of words, matches and acts."""
        both = derive("words, matches and acts", "cross", DenseMap(_mean_of(list(recording))), list(recording), "mean")
        return draw_recording(replace(recording, maps=(both,)), path, what="map", layer=0)

    # Services

    def about(self) -> dict[str, object]:
        ontology = self.candidates.ontology
        return {
            "slots": {slot: list(values) for slot, values in ontology.slots.items()},
            "requests": list(ontology.requests),
            "history": self.encoder.history,
            "max_length": self.encoder.max_length,
        }


def _rows(output: TrackOutput, candidates: SlotCandidates) -> list[tuple[str, str | None, int]]:
    """Every slot and request with its value and turn; if there are none, every slot without a value, last turn."""
    rows: list[tuple[str, str | None, int]] = [
        row
        for n, turn in enumerate(output.turns)
        for row in (
            *((slot, value, n) for slot, (value, _) in turn.informs.items()),
            *((name, "", n) for name in turn.requests),
        )
    ]
    return rows or [(slot, None, len(output.turns) - 1) for slot in candidates.slots]


def _starts(turns: Sequence[EncodedTurn]) -> list[tuple[int, int]]:
    """The columns of the first words of system and user in every turn."""
    starts, end = [], 0
    for turn in turns:
        starts.append((end, end + len(turn.system)))
        end += len(turn.system) + len(turn.user)
    return starts


def _weights(items: Sequence[RecordedMap]) -> Tensor:  # -> "n q k"
    """The weights of all turns, which are one batch, the mean over heads."""
    weights = torch.stack([item.weights.dense().float() for item in items]).mean(0)
    return weights if weights.dim() == 3 else weights.mean(1)


def _mean_of(maps: Sequence[RecordedMap]) -> Tensor:  # -> "1 r w"
    return torch.stack([item.weights.dense() for item in maps]).mean(0)
