"""The recurrent encoder: every sequence of a batch runs for its own length, so that padding changes nothing."""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from regard.attn import observer
from regard.common import checks
from regard.layers.rnn.cells import CELLS, init_orthogonal, run_natively, run_torch, runs_natively, state_parts
from regard.layers.rnn.packing import Packing


class EncoderOutput(NamedTuple):
    """The output of a recurrent encoder."""

    outputs: Tensor  # "b s k", zero behind the end
    summary: Tensor  # "b k", the last state, of both directions if there are two


class Encoder(nn.Module):
    """h_j = [h→_j; h←_j]: n layers of LSTM or GRU, forward and optionally backward  (Bahdanau et al. 2015, 3.2)."""

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
        checks.positive_ints("Encoder", dim=dim, hidden=hidden, layers=layers)
        # torch warns about dropout between layers if there is only one layer
        between = dropout if layers > 1 else 0.0
        self.rnn = CELLS[cell](dim, hidden, layers, batch_first=True, bidirectional=bidirectional, dropout=between)
        self.out_features = hidden * (2 if bidirectional else 1)
        init_orthogonal(self.rnn)

    def forward(self, x: Tensor, lengths: Tensor) -> EncoderOutput:  # "b s d", "b"
        packing = Packing.of(lengths, x.shape[1])
        rows = self._run(packing.pack(x), packing)
        hidden = self.rnn.hidden_size
        ends = rows.index_select(0, packing.last)[:, :hidden], rows.index_select(0, packing.first)[:, hidden:]
        return EncoderOutput(packing.pad(rows, x.shape[1]), torch.cat(ends, dim=-1))

    def _run(self, x: Tensor, packing: Packing) -> Tensor:  # "r d" -> "r k"
        sizes = packing.sizes
        zeros = x.new_zeros(sizes[0], self.rnn.hidden_size)
        directions = [(zeros,) * state_parts(self.rnn)] * (2 if self.rnn.bidirectional else 1)
        first = [directions] * self.rnn.num_layers
        if runs_natively(self.rnn, x):
            out = run_natively(self.rnn, x, sizes, first)
        else:
            out = run_torch(self.rnn, PackedSequence(x, torch.tensor(sizes)))[0].data
        recurrence_observer = observer.current_observer()
        if recurrence_observer is not None:
            recurrence_observer.on_recurrence(self.rnn, x, sizes, first, out, packing.first)
        return out
