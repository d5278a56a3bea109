"""Recurrent layers of a decoder, over a whole sequence at once or one step at a time, on the same parameters."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.attn import observer
from regard.common import checks
from regard.layers.dropout import dropout
from regard.layers.rnn.cells import (
    CELLS,
    States,
    cell_step,
    init_orthogonal,
    run_natively,
    run_torch,
    runs_natively,
    state_parts,
)
from regard.layers.rnn.deferred_linear import DeferredGradLinear
from regard.layers.rnn.distinct_tokens import DistinctTokens


class Stack(nn.Module):
    """n layers of LSTM or GRU for a decoder, run over all steps at once, or step by step by `steps`.

    The input of a step is [x; fed], where `fed` is only known after the previous step.
    """

    def __init__(
        self, dim: int, hidden: int, *, fed: int = 0, layers: int = 1, cell: str = "gru", dropout: float = 0.0
    ) -> None:
        super().__init__()
        checks.known("cell", cell, CELLS)
        checks.positive_ints("Stack", dim=dim, hidden=hidden, layers=layers)
        self.dim, self.fed, self.dropout = dim, fed, dropout
        between = dropout if layers > 1 else 0.0
        self.rnn = CELLS[cell](dim + fed, hidden, layers, batch_first=True, dropout=between)
        init_orthogonal(self.rnn)

    @property
    def parts(self) -> int:
        """The number of tensors in the state of a layer: h, or h and c."""
        return state_parts(self.rnn)

    def run(self, x: Tensor, states: States) -> Tensor:  # "b t d+fed" -> "b t h"
        """Runs all steps at once: a step depends on the previous one through its state alone."""
        b, t, _ = x.shape
        if runs_natively(self.rnn, x, *(part for state in states for part in state)):
            rows = run_natively(self.rnn, x.transpose(0, 1).flatten(0, 1), (b,) * t, [[state] for state in states])
            out = rows.unflatten(0, (t, b)).transpose(0, 1)
        else:
            first = tuple(torch.stack(part) for part in zip(*states, strict=True))
            out, _ = run_torch(self.rnn, x, first if self.parts == 2 else first[0])
        recurrence_observer = observer.current_observer()
        if recurrence_observer is not None:
            inputs, outputs = (each.transpose(0, 1).flatten(0, 1) for each in (x, out))
            recurrence_observer.on_recurrence(self.rnn, inputs, [b] * t, [[state] for state in states], outputs, None)
        return out

    def init_states(self, count: int) -> States:
        """States of zeros for `count` sequences."""
        zeros = next(self.rnn.parameters()).new_zeros(count, self.rnn.hidden_size)
        return ((zeros,) * self.parts,) * self.rnn.num_layers

    def steps(self, x: Tensor) -> "Steps":  # "b t d"
        """The steps over x, to be run in order."""
        return Steps(self, x)

    def step(
        self, tokens: DistinctTokens, states: States, fed: Tensor | None = None, fed_gates: Tensor | None = None
    ) -> tuple[Tensor, States]:  # "r fed", "r g" -> "r h"
        """One step of r hypotheses after these tokens, with `fed`, or with its product with `fed_weight`:
        `fed_gates`.
        """
        steps = self.steps(tokens.vectors.unsqueeze(1))
        gates = tokens.expand(steps.gates[0])
        if fed_gates is not None:
            return steps.advance(gates + fed_gates, states)
        return steps.advance(steps.add_fed(fed, gates), states)

    @property
    def fed_weight(self) -> Tensor:  # "g fed"
        """The columns of the input matrix that multiply `fed`."""
        weight: Tensor = getattr(self.rnn, "weight_ih_l0")  # noqa: B009, the attribute may be a module to mypy
        return weight[:, self.dim :]


class Steps:
    """A Stack that runs over x, "b t d": everything that does not depend on the previous step is computed for all steps
    at once.

    These are x's part of the first layer's gates; and, in the backward pass, the gradient of every matrix, which is one
    product over all steps instead of one per step, in a fraction of the time.
    """

    def __init__(self, stack: Stack, x: Tensor) -> None:
        self.stack = stack
        rnn = stack.rnn

        def weight(name: str, layer: int) -> Tensor:
            return getattr(rnn, f"{name}_l{layer}")

        first = weight("weight_ih", 0)
        self.gates = F.linear(x, first[:, : stack.dim], weight("bias_ih", 0)).unbind(1)
        self.fed = DeferredGradLinear(stack.fed_weight) if stack.fed else None
        self.below = [
            DeferredGradLinear(weight("weight_ih", n), weight("bias_ih", n)) for n in range(1, rnn.num_layers)
        ]
        self.past = [DeferredGradLinear(weight("weight_hh", n), weight("bias_hh", n)) for n in range(rnn.num_layers)]

    def step(self, t: int, fed: Tensor | None, states: States) -> tuple[Tensor, States]:  # "b fed"
        """Step t: the top layer's h, "b h", and the states after it."""
        return self.advance(self.add_fed(fed, self.gates[t]), states)

    def add_fed(self, fed: Tensor | None, gates: Tensor) -> Tensor:  # "b fed", "b g" -> "b g"
        """The gates of the first layer plus the part of `fed`, if the stack is fed."""
        if self.fed is None:
            return gates
        assert fed is not None
        return self.fed(fed, plus=gates)

    def advance(self, gates: Tensor, states: States) -> tuple[Tensor, States]:  # "b g" -> "b h"
        """The top layer's h and the states after a step with these gates, W [x; fed] + b of the first layer."""
        next_states: list[tuple[Tensor, ...]] = []
        recurrence_observer = observer.current_observer()
        for layer, state in enumerate(states):
            if layer:
                lower = dropout(next_states[-1][0], self.stack.dropout, self.stack.training)
                gates = self.below[layer - 1](lower)
            past = self.past[layer](state[0])
            next_states.append(cell_step(gates, past, state))
            if recurrence_observer is not None:
                after = next_states[-1]
                recurrence_observer.on_recurrent_step(self.stack.rnn, layer, (gates, past), state, after)
        return next_states[-1][0], tuple(next_states)


class Bridge(nn.Module):
    """s_0 = tanh(W h) for every layer of the decoder  (Bahdanau et al. 2015, A.2.2)."""

    def __init__(self, dim: int, stack: Stack) -> None:
        super().__init__()
        self.layers, self.parts = stack.rnn.num_layers, stack.parts
        self.linear = nn.Linear(dim, self.layers * self.parts * stack.rnn.hidden_size)

    def forward(self, summary: Tensor) -> States:  # "b k" -> "b h" each
        # autocast computes products in lower precision, but a state that accumulates over all steps keeps that of the
        # parameters
        first = torch.tanh(self.linear(summary)).to(self.linear.weight.dtype)
        parts = first.chunk(self.layers * self.parts, dim=-1)
        return tuple(parts[n : n + self.parts] for n in range(0, len(parts), self.parts))
