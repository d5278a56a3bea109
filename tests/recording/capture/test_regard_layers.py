"""This library's layers and models: recorded by themselves, one map a layer, whatever it is made of."""

from typing import Any

import pytest
import torch
from tests.attn.test_catalogue import ALL, B, D, E, K, Q, built, dims
from tests.for_each import for_each
from torch import Tensor, nn

import regard
from regard.attn import observer
from regard.decoding.greedy import greedy
from regard.layers.query_pooling import QueryPooling
from regard.models.seq2seq import Seq2Seq
from regard.models.transformer import Transformer

SOURCE, TARGET = (
    torch.tensor([[5, 6, 7, 8, 9, 3], [4, 5, 6, 7, 0, 0]]),
    torch.tensor([[1, 4, 5, 6, 7], [1, 8, 9, 4, 0]]),
)
LENGTHS = torch.tensor([6, 4])


def inputs(name: str) -> tuple[Tensor, Tensor]:
    d, e = dims(name)
    return torch.randn(B, Q, d), torch.randn(B, K, e)


@for_each("name", ALL)
def test_every_mechanism_is_recorded_and_certified(name: str) -> None:
    layer = built(name).eval()
    q, k = inputs(name)
    with torch.no_grad():
        want = layer(q, k)
        with regard.record(layer) as tape:
            got = layer(q, k)
        asked = layer.attend(q, k, need=regard.Need(weights=True))
    torch.testing.assert_close(got, want, rtol=0.0, atol=0.0)
    hard = name in ("hard", "hard-argmax", "gumbel")  # in evaluation they read at the greatest weight
    assert all(one.verified and one.captured_from == ("regard, hard" if hard else "regard") for one in tape)
    inner = {
        "pooling": "pool",
        "co-attention": "both",
        "gat": "attention",
        "gatv2": "attention",
        "hopfield": "attention",
    }
    assert tape[0].name == inner.get(name, "")
    assert len(tape) == {"co-attention": 2, "bidaf": 2, "nsa": 3, "hopfield": 3}.get(name, 1)
    if name == "nsa":  # the maps of its three reads, which `asked` joins by the gates
        gates = torch.sigmoid(layer.gate(q)).unflatten(-1, (3, layer.heads)).permute(2, 0, 3, 1).unsqueeze(-1)
        compressed, selected, window = (one.weights.dense() for one in tape)
        joined = gates[0] * layer._spread(compressed, K) + gates[1] * selected + gates[2] * window
        torch.testing.assert_close(joined / gates.sum(0), asked.weights, rtol=1e-5, atol=1e-6)
    else:
        read = tape[-1 if name == "hopfield" else 0]  # the last of its steps is the answer
        torch.testing.assert_close(read.weights.dense(), asked.weights, rtol=1e-5, atol=1e-6)


def test_both_directions_of_one_matrix_are_two_maps() -> None:
    for name, shapes in (("co-attention", [(B, Q, K), (B, K, Q)]), ("bidaf", [(B, Q, K), (B, 1, Q)])):
        layer = built(name)
        with regard.record(layer) as tape:
            layer(*inputs(name))
        assert [one.shape for one in tape] == shapes
        assert [one.call for one in tape] == [0, 1]


def test_kinds_are_told() -> None:
    for layer, args, kind in (
        (regard.MultiHead(12, 3), (torch.randn(B, Q, 12),), "self"),
        (regard.MultiHead(12, 3), (torch.randn(B, Q, 12), torch.randn(B, Q, 12)), "cross"),
        (regard.layers.MemoryHop(), (torch.randn(B, 1, 12), torch.randn(B, K, 12)), "hop"),
        (regard.Attention(), (torch.randn(B, Q, 12), torch.randn(B, K, 12)), "cross"),
    ):
        with regard.record(layer) as tape:
            layer(*args)
        assert [one.kind for one in tape] == [kind]


@pytest.mark.parametrize("name", ["hard", "gumbel", "straight-through", "hard-argmax"])
def test_a_hard_read_is_certified_in_training_too_and_draws_the_same(name: str) -> None:
    layer = built(name).train()
    q, k = inputs(name)
    torch.manual_seed(5)
    want = layer(q, k)
    torch.manual_seed(5)
    with regard.record(layer) as tape:
        got = layer(q, k)
    assert torch.equal(want, got)
    assert tape[0].verified == (name != "gumbel")  # a soft mixture that was drawn is no map's


@for_each(
    ("decoder", "attention", "heads"),
    [
        ("bahdanau", None, ()),
        ("luong", "general", ()),
        ("luong-feeding", "dot", ()),
        ("luong-feeding", "multi-head", (4,)),
        ("bahdanau", "monotonic", (1,)),
        ("bahdanau", "location-sensitive", (1,)),
        ("luong-feeding", "local-p", ()),
    ],
)
def test_a_decoders_steps_are_one_alignment(decoder: str, attention: str | None, heads: tuple[int, ...]) -> None:
    model = Seq2Seq(20, 20, width=8, hidden=8, decoder=decoder, attention=attention).eval()
    if attention == "monotonic":  # at -4 it stops nowhere
        model.decoder.attention.offset.data.zero_()
    want = model(SOURCE, LENGTHS, TARGET)
    with regard.record(model) as tape:
        got = model(SOURCE, LENGTHS, TARGET)
    assert torch.equal(want, got)
    (one,) = tape
    assert (one.name, one.kind, one.shape) == ("decoder.attention", "alignment", (2, *heads, 5, 6))
    assert one.verified
    asked = model.teacher_force(SOURCE, LENGTHS, TARGET, regard.Need(weights=True)).weights
    seen = one.weights.dense().mean(1) if heads else one.weights.dense()
    torch.testing.assert_close(seen, asked, rtol=0.0, atol=1e-6)


@pytest.mark.parametrize("attention", ["additive", "monotonic", "location-sensitive"])
def test_the_steps_of_a_search_are_stitched(attention: str) -> None:
    model = Seq2Seq(20, 20, width=8, hidden=8, decoder="bahdanau", attention=attention).eval()
    if attention == "monotonic":  # at -4 it stops nowhere
        model.decoder.attention.offset.data.zero_()
    model.output.bias.data[2] = -99.0  # never the end
    for _ in range(2):
        with regard.record(model) as tape, torch.no_grad():
            (found,) = greedy(model, model.init_state(SOURCE[:1], LENGTHS[:1]), bos=1, eos=2, limits=torch.tensor([5]))
    assert [one.step for one in tape] == [0, 1, 2, 3, 4]
    (whole,) = tape.stitch()
    said = torch.tensor([[1, *found.tokens[:4]]])
    with torch.no_grad(), regard.record(model) as taught:
        model(SOURCE[:1], LENGTHS[:1], said)
    torch.testing.assert_close(whole.weights.dense(), taught[0].weights.dense(), rtol=0.0, atol=1e-6)


@pytest.mark.parametrize("attention", [None, "additive", ["dot", "entmax"]])
@pytest.mark.parametrize("training", [False, True])
def test_a_transformer_is_recorded_layer_by_layer(attention: Any, training: bool) -> None:
    model = Transformer(20, 20, width=8, layers=2, heads=2, attention=attention).train(training)
    torch.manual_seed(7)
    want = model(SOURCE, LENGTHS, TARGET)
    torch.manual_seed(7)
    with regard.record(model) as tape:
        got = model(SOURCE, LENGTHS, TARGET)
    assert torch.equal(want, got)
    assert [(one.name, one.kind, one.call) for one in tape] == [
        ("encoder.0.attention", "self", 0),
        ("encoder.1.attention", "self", 0),
        ("decoder.0.self_attention", "self", 0),
        ("decoder.0.cross_attention", "cross", 0),
        ("decoder.1.self_attention", "self", 0),
        ("decoder.1.cross_attention", "cross", 0),
    ]
    assert [one.shape[1:] for one in tape[1:4]] == [(2, 6, 6), (2, 5, 5), (2, 5, 6)]
    assert all(one.verified for one in tape)


def test_a_transformers_search_is_the_map_of_one_pass() -> None:
    model = Transformer(20, 20, width=8, layers=2, heads=2).eval()
    model.output.bias.data[2] = -99.0
    with regard.record(model) as tape, torch.no_grad():
        (found,) = greedy(model, model.init_state(SOURCE[:1], LENGTHS[:1]), bos=1, eos=2, limits=torch.tensor([5]))
    with torch.no_grad(), regard.record(model) as taught:
        model(SOURCE[:1], LENGTHS[:1], torch.tensor([[1, *found.tokens[:4]]]))
    for one, same in zip(tape.stitch(), taught, strict=True):
        assert (one.name, one.kind) == (same.name, same.kind)
        torch.testing.assert_close(one.weights.dense(), same.weights.dense(), rtol=0.0, atol=1e-6)


def test_functions_are_heard_inside_a_module() -> None:
    class Model(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return regard.attention(x, x, x) + regard.attention(x, x, x, mask=regard.Causal())

    x = torch.randn(B, 2, Q, 4)
    model = Model()
    want = model(x)
    with regard.record(model) as tape:
        got = model(x)
    assert torch.equal(want, got)
    assert [one.call for one in tape] == [0, 1]
    assert not tape[1].weights.dense()[..., 0, 1:].any()


def test_a_layer_that_lies_in_two_places_is_named_by_where_it_runs() -> None:
    shared = regard.Attention(regard.Additive(D, E, 4))

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.look = shared

        def forward(self, q: Tensor, k: Tensor) -> Tensor:
            return self.look(q, k)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = Block(), Block()

        def forward(self, q: Tensor, k: Tensor) -> Tensor:
            return self.first(q, k) + self.second(q, k)

    model = Model()
    with regard.record(model) as tape:
        model(torch.randn(B, Q, D), torch.randn(B, K, E))
    assert list(tape.names) == ["first.look", "second.look"]


def test_training_after_it_does_not_change_a_map() -> None:
    layer = regard.Attention(regard.Additive(D, E, 4))
    q, k = torch.randn(B, Q, D), torch.randn(B, K, E)
    with regard.record(layer) as tape:
        layer(q, k)
    before = tape[0].weights.dense().clone()
    with torch.no_grad():
        for p in layer.parameters():
            p.add_(1.0)
    assert torch.equal(tape[0].weights.dense(), before)


def test_a_grid_that_is_told_outlives_the_modules_that_run_meanwhile() -> None:
    """Also where a method is called instead of the model, so that every module is the outermost."""

    class Looks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Sequential(nn.Linear(5, 5))
            self.attention = regard.Attention(regard.Dot())

        def look(self, x: Tensor) -> Tensor:
            with observer.spatial_keys((2, 3)):
                x = self.first(x)
                return self.attention(x, x)[:, :4] + self.attention(x[:, :4], x[:, :4])

    model = Looks()
    with regard.record(model) as tape:
        model.look(torch.randn(2, 7, 5))
    # a token before six places; and four, which are not those
    assert [one.grid for one in tape] == [(2, 3), None]
    with regard.record(model) as after:
        model.attention(torch.randn(2, 6, 5), torch.randn(2, 6, 5))
    assert after[0].grid is None


@pytest.mark.parametrize("length", [3, 4, 5])
def test_learned_queries_are_not_those_of_the_text(length: int) -> None:
    """Also where there are as many queries as tokens, which is the shape of self-attention."""
    pooling = QueryPooling(6, 4, hidden=5)
    model = nn.ModuleDict({"pooling": pooling})
    with regard.record(model) as recording:
        pooling(torch.randn(1, length, 6), torch.tensor([length]))
    assert [recorded_map.kind for recorded_map in recording] == ["cross"]


class Projected(nn.Module):
    """Projects queries and keys itself, of one sequence or of two."""

    def __init__(self, **terms: Any) -> None:
        super().__init__()
        self.project, self.attention = nn.Linear(6, 18), regard.Attention(**terms)

    def forward(self, x: Tensor, memory: Tensor | None = None) -> Tensor:
        q, k, v = self.project(x).chunk(3, -1)
        if memory is not None:
            _, k, v = self.project(memory).chunk(3, -1)
        out: Tensor = self.attention(q, k, v)
        return out


@for_each("terms", [{}, {"mask": regard.Causal()}, {"mask": regard.Window(2, 0)}])
@torch.no_grad()
def test_projections_of_one_sequence_are_self_attention_and_of_two_cross_attention(terms: dict[str, Any]) -> None:
    model, x = Projected(**terms), torch.randn(1, 5, 6)
    with regard.record(model) as recording:
        model(x)
        if not terms:
            model(x, torch.randn(1, 5, 6))
    assert [m.kind for m in recording] == ["self", "cross"][: len(recording)]
    assert recording[:1].rollout()[0].shape[-2:] == (5, 5)
