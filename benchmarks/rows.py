"""Rows of weights of normalizers and biases, counted: python -m benchmarks.rows

512 queries, each the last of 512 keys or fewer; a normalizer gets scores drawn from N(0, 1), a bias equal scores of 0
under a softmax, with its first parameters. Nothing is timed, so the numbers do not depend on the machine.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

import regard

KEYS, HEADS, NEAR = 512, 8, 8

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


def describe(name: str, weights: Tensor) -> str:
    """A row of the table, from the last query's weights "… k"."""
    total = weights.sum(-1)
    zeros, nearest = (weights == 0).double().mean(), weights[..., -NEAR:].sum(-1) / total
    return f"| {name} | {total.mean():.2f} | {zeros:.0%} | {nearest.mean():.1%} |"


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


if __name__ == "__main__":
    print(f"torch {torch.__version__.partition('+')[0]}, {KEYS} keys", *table(), sep="\n")
