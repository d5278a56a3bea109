"""Packed documents on a pretended GPU: two calls under one mask, against the equation on the CPU."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.gpu.comparison import compare
from tests.gpu.tables import Table
from torch import Tensor, nn

import regard
from regard import Need

B, H, N, D = 3, 4, 7, 12

Place = Callable[[Tensor], Tensor]
MASKS: dict[str, Callable[[Place], Any]] = {
    "Lengths": lambda place: regard.Lengths(place(torch.tensor([7, 0, 4]))),
    "Lengths of a list": lambda place: regard.Lengths([7, 0, 4]),
    "Causal & Lengths": lambda place: regard.Causal() & regard.Lengths(place(torch.tensor([7, 0, 4]))),
    "Causal & ~Lengths": lambda place: regard.Causal() & ~regard.Lengths(place(torch.tensor([0, 3, 7]))),
    "Causal & Documents": lambda place: regard.Causal() & regard.Documents(place(torch.arange(B * N).view(B, N) // 3)),
}


class Twice(nn.Module):
    """Two calls, the second with the output of the first."""

    def forward(self, q: Tensor, k: Tensor, mask: Any, need: Need) -> Tensor:
        backend = "varlen" if q.is_cuda else "eager"
        first = regard.attention(q, k, mask=mask, backend=backend)
        second = regard.attend(first, k, mask=mask, backend=backend, need=need)
        return second.out if second.lse is None else second.lse


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("training", [True, False])
def test_documents_are_packed_once(name: str, training: bool, tables: dict[str, Table]) -> None:
    need = Need() if training else Need(lse=True)

    def call(module: nn.Module, place: Place) -> Tensor:
        q, k = (place(torch.randn(B, h, N, D).half()) for h in (H, 2))
        return module(q, k, MASKS[name](place), need)

    observation = compare(Twice, call, training, tolerance=4e-3)
    assert observation.reads.total() == 1, observation.reads
    mode = "training" if training else "lse"
    tables["reads"].compare({f"varlen twice, {name}, {mode}": 1})
    tables["operations"].compare({f"varlen twice, {name}, {mode}": observation.operations})
