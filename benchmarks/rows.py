"""Rows of weights of normalizers and biases, and keys of masks, counted: python -m benchmarks.rows

The last of 512 queries and keys; a normalizer gets scores drawn from N(0, 1), a bias equal scores of 0 under a softmax,
with its first parameters. Masks are those of 4,096 tokens, which are a grid of 64 by 64: the share of pairs that they
allow, and the share of keys that some of 64 queries may attend to, which is what a block of queries reads. Nothing is
timed, so the numbers do not depend on the machine.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

import regard
from regard import masks

KEYS, HEADS, NEAR = 512, 8, 8
TOKENS, BLOCK, GRID = 4096, 64, (64, 64)

NORMALIZERS: dict[str, regard.Normalizer] = {
    "softmax": regard.Softmax(),
    "sparsemax": regard.Sparsemax(),
    "sigmoid": regard.Sigmoid(),
    "relu": regard.normalizers.ReLU(),
    "relu-squared": regard.normalizers.ReLU(2.0),
    "softpick": regard.normalizers.Softpick(),
    "stick-breaking": regard.normalizers.StickBreaking(),
}

torch.manual_seed(0)
BIASES: dict[str, regard.Bias] = {
    "alibi": regard.ALiBi(HEADS),
    "kerple": regard.biases.KerpleLog(HEADS),
    "kerple-power": regard.biases.KerplePower(HEADS),
    "fire": regard.biases.FIRE(HEADS),
}
NODES = torch.arange(TOKENS)
MASKS: dict[str, regard.Mask] = {
    "Causal()": regard.Causal(),
    "Window(96, 0)": regard.Window(96, 0),
    "Strided(64)": masks.Strided(64),
    "Fixed(64)": masks.Fixed(64),
    "Dilated(24, 4)": masks.Dilated(24, 4),
    "Longformer: Global(1), Window(48, 48)": masks.Global(1) | regard.Window(48, 48),
    "BigBird: RandomBlocks(4096), Window(96, 96), Global(64)": masks.RandomBlocks(TOKENS)
    | regard.Window(96, 96)
    | masks.Global(64),
    "Edges, 8 random per node": masks.Edges(torch.stack([torch.randint(TOKENS, (8 * TOKENS,)), NODES.repeat(8)])),
    "Edges, 8 nodes before each": masks.Edges(
        torch.stack([(NODES - torch.arange(8).unsqueeze(-1)).clamp_min(0).flatten(), NODES.repeat(8)])
    ),
    "Neighbourhood(7)": masks.Neighbourhood(GRID, 7),
    "Windows(8)": masks.Windows(GRID, 8),
    "Axial": masks.Axial(GRID, axis=0),
    "CrissCross": masks.CrissCross(GRID),
}


def describe(name: str, weights: Tensor) -> str:
    """A row of the table, from the last query's weights "… k"."""
    total = weights.sum(-1)
    zeros, nearest = (weights == 0).double().mean(), weights[..., -NEAR:].sum(-1) / total
    return f"| {name} | {total.mean():.2f} | {zeros:.0%} | {nearest.mean():.1%} |"


def share_of_keys(mask: regard.Mask, order: Tensor) -> float:
    """The share of keys that some query of a block may attend to, of queries in this order."""
    return float(mask.dense(order, NODES).unflatten(0, (-1, BLOCK)).any(1).double().mean())


@torch.no_grad()
def table() -> Iterator[str]:
    yield f"| name | sum of a row | weights of zero | share of the nearest {NEAR} keys |"
    yield "|---|---|---|---|"
    torch.manual_seed(0)
    scores = torch.randn(1000, KEYS, dtype=torch.float64)
    for name, normalize in NORMALIZERS.items():
        yield describe(name, normalize(scores))
    queries, last, keys = torch.zeros(HEADS, 1, 1), torch.tensor([KEYS - 1]), torch.arange(KEYS)
    for name, bias in BIASES.items():
        yield describe(name, torch.softmax(bias(queries, last, keys, KEYS), -1))
    yield ""
    yield f"| mask of {TOKENS:,} tokens | pairs | keys of {BLOCK} queries in a row | keys of {BLOCK} sorted queries |"
    yield "|---|---|---|---|"
    for name, mask in MASKS.items():
        pairs, in_a_row = mask.dense(NODES, NODES).double().mean(), share_of_keys(mask, NODES)
        is_sorted = mask.tiling is not None
        tiled = f"{share_of_keys(mask, mask.tile_order(NODES).argsort(stable=True)):.1%}" if is_sorted else ""
        yield f"| {name} | {pairs:.1%} | {in_a_row:.1%} | {tiled} |"


if __name__ == "__main__":
    print(f"torch {torch.__version__.partition('+')[0]}, {KEYS} keys", *table(), sep="\n")
