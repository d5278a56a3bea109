"""An attention module of three parts: a pool of weights over hidden units, an update, and a control unit.

    pool      f_kj = softmax_j(Q · tanh(W_k x_t + V_k x̄ + Y_k y + θ_kj)/√d), for each of K heads a row over n_h units;
              the rows of all steps are the pool, K × T × n_h
    update    U = tanh(W x_t + W_y y + b),  y_t = σ(c_o + U ∘ x_t), with a learned output gate c_o
    control   p = normalize(S x_t + S_y y + s), the probability that a head is selected; Σ_k p_k f_k is added to the
              next input

x̄ is the mean of the inputs so far, y the previous output. The state is a value that the caller passes and gets back.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from regard.attn.call import NOTHING, Attended, Need
from regard.attn.terms.normalizer import Normalizer, Softmax
from regard.common import checks
from regard.gates.base import check_only_weights
from regard.gates.gated_units import UnitScores


class ModuleState(NamedTuple):
    """The state that a ControlledAttention passes from one step to the next."""

    memory: Tensor  # "b K n_h", the last row of the pool
    selection: Tensor  # "b K", the probability of each of its heads
    out: Tensor  # "b dim", y
    mean: Tensor  # "b dim", x̄
    steps: int  # inputs that x̄ is the mean of


class ControlledAttention(nn.Module):
    """y_t = σ(c_o + tanh(W x_t + W_y y + b) ∘ x_t), x_t = input + Σ_k p_k f_k: a pool of K heads under a control unit.

    y, state = module(x, state) is a step, "b dim" -> "b dim"; `read` runs over a sequence "b t dim". f_k are the
    weights of head k over n_h = dim hidden units, p_k its probability; the docstring of the file has both.
    `select` turns the scores of the heads into p: Softmax() selects one, Sigmoid() any number. `dropout` sets weights
    of the pool to zero in training.
    """

    def __init__(
        self, dim: int, heads: int, *, d: int = 64, select: Normalizer | None = None, dropout: float = 0.0
    ) -> None:
        super().__init__()
        checks.positive_ints("ControlledAttention", dim=dim, heads=heads, d=d)
        self.dim, self.heads, self.d = dim, heads, d
        self.key = nn.Linear(3 * dim, heads * d, bias=False)  # reads x, x̄ and y
        self.scores = UnitScores(dim, heads, d)
        self.update = nn.Linear(2 * dim, dim)  # reads x and y
        self.output_gate = nn.Parameter(torch.zeros(dim))  # c_o
        self.control = nn.Linear(2 * dim, heads)  # reads x and y
        self.select = Softmax() if select is None else select
        self.dropout = nn.Dropout(dropout)

    def initial_state(self, x: Tensor) -> ModuleState:  # "b dim"
        """A pool, an output and a mean of zeros."""
        zeros = x.new_zeros(x.shape[0], self.dim, dtype=self.output_gate.dtype)
        memory = zeros.unsqueeze(1).expand(-1, self.heads, -1)
        return ModuleState(memory, memory[..., 0], zeros, zeros, 0)

    def forward(self, x: Tensor, state: ModuleState | None = None) -> tuple[Tensor, ModuleState]:  # "b dim" -> "b dim"
        attended, state = self.attend(x, state)
        return attended.out, state

    def attend(
        self, x: Tensor, state: ModuleState | None = None, *, need: Need = NOTHING
    ) -> tuple[Attended, ModuleState]:
        """`forward` with the row of the pool, "b K n_h", as weights if `need` asks for them."""
        check_only_weights(need, self)
        self._check(x, 2, "(batch, width)", "read runs over a sequence")
        state = self._step(x, self._checked_state(x, state))
        return Attended(state.out, state.memory if need.weights else None), state

    def read(
        self, sequence: Tensor, state: ModuleState | None = None, *, need: Need = NOTHING
    ) -> tuple[Attended, ModuleState]:
        """Runs over a sequence "b t dim": the outputs "b t dim", and the pool "b K t n_h" as weights if `need` asks."""
        check_only_weights(need, self)
        self._check(sequence, 3, "(batch, steps, width)", "x.unsqueeze(1) makes a sequence of one step")
        if not sequence.shape[1]:
            raise ValueError(f"sequence must have a step or more, got {checks.shape(sequence)}; leave it out")
        state = self._checked_state(sequence[:, 0], state)
        outs, pool = [], []
        for x in sequence.unbind(1):
            state = self._step(x, state)
            outs.append(state.out)
            if need.weights:
                pool.append(state.memory)
        return Attended(torch.stack(outs, 1), torch.stack(pool, 2) if need.weights else None), state

    def _step(self, row: Tensor, state: ModuleState) -> ModuleState:
        # the state is as wide as the parameters, also under autocast
        x = row.to(state.out.dtype) + torch.einsum("bk,bkn->bn", state.selection, state.memory).to(state.out.dtype)
        steps = state.steps + 1
        mean = state.mean + (x - state.mean) / steps
        weights = self.scores(self.key(torch.cat([x, mean, state.out], -1)))
        both = torch.cat([x, state.out], -1)
        out = torch.sigmoid(self.output_gate + torch.tanh(self.update(both)).to(x.dtype) * x)
        selection = self.select.weights(self.control(both), None).to(x.dtype)
        return ModuleState(self.dropout(weights), selection, out, mean, steps)

    def _check(self, x: Tensor, axes: int, shape: str, way_out: str) -> None:
        checks.floating("x", x)
        checks.width("x", x, self.dim, self)
        if x.ndim != axes:
            raise ValueError(f"x must be {shape} for ControlledAttention, got {checks.shape(x)}; {way_out}")

    def _checked_state(self, x: Tensor, state: ModuleState | None) -> ModuleState:
        if state is None:
            return self.initial_state(x)
        if state.memory.shape != (x.shape[0], self.heads, self.dim):
            raise ValueError(
                f"state must be of {x.shape[0]} samples, {self.heads} heads and {self.dim} units, got "
                f"{checks.shape(state.memory)}; pass the state that this module returned, or None to begin"
            )
        return state

    def extra_repr(self) -> str:
        return f"dim={self.dim}, heads={self.heads}, d={self.d}"
