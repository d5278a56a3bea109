"""Sentences for bad masks of sequences, grids and graphs, each with a call that raises it: cases of test_bad_input."""

from collections.abc import Callable

import torch
from torch.fx.experimental.symbolic_shapes import ShapeEnv

import regard
from regard import masks
from regard.attn.terms.block_masks import check_fixed


def masked(mask: regard.Mask, queries: int = 3, keys: int = 5) -> Callable[[], object]:
    q, k = torch.zeros(2, queries, 4), torch.zeros(2, keys, 4)
    return lambda: regard.attention(q, k, mask=mask)


BAD: dict[type[Exception], dict[str, Callable[[], object]]] = {
    TypeError: {
        "index must be an integer tensor … list … torch.tensor": lambda: masks.Edges([[0], [1]]),
        "index must be an integer tensor … torch.bool … torch.tensor": lambda: masks.Edges(torch.ones(2, 3) > 0),
        "window must be a whole number, 1 or more, for Dilated, got 2.0": lambda: masks.Dilated(2.0, 2),
        "selection must be a boolean tensor … torch.float32 (3, 2); write": lambda: masks.SelectedBlocks(
            torch.zeros(3, 2), 4
        ),
        "tokens must be the positions of global tokens … torch.bool … nonzero": lambda: masks.Global(torch.ones(3) > 0),
    },
    ValueError: {
        "selection of shape (3, 2) must have … 3 queries and 3 blocks of 2 for 5 keys": masked(
            masks.SelectedBlocks(torch.ones(3, 2) > 0, 2)
        ),
        "TopBlocks compares q and k of one width": lambda: regard.attention(
            torch.zeros(2, 3, 4), torch.zeros(2, 5, 6), score=regard.Bilinear(4, 6), mask=masks.TopBlocks(2, 2)
        ),
        "TopBlocks selects among blocks whose number a program … got dynamic numbers … export fixed": lambda: (
            check_fixed("TopBlocks", ShapeEnv().create_unbacked_symint())
        ),
        "summary must be at most the stride for Fixed, got 5 of 4; try": lambda: masks.Fixed(4, 5),
        "count must be at most the number of blocks … got 4 of 3 blocks of 8 in 20": lambda: masks.RandomBlocks(
            20, 8, 4
        ),
        "length of RandomBlocks is 4, and there are 5 keys; build": masked(masks.RandomBlocks(4, 2, 1)),
        "tokens of Global is on cpu … meta": lambda: masks.Global(torch.tensor([1])).fit(
            (2,), 5, 5, torch.device("meta")
        ),
        "grid must have 1 to 3 axes for Axial, got (2, 2, 2, 2); try": lambda: masks.Axial((2, 2, 2, 2)),
        "axis must be one of the grid (2, 3), got 2; try axis=-1": lambda: masks.Axial((2, 3), axis=2),
        "grid (2, 2) of CrissCross has 4 tokens, and there are 5 keys; pass positions=": masked(
            masks.CrissCross((2, 2))
        ),
        "size must be at most the axis of the grid for Neighbourhood, got 9 on an axis of 7; try size=7": (
            lambda: masks.Neighbourhood((9, 7), 9)
        ),
        "size · dilation must be at most … got 5 · 2 on an axis of 9; try size=4": lambda: masks.Neighbourhood(9, 5, 2),
        "size must have one number per axis of the grid (9, 7), got (3, 3, 3); try size=(3, 3)": (
            lambda: masks.Neighbourhood((9, 7), (3, 3, 3))
        ),
        "size must be whole numbers, 1 or more, for Windows, got (0, 0); try": lambda: masks.Windows((9, 7), 0),
        "size must be at most the axis of the grid for Windows, got 8 on an axis of 7; try size=7": (
            lambda: masks.Windows((9, 7), 8)
        ),
        "shift must be smaller than the window for Windows, got 3 with windows of 3; try shift=1": (
            lambda: masks.Windows((9, 7), 3, 3)
        ),
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
