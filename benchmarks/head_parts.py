"""Parts of today's decoder heads, counted: python -m benchmarks.head_parts

MultiHead(512, 8) and latent attention of the size of DeepSeek-V3, with their first parameters and inputs from N(0, 1).
Nothing is timed, so the numbers do not depend on the machine.
"""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

import regard
from regard.layers import Differential, Latent, OutputGate, RMSQKNorm
from regard.normalizers import WithNullSlot
from regard.scores import SoftCap

DIM, HEADS, KEYS = 512, 8, 512
WIDTH = DIM // HEADS


def count(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def entropy(weights: Tensor) -> float:
    """The mean entropy of the rows, in bits."""
    return float(torch.special.entr(weights).sum(-1).mean() / torch.tensor(2.0).log())


def soft_cap() -> Iterator[str]:
    scores = torch.randn(1000, KEYS, dtype=torch.float64) * 50
    capped = SoftCap(50.0).compare(scores.unsqueeze(-1), torch.ones(1000, 1, 1, dtype=torch.float64)).squeeze(-1)
    greatest = scores.amax(-1).mean(), capped.amax(-1).mean()
    yield f"scores from N(0, 50²): the greatest of a row {greatest[0]:.0f}, capped at 50 {greatest[1]:.0f}"
    plain, bound = (torch.softmax(s, -1) for s in (scores, capped))
    yield f"the greatest weight of a row {plain.amax(-1).mean():.2f} and {bound.amax(-1).mean():.2f}"


def qk_norm() -> Iterator[str]:
    x = torch.randn(1, KEYS, DIM)
    for factor in (1.0, 8.0):
        for name, norm in (("plain", None), ("normed", RMSQKNorm(WIDTH))):
            torch.manual_seed(0)
            heads = regard.MultiHead(DIM, HEADS, qk_norm=norm)
            for linear in (heads.query, heads.key):
                linear.weight.mul_(factor)
            got = heads.attend(x, need=regard.Need(weights=True, scores=True))
            assert got.scores is not None
            assert got.weights is not None
            yield (
                f"W_Q and W_K times {factor:g}, {name}: greatest |score| {got.scores.abs().max():.1f}, "
                f"entropy {entropy(got.weights):.1f} bits"
            )


def output_gate() -> Iterator[str]:
    plain = count(regard.MultiHead(DIM, HEADS))
    for name, channels in (("per head", 1), ("per channel", WIDTH)):
        more = count(OutputGate(DIM, HEADS, channels))
        yield f"{name}: {more:,} parameters, {more / plain:.1%} of the {plain:,} of the heads"


def sink() -> Iterator[str]:
    scores = torch.randn(1000, KEYS, dtype=torch.float64)
    for n in (0.0, 5.0, 7.0):
        yield f"null slot of score {n:g}: {1 - WithNullSlot(score=n)(scores).sum(-1).mean():.1%} of the weight of a row"


def talking_heads() -> Iterator[str]:
    yield f"products per pair of query and key: {2 * DIM} of {HEADS} heads, {2 * HEADS**2} more for both mixtures"


def differential() -> Iterator[str]:
    torch.manual_seed(0)
    for layer in (1, 12):
        heads = regard.MultiHead(DIM, HEADS, difference=Differential(WIDTH, layer=layer))
        weights = heads.attend(torch.randn(1, KEYS, DIM), need=regard.Need(weights=True)).weights
        assert heads.difference is not None
        assert weights is not None
        both = heads.difference.subtract(weights)
        negative = (both < 0).double().mean()
        yield f"layer {layer}: rows sum to {both.sum(-1).mean():.2f}, {negative:.0%} of weights are negative"


def latent() -> Iterator[str]:
    layer = Latent(64, 128, latent_dim=512, head_dim=128, rotated_dim=64).bfloat16()
    cache = layer.project_kv(torch.randn(1, 1, 64).bfloat16())
    size = (cache.keys.numel() + cache.values.numel()) * cache.keys.element_size()
    yield f"cache of a token and layer: {size:,} bytes, with keys and values of 128 heads {2 * 128 * 128 * 2:,}"
    least = next(n for n in range(1, 9999) if "expanded" in layer.explain(torch.zeros(1, n, 64).bfloat16()))
    yield f"the expanded form takes fewer products from {least} queries on"


COUNTS = {
    "soft-cap": soft_cap,
    "qk-norm": qk_norm,
    "output-gate": output_gate,
    "sink": sink,
    "talking-heads": talking_heads,
    "differential": differential,
    "latent": latent,
}


@torch.no_grad()
def lines() -> Iterator[str]:
    for name, counted in COUNTS.items():
        torch.manual_seed(0)
        yield from (f"{name}: {line}" for line in counted())


if __name__ == "__main__":
    print(f"torch {torch.__version__.partition('+')[0]}", *lines(), sep="\n")
