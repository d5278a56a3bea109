"""Recurrent stacks that run over a whole sequence at once or go one step at a time, on the same parameters."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence
from torch.utils._pytree import tree_map

from regard.attn import checks
from regard.attn.call import autocasting
from regard.kernels import rnn_cells
from regard.layers.dropout import dropout
from regard.layers.hooks import heard
from regard.layers.rnn.deferred_linear import DeferredGradLinear
from regard.layers.rnn.packing import Packing
from regard.layers.token_batch import TokenBatch

CELLS: dict[str, type[nn.GRU] | type[nn.LSTM]] = {"gru": nn.GRU, "lstm": nn.LSTM}

# of every layer h, or h and c, each "b h"
States = tuple[tuple[Tensor, ...], ...]


class Encoded(NamedTuple):
    """What an encoder made of a source."""

    outputs: Tensor  # "b s k", zero behind the end
    summary: Tensor  # "b k", the last state, of both directions where there are two


class Encoder(nn.Module):
    """h_j = [h→_j; h←_j]: n layers of LSTM or GRU, forward and, if asked, backward  (Bahdanau et al. 2015, 3.2)."""

    def __init__(
        self,
        dim: int,
        hidden: int,
        *,
        layers: int = 1,
        cell: str = "gru",
        bidirectional: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        checks.known("cell", cell, CELLS)
        checks.sizes("Encoder", dim=dim, hidden=hidden, layers=layers)
        # torch warns of a dropout between layers where there is one layer
        between = dropout if layers > 1 else 0.0
        self.rnn = CELLS[cell](dim, hidden, layers, batch_first=True, bidirectional=bidirectional, dropout=between)
        self.out_features = hidden * (2 if bidirectional else 1)
        _orthogonal(self.rnn)

    def forward(self, x: Tensor, lengths: Tensor) -> Encoded:  # "b s d", "b"
        packing = Packing.of(lengths, x.shape[1])
        rows = self._run(packing.pack(x), packing.sizes)
        hidden = self.rnn.hidden_size
        ends = rows.index_select(0, packing.last)[:, :hidden], rows.index_select(0, packing.first)[:, hidden:]
        return Encoded(packing.pad(rows, x.shape[1]), torch.cat(ends, dim=-1))

    def _run(self, x: Tensor, sizes: Sequence[int]) -> Tensor:  # "r d" -> "r k"
        if not _native(self.rnn, x):
            return _torch(self.rnn, PackedSequence(x, torch.tensor(sizes)))[0].data
        none = x.new_zeros(sizes[0], self.rnn.hidden_size)
        ways = [(none,) * _parts(self.rnn)] * (2 if self.rnn.bidirectional else 1)
        return _over(self.rnn, x, sizes, [ways] * self.rnn.num_layers)


def _native(rnn: nn.RNNBase, x: Tensor, *first: Tensor) -> bool:
    """Do the native cells run this?  Under autocast in float32 as well, like all recurrent layers on a CPU here.

    A layer that somebody listens to, or has put another in the place of, is called itself.
    """
    given = () if autocasting(x) else (x, *first)
    fits = all(t.shape == (len(x), rnn.hidden_size) for t in first)
    return type(rnn) in CELLS.values() and not heard(rnn) and fits and rnn_cells.native(*given, *rnn.parameters())


def _over(
    rnn: nn.RNNBase, x: Tensor, sizes: Sequence[int], first: Sequence[Sequence[Sequence[Tensor]]]
) -> Tensor:  # "r d" -> "r h·directions"
    """Layer over layer, natively; `first` are the states before of every layer and direction."""
    for n, ways in enumerate(first):
        if n:
            x = dropout(x, rnn.dropout, rnn.training)
        found = []
        for back, state in enumerate(ways):
            end = f"_l{n}" + "_reverse" * back
            weights = [getattr(rnn, name + end) for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
            found.append(rnn_cells.sequence(x, weights, state, sizes, reverse=bool(back)))
        x = torch.cat(found, dim=-1) if len(found) > 1 else found[0]
    return x


def _torch(rnn: nn.RNNBase, x: Any, *first: Any) -> Any:
    """All steps; on a CPU in float32 under autocast too, since not every one has an LSTM of lower precision."""
    data = x.data if isinstance(x, PackedSequence) else x
    if data.device.type != "cpu" or not torch.is_autocast_enabled("cpu"):
        return rnn(x, *first)
    wide = tree_map(lambda t: t.float(), first)
    with torch.autocast("cpu", enabled=False):
        return rnn(x.float(), *wide)


def _parts(rnn: nn.RNNBase) -> int:
    """How many tensors the state of a layer has: h, or h and c."""
    return 2 if isinstance(rnn, nn.LSTM) else 1


class Stack(nn.Module):
    """n layers of LSTM or GRU for a decoder, run over all steps at once, or step by step by `steps`.

    The input of a step is [x; fed], where `fed` is what only the step before can know.
    """

    def __init__(
        self, dim: int, hidden: int, *, fed: int = 0, layers: int = 1, cell: str = "gru", dropout: float = 0.0
    ) -> None:
        super().__init__()
        checks.known("cell", cell, CELLS)
        checks.sizes("Stack", dim=dim, hidden=hidden, layers=layers)
        self.dim, self.fed, self.dropout = dim, fed, dropout
        between = dropout if layers > 1 else 0.0
        self.rnn = CELLS[cell](dim + fed, hidden, layers, batch_first=True, dropout=between)
        _orthogonal(self.rnn)

    @property
    def parts(self) -> int:
        """How many tensors the state of a layer has: h, or h and c."""
        return _parts(self.rnn)

    def run(self, x: Tensor, states: States) -> Tensor:  # "b t d+fed" -> "b t h"
        """All steps at once: a step depends on the one before by its state alone."""
        if _native(self.rnn, x, *(part for state in states for part in state)):
            b, t, _ = x.shape
            rows = _over(self.rnn, x.transpose(0, 1).flatten(0, 1), (b,) * t, [[state] for state in states])
            return rows.unflatten(0, (t, b)).transpose(0, 1)
        first = tuple(torch.stack(part) for part in zip(*states, strict=True))
        out, _ = _torch(self.rnn, x, first if self.parts == 2 else first[0])
        return out

    def steps(self, x: Tensor) -> "Steps":  # "b t d"
        """The steps over x, to be taken in turn."""
        return Steps(self, x)

    def step(
        self, words: TokenBatch, states: States, fed: Tensor | None = None, met: Tensor | None = None
    ) -> tuple[Tensor, States]:  # "r fed", "r g" -> "r h"
        """One step of r hypotheses that said these words, with `fed`, or with what the gates make of it: `met`."""
        steps = self.steps(words.vectors.unsqueeze(1))
        gates = words.each(steps.gates[0])
        if met is not None:
            return steps.after(gates + met, states)
        return steps.after(steps.meet(fed, gates), states)

    @property
    def meets(self) -> Tensor:  # "g fed"
        """The matrix of the gates that meets `fed`."""
        weight: Tensor = getattr(self.rnn, "weight_ih_l0")  # noqa: B009, the attribute may be a module to mypy
        return weight[:, self.dim :]


class Steps:
    """A Stack going over x, "b t d": what does not depend on the step before is computed for all steps together.

    That is x's part of the first layer's gates; and, in the backward pass, the gradient of every matrix, which one
    product over all steps gives in a fraction of the time of a product a step.
    """

    def __init__(self, stack: Stack, x: Tensor) -> None:
        self.stack = stack
        rnn = stack.rnn

        def weight(name: str, layer: int) -> Tensor:
            return getattr(rnn, f"{name}_l{layer}")

        first = weight("weight_ih", 0)
        self.gates = F.linear(x, first[:, : stack.dim], weight("bias_ih", 0)).unbind(1)
        self.fed = DeferredGradLinear(stack.meets) if stack.fed else None
        self.below = [
            DeferredGradLinear(weight("weight_ih", n), weight("bias_ih", n)) for n in range(1, rnn.num_layers)
        ]
        self.past = [DeferredGradLinear(weight("weight_hh", n), weight("bias_hh", n)) for n in range(rnn.num_layers)]

    def step(self, t: int, fed: Tensor | None, states: States) -> tuple[Tensor, States]:  # "b fed"
        """Step t: the top layer's h, "b h", and the states after it."""
        return self.after(self.meet(fed, self.gates[t]), states)

    def meet(self, fed: Tensor | None, gates: Tensor) -> Tensor:  # "b fed", "b g" -> "b g"
        """The gates of the first layer, with the share of `fed`, where the stack is fed."""
        if self.fed is None:
            return gates
        assert fed is not None
        return self.fed(fed, plus=gates)

    def after(self, gates: Tensor, states: States) -> tuple[Tensor, States]:  # "b g" -> "b h"
        """The top layer's h and the states after a step with these gates, W [x; fed] + b of the first layer."""
        after: list[tuple[Tensor, ...]] = []
        for layer, state in enumerate(states):
            if layer:
                lower = dropout(after[-1][0], self.stack.dropout, self.stack.training)
                gates = self.below[layer - 1](lower)
            past = self.past[layer](state[0])
            after.append(_step(gates, past, state))
        return after[-1][0], tuple(after)


def _step(gates: Tensor, past: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    # autocast makes products narrow, but a state that adds up over all steps stays wide
    gates, past = gates.to(state[0].dtype), past.to(state[0].dtype)
    if rnn_cells.native(gates, past, *state):
        return rnn_cells.step(gates, past, *state)
    return _lstm(gates, past, state[1]) if len(state) == 2 else (_gru(gates, past, state[0]),)


def _gru(gates: Tensor, past: Tensor, h: Tensor) -> Tensor:  # "b 3h", "b 3h", "b h"
    """r, z = σ(W x + U h); n = tanh(W x + r ∘ U h); h' = (1 − z) ∘ n + z ∘ h  (Cho et al. 2014, as torch orders it)."""
    width = h.shape[-1]
    reset, update = torch.sigmoid(gates[:, : 2 * width] + past[:, : 2 * width]).chunk(2, dim=-1)
    new = torch.tanh(torch.addcmul(gates[:, 2 * width :], reset, past[:, 2 * width :]))
    return torch.lerp(new, h, update)


def _lstm(gates: Tensor, past: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:  # "b 4h", "b 4h", "b h"
    """c' = f ∘ c + i ∘ g; h' = o ∘ tanh(c')  (Hochreiter & Schmidhuber 1997; forget gate: Gers et al. 2000)."""
    i, f, g, o = (gates + past).chunk(4, dim=-1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


class Bridge(nn.Module):
    """s_0 = tanh(W h) for every layer of the decoder  (Bahdanau et al. 2015, A.2.2)."""

    def __init__(self, dim: int, stack: Stack) -> None:
        super().__init__()
        self.layers, self.parts = stack.rnn.num_layers, stack.parts
        self.linear = nn.Linear(dim, self.layers * self.parts * stack.rnn.hidden_size)

    def forward(self, summary: Tensor) -> States:  # "b k" -> "b h" each
        # autocast makes products narrow, but a state that adds up over all steps stays as wide as the parameters
        first = torch.tanh(self.linear(summary)).to(self.linear.weight.dtype)
        parts = first.chunk(self.layers * self.parts, dim=-1)
        return tuple(parts[n : n + self.parts] for n in range(0, len(parts), self.parts))


def _orthogonal(rnn: nn.RNNBase) -> None:
    """Recurrent matrices orthogonal by gates, biases zero (Bahdanau et al. 2015, B.1), an LSTM's forget gate open."""
    for name, weight in rnn.named_parameters():
        if name.startswith("weight_hh"):
            for gate in weight.data.split(rnn.hidden_size):
                nn.init.orthogonal_(gate)
        elif name.startswith("weight_ih"):
            nn.init.xavier_uniform_(weight)
        else:
            nn.init.zeros_(weight)
            if isinstance(rnn, nn.LSTM) and name.startswith("bias_ih"):
                weight.data[rnn.hidden_size : 2 * rnn.hidden_size] = 1.0
