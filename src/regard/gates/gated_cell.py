"""Gated heads, and the recurrent cell made of them: what is looked at, what of it is kept, what is said.

A derivation. Heads squash their input, H = σ(W x + b), and each looks over the positions by a query of its own:
α = softmax_j(q · tanh(W_q H_j + θ)/√d). To make a cell of them, four things are settled so that shapes and state fit:

    what was before   the score, of every head and position, also reads the mean input x̄ and the output y before:
                      s_hj = q_h · tanh(W_q H_hj + W_x x̄ + W_y y + θ)/√d
    what is read      a_h = Σ_j softmax_j(s_h)_j H_hj, in (0, 1)
    what is kept      γ = σ(G x̄ + G_y y + g) a gate a head,  c_h ← (1 − γ_h) c_h + γ_h a_h
    what is said      U = tanh(W a + W_h y + b),  y = σ(c + U)

The memory c is as wide as all heads together, so that c + U is defined and y has that width too; because the gate mixes
instead of adding, c stays in (0, 1) however long the sequence. State is (c, y): a value passed in and given back.
Where autocast narrows what is computed it stays as wide as the parameters: what many steps mix is not rounded in each.
"""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.attn import checks, observer
from regard.attn.call import NOTHING, Attended, Need
from regard.attn.explicit_weights import mixed
from regard.attn.terms.normalizer import Softmax
from regard.gates.base import only_weights


class CellState(NamedTuple):
    """What a GatedCell carries from one step to the next."""

    memory: Tensor  # "b heads width", in (0, 1)
    out: Tensor  # "b heads·width", in (0, 1)


class GatedHeads(nn.Module):
    """a_h = Σ_j softmax_j(q_h · tanh(W_q H_hj + θ)/√d)_j H_hj, H = σ(W x + b): positions become one vector a head.

    "b n d" -> "b heads·width". The heads share W_q and θ, and differ by their part of W and their query.
    """

    def __init__(self, dim: int, heads: int, width: int) -> None:
        super().__init__()
        checks.sizes("GatedHeads", dim=dim, heads=heads, width=width)
        self.dim, self.heads, self.width = dim, heads, width
        self.squash = nn.Linear(dim, heads * width)
        self.key = nn.Linear(width, width)
        self.query = nn.Parameter(torch.randn(heads, width))
        self.normalize = Softmax()
        # σ has a slope of 1/4 at best: what comes in with a spread of one comes out with one that can be told
        nn.init.normal_(self.squash.weight, std=4 * dim**-0.5)

    def forward(self, x: Tensor, *, mask: Tensor | None = None) -> Tensor:  # "b n d", bool "b n" -> "b heads·width"
        return self.attend(x, mask=mask).out

    def attend(self, x: Tensor, *, mask: Tensor | None = None, need: Need = NOTHING) -> Attended:
        """The same, with the weights "b heads n" if `need` asks for them. `mask` is True where a position is real."""
        only_weights(need, self)
        self.check(x, mask)
        states, keys = self.heard(x)
        read, weights = self.look(states, torch.tanh(keys), mask)
        return Attended(read.flatten(1), weights if need.weights else None)

    def check(self, x: Tensor, mask: Tensor | None) -> None:
        """Raises if x is not "b n d", or the mask not one of its positions."""
        checks.floating("x", x)
        checks.width("x", x, self.dim, self)
        if x.ndim != 3:
            raise ValueError(
                f"x must be (batch, positions, {self.dim}) for {type(self).__name__}, got {checks.shape(x)}"
            )
        if mask is not None and (mask.dtype != torch.bool or mask.shape != x.shape[:2]):
            raise ValueError(
                f"mask must be boolean, one for each of the {tuple(x.shape[:2])} positions, True where it is real, "
                f"got {mask.dtype} {checks.shape(mask)}; try mask > 0"
            )

    def heard(self, x: Tensor) -> tuple[Tensor, Tensor]:  # "*b n d" -> "*b n h w" both
        """H = σ(W x + b), and W_q H + θ."""
        states = torch.sigmoid(self.squash(x)).unflatten(-1, (self.heads, self.width))
        return states, self.key(states)

    def look(self, states: Tensor, keys: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """What every head reads, "b h w", and its weights "b h n", of H and of tanh(W_q H + … + θ), both "b n h w"."""
        # one product with the queries as blocks, a tenth of the time of h small ones
        blocks = torch.block_diag(*self.query.unsqueeze(-1))  # "h·w h"
        scores = (keys.flatten(2) @ blocks).transpose(1, 2) / math.sqrt(self.width)
        weights = self.normalize.weights(scores, None if mask is None else mask.unsqueeze(1)).to(states.dtype)
        if observer.listener() is not None:
            return mixed(weights.unsqueeze(-2), states.transpose(1, 2), self).squeeze(-2), weights
        # as this product, in half the time
        return (weights.transpose(1, 2).unsqueeze(-1) * states).sum(1), weights

    def extra_repr(self) -> str:
        return f"dim={self.dim}, heads={self.heads}, width={self.width}"


class CellInputs(NamedTuple):
    """What a GatedCell makes of its input before it knows its state: for one step, or for all at once."""

    states: Tensor  # "*b n h w", H
    keys: Tensor  # "*b n h w", W_q H + W_x x̄ + θ
    enter: Tensor  # "*b h", G x̄ + g


class GatedCell(nn.Module):
    """y, state = cell(x, state): gated heads over the positions of one step, with a memory that gates let in.

    "b n d" -> "b heads·width". How it is derived stands at the head of this module. A sequence "b t n d" is read by
    `read`, step by step.
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
        # an eighth of what is read enters at first, so that what came early is still there some steps later
        nn.init.constant_(self.gate.bias, -2.0)
        for layer in (self.update, self.again):
            nn.init.normal_(layer.weight, std=2 * size**-0.5)
        with torch.no_grad():  # reads lie around 1/2 and what was said around σ(1/2): U begins around 0, where it moves
            said = math.tanh(0.25) / 2 + 0.5
            self.update.bias.copy_(-self.update.weight.sum(1) / 2 - self.again.weight.sum(1) * said)

    def initial(self, x: Tensor) -> CellState:  # "b n d"
        """Nothing kept, nothing said."""
        zeros = x.new_zeros(x.shape[0], self.size, dtype=self.gate.weight.dtype)
        return CellState(zeros.unflatten(1, (self.look.heads, -1)), zeros)

    def forward(
        self, x: Tensor, state: CellState | None = None, *, mask: Tensor | None = None
    ) -> tuple[Tensor, CellState]:  # "b n d" -> "b heads·width"
        got, state = self.attend(x, state, mask=mask)
        return got.out, state

    def attend(
        self, x: Tensor, state: CellState | None = None, *, mask: Tensor | None = None, need: Need = NOTHING
    ) -> tuple[Attended, CellState]:
        """The same, with the weights "b heads n" if `need` asks for them."""
        only_weights(need, self)
        self.look.check(x, mask)
        weights, state = self._step(self._heard(x, mask), self._begun(x, state), mask)
        return Attended(state.out, weights if need.weights else None), state

    def _begun(self, x: Tensor, state: CellState | None) -> CellState:
        if state is None:
            return self.initial(x)
        if state.out.shape != (x.shape[0], self.size):
            raise ValueError(
                f"state must be of {x.shape[0]} samples and {self.size} wide, got {checks.shape(state.out)}; "
                "pass the state this cell gave, or None to begin"
            )
        return state

    def _heard(self, x: Tensor, mask: Tensor | None) -> CellInputs:  # "*b n d"
        mean = _mean(x, mask)
        states, keys = self.look.heard(x)
        keys = keys + self.mean_key(mean)[..., None, None, :]
        return CellInputs(states, keys, F.linear(mean, self.gate.weight[:, : self.look.dim], self.gate.bias))

    def _step(self, heard: CellInputs, state: CellState, mask: Tensor | None) -> tuple[Tensor, CellState]:
        keys = torch.tanh(heard.keys + self.out_key(state.out)[:, None, None])
        read, weights = self.look.look(heard.states, keys, mask)
        enter = torch.sigmoid(heard.enter + F.linear(state.out, self.gate.weight[:, self.look.dim :]))
        # lerp takes numbers of one width alone, and autocast knows nothing of it
        kept, entering = state.memory, enter.to(state.memory.dtype).unsqueeze(-1)
        memory = torch.lerp(kept, read.to(kept.dtype), entering.expand_as(read))
        update = torch.tanh(self.update(read.flatten(1)) + self.again(state.out))
        return weights, CellState(memory, torch.sigmoid(memory.flatten(1) + update))

    def read(self, sequence: Tensor, state: CellState | None = None) -> tuple[Tensor, CellState]:
        """Every step of a sequence "b t n d": the outputs "b t heads·width", and the state after the last.

        What does not depend on the state is computed for all steps at once.
        """
        if sequence.ndim != 4 or not sequence.shape[1]:
            raise ValueError(
                f"sequence must be (batch, steps, positions, width) with a step or more, got {checks.shape(sequence)}; "
                "x.unsqueeze(2) makes one position of every step"
            )
        first = sequence[:, 0]
        self.look.check(first, None)
        state = self._begun(first, state)
        steps = self._heard(sequence.transpose(0, 1), None)
        outs = []
        with observer.aligned():
            # parted at once: the gradient of every single part would be as large as the whole
            for heard in zip(*(part.unbind() for part in steps), strict=True):
                _, state = self._step(CellInputs(*heard), state, None)
                outs.append(state.out)
        return torch.stack(outs, 1), state


def _mean(x: Tensor, mask: Tensor | None) -> Tensor:  # "*b n d" -> "*b d"
    """The mean over real positions; zero where there is none."""
    if mask is None:
        return x.mean(-2)
    real = mask.unsqueeze(-1)
    return x.masked_fill(~real, 0.0).sum(1) / real.sum(1).clamp_min(1)
