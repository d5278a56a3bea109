"""Recurrent decoders with every mechanism that goes step by step: the laws, and the papers in plain loops."""

import copy
import math
from dataclasses import dataclass

import pytest
import torch
from tests.attn.mechanism_properties import KEY_BIAS_IS_SILENT, MODULES, ONE_WIDTH, SUMS, TANH
from tests.for_each import for_each
from torch import Tensor, nn

import regard
from regard import MECHANISMS
from regard.attn.call import Need
from regard.attn.stepwise import part_without_steps
from regard.layers.rnn import source_projection
from regard.layers.rnn.decoder_base import RecurrentDecoder, RecurrentState
from regard.layers.rnn.decoders import Bahdanau, FixedContext, InitialState, Luong, PerPosition
from regard.layers.rnn.distinct_tokens import DistinctTokens
from regard.layers.rnn.encoder import EncoderOutput

pytestmark = pytest.mark.usefixtures("float64")

# sizes that share no factor: a swapped axis must fail; keys have 8, as one mechanism halves them
B, S, T, D, H, K, R = 3, 7, 5, 9, 11, 8, 13
LENGTHS = torch.tensor([4, 7, 1])

STEPWISE = sorted(name for name, module in MODULES.items() if part_without_steps(module) is None)
ATTENDING = ("bahdanau", "luong", "luong-feeding")
BLIND = {"fixed": FixedContext, "initial": InitialState, "per-position": PerPosition}
ALL = [*((decoder, "") for decoder in BLIND), *((decoder, name) for decoder in ATTENDING for name in STEPWISE)]
every = for_each(("kind", "name"), ALL, ids=lambda part: part or "-", share=0.5)


def dims(name: str) -> tuple[int, int]:
    return (K, K) if name in ONE_WIDTH else (H, K)


def built(kind: str, name: str, layers: int = 1, cell: str = "gru", dropout: float = 0.0) -> RecurrentDecoder:
    torch.manual_seed(1)
    hidden, source = dims(name)
    sizes = {"layers": layers, "cell": cell, "dropout": dropout, "out_features": R}
    if kind in BLIND:
        return BLIND[kind](D, source, hidden, **sizes)
    if kind == "bahdanau":
        made: RecurrentDecoder = Bahdanau(D, source, hidden, attention=MECHANISMS[name], **sizes)
    else:
        made = Luong(D, source, hidden, attention=MECHANISMS[name], feeding=kind == "luong-feeding", **sizes)
    if name in ("monotonic", "mocha"):  # at -4 almost nothing is looked at
        nn.init.zeros_(made.attention.get_parameter("offset"))
    return made


@dataclass
class Given:
    """A target and an encoded source."""

    y: Tensor  # "b t d"
    encoded: EncoderOutput
    lengths: Tensor

    def rows(self, index: Tensor, places: int | None = None) -> "Given":
        outputs = self.encoded.outputs[index]
        encoded = EncoderOutput(outputs if places is None else outputs[:, :places], self.encoded.summary[index])
        return Given(self.y[index], encoded, self.lengths[index])


def given(name: str, lengths: Tensor = LENGTHS) -> Given:
    torch.manual_seed(2)
    source = dims(name)[1]
    y, outputs, summary = torch.randn(len(lengths), T, D), torch.randn(len(lengths), S, source), torch.randn(B, source)
    there = torch.arange(S)[None, :, None] < lengths[:, None, None]
    return Given(y, EncoderOutput(outputs * there, summary), lengths)


def words(y: Tensor) -> DistinctTokens:  # "b n d"
    """Every hypothesis a word of its own, in another order than theirs."""
    count = y.shape[0] * y.shape[1]
    return DistinctTokens(y.flatten(0, 1).flip(0), torch.arange(count).flip(0).view(y.shape[:2]))


def stepped(decoder: RecurrentDecoder, g: Given, weights: bool) -> tuple[Tensor, Tensor | None, RecurrentState]:
    """One step at a time: "b t r", "b t s"."""
    state, outs, looked = decoder.init_state(g.encoded, g.lengths), [], []
    for t in range(g.y.shape[1]):
        got = decoder.step(words(g.y[:, t : t + 1]), state, weights)
        state = got.state
        outs.append(got.out)
        assert (got.weights is not None) == weights
        looked.append(got.weights)
    return torch.cat(outs, dim=1), torch.cat(looked, dim=1) if weights else None, state


@every
def test_one_step_at_a_time_is_all_at_once(kind: str, name: str) -> None:
    decoder, g = built(kind, name).eval(), given(name)
    seen = kind not in BLIND
    with torch.no_grad():
        taught = decoder.teacher_force(g.y, g.encoded, g.lengths, Need(weights=seen))
        out, weights, _ = stepped(decoder, g, seen)
    assert out.shape == (B, T, R)
    torch.testing.assert_close(out, taught.states)
    assert taught.log_prob is None
    if seen:
        assert taught.weights.shape == (B, T, S)
        torch.testing.assert_close(weights, taught.weights)
        # nobody looks at padding
        assert not taught.weights.masked_select((torch.arange(S) >= LENGTHS[:, None])[:, None]).any()


@every
def test_a_batch_is_one_by_one_and_padding_changes_nothing(kind: str, name: str) -> None:
    decoder, g = built(kind, name).eval(), given(name)
    with torch.no_grad():
        whole = decoder.teacher_force(g.y, g.encoded, g.lengths).states
        for n, length in enumerate(LENGTHS.tolist()):
            alone = g.rows(torch.tensor([n]), length)
            torch.testing.assert_close(decoder.teacher_force(alone.y, alone.encoded, alone.lengths).states[0], whole[n])


@every
def test_hypotheses_picks_and_keeps_are_decodings_of_their_own(kind: str, name: str) -> None:
    """Three hypotheses a sentence, picked anew at every step, sentences left out on the way: each is what it said."""
    decoder, g = built(kind, name, layers=2, cell="lstm").eval(), given(name)
    torch.manual_seed(3)
    seen = kind not in BLIND
    state, rows = decoder.init_state(g.encoded, g.lengths), torch.arange(B)
    said = torch.zeros(B, 1, 0, D)  # what each hypothesis has said, "b n t d"
    with torch.no_grad():
        for t, count in enumerate((1, 3, 2, 4, 1)):
            index = torch.randint(0, said.shape[1], (len(rows), count))
            state = state.reorder(index)
            said = said[torch.arange(len(rows))[:, None], index]
            if t == 3:
                rows = rows[[2, 0]]
                state, said = state.select_sentences(torch.tensor([2, 0])), said[[2, 0]]
            y = torch.randn(len(rows), count, D)
            got = decoder.step(words(y), state, seen)
            state, said = got.state, torch.cat([said, y.unsqueeze(2)], dim=2)
            assert got.out.shape == (len(rows), count, R)
            for n in range(count):
                one = g.rows(rows)
                want = decoder.teacher_force(said[:, n], one.encoded, one.lengths, Need(weights=seen))
                torch.testing.assert_close(got.out[:, n], want.states[:, -1])
                if seen:
                    torch.testing.assert_close(got.weights[:, n], want.weights[:, -1])


# softmax does not feel what is added to a whole row; what takes the greatest weight has no slope
SILENT = {
    "trilinear": {"attention.score.query"},
    "hard-argmax": {"attention.score.key.weight"},
    **{name: {"attention.key.bias"} for name in KEY_BIAS_IS_SILENT},
}
SILENT["fire"] = {"attention.key.bias", "attention.attention.bias.outer.bias"}


@every
def test_every_parameter_receives_a_gradient(kind: str, name: str) -> None:
    decoder, g = built(kind, name, layers=2), given(name)
    taught = decoder.teacher_force(g.y, g.encoded, g.lengths)
    loss = (taught.states * torch.randn(T, R)).square().sum()
    if name == "hard":
        assert taught.log_prob.shape == taught.entropy.shape == (B, T)
        loss = loss + taught.log_prob.square().sum() + taught.entropy.sum()
    else:
        assert taught.log_prob is None
    loss.backward()
    for key, p in decoder.named_parameters():
        if key in SILENT.get(name, ()):
            assert p.grad is None or p.grad.abs().max() < 1e-9, key
        else:
            assert p.grad is not None, key
            assert p.grad.abs().max() > 1e-9, key


@pytest.mark.parametrize("kind", [*BLIND, *ATTENDING])
@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_gradients_are_those_of_the_states(kind: str, cell: str) -> None:
    name = "additive"
    decoder = built(kind, name, layers=2, cell=cell)
    g = given(name).rows(torch.tensor([0, 2]))
    inputs = [t.clone().requires_grad_() for t in (g.y[:, :3], g.encoded.outputs, g.encoded.summary)]
    parameters = {key: p.detach().clone().requires_grad_() for key, p in decoder.named_parameters()}

    class Teach(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.decoder = decoder

        def forward(self, y: Tensor, outputs: Tensor, summary: Tensor) -> Tensor:
            return self.decoder.teacher_force(y, EncoderOutput(outputs, summary), g.lengths).states

    def run(y: Tensor, outputs: Tensor, summary: Tensor, *values: Tensor) -> Tensor:
        named = {f"decoder.{key}": value for key, value in zip(parameters, values, strict=True)}
        return torch.func.functional_call(Teach(), named, (y, outputs, summary))

    assert torch.autograd.gradcheck(run, (*inputs, *parameters.values()), fast_mode=True)


@pytest.mark.parametrize("kind", [*BLIND, *ATTENDING])
def test_state_dict_and_deepcopy_round_trip(kind: str) -> None:
    name = "location-sensitive"
    decoder, g = built(kind, name).eval(), given(name)
    with torch.no_grad():
        want = decoder.teacher_force(g.y, g.encoded, g.lengths).states
        assert torch.equal(copy.deepcopy(decoder).teacher_force(g.y, g.encoded, g.lengths).states, want)
        fresh = built(kind, name).eval()
        for p in fresh.parameters():
            nn.init.normal_(p)
        fresh.load_state_dict(decoder.state_dict())
        assert torch.equal(fresh.teacher_force(g.y, g.encoded, g.lengths).states, want)


@pytest.mark.parametrize("kind", ATTENDING)
def test_hard_attention_draws_while_it_trains_and_settles_after(kind: str) -> None:
    decoder, g = built(kind, "hard"), given("hard")

    def states() -> Tensor:
        return decoder.teacher_force(g.y, g.encoded, g.lengths).states

    assert not torch.equal(states(), states())
    decoder.eval()
    assert torch.equal(states(), states())


@pytest.mark.parametrize("kind", [*BLIND, *ATTENDING])
def test_a_step_leaves_its_state_as_it_was(kind: str) -> None:
    """A state is a value: two ways may go on from it."""
    decoder, g = built(kind, "location-sensitive").eval(), given("location-sensitive")
    with torch.no_grad():
        _, _, state = stepped(decoder, g, False)
        y = torch.randn(B, 1, D)
        one = decoder.step(words(y), state).out
        decoder.step(words(torch.randn(B, 1, D)), state)
        assert torch.equal(decoder.step(words(y), state).out, one)


def test_what_is_wrong_is_told() -> None:
    g = given("")
    for kind in BLIND:
        decoder = built(kind, "")
        for act in (
            lambda decoder=decoder: decoder.teacher_force(g.y, g.encoded, g.lengths, Need(weights=True)),
            lambda decoder=decoder: decoder.step(words(g.y[:, :1]), decoder.init_state(g.encoded, g.lengths), True),
        ):
            with pytest.raises(ValueError, match="decoder without attention has no weights; build it with decoder='ba"):
                act()
    for kind in ATTENDING:
        with pytest.raises(
            ValueError, match="DynamicCoAttention needs all queries together, but a decoder has one at a time"
        ):
            built(kind, "co-attention")
        made = {"bahdanau": Bahdanau, "luong": Luong}[kind.removesuffix("-feeding")]
        more = {} if made is Bahdanau else {"feeding": True}
        with pytest.raises(ValueError, match=r"queries are hidden=11 wide, the encoder's states 8: .*one width"):
            made(D, K, H, attention=MECHANISMS["dot"], layers=1, cell="gru", dropout=0.0, out_features=R, **more)


Vector = list[float]
Matrix = list[Vector]


def times(matrix: Tensor, x: Vector) -> Vector:
    return [sum(a * b for a, b in zip(row, x, strict=True)) for row in matrix.tolist()]


def add(*vectors: Vector) -> Vector:
    return [sum(parts) for parts in zip(*vectors, strict=True)]


def softmax(scores: Vector) -> Vector:
    powers = [math.exp(s) for s in scores]
    return [p / sum(powers) for p in powers]


def mixed(weights: Vector, rows: Matrix) -> Vector:
    return add(*([w * x for x in row] for w, row in zip(weights, rows, strict=True)))


def gru(rnn: nn.GRU, x: Vector, h: Vector) -> Vector:
    """Cho et al. 2014 with the reset gate behind the product, as cuDNN and torch have it."""
    a = add(times(rnn.weight_ih_l0, x), rnn.bias_ih_l0.tolist())
    b = add(times(rnn.weight_hh_l0, h), rnn.bias_hh_l0.tolist())
    n = len(h)
    r, z = ([1 / (1 + math.exp(-s)) for s in add(a[at : at + n], b[at : at + n])] for at in (0, n))
    new = [math.tanh(one + gate * two) for one, gate, two in zip(a[2 * n :], r, b[2 * n :], strict=True)]
    return [(1 - gate) * one + gate * old for gate, one, old in zip(z, new, h, strict=True)]


def stirred(decoder: RecurrentDecoder) -> RecurrentDecoder:
    for p in decoder.parameters():
        nn.init.normal_(p, std=0.4)
    return decoder


def test_bahdanau_as_the_paper_has_it() -> None:
    """Equations of 3.1 and A.2.2 in plain Python: e_ij = v·tanh(W s_{i−1} + U h_j), α = softmax, c, s_i, maxout."""
    decoder, g = stirred(built("bahdanau", "additive")), given("additive")
    taught = decoder.teacher_force(g.y, g.encoded, g.lengths, Need(weights=True))
    score, bridge = decoder.attention.score, decoder.bridge.linear
    for b, length in enumerate(LENGTHS.tolist()):
        h = g.encoded.outputs[b, :length].tolist()
        s = [math.tanh(x) for x in add(times(bridge.weight, g.encoded.summary[b].tolist()), bridge.bias.tolist())]
        for t in range(T):
            y = g.y[b, t].tolist()
            asked = times(score.query.weight, s)
            energies = [
                sum(v * math.tanh(x) for v, x in zip(score.energy.tolist(), add(asked, there), strict=True))
                for there in (times(score.key.weight, h_j) for h_j in h)
            ]
            alpha = softmax(energies)
            context = mixed(alpha, h)
            s = gru(decoder.stack.rnn, y + context, s)
            deep = add(times(decoder.readout.weight, s + y + context), decoder.readout.bias.tolist())
            read = [max(deep[2 * n], deep[2 * n + 1]) for n in range(R)]
            torch.testing.assert_close(taught.weights[b, t, :length].tolist(), alpha)
            torch.testing.assert_close(taught.states[b, t].tolist(), read)


@pytest.mark.parametrize("feeding", [True, False], ids=["feeding", "no feeding"])
def test_luong_as_the_paper_has_it(feeding: bool) -> None:
    """Equations 5 to 8 with the general score, and input feeding (3.3): h̃_t = tanh(W_c [c_t; h_t])."""
    decoder, g = stirred(built("luong-feeding" if feeding else "luong", "general")), given("general")
    taught = decoder.teacher_force(g.y, g.encoded, g.lengths, Need(weights=True))
    score, bridge = decoder.attention.score, decoder.bridge.linear
    for b, length in enumerate(LENGTHS.tolist()):
        source = g.encoded.outputs[b, :length].tolist()
        h = [math.tanh(x) for x in add(times(bridge.weight, g.encoded.summary[b].tolist()), bridge.bias.tolist())]
        tilde = [0.0] * R
        for t in range(T):
            h = gru(decoder.stack.rnn, g.y[b, t].tolist() + (tilde if feeding else []), h)
            scores = [sum(q * k for q, k in zip(h, times(score.key.weight, h_s), strict=True)) for h_s in source]
            alpha = softmax(scores)
            joined = mixed(alpha, source) + h
            tilde = [math.tanh(x) for x in add(times(decoder.readout.weight, joined), decoder.readout.bias.tolist())]
            torch.testing.assert_close(taught.weights[b, t, :length].tolist(), alpha)
            torch.testing.assert_close(taught.states[b, t].tolist(), tilde)


@pytest.mark.parametrize("kind", ["fixed", "initial"])
def test_decoders_of_a_summary_as_their_papers_have_them(kind: str) -> None:
    """The last state of the encoder goes into every step (Cho et al. 2014), or into the first state alone."""
    decoder, g = stirred(built(kind, "")), given("")
    taught = decoder.teacher_force(g.y, g.encoded, g.lengths)
    for b in range(B):
        c, bridge = g.encoded.summary[b].tolist(), decoder.bridge.linear
        s = [math.tanh(x) for x in add(times(bridge.weight, c), bridge.bias.tolist())]
        fed = c if kind == "fixed" else []
        for t in range(T):
            s = gru(decoder.stack.rnn, g.y[b, t].tolist() + fed, s)
            read = [math.tanh(x) for x in add(times(decoder.readout.weight, s + fed), decoder.readout.bias.tolist())]
            torch.testing.assert_close(taught.states[b, t].tolist(), read)


@pytest.fixture(params=[True, False], ids=["projected", "whole"])
def pays(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Sources go through the matrices wherever that is possible, or nowhere."""
    monkeypatch.setattr("regard.layers.rnn.source_projection.projection_is_cheaper", lambda *_: request.param)
    return bool(request.param)


# the context is a sum of values; Bahdanau's matrices are wider than values, which a dot product's kernel pads
PROJECTED = {"bahdanau": TANH, "luong": SUMS, "luong-feeding": SUMS}


def wide(kind: str, name: str, layers: int = 1, cell: str = "gru") -> tuple[RecurrentDecoder, Given]:
    """Values as wide as what Luong makes of them, so that a dot product may be projected."""
    torch.manual_seed(1)
    sizes = {"layers": layers, "cell": cell, "dropout": 0.0, "out_features": K}
    more = {} if kind == "bahdanau" else {"feeding": kind == "luong-feeding"}
    made = {"bahdanau": Bahdanau, "luong": Luong, "luong-feeding": Luong}[kind]
    hidden, source = dims(name)
    return made(D, source, hidden, attention=MECHANISMS[name], **sizes, **more).eval(), given(name)


@pytest.mark.parametrize("kind", ATTENDING)
def test_only_sums_of_values_are_projected(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.layers.rnn.source_projection.projection_is_cheaper", lambda *_: True)
    made = {name: wide(kind, name) for name in STEPWISE}
    assert {name for name, (one, g) in made.items() if one.init_state(g.encoded, g.lengths).is_projected} == PROJECTED[
        kind
    ]


@pytest.mark.parametrize("cell", ["gru", "lstm"])
@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind in ATTENDING for name in sorted(PROJECTED[kind])])
def test_a_source_that_went_through_the_matrices_says_the_same(kind: str, name: str, cell: str, pays: bool) -> None:
    """W Σ α h = Σ α W h, in every step of a search and in its gradients."""
    decoder, g = wide(kind, name, 2, cell)
    assert decoder.init_state(g.encoded, g.lengths).is_projected == pays
    taught = decoder.teacher_force(g.y, g.encoded, g.lengths, Need(weights=True))
    state = decoder.init_state(g.encoded, g.lengths).reorder(torch.zeros(B, 2, dtype=torch.long))
    out, seen = [], []
    for t in range(T):
        got = decoder.step(words(g.y[:, t : t + 1].expand(-1, 2, -1)), state, True)
        state = got.state.reorder(torch.tensor([[1, 0]] * B))
        out.append(got.out)
        seen.append(got.weights)
    for n in (0, 1):
        torch.testing.assert_close(torch.stack(out, 1)[:, :, n], taught.states)
        torch.testing.assert_close(torch.stack(seen, 1)[:, :, n], taught.weights)
    parameters = list(decoder.parameters())
    mean = torch.stack(out, 1).mean(2)
    for one, other in zip(
        torch.autograd.grad(mean.square().sum(), parameters),
        torch.autograd.grad(taught.states.square().sum(), parameters),
        strict=True,
    ):
        torch.testing.assert_close(one, other)


def test_projecting_pays_where_contexts_are_many() -> None:
    # Bahdanau's gates and readout of 256 on states of 512: a beam of five, but no greedy search; no document
    assert source_projection.projection_is_cheaper(positions=14, k=512, m=1280, contexts=70)
    assert not source_projection.projection_is_cheaper(positions=14, k=512, m=1280, contexts=14)
    assert not source_projection.projection_is_cheaper(positions=400, k=512, m=1280, contexts=2000)
    # Luong's readout makes values narrower
    assert source_projection.projection_is_cheaper(positions=14, k=512, m=256, contexts=14)
    assert not source_projection.projection_is_cheaper(positions=400, k=512, m=256, contexts=20)


@pytest.mark.parametrize("kind", ATTENDING)
def test_who_listens_hears_whole_contexts_and_the_readout(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By `record`, and by a hook on the readout, which is then called itself, in steps and in teaching."""
    monkeypatch.setattr("regard.layers.rnn.source_projection.projection_is_cheaper", lambda *_: True)
    decoder, g = wide(kind, "additive")
    assert decoder.init_state(g.encoded, g.lengths).is_projected
    heard: list[int] = []
    with torch.no_grad():
        want = stepped(decoder, g, False)[0]
        with regard.record(decoder):
            assert not decoder.init_state(g.encoded, g.lengths).is_projected
            torch.testing.assert_close(stepped(decoder, g, False)[0], want)
        handle = decoder.readout.register_forward_hook(lambda _m, came, _out: heard.append(came[0].shape[-1]))  # type: ignore[union-attr, func-returns-value]
        assert not decoder.init_state(g.encoded, g.lengths).is_projected
        torch.testing.assert_close(stepped(decoder, g, False)[0], want)
        assert len(heard) == T
        torch.testing.assert_close(decoder.teacher_force(g.y, g.encoded, g.lengths).states, want)
        assert len(heard) == T + (T if kind == "luong-feeding" else 1)
        handle.remove()
    assert set(heard) == {decoder.readout.in_features}  # type: ignore[union-attr]


def test_a_word_said_by_many_is_one_row_unless_somebody_listens() -> None:
    tokens = torch.tensor([[4, 2, 4], [2, 2, 0]])
    embedding = nn.Embedding(5, D)
    got = DistinctTokens.of(tokens, embedding)
    assert got.vectors.shape == (3, D)
    assert torch.equal(got.expand(got.vectors), embedding(tokens).flatten(0, 1))
    heard: list[Tensor] = []
    embedding.register_forward_hook(lambda _m, came, _out: heard.append(came[0]))  # type: ignore[func-returns-value]
    got = DistinctTokens.of(tokens, embedding)
    assert torch.equal(heard[0], tokens)
    assert torch.equal(got.expand(got.vectors), embedding(tokens).flatten(0, 1))


@pytest.mark.parametrize("name", ["additive", "location-sensitive", "monotonic"])
def test_a_source_is_searched_for_nan_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    decoder, g = built("bahdanau", name).eval(), given(name)
    looks: list[int] = []
    monkeypatch.setattr("regard.attn.kv_cache.finite", lambda *tensors: not looks.append(1))
    with torch.no_grad():
        stepped(decoder, g, False)
    assert len(looks) == 1


@pytest.mark.parametrize("length", [2, T, S + 4])
def test_per_position_is_the_formula(length: int) -> None:
    """r_t = tanh(W h_t + b), with h_t = 0 behind the source, whichever side is longer."""
    decoder, g = built("per-position", ""), given("")
    y, read = torch.randn(B, length, D), decoder.readout
    got = decoder.teacher_force(y, g.encoded, g.lengths).states
    for b in range(B):
        for t in range(length):
            h = g.encoded.outputs[b, t].tolist() if t < S else [0.0] * K
            want = [math.tanh(x) for x in add(times(read.weight, h), read.bias.tolist())]
            torch.testing.assert_close(got[b, t].tolist(), want)
