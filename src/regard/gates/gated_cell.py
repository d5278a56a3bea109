"""Gated heads, and a recurrent cell made of them.

A derivation. Heads squash their input, H = σ(W x + b), and each attends to the positions by its own query:
α = softmax_j(q · tanh(W_q H_j + θ)/√d). A cell needs four definitions so that shapes and state fit:

    score     for every head and position, it also reads the mean input x̄ and the previous output y:
              s_hj = q_h · tanh(W_q H_hj + W_x x̄ + W_y y + θ)/√d
    read      a_h = Σ_j softmax_j(s_h)_j H_hj, in (0, 1)
    memory    γ = σ(G x̄ + G_y y + g), one gate per head;  c_h ← (1 − γ_h) c_h + γ_h a_h
    output    U = tanh(W a + W_h y + b),  y = σ(c + U)

The memory c is as wide as all heads together, so that c + U is defined and y has that width too; because the gate mixes
instead of adding, c stays in (0, 1) however long the sequence. The state is (c, y): a value passed in and returned.
Under autocast the state keeps the dtype of the parameters, so that it is not rounded in every step.
"""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.attn import observer
from regard.attn.call import NOTHING, Attended, Need
from regard.attn.mechanisms.explicit_weights import mix
from regard.attn.terms.normalizer import Softmax
from regard.common import checks
from regard.gates.base import check_axes, check_mask, check_only_weights


class CellState(NamedTuple):
    """The state that a GatedCell passes from one step to the next."""

    memory: Tensor  # "b heads width", in (0, 1)
    out: Tensor  # "b heads·width", in (0, 1)


class GatedHeads(nn.Module):
    """a_h = Σ_j softmax_j(q_h · tanh(W_q H_hj + θ)/√d)_j H_hj, H = σ(W x + b): positions become one vector per head.

    "b n d" -> "b heads·width". The heads share W_q and θ; each has its own part of W and its own query.
    """

    def __init__(self, dim: int, heads: int, width: int) -> None:
        super().__init__()
        checks.positive_ints("GatedHeads", dim=dim, heads=heads, width=width)
        self.dim, self.heads, self.width = dim, heads, width
        self.squash = nn.Linear(dim, heads * width)
        self.key = nn.Linear(width, width)
        self.query = nn.Parameter(torch.randn(heads, width))
        self.normalize = Softmax()
        # σ has a slope of at most 1/4: a wider initialisation keeps inputs of unit variance distinguishable
        nn.init.normal_(self.squash.weight, std=4 * dim**-0.5)

    def forward(self, x: Tensor, *, mask: Tensor | None = None) -> Tensor:  # "b n d", bool "b n" -> "b heads·width"
        return self.attend(x, mask=mask).out

    def attend(self, x: Tensor, *, mask: Tensor | None = None, need: Need = NOTHING) -> Attended:
        """`forward` with the weights "b heads n" if `need` asks for them. `mask` is True where a position is real."""
        check_only_weights(need, self)
        self.check(x, mask)
        states, keys = self.project(x)
        read, weights = self.read(states, torch.tanh(keys), mask)
        return Attended(read.flatten(1), weights if need.weights else None)

    def check(self, x: Tensor, mask: Tensor | None) -> None:
        """Raises if x is not "b n d", or the mask is not a boolean per position."""
        check_axes(x, self.dim, "(batch, positions, width)", self, "x.unsqueeze(1) makes one position")
        check_mask(mask, tuple(x.shape[:2]))

    def project(self, x: Tensor) -> tuple[Tensor, Tensor]:  # "*b n d" -> "*b n h w" both
        """H = σ(W x + b), and W_q H + θ."""
        states = torch.sigmoid(self.squash(x)).unflatten(-1, (self.heads, self.width))
        return states, self.key(states)

    def read(self, states: Tensor, keys: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """The read of every head, "b h w", and its weights "b h n", from H and tanh(W_q H + … + θ), both "b n h w"."""
        # one product with a block-diagonal matrix of queries takes a tenth of the time of h small products
        blocks = torch.block_diag(*self.query.unsqueeze(-1))  # "h·w h"
        scores = (keys.flatten(2) @ blocks).transpose(1, 2) / math.sqrt(self.width)
        weights = self.normalize.weights(scores, None if mask is None else mask.unsqueeze(1)).to(states.dtype)
        if observer.current_observer() is not None:
            return mix(weights.unsqueeze(-2), states.transpose(1, 2), self).squeeze(-2), weights
        # equals weights @ states, and is about twice as fast
        return (weights.transpose(1, 2).unsqueeze(-1) * states).sum(1), weights

    def extra_repr(self) -> str:
        return f"dim={self.dim}, heads={self.heads}, width={self.width}"


class CellInputs(NamedTuple):
    """The part of a GatedCell that does not depend on its state: for one step, or for all at once."""

    states: Tensor  # "*b n h w", H
    keys: Tensor  # "*b n h w", W_q H + W_x x̄ + θ
    gate: Tensor  # "*b h", G x̄ + g


class GatedCell(nn.Module):
    """y, state = cell(x, state): gated heads over the positions of one step, with a gated memory.

    "b n d" -> "b heads·width". The docstring of this module has the derivation. `read` runs over a sequence "b t n d",
    step by step.
    """

    def __init__(self, dim: int, heads: int, width: int) -> None:
        super().__init__()
        self.look = GatedHeads(dim, heads, width)
        size = heads * width
        self.size = size
        self.mean_key = nn.Linear(dim, width, bias=False)
        self.out_key = nn.Linear(size, width, bias=False)
        self.gate = nn.Linear(dim + size, heads)
        self.update = nn.Linear(size, size)
        self.again = nn.Linear(size, size, bias=False)
        # at the start the gate admits an eighth of the read, so that early inputs are still in memory some steps later
        nn.init.constant_(self.gate.bias, -2.0)
        for layer in (self.update, self.again):
            nn.init.normal_(layer.weight, std=2 * size**-0.5)
        with (
            torch.no_grad()
        ):  # reads are around 1/2 and outputs around σ(1/2): U starts around 0, where tanh is steepest
            output = math.tanh(0.25) / 2 + 0.5
            self.update.bias.copy_(-self.update.weight.sum(1) / 2 - self.again.weight.sum(1) * output)

    def initial_state(self, x: Tensor) -> CellState:  # "b n d"
        """A memory and an output of zeros."""
        zeros = x.new_zeros(x.shape[0], self.size, dtype=self.gate.weight.dtype)
        return CellState(zeros.unflatten(1, (self.look.heads, -1)), zeros)

    def forward(
        self, x: Tensor, state: CellState | None = None, *, mask: Tensor | None = None
    ) -> tuple[Tensor, CellState]:  # "b n d" -> "b heads·width"
        attended, state = self.attend(x, state, mask=mask)
        return attended.out, state

    def attend(
        self, x: Tensor, state: CellState | None = None, *, mask: Tensor | None = None, need: Need = NOTHING
    ) -> tuple[Attended, CellState]:
        """`forward` with the weights "b heads n" if `need` asks for them."""
        check_only_weights(need, self)
        self.look.check(x, mask)
        weights, state = self._step(self._project(x, mask), self._checked_state(x, state), mask)
        return Attended(state.out, weights if need.weights else None), state

    def _checked_state(self, x: Tensor, state: CellState | None) -> CellState:
        if state is None:
            return self.initial_state(x)
        if state.out.shape != (x.shape[0], self.size):
            raise ValueError(
                f"state must be of {x.shape[0]} samples and {self.size} wide, got {checks.shape(state.out)}; "
                "pass the state this cell gave, or None to begin"
            )
        return state

    def _project(self, x: Tensor, mask: Tensor | None) -> CellInputs:  # "*b n d"
        mean = _mean(x, mask)
        states, keys = self.look.project(x)
        keys = keys + self.mean_key(mean)[..., None, None, :]
        return CellInputs(states, keys, F.linear(mean, self.gate.weight[:, : self.look.dim], self.gate.bias))

    def _step(self, inputs: CellInputs, state: CellState, mask: Tensor | None) -> tuple[Tensor, CellState]:
        keys = torch.tanh(inputs.keys + self.out_key(state.out)[:, None, None])
        read, weights = self.look.read(inputs.states, keys, mask)
        gate = torch.sigmoid(inputs.gate + F.linear(state.out, self.gate.weight[:, self.look.dim :]))
        # lerp needs tensors of one dtype, and autocast does not cast its arguments
        previous, admitted = state.memory, gate.to(state.memory.dtype).unsqueeze(-1)
        memory = torch.lerp(previous, read.to(previous.dtype), admitted.expand_as(read))
        update = torch.tanh(self.update(read.flatten(1)) + self.again(state.out))
        return weights, CellState(memory, torch.sigmoid(memory.flatten(1) + update))

    def read(self, sequence: Tensor, state: CellState | None = None) -> tuple[Tensor, CellState]:
        """Runs over a sequence "b t n d": the outputs "b t heads·width", and the state after the last step.

        The part that does not depend on the state is computed for all steps at once.
        """
        if sequence.ndim != 4 or not sequence.shape[1]:
            raise ValueError(
                f"sequence must be (batch, steps, positions, width) with a step or more, got {checks.shape(sequence)}; "
                "x.unsqueeze(2) makes one position per step"
            )
        first = sequence[:, 0]
        self.look.check(first, None)
        state = self._checked_state(first, state)
        steps = self._project(sequence.transpose(0, 1), None)
        outs = []
        with observer.alignment_steps():
            # unbind once: the gradient of every single slice would be as large as the whole
            for inputs in zip(*(part.unbind() for part in steps), strict=True):
                _, state = self._step(CellInputs(*inputs), state, None)
                outs.append(state.out)
        return torch.stack(outs, 1), state


def _mean(x: Tensor, mask: Tensor | None) -> Tensor:  # "*b n d" -> "*b d"
    """The mean over real positions; zero where there is none."""
    if mask is None:
        return x.mean(-2)
    real = mask.unsqueeze(-1)
    return x.masked_fill(~real, 0.0).sum(1) / real.sum(1).clamp_min(1)
