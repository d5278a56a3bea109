"""SlotTracker: its formula by explicit loops, gradients, padding, order, and values that no training has shown."""

import re

import pytest
import torch
from tests.for_each import for_each
from torch import Tensor

from regard.common.word_splitting import split_words
from regard.data.text.words import WordEncoder
from regard.data.tracking.dialogue import Ontology, TrackedTurn
from regard.models.tracking.context import CONTEXTS, AttentiveContext, RecurrentContext
from regard.models.tracking.inputs import TrackingInputs
from regard.models.tracking.slot_tracker import RecurrentSlotTracker, SlotTracker
from regard.tasks.track.candidates import SlotCandidates
from regard.tasks.track.turn_encoder import EncodedTurn, TurnEncoder

ONTOLOGY = Ontology({"food": ("thai", "north indian"), "area": ("north", "south")}, ("area", "phone"))
LINES = (
    ("", "a table"),
    ("food? thai, north indian?", "the second, and the phone"),
    ("area? thai is in the north", "south"),
    ("so it is", ""),
)
TURNS = [TrackedTurn(system, (), user, {}, (), {}) for system, user in LINES]
WORDS = sorted({word for pair in LINES for text in pair for word in split_words(text)[0]} - {"thai"})


def turn_encoder(ontology: Ontology = ONTOLOGY, history: int = 3) -> TurnEncoder:
    words = WordEncoder(WORDS, ())
    return TurnEncoder(SlotCandidates(ontology), words, acts="words", history=history, max_length=20)


def build(attention: str = "scaled-dot", context: str = "acts") -> SlotTracker:
    torch.manual_seed(0)
    sizes = {"embedding": 5, "hidden": 3}
    names = len(SlotCandidates(ONTOLOGY).names)
    model = RecurrentSlotTracker(4 + len(WORDS), names, **sizes, attention=attention, context=context)
    return model.double().eval()


def in_double(inputs: TrackingInputs) -> TrackingInputs:
    user, system = (side._replace(topics=side.topics.double()) for side in (inputs.user, inputs.system))
    return inputs._replace(user=user, system=system, mentions=inputs.mentions.double())


def scores(model: SlotTracker, turns: list[EncodedTurn], encoder: TurnEncoder) -> Tensor:
    return model(in_double(encoder.inputs(turns)))


def softmax(values: list[Tensor]) -> Tensor:
    return torch.stack(values).softmax(0)


def test_the_formula_by_loops() -> None:
    """One turn, one candidate, one word and one act at a time."""
    model, encoder = build(), turn_encoder()
    candidates, turns = encoder.candidates, encoder.encode(TURNS)
    found = scores(model, turns, encoder)
    phrases = model.phrase_vectors(encoder.phrases)
    count = len(candidates.topics)
    with torch.no_grad():
        for n, turn in enumerate(turns):
            inputs = in_double(encoder.inputs([turn]))
            h, g = model.word_states(inputs.user)[0], model.word_states(inputs.system)[0]
            h, g = h[: len(turn.user)], g[: len(turn.system)]

            def read(query: Tensor, states: Tensor) -> Tensor:
                if not len(states):
                    return torch.zeros(states.shape[-1], dtype=torch.float64)
                weights = softmax([query @ state / query.numel() ** 0.5 for state in states])
                return sum(w * state for w, state in zip(weights, states, strict=True))

            for c, (name, value) in enumerate([*candidates.values, *((r, "") for r in candidates.requests)]):
                k = candidates.topic_of[c]
                topic, own = phrases[k], phrases[count + c]
                q = read(model.candidate_query(own), h)
                own_mentions = [each for each in turn.user_mentions if (each.slot, each.value) == (name, value)]
                mentioned = [h[i] for each in own_mentions for i in range(each.start, each.end)]
                m = sum(mentioned) / len(mentioned) if mentioned else torch.zeros_like(topic)
                r, s = read(model.user_query(topic), h), read(model.system_query(topic), g)
                acts = [(model.act_kinds.weight[0] + sum(e.weight[0] for e in model.act_places), None)]
                for each in turn.acts:
                    if each.act.slot == candidates.topics[k]:
                        places = each.place, each.rest, turn.number - each.turn
                        described = sum(e.weight[p] for e, p in zip(model.act_places, places, strict=True))
                        acts.append((model.act_kinds.weight[2 if each.act.value else 1] + described, each.act))
                query = model.act_query(torch.cat([r, s, topic]))
                beta = softmax([query @ key / query.numel() ** 0.5 for key, _ in acts])
                u = sum(w * key for w, (key, _) in zip(beta, acts, strict=True))
                copied = sum(w for w, (_, act) in zip(beta, acts, strict=True) if value and act == (name, value))
                readers = model.readers(torch.tanh(model.topic(torch.cat([r, s, u, topic]))))
                by_words, by_matches, of_match, offset = readers.split([len(q), len(m), 1, 1])
                expected = by_words @ q + by_matches @ m + of_match * bool(mentioned) + offset + model.copied * copied
                assert abs(float(found[n, c] - expected)) < 1e-10, (n, name, value)


@pytest.mark.parametrize("context", CONTEXTS)
def test_gradients(context: str) -> None:
    model, encoder = build(context=context), turn_encoder()
    inputs = in_double(encoder.inputs(encoder.encode(TURNS)))
    model(inputs).square().sum().backward()
    assert all(p.grad is not None and bool(p.grad.abs().sum()) for p in model.parameters())
    weight = model.topic.weight.detach().clone().requires_grad_()

    def forward(weight: Tensor) -> Tensor:
        return torch.func.functional_call(model, {"topic.weight": weight}, (inputs,))

    assert torch.autograd.gradcheck(forward, (weight,), fast_mode=True)


@for_each("attention", ["scaled-dot", "general", "additive", "multi-head", "sparsemax", "linear"])
def test_alone_in_a_batch_and_in_any_order(attention: str) -> None:
    model, encoder = build(attention), turn_encoder()
    turns = encoder.encode(TURNS)
    with torch.no_grad():
        together = scores(model, turns, encoder)
        alone = torch.cat([scores(model, [turn], encoder) for turn in turns])
        reverse = scores(model, turns[::-1], encoder).flip(0)
    torch.testing.assert_close(together, alone, rtol=0, atol=1e-12)
    torch.testing.assert_close(together, reverse, rtol=0, atol=1e-12)


@pytest.mark.parametrize("context", ["recurrent", "attention"])
def test_dialogues_alone_in_a_batch_and_in_any_order(context: str) -> None:
    model, encoder = build(context=context), turn_encoder()
    dialogues = [encoder.encode(turns) for turns in (TURNS, TURNS[1:2], TURNS[::-1], TURNS[2:])]
    with torch.no_grad():
        alone = [scores(model, turns, encoder) for turns in dialogues]
        together = scores(model, [turn for turns in dialogues for turn in turns], encoder)
        reverse = scores(model, [turn for turns in dialogues[::-1] for turn in turns], encoder)
        shorter = scores(model, dialogues[0][:2], encoder)
    torch.testing.assert_close(together, torch.cat(alone), rtol=0, atol=1e-12)
    torch.testing.assert_close(reverse, torch.cat(alone[::-1]), rtol=0, atol=1e-12)
    # later turns change nothing, earlier ones do
    torch.testing.assert_close(alone[0][:2], shorter, rtol=0, atol=1e-12)
    assert not torch.allclose(alone[0][1], alone[1][0])


def test_contexts_by_loops() -> None:
    """One dialogue, one topic and one turn at a time."""
    torch.manual_seed(0)
    recurrent, attentive = RecurrentContext(3).double(), AttentiveContext(3).double()
    turns, numbers = torch.randn(7, 2, 3, dtype=torch.float64), torch.tensor([0, 1, 2, 0, 0, 1, 2])
    with torch.no_grad():
        by_states, by_attention = recurrent(turns, numbers), attentive(turns, numbers)
        for first, last in ((0, 2), (3, 3), (4, 6)):
            for k in range(2):
                own = turns[first : last + 1, k]
                by_torch, _ = recurrent.encoder.rnn(own.unsqueeze(0))
                torch.testing.assert_close(by_states[first : last + 1, k], by_torch[0], rtol=0, atol=1e-12)
                for t in range(len(own)):
                    query = attentive.query(own[t])
                    table = attentive.turn_attention.bias.table.weight[:, 0]
                    alpha = softmax([query @ attentive.key(own[j]) / 3**0.5 + table[t - j] for j in range(t + 1)])
                    read = sum(a * attentive.value(z) for a, z in zip(alpha, own, strict=False))
                    torch.testing.assert_close(by_attention[first + t, k], read, rtol=0, atol=1e-12)


@pytest.mark.parametrize("numbers", [[], [1, 2], [0, 2], [0, 1, 1]])
def test_contexts_need_whole_dialogues(numbers: list[int]) -> None:
    message = (
        f"numbers must count the turns of whole dialogues from 0, got {numbers}; give all turns of a dialogue in their "
        "order"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        AttentiveContext(3)(torch.zeros(len(numbers), 2, 3), torch.tensor(numbers))


def test_history_ends_where_it_is_told() -> None:
    """Without history, only the acts of the last words of the system are read."""
    near, far = turn_encoder(history=0).encode(TURNS), turn_encoder(history=1).encode(TURNS)
    assert {each.turn for each in near[2].acts} == {2}
    assert {each.turn for each in far[2].acts} == {1, 2}
    assert not near[3].acts


def test_a_value_that_no_training_has_shown_is_scored_by_its_words() -> None:
    """Two unknown values that change places in the words change their scores."""
    ontology = Ontology({"food": ("xhosa", "zulu"), "area": ONTOLOGY.slots["area"]}, ONTOLOGY.requests)
    model, encoder = build(), turn_encoder(ontology)
    said = [[TrackedTurn("", (), f"{a} food", {}, (), {})] for a in ("xhosa", "zulu")]
    with torch.no_grad():
        first, second = (scores(model, encoder.encode(turns), encoder)[0] for turns in said)
    assert first[0] == second[1] != first[1] == second[0]


def test_mistakes() -> None:
    with pytest.raises(ValueError, match="names must be .* got 0"):
        RecurrentSlotTracker(5, 0)
    with pytest.raises(ValueError, match="unknown context 'recurent'; did you mean 'recurrent'"):
        RecurrentSlotTracker(5, 2, context="recurent")
