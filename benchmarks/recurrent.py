"""Recurrent encoders and the vocabulary layer of a translator, compared with those of torch."""

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from benchmarks.table import Case, Row, gain
from benchmarks.timing import Effort, backward, compare
from regard.layers.rnn.cells import CELLS
from regard.layers.rnn.encoder import Encoder
from regard.losses import linear_cross_entropy

BATCH, STEPS, WIDTH, VOCABULARY = 64, 16, 256, 6000
# the speed-up that forward and backward together must reach; torch also fuses an LSTM over equal lengths, and a plain
# RNN runs in torch
LEAST, LEAST_VOCABULARY = {"gru": 1.3, "lstm": 1.0}, 1.0


def encoder(effort: Effort) -> Iterator[Row]:
    """a bidirectional encoder over sentences of equal and of different lengths, forward and backward"""
    lengths = {"of 16": torch.full((BATCH,), STEPS), "of 1 to 16": torch.arange(BATCH) % STEPS + 1}
    for cell in CELLS:
        layer = Encoder(WIDTH, WIDTH, cell=cell)
        x = torch.randn(BATCH, STEPS, WIDTH, requires_grad=True)
        for said, counts in lengths.items():

            def ours(layer: Encoder = layer, x: Tensor = x, counts: Tensor = counts) -> Tensor:
                return layer(x, counts).outputs

            def theirs(layer: Encoder = layer, x: Tensor = x, counts: Tensor = counts) -> Tensor:
                packed = pack_padded_sequence(x, counts, batch_first=True, enforce_sorted=False)
                return pad_packed_sequence(layer.rnn(packed)[0], batch_first=True, total_length=STEPS)[0]

            calls, leaves = {"regard": ours, f"nn.{cell.upper()}": theirs}, [x, *layer.parameters()]
            timed = compare(
                {name: backward(call, leaves) for name, call in calls.items()},
                effort,
                grad=True,
                agree=[f"nn.{cell.upper()}"],
            )
            case = f"{cell.upper()} {WIDTH} both ways, {BATCH} sentences {said} +backward"
            yield gain(case, timed, "regard", f"nn.{cell.upper()}", LEAST.get(cell))


def vocabulary(effort: Effort) -> Iterator[Row]:
    """the vocabulary layer with its cross-entropy, forward and backward"""
    rows = 256 if effort.quick else 1024
    states = torch.randn(rows, WIDTH, requires_grad=True)
    weight = (torch.randn(VOCABULARY, WIDTH) / WIDTH**0.5).requires_grad_()
    bias, right = torch.zeros(VOCABULARY, requires_grad=True), torch.randint(VOCABULARY, (rows,))
    calls = {
        "regard.losses.linear_cross_entropy": lambda: linear_cross_entropy(states, weight, right, bias=bias)[0],
        "F.cross_entropy": lambda: F.cross_entropy(F.linear(states, weight, bias), right, reduction="sum"),
    }
    timed = compare(
        {name: backward(call, [states, weight, bias]) for name, call in calls.items()},
        effort,
        grad=True,
        agree=["F.cross_entropy"],
    )
    case = f"{VOCABULARY:,} words, {rows} states of {WIDTH} +backward"
    yield gain(case, timed, "regard.losses.linear_cross_entropy", "F.cross_entropy", LEAST_VOCABULARY)


CASES: dict[str, Case] = {"encoder": encoder, "vocabulary": vocabulary}
