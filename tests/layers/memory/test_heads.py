"""Heads over a memory against the formulas of Graves et al. 2014, written as loops."""

import math

import pytest
import torch
from torch import Tensor

from regard.layers.memory.heads import (
    Address,
    MemoryHeads,
    WrittenMemory,
    content_weights,
    move_heads,
    sharpen,
)

# sizes that share no factor
B, N, W, D = 2, 7, 5, 11


def memory_of(heads: MemoryHeads, count: int = B) -> WrittenMemory:
    """A memory that was written to, with weights that are distributions."""
    h = heads.read_heads + heads.write_heads
    weights = torch.rand(count, h, heads.locations, dtype=torch.float64).softmax(-1)
    matrix = torch.randn(count, heads.locations, heads.width, dtype=torch.float64)
    return WrittenMemory(matrix, weights, torch.randn(count, heads.out_features, dtype=torch.float64))


def address_of(heads: int, moves: int, count: int = B) -> Address:
    return Address(
        torch.randn(count, heads, W, dtype=torch.float64),
        3 * torch.rand(count, heads, dtype=torch.float64),
        torch.rand(count, heads, dtype=torch.float64),
        torch.rand(count, heads, moves, dtype=torch.float64).softmax(-1),
        1 + 4 * torch.rand(count, heads, dtype=torch.float64),
    )


def moved(address: Address, matrix: Tensor, before: Tensor, b: int, h: int) -> list[float]:
    """The weights of one head of one sequence, location by location."""
    n = len(matrix[b])
    key, moves = address.key[b, h].tolist(), address.shift[b, h].tolist()
    scores = []
    for i in range(n):
        row = matrix[b, i].tolist()
        product = sum(x * y for x, y in zip(key, row, strict=True))
        norms = math.sqrt(sum(x * x for x in key)) * math.sqrt(sum(y * y for y in row))
        scores.append(math.exp(address.strength[b, h].item() * product / norms))
    g = address.gate[b, h].item()
    gated = [g * scores[i] / sum(scores) + (1 - g) * before[b, h, i].item() for i in range(n)]
    reach = len(moves) // 2
    shifted = [
        sum(gated[j] * moves[m + reach] for m in range(-reach, reach + 1) for j in [(i - m) % n]) for i in range(n)
    ]
    powers = [w ** address.sharpening[b, h].item() for w in shifted]
    return [p / sum(powers) for p in powers]


@pytest.mark.parametrize("reach", [0, 1, 3])
def test_heads_move_as_the_formulas_say(reach: int) -> None:
    torch.manual_seed(0)
    heads = 3
    address, matrix = address_of(heads, 2 * reach + 1), torch.randn(B, N, W, dtype=torch.float64)
    before = torch.rand(B, heads, N, dtype=torch.float64).softmax(-1)
    want = torch.tensor(
        [[moved(address, matrix, before, b, h) for h in range(heads)] for b in range(B)], dtype=torch.float64
    )
    torch.testing.assert_close(move_heads(address, matrix, before), want, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("reads", "writes"), [(1, 1), (2, 3)])
def test_a_step_erases_adds_and_reads(reads: int, writes: int) -> None:
    torch.manual_seed(1)
    heads = MemoryHeads(D, N, W, read_heads=reads, write_heads=writes).double()
    h, memory = torch.randn(B, D, dtype=torch.float64), memory_of(heads)
    address, erase, add = heads.address(heads.emit(h))
    assert (address.strength > 0).all()
    assert (address.sharpening > 1).all()
    weights = move_heads(address, memory.matrix, memory.weights)
    matrix = memory.matrix.clone()
    for b in range(B):
        for i in range(N):
            for j in range(W):
                for n in range(writes):
                    matrix[b, i, j] *= 1 - weights[b, reads + n, i] * erase[b, n, j]
                for n in range(writes):
                    matrix[b, i, j] += weights[b, reads + n, i] * add[b, n, j]
    read = [[sum(weights[b, n, i] * matrix[b, i] for i in range(N)) for n in range(reads)] for b in range(B)]
    copied = [part.clone() for part in memory]
    after = heads(h, memory)
    torch.testing.assert_close(after.matrix, matrix, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(after.weights, weights, rtol=0, atol=0)
    torch.testing.assert_close(after.read, torch.stack([torch.cat(row) for row in read]), rtol=1e-10, atol=1e-10)
    assert all(map(torch.equal, memory, copied))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_tiny_weights_and_empty_keys_are_no_nan(dtype: torch.dtype) -> None:
    """Powers of small weights underflow, and a key of zeros has no direction."""
    gamma = torch.tensor([200.0], dtype=dtype)
    tiny = torch.full((1, N), 1e-30, dtype=dtype, requires_grad=True)
    got = sharpen(tiny, gamma)
    torch.testing.assert_close(got, torch.full((1, N), 1 / N, dtype=dtype), rtol=1e-2, atol=0)
    none = torch.zeros(1, N, dtype=dtype, requires_grad=True)
    one = torch.eye(N, dtype=dtype)[:1].requires_grad_()
    torch.testing.assert_close(sharpen(one, gamma), one)
    key, matrix = torch.zeros(1, 1, W, dtype=dtype, requires_grad=True), torch.zeros(1, N, W, dtype=dtype)
    matrix.requires_grad_()
    content = content_weights(key, torch.ones(1, 1, dtype=dtype), matrix)
    torch.testing.assert_close(content, torch.full((1, 1, N), 1 / N, dtype=dtype), rtol=1e-2, atol=0)
    (got.sum() + (content * torch.arange(N)).sum() + sharpen(none, gamma)[0, 0] + sharpen(one, gamma)[0, 1]).backward()
    for t in (tiny, none, one, key, matrix):
        assert t.grad.isfinite().all()


@pytest.mark.parametrize(("reads", "writes"), [(1, 1), (2, 2)])
def test_gradients(reads: int, writes: int) -> None:
    torch.manual_seed(3)
    heads = MemoryHeads(3, 5, 2, read_heads=reads, write_heads=writes).double()
    memory = memory_of(heads)
    h = torch.randn(B, 3, dtype=torch.float64, requires_grad=True)
    inputs = [part.requires_grad_() for part in memory]
    assert torch.autograd.gradcheck(lambda h, *parts: heads(h, WrittenMemory(*parts)), (h, *inputs))


def test_weights_are_distributions_and_a_batch_is_one_by_one() -> None:
    torch.manual_seed(4)
    heads = MemoryHeads(D, N, W, read_heads=2, reach=2).double()
    memory, steps = heads.init_memory(3), torch.randn(13, 3, D, dtype=torch.float64)
    ones = [heads.init_memory(1) for _ in range(3)]
    for h in steps:
        memory = heads(h, memory)
        ones = [heads(h[n : n + 1], one) for n, one in enumerate(ones)]
        torch.testing.assert_close(memory.weights.sum(-1), torch.ones(3, 3, dtype=torch.float64))
        assert (memory.weights >= 0).all()
    for n, one in enumerate(ones):
        for part, whole in zip(one, memory, strict=True):
            torch.testing.assert_close(part, whole[n : n + 1])


def test_an_empty_memory_has_its_heads_at_the_first_location() -> None:
    memory = MemoryHeads(D, N, W, read_heads=3, write_heads=2).init_memory(B)
    assert memory.matrix.shape == (B, N, W)
    assert memory.weights.shape == (B, 5, N)
    assert memory.read.shape == (B, 3 * W)
    assert torch.equal(memory.weights[..., 0], torch.ones(B, 5))
    torch.testing.assert_close(memory.read, memory.matrix[:, 0].repeat(1, 3))


def test_bad_sizes() -> None:
    with pytest.raises(
        ValueError, match="reach must be 0 or more and 2 reach \\+ 1 at most locations=7, got 4; try reach=1"
    ):
        MemoryHeads(D, N, W, reach=4)
    with pytest.raises(ValueError, match="reach must be 0 or more .* got -1; try reach=1"):
        MemoryHeads(D, N, W, reach=-1)
    with pytest.raises(ValueError, match="reach must be 0 with locations=2, got 1; try locations=128"):
        MemoryHeads(D, 2, W)
    with pytest.raises(TypeError, match="reach must be a whole number for MemoryHeads, got 1.5; try reach=1"):
        MemoryHeads(D, N, W, reach=1.5)  # type: ignore[arg-type]
