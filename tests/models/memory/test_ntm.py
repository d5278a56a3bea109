"""NTM: its equations step by step, its gradients, what it learns, and its errors."""

import pytest
import torch
from tests.layers.memory.test_heads import moved
from tests.models.cases import NTMS, T, built, given, ntm
from torch import Tensor

import regard
from regard.attn.call import Need
from regard.models import NTM
from regard.models.memory.ntm import NTMState

pytestmark = pytest.mark.usefixtures("float64")


def plain_logits(model: NTM, source: Tensor, target: Tensor) -> Tensor:  # "s", "t" -> "t v"
    """The equations of the paper for one pair, one step after the other."""
    heads = model.heads
    memory, outputs = heads.init_memory(1), []
    matrix, weights, read = memory
    h = c = torch.zeros(model.project.in_features - heads.out_features)
    embedded = [model.source.weight[token] for token in source]
    embedded += [model.target.weight[token] * model.feeds_tokens for token in target]
    for x in embedded:
        x = torch.cat([x, read[0]])
        if hasattr(model.controller, "rnn"):
            rnn = model.controller.rnn
            gates = rnn.weight_ih_l0 @ x + rnn.bias_ih_l0 + rnn.weight_hh_l0 @ h + rnn.bias_hh_l0
            i, f, g, o = gates.chunk(4)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
        else:
            h = x
            for layer in model.controller.layers:
                h = torch.tanh(layer.weight @ h + layer.bias)
        address, erase, add = heads.address((heads.emit.weight @ h + heads.emit.bias).unsqueeze(0))
        count = heads.read_heads + heads.write_heads
        weights = torch.tensor([[moved(address, matrix, weights, 0, n) for n in range(count)]])
        rows = []
        for location in range(heads.locations):
            row, writes = matrix[0, location], range(heads.write_heads)
            for n in writes:
                row = row * (1 - weights[0, heads.read_heads + n, location] * erase[0, n])
            rows.append(row + sum(weights[0, heads.read_heads + n, location] * add[0, n] for n in writes))
        matrix = torch.stack(rows).unsqueeze(0)
        read = torch.cat([weights[0, n] @ matrix[0] for n in range(heads.read_heads)]).unsqueeze(0)
        outputs.append(torch.cat([h, read[0]]))
    states = torch.stack(outputs[len(source) :]) @ model.project.weight.T + model.project.bias
    return states @ model.output.weight.T + model.output.bias


# a controller of one layer, as the loop has it
ONE_LAYER = {name: make for name, make in NTMS.items() if "many" not in name}
ONE_LAYER["several heads"] = ntm(read_heads=2, write_heads=3, reach=3)


@pytest.mark.parametrize("name", ONE_LAYER)
@torch.no_grad()
def test_the_equations(name: str) -> None:
    model, (source, lengths, target) = built(ONE_LAYER[name]).eval(), given()
    got = model(source, lengths, target)
    for n, length in enumerate(lengths.tolist()):
        want = plain_logits(model, source[n, :length], target[n])
        torch.testing.assert_close(got[n], want, rtol=1e-10, atol=1e-10)


def test_the_token_before_is_read_only_where_it_is_asked_for() -> None:
    source, lengths, target = given()
    for name, is_read in (("ntm", False), ("ntm, token before", True)):
        model = built(NTMS[name]).eval()
        same = torch.equal(model(source, lengths, target), model(source, lengths, target.flip(1)))
        assert same != is_read


@pytest.mark.parametrize("name", NTMS)
def test_writes_and_reads_are_recorded(name: str) -> None:
    """One map of each, a row per step of both sides, and nothing else of what the heads compute."""
    model, (source, lengths, target) = built(NTMS[name]).eval(), given()
    heads, steps = model.heads, source.shape[1] + T
    with torch.no_grad():
        want = model(source, lengths, target)
        with regard.record(model) as recording:
            got = model(source, lengths, target)
    assert torch.equal(got, want)
    shapes = {"heads.write": (heads.write_heads, steps), "heads.read": (heads.read_heads, steps)}
    assert {m.name: m.shape[1:3] for m in recording} == shapes
    assert [m.kind for m in recording] == ["write", "read"]
    assert all(m.verified for m in recording)
    memory, seen = heads.init_memory(1), []
    with torch.no_grad():
        state = NTMState(model.controller.init_states(1), memory)
        inputs = torch.cat([model.source(source[1:2]), model._inputs(target[1:2])], 1)
        seen = [state.memory.weights for _, state in model._steps(inputs, state)]
    weights = torch.cat([m.weights.dense()[1] for m in reversed(recording.maps)])  # reads, writes: "h t n"
    torch.testing.assert_close(weights, torch.cat(seen).transpose(0, 1))
    with regard.record(model, heads=[0], rows=[1, 3]) as recording:
        model(source, lengths, target)
    assert {m.shape for m in recording} == {(len(source), 1, 2, heads.locations)}


def test_gradients_of_reads_are_recorded() -> None:
    """Of reads alone: a write erases and adds by the same weights."""
    model, (source, lengths, target) = built(NTMS["ntm"]), given()
    with regard.record(model, gradients=True) as recording:
        model(source, lengths, target).square().sum().backward()
    write, read = recording
    assert write.gradient is None
    assert read.gradient.dense().shape == read.shape
    assert read.gradient.dense().any()


def test_what_is_wrong_is_told() -> None:
    model, (source, lengths, target) = built(NTMS["ntm"]), given()
    for counts, message in (
        ([7, 1], "lengths must be one per row of x, got 2 for x"),
        ([0, 1, 2], "lengths must be 1 to .*, got 0; leave out empty sequences"),
        ([], "lengths must be those of one sequence or more, got none"),
    ):
        with pytest.raises(ValueError, match=message):
            model(source, torch.tensor(counts, dtype=torch.long), target)
    assert not model.attends
    said = r"an NTM reads its memory and has no weights over the source; record\(model\) shows reads and writes"
    with pytest.raises(ValueError, match=said):
        model.teacher_force(source, lengths, target, Need(weights=True))
    with pytest.raises(ValueError, match=said):
        model.step(target[:, :1], model.init_state(source, lengths), weights=True)
    assert model(source, lengths, target).shape[1] == T
