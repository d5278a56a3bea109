"""MemoryHeads: a memory matrix that heads read and write, addressed by content and by location.

The memory has n locations of w numbers. A head has weights over the locations, a distribution, and moves them by what
the controller emits. The memory and the weights are values that every call takes and returns.
"""

from collections.abc import Callable
from contextlib import nullcontext
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.attn import observer
from regard.common import checks
from regard.kernels.precision import widen

# the numbers of a memory that nothing is written to: not zero, so that locations have a direction  (Collier and Beel
# 2018 compare such constants with random and learned ones)
_EMPTY = 1e-6


class Address(NamedTuple):
    """The addresses of h heads: "*b h …" each."""

    key: Tensor  # "*b h w"
    strength: Tensor  # "*b h", β ≥ 0, how much the similarity to the key decides
    gate: Tensor  # "*b h", 0 ≤ g ≤ 1, the share of the content; the rest are the weights before
    shift: Tensor  # "*b h s", the probabilities of the moves from −(s−1)/2 to (s−1)/2
    sharpening: Tensor  # "*b h", γ ≥ 1


class WrittenMemory(NamedTuple):
    """A memory of b sequences as its heads left it."""

    matrix: Tensor  # "b n w"
    weights: Tensor  # "b h n", of the read heads, then of the write heads
    read: Tensor  # "b r·w", the vectors that the read heads read last


def content_weights(key: Tensor, strength: Tensor, matrix: Tensor) -> Tensor:  # "*b h w", "*b h", "*b n w" -> "*b h n"
    """w_i = softmax_i(β k · M_i / (‖k‖ ‖M_i‖))  (Graves et al. 2014, eq. 5 and 6)."""
    # a key of zeros is equally similar to all locations
    least = max(1e-8, torch.finfo(matrix.dtype).smallest_normal)
    queries = F.normalize(key, dim=-1, eps=least) * strength.unsqueeze(-1)
    norms = torch.linalg.vector_norm(matrix, dim=-1).clamp_min(least)
    similarity = (queries @ matrix.mT).to(matrix.dtype) / norms.unsqueeze(-2)
    return similarity.softmax(-1)


def shift_weights(weights: Tensor, shift: Tensor) -> Tensor:  # "*b n", "*b s" -> "*b n"
    """w̃_i = Σ_j w_j s_{i−j}, indices modulo n  (Graves et al. 2014, eq. 8)."""
    reach = shift.shape[-1] // 2
    if reach == 0:
        return weights
    around = torch.cat([weights[..., -reach:], weights, weights[..., :reach]], dim=-1)
    moved = around.unfold(-1, shift.shape[-1], 1) @ shift.flip(-1).unsqueeze(-1)  # "*b n 1"
    return moved.squeeze(-1).to(weights.dtype)


def sharpen(weights: Tensor, sharpening: Tensor) -> Tensor:  # "*b n", "*b" -> "*b n"
    """w_i^γ / Σ_j w_j^γ  (Graves et al. 2014, eq. 9), as softmax(γ log w): the powers of small weights underflow."""
    wide = widen(weights)
    logs = wide.clamp_min(torch.finfo(wide.dtype).tiny).log()
    return (logs * sharpening.unsqueeze(-1)).softmax(-1).to(weights.dtype)


def move_heads(address: Address, matrix: Tensor, before: Tensor) -> Tensor:  # "*b n w", "*b h n" -> "*b h n"
    """sharpen(shift(g w_content + (1 − g) w_before))  (Graves et al. 2014, figure 2 and eq. 7)."""
    content = content_weights(address.key, address.strength, matrix)
    gated = torch.lerp(before, content, address.gate.unsqueeze(-1))
    return sharpen(shift_weights(gated, address.shift), address.sharpening)


class MemoryRead(nn.Module):
    """r = Σ_i w_i M_i  (Graves et al. 2014, eq. 2)."""

    def forward(self, weights: Tensor, matrix: Tensor) -> Tensor:  # "b h n", "b n w" -> "b h w"
        out = (weights @ matrix).to(matrix.dtype)
        if (recorder := observer.current_observer()) is not None:
            recorder.on_weighted("read", self, weights, matrix, out)
        return out


class MemoryWrite(nn.Module):
    """M_i' = M_i ∘ Π_h (1 − w_hi e_h) + Σ_h w_hi a_h  (Graves et al. 2014, eq. 3 and 4); all erase before any adds."""

    def forward(
        self, weights: Tensor, erase: Tensor, add: Tensor, matrix: Tensor
    ) -> Tensor:  # "b h n", "b h w", "b h w", "b n w" -> "b n w"
        has_one = weights.shape[1] == 1
        added = _outer(weights, add) if has_one else weights.unsqueeze(-1) * add.unsqueeze(-2)  # "b h n w"
        if (recorder := observer.current_observer()) is not None:
            recorder.on_weighted("write", self, weights, add, added)
        if has_one:
            return torch.addcmul(matrix + added.squeeze(1), matrix, _outer(weights, erase).squeeze(1), value=-1)
        kept = (1 - weights.unsqueeze(-1) * erase.unsqueeze(-2)).prod(1)
        return torch.addcmul(added.sum(1), matrix, kept)


def _outer(weights: Tensor, vectors: Tensor) -> Tensor:  # "b 1 n", "b 1 w" -> "b 1 n w"
    """The product of one head, as a product of matrices: its gradient is one, too."""
    return (weights.mT @ vectors).to(vectors.dtype).unsqueeze(1)


class MemoryHeads(nn.Module):
    """Read and write heads of a controller with outputs h: [k, β, g, s, γ, e, a] = f(W h + b) of every head.

    β = softplus, g = σ, s = softmax over the moves by up to `reach` locations, γ = 1 + softplus, e = σ, a = tanh. All
    heads are moved by the memory before the step; then the write heads write, and the read heads read the memory as it
    is after that. A memory begins with one small constant everywhere and all heads at its first location.
    """

    def __init__(
        self, dim: int, locations: int, width: int, *, read_heads: int = 1, write_heads: int = 1, reach: int = 1
    ) -> None:
        super().__init__()
        checks.positive_ints("MemoryHeads", dim=dim, locations=locations, width=width)
        checks.positive_ints("MemoryHeads", read_heads=read_heads, write_heads=write_heads)
        if isinstance(reach, bool) or not isinstance(reach, int):
            raise TypeError(f"reach must be a whole number for MemoryHeads, got {reach!r}; try reach=1")
        if reach < 0 or 2 * reach + 1 > locations:
            raise ValueError(
                f"reach must be 0 or more and 2 reach + 1 at most locations={locations}, got {reach}; try reach=1"
                if locations > 2
                else f"reach must be 0 with locations={locations}, got {reach}; try locations=128"
            )
        self.locations, self.width, self.reach = locations, width, reach
        self.read_heads, self.write_heads = read_heads, write_heads
        heads = read_heads + write_heads
        moves = 2 * reach + 1
        # keys, moves, strengths and sharpenings, gates and erasures, additions
        self.sizes = [heads * width, heads * moves, 2 * heads, heads + write_heads * width, write_heads * width]
        self.emit = nn.Linear(dim, sum(self.sizes))
        nn.init.xavier_uniform_(self.emit.weight, gain=2**0.5)
        nn.init.zeros_(self.emit.bias)
        self.read, self.write = MemoryRead(), MemoryWrite()

    @property
    def out_features(self) -> int:
        """The width of all vectors that are read in a step."""
        return self.read_heads * self.width

    def init_memory(self, count: int) -> WrittenMemory:
        """The memory of `count` sequences before anything is written."""
        weight = self.emit.weight
        matrix = weight.new_full((count, self.locations, self.width), _EMPTY)
        weights = weight.new_zeros(count, self.read_heads + self.write_heads, self.locations)
        weights[..., 0] = 1
        return WrittenMemory(matrix, weights, weight.new_full((count, self.out_features), _EMPTY))

    def address(self, emitted: Tensor) -> tuple[Address, Tensor, Tensor]:  # "b m" -> …, "b h w", "b h w"
        """The address of all heads, and the erasures and additions of the write heads, from W h + b."""
        heads, writes = self.read_heads + self.write_heads, self.write_heads
        keys, moves, positive, shares, additions = emitted.split(self.sizes, dim=-1)
        strength, sharpening = F.softplus(positive).chunk(2, dim=-1)
        shares = shares.sigmoid()
        address = Address(
            keys.unflatten(-1, (heads, self.width)),
            strength,
            shares[..., :heads],
            moves.unflatten(-1, (heads, 2 * self.reach + 1)).softmax(-1),
            1 + sharpening,
        )
        erase = shares[..., heads:].unflatten(-1, (writes, self.width))
        return address, erase, additions.tanh().unflatten(-1, (writes, self.width))

    def forward(
        self, h: Tensor, memory: WrittenMemory, emit: Callable[[Tensor], Tensor] | None = None
    ) -> WrittenMemory:  # "b d"
        """One step. `emit` stands for the linear map in a loop over many steps, such as DeferredGradLinear."""
        emitted = (self.emit if emit is None else emit)(h)
        recorder = observer.current_observer()
        # the similarities are a part of the weights, and no attention of their own
        with nullcontext() if recorder is None else recorder.muted():
            address, erase, add = self.address(emitted.to(memory.matrix.dtype))
            weights = move_heads(address, memory.matrix, memory.weights)
        reads, writes = weights.split([self.read_heads, self.write_heads], dim=1)
        matrix = self.write(writes, erase, add, memory.matrix)
        return WrittenMemory(matrix, weights, self.read(reads, matrix).flatten(1))

    def extra_repr(self) -> str:
        return f"locations={self.locations}, width={self.width}, reach={self.reach}"
