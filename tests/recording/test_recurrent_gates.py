"""The gates of GRU and LSTM: exact against explicit loops, in all forms of torch's layers and this library's."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

import regard
from regard.layers.rnn.encoder import Encoder
from regard.layers.rnn.stack import Stack
from regard.models.seq2seq import Seq2Seq
from regard.recording.recording import Recording

NAMES = {"gru": ("reset", "update"), "lstm": ("input", "forget", "output")}
KINDS: dict[str, Any] = {"gru": nn.GRU, "lstm": nn.LSTM}
B, T, D, H = 3, 5, 7, 2
LENGTHS = [3, 5, 2]


def sigmoid(x: Tensor) -> Tensor:
    return 1 / (1 + torch.exp(-x))


def loop(rnn: nn.RNNBase, suffix: str, x: Tensor, state: list[Tensor], backward: bool) -> tuple[Tensor, Tensor]:
    """One sequence, "t d", unit by unit as the formulas say: gates "g u t" and h "t h"."""
    w, u = getattr(rnn, f"weight_ih_{suffix}"), getattr(rnn, f"weight_hh_{suffix}")
    b, c = (getattr(rnn, f"bias_{side}_{suffix}", torch.zeros(len(w), dtype=w.dtype)) for side in ("ih", "hh"))
    n = rnn.hidden_size
    gates, outputs = [], []
    for t in reversed(range(len(x))) if backward else range(len(x)):
        products = [(w[k * n : (k + 1) * n] @ x[t] + b[k * n : (k + 1) * n]) for k in range(len(w) // n)]
        past = [(u[k * n : (k + 1) * n] @ state[0] + c[k * n : (k + 1) * n]) for k in range(len(w) // n)]
        if len(state) == 1:
            r, z = sigmoid(products[0] + past[0]), sigmoid(products[1] + past[1])
            new = torch.tanh(products[2] + r * past[2])
            state = [(1 - z) * new + z * state[0]]
            gates.append(torch.stack([r, z]))
        else:
            i, f, o = (sigmoid(products[k] + past[k]) for k in (0, 1, 3))
            memory = f * state[1] + i * torch.tanh(products[2] + past[2])
            h = o * torch.tanh(memory)
            if hasattr(rnn, f"weight_hr_{suffix}"):
                h = getattr(rnn, f"weight_hr_{suffix}") @ h
            state = [h, memory]
            gates.append(torch.stack([i, f, o]))
        outputs.append(state[0])
    order = range(len(x) - 1, -1, -1) if backward else range(len(x))
    return torch.stack([gates[n] for n in order], -1), torch.stack([outputs[n] for n in order])


def expected(rnn: nn.RNNBase, sequences: list[Tensor], first: Any = None) -> dict[str, Tensor]:
    """Of every layer, direction and gate the values "b u t", zero behind the end of a sequence."""
    longest = max(map(len, sequences))
    names = NAMES["gru" if isinstance(rnn, nn.GRU) else "lstm"]
    directions = ["", "_reverse"] if rnn.bidirectional else [""]
    found: dict[str, Tensor] = {}
    for row, sequence in enumerate(sequences):
        x = sequence
        for n in range(rnn.num_layers):
            outputs = []
            for d, direction in enumerate(directions):
                at = n * len(directions) + d
                widths = [getattr(rnn, "proj_size", 0) or rnn.hidden_size, rnn.hidden_size]
                state = [x.new_zeros(width) for width in (widths if isinstance(rnn, nn.LSTM) else widths[1:])]
                if first is not None:
                    state = [part[at, row] for part in (first if isinstance(first, tuple) else (first,))]
                gates, h = loop(rnn, f"l{n}{direction}", x, state, bool(d))
                for k, name in enumerate(names):
                    key = f"l{n}{direction}.{name}"
                    found.setdefault(key, x.new_zeros(len(sequences), rnn.hidden_size, longest))
                    found[key][row, :, : len(x)] = gates[k]
                outputs.append(h)
            x = torch.cat(outputs, -1)
    return found


def check(recording: Recording, wanted: dict[str, Tensor], prefix: str = "", atol: float = 1e-10) -> None:
    assert list(recording.names) == [f"{prefix}{name}" for name in wanted]
    for name, values in wanted.items():
        (recorded,) = recording[f"{prefix}{name}"]
        assert (recorded.kind, recorded.shape) == ("cell", (len(values), 1, *values.shape[1:]))
        torch.testing.assert_close(recorded.weights.dense()[:, 0], values, rtol=0, atol=atol)
        assert recorded.verified
        assert recorded.certificate is not None
        assert recorded.certificate < atol


def built(kind: str, dtype: torch.dtype = torch.float64, **options: Any) -> nn.RNNBase:
    torch.manual_seed(1)
    return KINDS[kind](D, H, dtype=dtype, **options).eval()  # type: ignore[no-any-return]


def given(dtype: torch.dtype = torch.float64, *shape: int) -> Tensor:
    return torch.randn(*(shape or (B, T, D)), dtype=dtype, generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "options",
    [{}, {"bias": False}, {"num_layers": 3}, {"bidirectional": True, "num_layers": 2}],
    ids=["plain", "no-bias", "layers", "both-ways"],
)
@pytest.mark.parametrize("batch_first", [True, False])
@torch.no_grad()
def test_sequences_equal_loops(kind: str, options: dict[str, Any], batch_first: bool) -> None:
    rnn, x = built(kind, batch_first=batch_first, **options), given()
    states = (2 if options.get("bidirectional") else 1) * options.get("num_layers", 1)
    parts = tuple(given(torch.float64, states, B, H) for _ in range(2 if kind == "lstm" else 1))
    for first in (None, parts if kind == "lstm" else parts[0]):
        with regard.record(rnn, gates=True) as recording:
            out = rnn(x if batch_first else x.transpose(0, 1), first)[0]
        check(recording, expected(rnn, list(x), first))
        assert torch.equal(out, rnn(x if batch_first else x.transpose(0, 1), first)[0])


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_packed_sequences_in_the_order_of_the_batch(kind: str) -> None:
    rnn, x = built(kind, batch_first=True, bidirectional=True), given()
    states = tuple(given(torch.float64, 2, B, H) for _ in range(2 if kind == "lstm" else 1))
    for first in (None, states if kind == "lstm" else states[0]):
        packed = pack_padded_sequence(x, torch.tensor(LENGTHS), batch_first=True, enforce_sorted=False)
        with regard.record(rnn, gates=True) as recording:
            out = rnn(packed, first)[0]
        check(recording, expected(rnn, [x[n, :length] for n, length in enumerate(LENGTHS)], first))
        assert isinstance(out, PackedSequence)
        assert torch.equal(pad_packed_sequence(out)[0], pad_packed_sequence(rnn(packed, first)[0])[0])


@torch.no_grad()
def test_projections_single_sequences_and_keywords() -> None:
    rnn, x = built("lstm", proj_size=1, num_layers=2), given(torch.float64, T, D)
    with regard.record(rnn, gates=True) as recording:
        rnn(input=x)
    check(recording, expected(rnn, [x]))
    first = given(torch.float64, 1, H)
    single = built("gru")
    with regard.record(single, gates=True) as recording:
        single(x, hx=first)
    check(recording, expected(single, [x], first.unsqueeze(1)))


@pytest.mark.parametrize("kind", KINDS)
def test_float32_within_1e_6(kind: str) -> None:
    rnn = built(kind, torch.float32, num_layers=2)
    x = given(torch.float32)
    with torch.inference_mode(), regard.record(rnn, gates=True) as recording:
        rnn(x.transpose(0, 1))
    wanted = expected(rnn.double(), list(x.double()))
    check(recording, {name: values.float().detach() for name, values in wanted.items()}, atol=1e-6)


class Loop(nn.Module):
    def __init__(self, cell: nn.Module) -> None:
        super().__init__()
        self.cell = cell

    def forward(self, x: Tensor) -> Tensor:  # "b t d"
        state = None
        for t in range(x.shape[1]):
            state = self.cell(x[:, t], state)
        return state[0] if isinstance(state, tuple) else state


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_cells_in_a_loop_are_one_map_per_sequence(kind: str) -> None:
    rnn, x = built(kind), given()
    cell = {"gru": nn.GRUCell, "lstm": nn.LSTMCell}[kind](D, H, dtype=torch.float64)
    for name, weight in cell.named_parameters():
        weight.copy_(getattr(rnn, f"{name}_l0"))
    model = Loop(cell)
    plain = model(x)
    with regard.record(model, gates=True) as recording:
        out = model(x)
        model(x.flip(1))
    assert torch.equal(out, plain)
    wanted = expected(rnn, list(x))
    assert [m.call for m in recording] == [0] * len(wanted) + [1] * len(wanted)
    check(recording.select(calls=0), {name.partition(".")[2]: values for name, values in wanted.items()}, "cell.")


@pytest.mark.parametrize("cell", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@torch.no_grad()
def test_encoder_natively_and_by_torch(cell: str, dtype: torch.dtype) -> None:
    torch.manual_seed(3)
    encoder, x = Encoder(D, H, layers=2, cell=cell).to(dtype).eval(), given(dtype)
    plain = encoder(x, torch.tensor(LENGTHS)).outputs
    with regard.record(encoder, gates=True) as recording:
        out = encoder(x, torch.tensor(LENGTHS)).outputs
    assert torch.equal(out, plain)
    wanted = expected(encoder.rnn.double(), [x[n, :length].double() for n, length in enumerate(LENGTHS)])
    check(
        recording,
        {name: values.to(dtype) for name, values in wanted.items()},
        "rnn.",
        1e-6 if dtype == torch.float32 else 1e-10,
    )


class Whole(nn.Module):
    """A stack over a whole sequence, or step by step."""

    def __init__(self, cell: str, stepwise: bool) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.stack, self.stepwise = Stack(D, H, layers=2, cell=cell), stepwise

    def forward(self, x: Tensor) -> Tensor:
        states = tuple(tuple(x.new_zeros(B, H) for _ in range(self.stack.parts)) for _ in range(2))
        if not self.stepwise:
            return self.stack.run(x, states)
        steps, outputs = self.stack.steps(x), []
        for t in range(x.shape[1]):
            h, states = steps.step(t, None, states)
            outputs.append(h)
        return torch.stack(outputs, 1)


@pytest.mark.parametrize("cell", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@torch.no_grad()
def test_steps_of_a_stack_equal_the_whole(cell: str, dtype: torch.dtype) -> None:
    x = given(dtype)
    for stepwise in (False, True):
        model = Whole(cell, stepwise).to(dtype)
        plain = model(x)
        with regard.record(model, gates=True) as recording:
            assert torch.equal(model(x), plain)
        wanted = expected(model.stack.rnn.double(), list(x.double()))
        atol = 1e-6 if dtype == torch.float32 else 1e-10
        check(recording, {name: values.to(dtype) for name, values in wanted.items()}, "stack.rnn.", atol)


def translator() -> Seq2Seq:
    torch.manual_seed(5)
    return Seq2Seq(11, 13, width=4, hidden=6, cell="gru").eval()


def test_beside_attention_off_by_default_and_selected() -> None:
    model = translator()
    source, lengths, target = torch.randint(3, 11, (2, 5)), torch.tensor([5, 4]), torch.randint(3, 13, (2, 4))
    with torch.no_grad():
        plain = model(source, lengths, target)
        with regard.record(model) as without:
            model(source, lengths, target)
        with regard.record(model, gates=True) as recording:
            out = model(source, lengths, target)
        with regard.record(model, gates=True, layers="encoder*") as encoder:
            model(source, lengths, target)
    torch.testing.assert_close(out, plain, rtol=0, atol=0)
    assert {m.kind for m in without} == {"alignment"}
    assert len(without) == 1
    gates = recording.select(kind="cell")
    assert {name.rpartition(".")[2] for name in gates.names} == {"reset", "update"}
    assert {m.shape[-1] for m in gates if "encoder" in m.name} == {5}
    assert {m.shape[-1] for m in gates if "encoder" not in m.name} == {4}
    assert all(name.startswith("encoder") for name in encoder.names)
    assert all(m.verified for m in recording)


def test_labels_files_and_figures(tmp_path: Path) -> None:
    model = translator()
    source, lengths, target = torch.randint(3, 11, (1, 5)), torch.tensor([5]), torch.randint(3, 13, (1, 4))
    with torch.no_grad(), regard.record(model, gates=True) as recording:
        model(source, lengths, target)
    recording = recording.with_labels(list("abcd"), list("vwxyz"))
    gates = recording.select(kind="cell")
    for recorded in gates:
        tokens = tuple("vwxyz") if "encoder" in recorded.name else tuple("abcd")
        assert recording.labels(recorded) == (None, tokens)
    assert recording.with_labels(list("abc")).labels(gates[0]) == (None, None)
    loaded = Recording.load(recording.save(tmp_path / "a.safetensors"))
    assert [m.kind for m in loaded] == [m.kind for m in recording]
    torch.testing.assert_close(loaded[0].weights.dense(), recording[0].weights.dense())
    view = regard.show(recording, layer=gates.names[0])
    assert "cell" in view.text()
    page = regard.show(recording).save(tmp_path / "a.html").read_text(encoding="utf-8")
    assert "gate of a cell" in page
    assert regard.show(recording, what="map", layer=gates.names[0]).save(tmp_path / "a.png").stat().st_size > 1000
    words = recording.with_labels(["▁a", "b", "▁c", "d"], ["▁v", "w", "x", "▁y", "z"]).merge_words()
    assert words.select(kind="cell")[0].shape == gates[0].shape


def test_plain_recurrence_has_no_gates() -> None:
    rnn = nn.RNN(D, H)
    with pytest.warns(UserWarning, match="record found"), regard.record(rnn, gates=True) as recording:
        rnn(given(torch.float32))
    assert not len(recording)


def test_dropout_between_layers_is_refused() -> None:
    rnn = nn.GRU(D, H, 2, dropout=0.5)
    message = r"gates=True computes the gates of 'the model' again, .* \(dropout=0.5\); call model.eval\(\), or leave"
    with pytest.raises(ValueError, match=message), regard.record(rnn, gates=True):
        rnn(given(torch.float32))


def test_gates_count_in_the_budget() -> None:
    rnn = nn.GRU(D, H)
    with (
        pytest.raises(MemoryError, match="the budget of 100 bytes is spent"),
        regard.record(rnn, gates=True, budget=100),
    ):
        rnn(given(torch.float32))


def test_gradients_flow_as_without() -> None:
    rnn, x = built("lstm"), given().requires_grad_()
    with regard.record(rnn, gates=True) as recording:
        out = rnn(x.transpose(0, 1))[0]
    (gradient,) = torch.autograd.grad(out.sum(), x)
    (plain,) = torch.autograd.grad(rnn(x.transpose(0, 1))[0].sum(), x)
    assert torch.equal(gradient, plain)
    assert not recording[0].weights.dense().requires_grad
