"""Recurrent stacks: padding changes nothing, and one step at a time equals all at once."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import prune

from regard.kernels import native_library
from regard.layers.rnn.cells import CELLS, States
from regard.layers.rnn.encoder import Encoder
from regard.layers.rnn.stack import Bridge, Stack

pytestmark = pytest.mark.usefixtures("float64")

# sizes that share no factor: a swapped axis must fail
B, T, D, H, F = 3, 5, 7, 4, 2
LENGTHS = torch.tensor([3, 5, 1])


def stirred(module: nn.Module) -> nn.Module:
    """With biases that are not zero: one that is lost must be missed."""
    for p in module.parameters():
        nn.init.normal_(p, std=0.5)
    return module


def states(stack: Stack) -> States:
    return tuple(
        tuple(torch.randn(B, H, requires_grad=True) for _ in range(stack.parts)) for _ in range(stack.rnn.num_layers)
    )


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("bidirectional", [True, False], ids=["both ways", "one way"])
def test_a_batch_of_lengths_is_one_by_one(cell: str, layers: int, bidirectional: bool) -> None:
    encoder = stirred(Encoder(D, H, layers=layers, cell=cell, bidirectional=bidirectional, dropout=0.3)).eval()
    x = torch.randn(B, T, D)
    got = encoder(x, LENGTHS)
    assert got.outputs.shape == (B, T, encoder.out_features)
    assert got.summary.shape == (B, encoder.out_features)
    for n, length in enumerate(LENGTHS.tolist()):
        alone = encoder(x[n : n + 1, :length], LENGTHS[n : n + 1])
        torch.testing.assert_close(got.outputs[n, :length], alone.outputs[0])
        torch.testing.assert_close(got.summary[n], alone.summary[0])
        assert not got.outputs[n, length:].any()
        # the summary is where each direction ends
        torch.testing.assert_close(got.summary[n, :H], got.outputs[n, length - 1, :H])
        if bidirectional:
            torch.testing.assert_close(got.summary[n, H:], got.outputs[n, 0, H:])


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("bidirectional", [True, False], ids=["both ways", "one way"])
def test_an_encoder_is_that_of_torch(cell: str, bidirectional: bool) -> None:
    """Two layers over packed sequences, and all gradients."""
    encoder = stirred(Encoder(D, H, layers=2, cell=cell, bidirectional=bidirectional))
    x = torch.randn(B, T, D, requires_grad=True)
    packed = nn.utils.rnn.pack_padded_sequence(x, LENGTHS, batch_first=True, enforce_sorted=False)
    out, last = encoder.rnn(packed)
    hidden = last[0] if cell == "lstm" else last
    want = (
        nn.utils.rnn.pad_packed_sequence(out, batch_first=True)[0],
        torch.cat([*hidden[2 if bidirectional else 1 :]], -1),
    )
    got, inputs = encoder(x, LENGTHS), [x, *encoder.parameters()]
    ways = [torch.randn_like(part) for part in want]
    for one, other in zip(
        (*got, *torch.autograd.grad(got, inputs, ways)), (*want, *torch.autograd.grad(want, inputs, ways)), strict=True
    ):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("cell", CELLS)
def test_without_the_native_library_torch_runs(cell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder, stack, x = Encoder(D, H, cell=cell), Stack(D, H, cell=cell), torch.randn(B, T, D)
    first = states(stack)
    native = encoder(x, LENGTHS), stack.run(x, first), go(stack, x, None, first)
    monkeypatch.setattr(native_library, "_library_or_reason", lambda: "none here")
    for one, other in zip(native, (encoder(x, LENGTHS), stack.run(x, first), go(stack, x, None, first)), strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("cell", CELLS)
def test_a_layer_that_somebody_listens_to_is_called(cell: str) -> None:
    encoder, stack, x = Encoder(D, H, cell=cell), Stack(D, H, cell=cell), torch.randn(B, T, D)
    want, first, heard = encoder(x, LENGTHS).outputs, states(stack), []
    for rnn in (encoder.rnn, stack.rnn):
        rnn.register_forward_hook(lambda *_: heard.append(1))
    torch.testing.assert_close(encoder(x, LENGTHS).outputs, want)
    stack.run(x, first)
    assert len(heard) == 2


@pytest.mark.parametrize("cell", CELLS)
def test_weights_that_are_pruned_stay_so(cell: str) -> None:
    encoder = Encoder(D, H, cell=cell)
    prune.l1_unstructured(encoder.rnn, "weight_hh_l0", 0.5)
    for _ in range(2):
        encoder(torch.randn(B, T, D), LENGTHS).outputs.sum().backward()
        with torch.no_grad():
            encoder.rnn.weight_hh_l0_orig += 1
    encoder(torch.randn(B, T, D), LENGTHS)
    assert (encoder.rnn.weight_hh_l0 == 0).sum() >= encoder.rnn.weight_hh_l0.numel() // 2


@pytest.mark.parametrize("cell", CELLS)
def test_states_of_another_batch_are_refused(cell: str) -> None:
    stack = Stack(D, H, cell=cell)
    with pytest.raises(RuntimeError, match="Expected hidden"):
        stack.run(torch.randn(B - 1, T, D), states(stack))


def test_what_stands_in_the_padding_is_not_seen() -> None:
    encoder = Encoder(D, H)
    x = torch.randn(B, T, D)
    noise = torch.where(torch.arange(T)[None, :, None] < LENGTHS[:, None, None], x, torch.nan)
    for one, other in zip(encoder(x, LENGTHS), encoder(noise, LENGTHS), strict=True):
        assert torch.equal(one, other)


def go(stack: Stack, x: Tensor, fed: Tensor | None, first: States) -> Tensor:
    """All steps, one after the other."""
    steps, out = stack.steps(x), []
    for t in range(x.shape[1]):
        h, first = steps.step(t, None if fed is None else fed[:, t], first)
        out.append(h)
    return torch.stack(out, dim=1)


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("fed", [0, F], ids=["nothing fed", "fed"])
def test_steps_are_the_run(cell: str, layers: int, fed: int) -> None:
    """Values and the gradients of input, states and every parameter; and both are torch's own."""
    stack = stirred(Stack(D, H, fed=fed, layers=layers, cell=cell, dropout=0.3)).eval()
    x, first = torch.randn(B, T, D, requires_grad=True), states(stack)
    more = torch.randn(B, T, F, requires_grad=True) if fed else None
    whole = x if more is None else torch.cat([x, more], dim=-1)
    stacked = tuple(torch.stack(part) for part in zip(*first, strict=True))
    want, _ = stack.rnn(whole, stacked if cell == "lstm" else stacked[0])
    inputs = [x, *(p for layer in first for p in layer), *stack.parameters(), *([] if more is None else [more])]
    way = torch.randn_like(want)
    theirs = torch.autograd.grad(want, inputs, way, allow_unused=True)
    for got in (go(stack, x, more, first), stack.run(whole, first)):
        torch.testing.assert_close(got, want)
        for one, other in zip(torch.autograd.grad(got, inputs, way, allow_unused=True), theirs, strict=True):
            torch.testing.assert_close(one, other)


@pytest.mark.parametrize("cell", CELLS)
def test_steps_drop_between_layers_while_training(cell: str) -> None:
    stack = Stack(D, H, layers=2, cell=cell, dropout=0.5)
    x, first = torch.randn(B, T, D), states(stack)
    assert not torch.equal(go(stack, x, None, first), go(stack, x, None, first))
    assert torch.equal(go(stack.eval(), x, None, first), go(stack, x, None, first))
    one = Stack(D, H, layers=1, cell=cell, dropout=0.5)
    assert torch.equal(go(one, x, None, first[:1]), go(one, x, None, first[:1]))


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("layers", [1, 3])
def test_a_bridge_gives_every_layer_its_state(cell: str, layers: int) -> None:
    stack = Stack(D, H, layers=layers, cell=cell)
    bridge, summary = Bridge(F, stack), torch.randn(B, F)
    got = bridge(summary)
    assert len(got) == layers
    assert all(len(layer) == stack.parts for layer in got)
    flat = torch.cat([part for layer in got for part in layer], dim=-1)
    torch.testing.assert_close(flat, torch.tanh(summary @ bridge.linear.weight.T + bridge.linear.bias))
    assert stack.run(torch.randn(B, T, D), got).shape == (B, T, H)


@pytest.mark.parametrize("cell", CELLS)
def test_where_training_begins(cell: str) -> None:
    """Orthogonal recurrent matrices, biases zero but for an LSTM's forget gate."""
    rnn = Encoder(D, H, layers=2, cell=cell).rnn
    for name, p in rnn.named_parameters():
        if name.startswith("weight_hh"):
            for gate in p.split(H):
                torch.testing.assert_close(gate @ gate.T, torch.eye(H), rtol=0, atol=1e-6)
        elif name.startswith("bias"):
            open_gate = cell == "lstm" and name.startswith("bias_ih")
            assert (p[H : 2 * H] == float(open_gate)).all()
            assert not p[:H].any()
            assert not p[2 * H :].any()


def test_narrow_numbers() -> None:
    """Under autocast, as `precision="bfloat16"` trains: the same within what bfloat16 holds, gradients in float32."""
    torch.set_default_dtype(torch.float32)
    for cell in CELLS:
        stack = Stack(D, H, fed=F, layers=2, cell=cell)
        x, fed, first = torch.randn(B, T, D), torch.randn(B, T, F), states(stack)
        want = go(stack, x, fed, first)
        with torch.autocast("cpu", torch.bfloat16):
            got = go(stack, x, fed, first)
        torch.testing.assert_close(got.float(), want, rtol=0.05, atol=0.05)
        for p in torch.autograd.grad(got.float().sum(), list(stack.parameters())):
            assert p.dtype == torch.float32
            assert p.any()


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("width", [5, 64])
def test_whole_runs_under_autocast(cell: str, width: int) -> None:
    """Widths at which a processor would choose a primitive of its own for an LSTM, and some have none in bfloat16."""
    torch.manual_seed(0)
    x = torch.randn(B, T, width, dtype=torch.float32)
    encoder = Encoder(width, width, cell=cell).float()
    stack = Stack(2 * width, width, cell=cell).float()
    first = (tuple(torch.zeros(B, width, dtype=torch.float32) for _ in range(stack.parts)),)
    got = []
    for narrow in (True, False):
        with torch.autocast("cpu", torch.bfloat16, enabled=narrow):
            out = encoder(x.bfloat16() if narrow else x, LENGTHS).outputs
            got.append(stack.run(out, first))
    torch.testing.assert_close(got[0].float(), got[1], rtol=0.05, atol=0.05)
