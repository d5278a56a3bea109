"""The pyramidal encoder: every layer reads pairs of states of the layer below, which halves the number of steps."""

import torch
from torch import Tensor, nn

from regard.common import checks
from regard.layers.dropout import Dropout
from regard.layers.lengths import inside_lengths
from regard.layers.rnn.cells import state_parts
from regard.layers.rnn.encoder import Encoder

# per layer: the state of its recurrence, and the vector that waits for the second of its pair, or None
PyramidState = tuple[tuple[tuple[Tensor, ...] | None, Tensor | None], ...]


class Pyramid(nn.Module):
    """h^l_j = RNN(h^l_{j−1}, [h^{l−1}_{2j}; h^{l−1}_{2j+1}]), h^0 = the frames  (Chan et al. 2016, eq. 5).

    The lowest layer reads pairs, too: n layers make 2ⁿ frames one state. A frame without a partner at the end is paired
    with zeros.
    """

    def __init__(
        self,
        dim: int,
        hidden: int,
        *,
        layers: int = 2,
        cell: str = "gru",
        bidirectional: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        checks.positive_ints("Pyramid", dim=dim, hidden=hidden, layers=layers)
        width = hidden * (2 if bidirectional else 1)
        self.layers = nn.ModuleList(
            Encoder(2 * (width if n else dim), hidden, cell=cell, bidirectional=bidirectional) for n in range(layers)
        )
        self.dropout = Dropout(dropout)
        self.bidirectional, self.out_features = bidirectional, width

    def lengths(self, lengths: Tensor) -> Tensor:  # "b" -> "b"
        """The number of states of this many frames."""
        return -(-lengths // 2 ** len(self.layers))

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:  # "b s d", "b" -> "b ⌈s/2ⁿ⌉ k"
        # padding beside the last frame must be zero, as it is where the frame is the last of the batch
        x = x * inside_lengths(lengths, x.shape[1]).unsqueeze(-1)
        for n, layer in enumerate(self.layers):
            x = _pairs(self.dropout(x) if n else x)
            lengths = (lengths + 1) // 2
            x = layer(x, lengths).outputs
        return x

    def start(self) -> PyramidState:
        """The state before the first frame."""
        return ((None, None),) * len(self.layers)

    def advance(
        self, x: Tensor, state: PyramidState, is_last: bool = False
    ) -> tuple[Tensor, PyramidState]:  # "b s d" -> "b t k"
        """The states that these frames complete, one direction only; after the last ones also those of half a pair."""
        after: list[tuple[tuple[Tensor, ...] | None, Tensor | None]] = []
        for layer, (hidden, waiting) in zip(self.layers, state, strict=True):
            assert isinstance(layer, Encoder)
            x = x if waiting is None else torch.cat([waiting, x], 1)
            whole = x.shape[1] if is_last else x.shape[1] // 2 * 2
            x, waiting = x[:, :whole], x[:, whole:] if whole < x.shape[1] else None
            x, hidden = _run(layer.rnn, _pairs(x), hidden)
            after.append((hidden, waiting))
        return x, tuple(after)


def _pairs(x: Tensor) -> Tensor:  # "b s d" -> "b ⌈s/2⌉ 2d"
    if x.shape[1] % 2:
        x = torch.cat([x, torch.zeros_like(x[:, :1])], 1)
    return x.unflatten(1, (-1, 2)).flatten(2)


def _run(
    rnn: nn.RNNBase, x: Tensor, state: tuple[Tensor, ...] | None
) -> tuple[Tensor, tuple[Tensor, ...] | None]:  # "b s d" -> "b s h"
    if rnn.bidirectional:
        raise ValueError("a bidirectional encoder needs the whole sound; build it with bidirectional=False to stream")
    if not x.shape[1]:
        return x.new_zeros(len(x), 0, rnn.hidden_size), state
    packed = state_parts(rnn) == 2
    first = None if state is None else state if packed else state[0]
    out, last = rnn(x, first)
    return out, last if packed else (last,)
