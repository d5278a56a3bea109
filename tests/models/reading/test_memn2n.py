"""MemN2N: the paper's equations written out, tying, linear start, nil words, empty slots, restarts, attentions."""

import re
from typing import Any

import pytest
import torch
from tests.for_each import for_each
from torch import Tensor

from regard.models.reading.memn2n import NIL, UNKNOWN, MemN2N, StoryInputs

WIDTH, HOPS = 5, 3
TYINGS, POSITIONS = ("adjacent", "layer-wise"), ("paper", "code", "none")


def build(**options: Any) -> MemN2N:
    torch.manual_seed(3)
    return MemN2N(13, [3, 7, 11], **{"width": WIDTH, "hops": HOPS, "memory": 7, **options}).double()


def inputs() -> StoryInputs:
    """Three questions: gaps in the slots, one sentence twice, and no sentence at all."""
    sentences = torch.tensor([[2, 3, 4, 9], [5, 6, NIL, NIL], [7, UNKNOWN, 8, NIL]])
    slots = torch.tensor([[0, 1, -1, 2], [2, 2, -1, -1], [-1, -1, -1, -1]])
    return StoryInputs(sentences, slots, torch.tensor([[2, 9], [3, NIL], [4, 4]]))


def code(position: str, k: int, j: int, d: int, words: int) -> float:
    if position == "paper":
        return (1 - j / words) - (k / d) * (1 - 2 * j / words)
    return 1.0 if position == "none" else 1 + 4 * (k - (d + 1) / 2) * (j - (words + 1) / 2) / (d * words)


def encode(tokens: Tensor, table: Tensor, position: str) -> Tensor:
    words = [int(word) for word in tokens if word != NIL]
    vector = torch.zeros(table.shape[-1], dtype=table.dtype)
    for j, word in enumerate(words, 1):
        for k in range(1, len(vector) + 1):
            vector[k - 1] += code(position, k, j, len(vector), len(words)) * table[word, k - 1]
    return vector


def written_out(model: MemN2N, given: StoryInputs, restart: int, linear: bool) -> Tensor:
    """Section 2 of the paper, one question, one slot and one number at a time."""
    rows = []
    words, times = model.words[:, restart], model.times[:, restart]
    adjacent = model.tying == "adjacent"
    for slots, question in zip(given.slots, given.questions, strict=True):
        u = encode(question, words[0 if adjacent else 2], model.position)
        for hop in range(HOPS):
            a, c = (hop, hop + 1) if adjacent else (0, 1)
            filled = [i for i, slot in enumerate(slots.tolist()) if slot >= 0]
            m, v = (
                [encode(given.sentences[slots[i]], words[t], model.position) + times[t, i] for i in filled]
                for t in (a, c)
            )
            scores = torch.stack([u @ each for each in m]) if filled else torch.zeros(0, dtype=u.dtype)
            p = scores if linear else scores.softmax(0)
            o = sum((weight * each for weight, each in zip(p, v, strict=True)), torch.zeros_like(u))
            carried = u if adjacent else model.hops[restart][0].carry(u)  # type: ignore[index]
            u = carried + o
            u = u.relu() if model.nonlinear else u
        w = words[-1][model.answers] if adjacent else model.output[restart]  # type: ignore[index]
        rows.append(w @ u)
    return torch.stack(rows)


@pytest.mark.parametrize("nonlinear", [False, True])
@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("tying", TYINGS)
def test_the_equations_of_the_paper(tying: Any, position: Any, nonlinear: bool) -> None:
    model, given = build(tying=tying, position=position, nonlinear=nonlinear, restarts=2), inputs()
    for linear in (False, True):
        expected = torch.stack([written_out(model, given, n, linear) for n in range(2)])
        torch.testing.assert_close(model(given, linear=linear).logits, expected)
        # the way by the slots, with weights, is the same function
        output = model(given, linear=linear, need_weights=True)
        torch.testing.assert_close(output.logits, expected)
        torch.testing.assert_close(model(given, restart=1, linear=linear).logits[0], expected[1])


def test_weights_are_those_of_filled_slots() -> None:
    weights = build()(inputs(), need_weights=True).weights
    assert weights.shape == (1, 3, HOPS, 4)
    torch.testing.assert_close(weights.sum(-1)[0], torch.tensor([[1.0] * HOPS, [1.0] * HOPS, [0.0] * HOPS]).double())
    assert not weights.movedim(2, 0)[..., inputs().slots < 0].any()


@pytest.mark.parametrize("tying", TYINGS)
def test_gradients(tying: Any) -> None:
    model, given = build(tying=tying, width=3, hops=2), inputs()
    parameters = dict(model.named_parameters())

    def run(*tensors: Tensor) -> Tensor:
        return torch.func.functional_call(model, dict(zip(parameters, tensors, strict=True)), (given,)).logits

    assert torch.autograd.gradcheck(run, tuple(p.detach().clone().requires_grad_() for p in parameters.values()))
    model(given).logits.sum().backward()
    assert all(p.grad is not None and p.grad.any() for p in parameters.values())


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_nil_stays_zero_after_the_optimizer(weight_decay: float) -> None:
    model = build(restarts=2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=weight_decay)
    for _ in range(5):
        optimizer.zero_grad()
        model(inputs()).logits[..., 0].sum().backward()
        optimizer.step()
    assert not model.words[:, :, : UNKNOWN + 1].any()
    assert model.words[:, :, 2:].all()


def test_a_question_is_answered_alone_as_in_a_batch_and_empty_slots_count_only_as_time() -> None:
    model, given = build(restarts=2), inputs()
    together = model(given).logits
    for n in range(3):
        alone = StoryInputs(given.sentences, given.slots[n : n + 1], given.questions[n : n + 1])
        torch.testing.assert_close(model(alone).logits[:, 0], together[:, n])
    order = torch.tensor([2, 0, 1])
    shuffled = StoryInputs(given.sentences, given.slots[order], given.questions[order])
    torch.testing.assert_close(model(shuffled).logits, together[:, order])
    longer = torch.cat([given.slots, torch.full((3, 3), -1)], 1)
    torch.testing.assert_close(model(given._replace(slots=longer)).logits, together)
    # a sentence in an older slot has another time code
    moved = given._replace(slots=given.slots.roll(1, 1))
    assert not torch.allclose(model(moved).logits, together)


def test_restarts_are_independent_networks() -> None:
    model = build(restarts=3)
    model(inputs()).logits[1].sum().backward()
    gradient = model.words.grad
    assert gradient[:, 1].any()
    assert not gradient[:, 0].any()
    assert not gradient[:, 2].any()
    assert not torch.equal(model.words[:, 0], model.words[:, 1])
    model.validation_errors.copy_(torch.tensor([2.0, 3.0, 1.0]))
    assert model.best_restart == 2


@pytest.mark.parametrize("attention", ["additive", "general", "sparsemax", "entmax", "scaled-dot", "memory-hop"])
@pytest.mark.parametrize("linear", [False, True])
def test_other_attentions(attention: str, linear: bool) -> None:
    model = build(attention=attention, restarts=2)
    output = model(inputs(), linear=linear)
    assert output.logits.shape == (2, 3, 3)
    assert output.logits.isfinite().all()
    output.logits.square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


@for_each(
    ("options", "sentence"),
    [
        ({"tying": "loose"}, "tying"),
        ({"position": "sinus"}, "position"),
        ({"attention": "dott"}, "did you mean 'dot'"),
        ({"attention": "hard"}, "attention='hard' does not read the vectors of a memory by weights that learn; try"),
        ({"attention": "multi-head"}, "attention='multi-head' does not read the vectors of a memory"),
        ({"hops": 0}, "hops"),
    ],
)
def test_wrong_options(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)):
        build(**options)


@pytest.mark.parametrize("answers", [[], [0], [1, 3], [13]])
def test_answers_are_words(answers: list[int]) -> None:
    with pytest.raises(ValueError, match=re.escape("answers must be words from 2 to 12, one or more, got")):
        MemN2N(13, answers)
