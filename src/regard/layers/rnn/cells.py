"""GRU, LSTM and RNN on torch's parameters: whole sequences or single steps, by the native cells where they can run."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence
from torch.utils._pytree import tree_map

from regard.kernels import rnn_cells
from regard.kernels.dispatch import can_run_native, is_autocasting
from regard.layers.dropout import dropout
from regard.layers.hooks import has_forward_hooks

CELLS: dict[str, type[nn.GRU] | type[nn.LSTM] | type[nn.RNN]] = {"gru": nn.GRU, "lstm": nn.LSTM, "rnn": nn.RNN}
# recurrences that have native cells
_NATIVE = (nn.GRU, nn.LSTM)

# h of every layer, or h and c, each "b h"
States = tuple[tuple[Tensor, ...], ...]


def runs_natively(rnn: nn.RNNBase, x: Tensor, *first: Tensor) -> bool:
    """Whether the native cells can run this. Under autocast they run in float32, like all recurrent layers on a CPU
    here.

    A layer with forward hooks, or of another class, is called itself.
    """
    inputs = () if is_autocasting(x) else (x, *first)
    fits = all(t.shape == (len(x), rnn.hidden_size) for t in first)
    return type(rnn) in _NATIVE and not has_forward_hooks(rnn) and fits and can_run_native(*inputs, *rnn.parameters())


def run_natively(
    rnn: nn.RNNBase, x: Tensor, sizes: Sequence[int], first: Sequence[Sequence[Sequence[Tensor]]]
) -> Tensor:  # "r d" -> "r h·directions"
    """Runs layer after layer with the native cells; `first` are the initial states of every layer and direction."""
    for n, directions in enumerate(first):
        if n:
            x = dropout(x, rnn.dropout, rnn.training)
        outputs = []
        for is_reverse, state in enumerate(directions):
            suffix = f"_l{n}" + "_reverse" * is_reverse
            weights = [getattr(rnn, name + suffix) for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
            outputs.append(rnn_cells.sequence(x, weights, state, sizes, reverse=bool(is_reverse)))
        x = torch.cat(outputs, dim=-1) if len(outputs) > 1 else outputs[0]
    return x


def run_torch(rnn: nn.RNNBase, x: Any, *first: Any) -> Any:
    """Runs all steps with torch; on a CPU in float32 under autocast too, because not every CPU has an LSTM of lower
    precision.
    """
    data = x.data if isinstance(x, PackedSequence) else x
    if data.device.type != "cpu" or not torch.is_autocast_enabled("cpu"):
        return rnn(x, *first)
    wide = tree_map(lambda t: t.float(), first)
    with torch.autocast("cpu", enabled=False):
        return rnn(x.float(), *wide)


def state_parts(rnn: nn.RNNBase) -> int:
    """The number of tensors in the state of a layer: h, or h and c."""
    return 2 if isinstance(rnn, nn.LSTM) else 1


def cell_step(gates: Tensor, past: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    # autocast computes products in lower precision, but a state that accumulates over all steps keeps its precision
    gates, past = gates.to(state[0].dtype), past.to(state[0].dtype)
    if gates.shape[-1] == state[0].shape[-1]:
        return (torch.tanh(gates + past),)  # h' = tanh(W x + U h + b)  (Elman 1990)
    if can_run_native(gates, past, *state):
        return rnn_cells.step(gates, past, *state)
    return _lstm(gates, past, state[1]) if len(state) == 2 else (_gru(gates, past, state[0]),)


def _gru(gates: Tensor, past: Tensor, h: Tensor) -> Tensor:  # "b 3h", "b 3h", "b h"
    """r, z = σ(W x + U h); n = tanh(W x + r ∘ U h); h' = (1 − z) ∘ n + z ∘ h  (Cho et al. 2014, in torch's order)."""
    width = h.shape[-1]
    reset, update = torch.sigmoid(gates[:, : 2 * width] + past[:, : 2 * width]).chunk(2, dim=-1)
    new = torch.tanh(torch.addcmul(gates[:, 2 * width :], reset, past[:, 2 * width :]))
    return torch.lerp(new, h, update)


def _lstm(gates: Tensor, past: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:  # "b 4h", "b 4h", "b h"
    """c' = f ∘ c + i ∘ g; h' = o ∘ tanh(c')  (Hochreiter & Schmidhuber 1997; forget gate: Gers et al. 2000)."""
    i, f, g, o = (gates + past).chunk(4, dim=-1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


def init_orthogonal(rnn: nn.RNNBase) -> None:
    """Recurrent matrices orthogonal per gate, biases zero (Bahdanau et al. 2015, B.1), an LSTM's forget gate open."""
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
