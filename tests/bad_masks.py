"""Sentences for bad masks of sequences, grids and graphs, each with a call that raises it: cases of test_bad_input."""

from collections.abc import Callable

import torch

import regard
from regard import masks


def masked(mask: regard.Mask, queries: int = 3, keys: int = 5) -> Callable[[], object]:
    q, k = torch.zeros(2, queries, 4), torch.zeros(2, keys, 4)
    return lambda: regard.attention(q, k, mask=mask)


BAD: dict[type[Exception], dict[str, Callable[[], object]]] = {
    TypeError: {
        "index must be an integer tensor … list … torch.tensor": lambda: masks.Edges([[0], [1]]),
        "index must be an integer tensor … torch.bool … torch.tensor": lambda: masks.Edges(torch.ones(2, 3) > 0),
    },
    ValueError: {
        "index must have the shape (2, edges) … got (3, 2); transpose … index.T": lambda: masks.Edges(
            torch.zeros(3, 2, dtype=torch.long)
        ),
        "number the nodes from 0, got -1; count": lambda: masks.Edges(torch.tensor([[0], [-1]])),
        "index of Edges has node 6, and there are 5 keys … positions=": masked(
            masks.Edges(torch.tensor([[0, 6], [1, 2]]))
        ),
        "index of Edges is on cpu … meta": lambda: regard.attention(
            torch.zeros(2, 5, 4, device="meta"),
            torch.zeros(2, 5, 4, device="meta"),
            mask=masks.Edges(torch.tensor([[0], [1]])),
        ),
    },
}
