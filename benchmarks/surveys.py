"""Numbers of the layers that surveys name: python -m benchmarks.surveys

Weights of random vectors, retrieved patterns, errors of approximations, and pairs that are compared, with the seed 0.
Nothing is timed, so the numbers do not depend on the machine.
"""

from collections.abc import Iterator

import torch
import torch.nn.functional as F

import regard
from regard.layers import Hopfield, Linformer, MultiDimensional, Nystrom, Pool
from regard.normalizers import Sum
from regard.scores import Activated, Kernel, RandomFeatures

WIDTH, DRAWS = 32, 10


def bounded() -> str:
    """The weight of the one token that a query matches, the others being at right angles."""
    shares = []
    for count in (10, 100, 1000):
        keys = torch.eye(count + 1)[:count] * 20
        for score in (Activated(regard.Dot(scale=1.0)), regard.Dot(scale=1.0)):
            got = regard.attend(keys[:1], keys, score=score, need=regard.Need(weights=True))
            assert got.weights is not None
            shares.append(f"{float(got.weights[0, 0]):.3f}")
    return f"weight of the token that matches, of 10, 100 and 1,000; tanh, plain: {', '.join(shares)}"


def retrieved() -> str:
    patterns = F.normalize(torch.randn(200, 64), dim=-1) * 8
    noisy = patterns + 1.5 * torch.randn(200, 64)
    shares = []
    for steps in (1, 3):
        out = Hopfield(steps, scale=0.3)(noisy, patterns)
        shares.append(f"{float(((out - patterns).norm(dim=-1) < 0.5).float().mean()):.0%}")
    return (
        f"200 patterns of width 64 and length 8, noise 1.5 per number: retrieved in 1 and 3 steps: {', '.join(shares)}"
    )


def errors(length: float) -> str:
    """Relative errors of Performer by features and of Nystrom by landmarks, for vectors of a length."""
    found: dict[str, list[float]] = {}
    for _ in range(DRAWS):
        walks = (F.normalize(torch.randn(400, 16).cumsum(0), dim=-1) * length for _ in range(2))
        q, k = walks
        v = torch.randn(400, 8)
        exact = regard.attention(q, k, v)
        for features in (16, 256, 4096):
            score = Kernel(RandomFeatures(16, features))
            out = regard.attention(q, k, v, score=score, normalize=Sum())
            found.setdefault(f"{features:,} features", []).append(float((out - exact).norm() / exact.norm()))
        for landmarks in (4, 16, 64):
            out = Nystrom(landmarks)(q, k, v)
            found.setdefault(f"{landmarks} landmarks", []).append(float((out - exact).norm() / exact.norm()))
    medians = (f"{name} {sorted(values)[DRAWS // 2]:.3f}" for name, values in found.items())
    return f"relative error of 400 keys of width 16 and length {length:g}, medians of {DRAWS}: {', '.join(medians)}"


def sizes() -> Iterator[str]:
    def count(module: torch.nn.Module) -> int:
        return sum(p.numel() for p in module.parameters())

    wide = MultiDimensional(WIDTH, WIDTH, WIDTH, WIDTH)
    heads = regard.MultiHead(WIDTH, 4)
    yield f"parameters for width {WIDTH}: MultiDimensional {count(wide):,}, MultiHead {count(heads):,}"
    yield f"numbers per pair of query and key: MultiDimensional {2 * WIDTH}, four heads 4"
    yield f"numbers of the map of 4,096 tokens: CrossCovariance(512, 8) {8 * 64 * 64:,}, of 8 heads {8 * 4096**2:,}"
    yield f"pairs of 4,096 queries and keys: through 64 points {2 * 64 * 4096:,}, directly {4096**2:,}"
    capsules = Pool(regard.Attention(regard.Dot()), WIDTH, queries=5)
    yield f"parameters of five capsules of width {WIDTH}: {count(capsules):,}"
    yield f"parameters of Linformer(4096, 64): {count(Linformer(4096, 64)):,}"


@torch.no_grad()
def lines() -> Iterator[str]:
    torch.manual_seed(0)
    yield bounded()
    yield retrieved()
    yield errors(2.5)
    yield errors(8.0)
    yield from sizes()


if __name__ == "__main__":
    print(f"torch {torch.__version__.partition('+')[0]}", *lines(), sep="\n")
