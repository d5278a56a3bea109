"""An attention module of three parts: a pool of weights over hidden units, an update, and a control unit.

    pool      f_kj = softmax_j(Q · tanh(W_k x_t + V_k x̄ + Y_k y + θ_kj)/√d), for each of K heads a row over n_h units;
              the rows of all steps are the pool, K × T × n_h
    control   p = normalize(S x_t + S_y y + s), the probability that a head is selected; Σ_k p_k f_k is added to the
              next input
    update    U = tanh(W (Σ_k p_k f_k ∘ h_t) + W_y y + b),  y_t = σ(c_o + U ∘ x_t), with a learned output gate c_o

h_t are the n_h hidden units that the heads weight, x̄ is the mean of the inputs, y the previous output. The state is a
value that the caller passes and gets back.
"""

from contextlib import nullcontext
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.attn import observer
from regard.attn.call import NOTHING, Attended, Need
from regard.attn.terms.normalizer import Normalizer, Softmax
from regard.common import checks
from regard.gates.base import check_axes, check_only_weights
from regard.gates.gated_units import UnitScores

# how the scores of x, x̄ and y are combined, and what the update reads
COMBINE = ("sum", "product")
UPDATES = ("attended", "input")


class ModuleState(NamedTuple):
    """The state that a ControlledAttention passes from one step to the next."""

    memory: Tensor  # "b K n_h", the last row of the pool
    selection: Tensor  # "b K", the probability of each of its heads
    out: Tensor  # "b dim", y
    mean: Tensor  # "b dim", mean of the inputs so far
    steps: int  # number of these inputs


class ControlledAttention(nn.Module):
    """y_t = σ(c_o + U_t ∘ x_t), U_t = tanh(W (Σ_k p_k f_k ∘ h_t) + W_y y_{t-1} + b): K heads under a control unit.

    y, state = module(x, state) is a step, "b dim" -> "b dim"; `read` runs over a sequence "b t dim". The docstring of
    the file has the formulas of f_k and p_k. `units` is n_h, the number of hidden units: h_t = W_h x_t, and a row of
    the pool is mapped back to the width of x. Without it the hidden units are the numbers of x_t.

    `combine="product"` multiplies three scores Q · tanh(·)/√d, of x_t, x̄ and y, each with its own θ. `update="input"`
    has W x_t in the update in place of what the heads attended to: then a row of the pool acts on the next input only.
    `select` turns the scores of the heads into p: Softmax() selects one, Sigmoid() any number. `dropout` sets weights
    of the pool to zero in training.
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        units: int | None = None,
        d: int = 64,
        combine: Literal["sum", "product"] = "sum",
        update: Literal["attended", "input"] = "attended",
        select: Normalizer | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.units = dim if units is None else units
        checks.positive_ints("ControlledAttention", dim=dim, heads=heads, units=self.units, d=d)
        checks.known("combine", combine, COMBINE)
        checks.known("update", update, UPDATES)
        checks.dropout(dropout, "ControlledAttention")
        if select is not None:
            checks.instance_of("select", select, Normalizer, "Softmax()")
        self.dim, self.heads, self.d, self.combine = dim, heads, d, combine
        self.key = nn.Linear(3 * dim, heads * d, bias=False)  # reads x, x̄ and y
        self.scores = UnitScores(self.units, heads, d, factors=3 if combine == "product" else 1)
        self.hidden: nn.Module | None = None
        if update == "attended":
            self.hidden = nn.Identity() if units is None else nn.Linear(dim, units)
        self.back = nn.Identity() if units is None else nn.Linear(units, dim, bias=False)
        self.update = nn.Linear((dim if self.hidden is None else self.units) + dim, dim)  # reads one of both and y
        if self.hidden is not None:
            # a weight over n_h units is about 1/n_h
            with torch.no_grad():
                self.update.weight[:, : self.units] *= self.units
        self.output_gate = nn.Parameter(torch.zeros(dim))  # c_o
        self.control = nn.Linear(2 * dim, heads)  # reads x and y
        self.select = Softmax() if select is None else select
        self.dropout = nn.Dropout(dropout)

    def initial_state(self, x: Tensor) -> ModuleState:  # "b dim"
        """A pool, an output and a mean of zeros."""
        zeros = x.new_zeros(x.shape[0], self.dim, dtype=self.output_gate.dtype)
        memory = zeros.new_zeros(x.shape[0], self.heads, self.units)
        return ModuleState(memory, memory[..., 0], zeros, zeros, 0)

    def forward(
        self, x: Tensor, state: ModuleState | None = None, *, mean: Tensor | None = None
    ) -> tuple[Tensor, ModuleState]:  # "b dim" -> "b dim"
        attended, state = self.attend(x, state, mean=mean)
        return attended.out, state

    def attend(
        self, x: Tensor, state: ModuleState | None = None, *, mean: Tensor | None = None, need: Need = NOTHING
    ) -> tuple[Attended, ModuleState]:
        """`forward` with the row of the pool, "b K n_h", as weights if `need` asks for them.

        `mean` "b dim" is x̄, the mean of the sequence; if it is unknown, that of the inputs so far is used.
        """
        check_axes(x, self.dim, "(batch, width)", self, "read runs over a sequence")
        attended, state = self._run(x.unsqueeze(1), state, mean, need)
        weights = None if attended.weights is None else attended.weights.squeeze(2)
        return Attended(attended.out.squeeze(1), weights), state

    def read(
        self, sequence: Tensor, state: ModuleState | None = None, *, mean: Tensor | None = None, need: Need = NOTHING
    ) -> tuple[Attended, ModuleState]:
        """Runs over a sequence "b t dim": the outputs "b t dim", and the pool "b K t n_h" as weights if `need` asks.

        x̄ is the mean of the sequence; for a part of a longer one, pass the `mean` of the whole.
        """
        check_axes(sequence, self.dim, "(batch, steps, width)", self, "x.unsqueeze(1) makes a sequence of one step")
        if not sequence.shape[1]:
            raise ValueError(f"sequence must have a step or more, got {checks.shape(sequence)}; leave it out")
        return self._run(sequence, state, sequence.mean(1) if mean is None else mean, need)

    def _run(
        self, sequence: Tensor, state: ModuleState | None, mean: Tensor | None, need: Need
    ) -> tuple[Attended, ModuleState]:
        check_only_weights(need, self)
        state = self._checked_state(sequence[:, 0], state)
        attention_observer = observer.current_observer()
        outs, rows, hidden = [], [], []
        with nullcontext() if attention_observer is None else attention_observer.muted():
            for x in sequence.unbind(1):
                state, values = self._step(x, state, mean)
                outs.append(state.out)
                rows.append(state.memory)
                hidden.append(values)
        out = torch.stack(outs, 1)
        if attention_observer is None and not need.weights:
            return Attended(out, None), state
        pool = torch.stack(rows, 2)
        if attention_observer is not None:
            values = torch.stack(hidden, 1).unsqueeze(1).expand_as(pool)
            attention_observer.on_weighted("pool", self, pool, values, pool * values)
        return Attended(out, pool if need.weights else None), state

    def _step(self, row: Tensor, state: ModuleState, mean: Tensor | None) -> tuple[ModuleState, Tensor]:
        """The state after a step, and the values of the hidden units, "b n_h": ones if the update reads the input."""
        # the state is as wide as the parameters, also under autocast
        y = state.out
        row = row.to(y.dtype)
        steps = state.steps + 1
        mean_so_far = state.mean + (row - state.mean) / steps
        x = row + self.back(torch.einsum("bk,bkn->bn", state.selection, state.memory)).to(y.dtype)
        weights = self.dropout(self.scores(self._keys(x, mean_so_far if mean is None else mean.to(y.dtype), y)))
        selection = self.select.weights(self.control(torch.cat([x, y], -1)), None).to(y.dtype)
        if self.hidden is None:
            values, source = torch.ones_like(weights[:, 0]), x
        else:
            values = self.hidden(x).to(y.dtype)
            source = torch.einsum("bk,bkn->bn", selection, weights).to(y.dtype) * values
        update = torch.tanh(self.update(torch.cat([source, y], -1))).to(y.dtype)
        out = torch.sigmoid(self.output_gate + update * x)
        return ModuleState(weights, selection, out, mean_so_far, steps), values

    def _keys(self, x: Tensor, mean: Tensor, y: Tensor) -> Tensor:  # "b dim" three times
        """W_k x + V_k x̄ + Y_k y, "b K·d"; or the three one by one for each head, "b K·3·d"."""
        if self.combine == "sum":
            return self.key(torch.cat([x, mean, y], -1))
        parts = zip((x, mean, y), self.key.weight.split(self.dim, 1), strict=True)
        keys = torch.stack([F.linear(part, weight) for part, weight in parts], 1)
        return keys.unflatten(-1, (self.heads, self.d)).transpose(1, 2).flatten(1)

    def _checked_state(self, x: Tensor, state: ModuleState | None) -> ModuleState:
        if state is None:
            return self.initial_state(x)
        if state.memory.shape != (x.shape[0], self.heads, self.units):
            raise ValueError(
                f"state must be of {x.shape[0]} samples, {self.heads} heads and {self.units} units, got "
                f"{checks.shape(state.memory)}; pass the state that this module returned, or None to begin"
            )
        return state

    def extra_repr(self) -> str:
        return f"dim={self.dim}, heads={self.heads}, units={self.units}, d={self.d}, combine={self.combine!r}"
