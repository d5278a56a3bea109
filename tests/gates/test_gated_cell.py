"""Gated heads and the cell module of them, against their derivation and their laws."""

import itertools
import math

import pytest
import torch
from tests.gates.loops import dense, sigma
from torch import nn
from torch.autograd import gradcheck

from regard import Need, record
from regard.gates import CellState, GatedCell, GatedHeads

B, N, D, H, W = 2, 5, 3, 4, 7


def heads_loop(heads: GatedHeads, x: torch.Tensor, before: list[float]) -> list[list[float]]:
    """What every head reads of one sample, by loops."""
    states = [[sigma(v) for v in dense(heads.squash, row)] for row in x.tolist()]
    reads = []
    for h in range(H):
        part = [row[h * W : (h + 1) * W] for row in states]
        scores = []
        for one in part:
            key = [math.tanh(k + b) for k, b in zip(dense(heads.key, one), before, strict=True)]
            scores.append(sum(q * k for q, k in zip(heads.query[h].tolist(), key, strict=True)) / math.sqrt(W))
        exps = [math.exp(s) for s in scores]
        reads.append([sum(e * one[w] for e, one in zip(exps, part, strict=True)) / sum(exps) for w in range(W)])
    return reads


def test_heads() -> None:
    heads, x = GatedHeads(D, H, W), torch.randn(B, N, D)
    want = torch.tensor([[*itertools.chain(*heads_loop(heads, one, [0.0] * W))] for one in x])
    got = heads.attend(x, need=Need(weights=True))
    torch.testing.assert_close(got.out, want, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(heads(x), got.out)
    assert got.weights.shape == (B, H, N)
    torch.testing.assert_close(got.weights.sum(-1), torch.ones(B, H))


def test_cell() -> None:
    cell, x = GatedCell(D, H, W), torch.randn(B, N, D)
    state = CellState(torch.rand(B, H, W), torch.rand(B, H * W))
    out, after = cell(x, state)
    for b in range(B):
        y = state.out[b].tolist()
        mean = x[b].mean(0).tolist()
        before = [m + o for m, o in zip(dense(cell.mean_key, mean), dense(cell.out_key, y), strict=True)]
        read = heads_loop(cell.look, x[b], before)
        gate = [sigma(v) for v in dense(cell.gate, mean + y)]
        memory = [
            [(1 - g) * c + g * a for c, a in zip(state.memory[b, h].tolist(), read[h], strict=True)]
            for h, g in enumerate(gate)
        ]
        update = [
            math.tanh(u + a)
            for u, a in zip(dense(cell.update, [*itertools.chain(*read)]), dense(cell.again, y), strict=True)
        ]
        want = [sigma(c + u) for c, u in zip(itertools.chain(*memory), update, strict=True)]
        torch.testing.assert_close(out[b], torch.tensor(want), rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(after.memory[b], torch.tensor(memory), rtol=1e-6, atol=1e-6)
    assert after.out is out


def test_state_is_a_value() -> None:
    """Nothing is kept in the cell, and what was passed in is not written to."""
    cell, x = GatedCell(D, H, W), torch.randn(B, N, D)
    _, state = cell(x)
    copies = [t.clone() for t in state]
    first, second = cell(x, state)[0], cell(x, state)[0]
    assert torch.equal(first, second)
    assert all(torch.equal(a, b) for a, b in zip(state, copies, strict=True))
    torch.testing.assert_close(cell(x)[0], cell(x, cell.initial_state(x))[0])


def test_a_sequence_is_its_steps() -> None:
    cell, x = GatedCell(D, H, W), torch.randn(B, 6, N, D)
    outs, state = cell.read(x)
    step = None
    for t in range(6):
        y, step = cell(x[:, t], step)
        torch.testing.assert_close(outs[:, t], y)
    torch.testing.assert_close(state.memory, step.memory)
    # and in two parts
    _, half = cell.read(x[:, :2])
    torch.testing.assert_close(cell.read(x[:, 2:], half)[0], outs[:, 2:])


def test_a_sequence_is_recorded_as_one_alignment() -> None:
    cell, x = GatedCell(D, H, W).eval(), torch.randn(B, 6, N, D)
    outs, _ = cell.read(x)
    with record(cell) as recording:
        observed, _ = cell.read(x)
    torch.testing.assert_close(observed, outs)
    (one,) = recording
    assert (one.name, one.shape, one.verified) == ("look", (B, H, 6, N), True)
    state = None
    for t in range(6):
        got, state = cell.attend(x[:, t], state, need=Need(weights=True))
        torch.testing.assert_close(one.weights.dense()[:, :, t], got.weights)


def test_memory_stays_bounded() -> None:
    cell = GatedCell(D, H, W)
    _, state = cell.read(100 * torch.randn(1, 200, N, D))
    assert state.memory.min() >= 0
    assert state.memory.max() <= 1


@pytest.mark.parametrize("kind", ["heads", "cell"])
def test_a_masked_position_is_an_absent_one(kind: str) -> None:
    x = torch.randn(B, N, D)
    mask = torch.tensor([[True] * 3 + [False] * 2] * B)
    other = torch.where(mask.unsqueeze(-1), x, torch.nan)
    module = GatedHeads(D, H, W) if kind == "heads" else GatedCell(D, H, W)

    def out(x: torch.Tensor, **given: torch.Tensor) -> torch.Tensor:
        got = module(x, **given)
        return got if kind == "heads" else got[0]

    torch.testing.assert_close(out(x, mask=mask), out(x[:, :3]))
    torch.testing.assert_close(out(other.nan_to_num(1e3), mask=mask), out(x[:, :3]))
    nothing = torch.zeros_like(mask)
    assert out(x, mask=nothing).isfinite().all()


def test_gradients() -> None:
    cell = GatedCell(2, 2, 3).double()
    x = torch.randn(1, 2, 3, 2, dtype=torch.float64, requires_grad=True)
    assert gradcheck(lambda x: cell.read(x)[0], x)
    cell.read(x)[0].sum().backward()
    assert all(p.grad is not None for p in cell.parameters())


@pytest.mark.whole
def test_it_learns_to_tell_digits_read_row_by_row() -> None:
    """At each step it sees the last three rows: what it reads must be kept to be told at the end."""
    digits = pytest.importorskip("sklearn.datasets").load_digits()
    images, labels = torch.tensor(digits.images, dtype=torch.float32) / 16, torch.tensor(digits.target)
    windows = nn.functional.pad(images, (0, 0, 2, 0)).unfold(1, 3, 1).transpose(2, 3)  # "b rows 3 8"
    windows = torch.cat([windows, torch.eye(3).expand(*windows.shape[:2], 3, 3)], -1)
    torch.manual_seed(0)
    cell, head = GatedCell(11, 4, 16), nn.Linear(64, 10)
    optimizer = torch.optim.Adam([*cell.parameters(), *head.parameters()], lr=0.01)
    for _ in range(120):
        batch = torch.randint(1500, (128,))
        loss = nn.functional.cross_entropy(head(cell.read(windows[batch])[0][:, -1]), labels[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    right = (head(cell.read(windows[1500:])[0][:, -1]).argmax(-1) == labels[1500:]).float().mean()
    assert right > 0.5, f"{right:.0%} of unseen digits, chance is 10%"


def test_the_state_stays_wide_under_autocast() -> None:
    """Narrow numbers come in and are computed with; what many steps add up is as wide as the parameters."""
    cell, sequence = GatedCell(D, H, W), torch.randn(B, 11, N, D)
    want, _ = cell.read(sequence)
    with torch.autocast("cpu", torch.bfloat16):
        for given in (sequence, sequence.bfloat16()):
            outs, state = cell.read(given)
            assert (outs.dtype, state.memory.dtype, state.out.dtype) == (torch.float32,) * 3
            torch.testing.assert_close(outs, want, rtol=0.03, atol=0.03)
            out, state = cell(given[:, 0])
            assert (out.dtype, state.memory.dtype) == (torch.float32,) * 2
    outs.sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in cell.parameters())
