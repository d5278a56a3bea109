"""Pictures of positions: the effect of positions and distances on equal words, and the keys that masks allow."""

from collections.abc import Sequence

import torch
from draw_words import DIM, weights
from torch import Tensor

import regard
from regard.viz import Panel


def rotary() -> list[Panel]:
    same = torch.ones(24, DIM) * 0.5
    panels = []
    for title, base, start in (
        ("base 10000", 1e4, 0),
        ("base 100", 1e2, 0),
        ("base 100, from position 1000", 1e2, 1000),
    ):
        x = regard.Rotary(DIM, base=base)(same, start=start)
        w = weights(x, x, score=regard.Dot(scale=1.0))
        panels.append(Panel(w / w.amax(-1, keepdim=True), title))
    return panels


@torch.no_grad()
def biased(bias: regard.Bias, heads: int, titles: Sequence[str], q: float = 0.0, **terms: object) -> list[Panel]:
    """The weights of equal keys under a bias; every row is divided by its greatest weight, to be visible."""
    torch.manual_seed(0)
    x = torch.randn(heads, 24, DIM) * q
    w = weights(x, torch.zeros(heads, 24, DIM), bias=bias, **terms)
    return [Panel(w[h] / w[h].amax(-1, keepdim=True), title) for h, title in enumerate(titles)]


@torch.no_grad()
def t5() -> list[Panel]:
    ahead = torch.arange(64) - torch.arange(64)[:, None]
    both = regard.T5Buckets(1)
    back = regard.T5Buckets(1, bidirectional=False)
    return [
        Panel(both.bucket(ahead) / 31, "bucket / 31, both sides"),
        Panel(back.bucket(ahead) / 31, "bucket / 31, past only"),
    ]


@torch.no_grad()
def transformer_xl() -> list[Panel]:
    torch.manual_seed(1)
    bias = regard.RelativeXL(2 * DIM, 2, DIM)
    bias.v.mul_(200)
    return biased(bias, 2, ["head 0", "head 1"]) + biased(bias, 2, ["head 0, causal"], mask=regard.Causal())


@torch.no_grad()
def kerple() -> list[Panel]:
    log, power = regard.biases.KerpleLog(2), regard.biases.KerplePower(2)
    log.log_scale.copy_(torch.tensor([1.0, 1.0]).log())
    log.shape.copy_(torch.tensor([0.1, 1.0]).log())
    power.log_scale.copy_(torch.tensor([0.1, 0.1]).log())
    power.shape.copy_(torch.logit(torch.tensor([0.25, 0.75])))
    titles = ["log, r₁ 1, r₂ 0.1", "log, r₁ 1, r₂ 1"], ["power, r₁ 0.1, r₂ 0.5", "power, r₁ 0.1, r₂ 1.5"]
    return biased(log, 2, titles[0]) + biased(power, 2, titles[1])


@torch.no_grad()
def fire() -> list[Panel]:
    """A trained slope of −6 over the shares, with two thresholds."""
    panels = []
    for threshold in (64.0, 4.0):
        bias = regard.biases.FIRE(1, hidden=1, threshold=threshold)
        for linear, slope in ((bias.inner, 1.0), (bias.outer, -6.0)):
            linear.weight.fill_(slope)
            linear.bias.zero_()
        panels += biased(bias, 1, [f"L = {threshold:g}"], mask=regard.Causal())
    return panels


@torch.no_grad()
def cope() -> list[Panel]:
    """Sixteen tokens; the query picks out those that end a sentence."""
    n, ends = 16, (3, 8, 12)
    i, scores = torch.arange(n), torch.full((1, n, n), -8.0)
    scores[..., ends] = 8.0
    bias, places = regard.biases.CoPE(1, positions=8), regard.biases.CoPE(1, positions=8)
    places.table.copy_(torch.arange(8.0).unsqueeze(-1))
    bias.table[1] = 4.0
    causal, ones = regard.Causal().dense(i, i), torch.ones(1, n, 1)
    counted = places.of_scores(ones, scores, causal, i, i).masked_fill(~causal, 0.0)[0]
    weights = bias.of_scores(ones, scores, causal, i, i).masked_fill(~causal, -torch.inf).softmax(-1)[0]
    return [
        Panel(counted / 3, "ends of sentences, / 3"),
        Panel(weights / weights.amax(-1, keepdim=True), "equal keys, e prefers place 1"),
    ]


@torch.no_grad()
def forgetting() -> list[Panel]:
    """Equal keys; three kinds of gates."""
    n = 24
    panels = []
    for title, gates in (
        ("f = 0.9", torch.full((n,), 0.9)),
        ("f = 0.5", torch.full((n,), 0.5)),
        ("f = 0.02 at 8 and 16, else 1", torch.ones(n).index_fill(0, torch.tensor([8, 16]), 0.02)),
    ):
        total = gates.log().cumsum(0)
        w = regard.attention(
            torch.zeros(n, DIM), torch.zeros(n, DIM), torch.eye(n), bias=-total.expand(n, n), mask=regard.Causal()
        )
        panels.append(Panel(w / w.amax(-1, keepdim=True), title))
    return panels


@torch.no_grad()
def selective() -> list[Panel]:
    """Sixteen equal keys; in head 0 query 5 masks key 2, and query 9 masks keys 3 to 6."""
    n = 16
    scores = torch.zeros(2, n, n)
    scores[0, 5, 2], scores[0, 9, 3:7] = 3.0, 1.5
    i = torch.arange(n)
    causal = regard.Causal().dense(i, i)
    numbers = regard.biases.Selective(2).of_scores(torch.zeros(2, n, 1), scores, causal, i, i)
    weights = numbers[1].masked_fill(~causal, -torch.inf).softmax(-1)
    return [
        Panel(scores[0] / 3, "scores of head 0, / 3"),
        Panel(weights / weights.amax(-1, keepdim=True), "weights of head 1, equal keys"),
    ]


@torch.no_grad()
def stick_breaking() -> list[Panel]:
    """Equal scores: a share of what the nearer keys have left."""
    panels = []
    for score in (0.0, -2.0, -4.0):
        w = regard.attention(
            torch.zeros(24, DIM),
            torch.zeros(24, DIM),
            torch.eye(24),
            bias=torch.full((24, 24), score),
            normalize=regard.normalizers.StickBreaking(),
            mask=~regard.Window(0, None),
        )
        panels.append(Panel(w / w.amax(-1, keepdim=True).clamp_min(1e-9), f"all scores {score:g}"))
    return panels


def allowed(mask: regard.Mask, n: int = 12) -> Tensor:
    """The keys that each query may attend to, as a picture."""
    i = torch.arange(n)
    return mask.dense(i, i).expand(1, n, n)[0].float()


def masks() -> list[Panel]:
    ids = torch.tensor([0, 0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 2])
    shown = {
        "Causal()": regard.Causal(),
        "Lengths([8])": regard.Lengths(torch.tensor([8])),
        "Documents(ids)": regard.Documents(ids),
        "Documents(ids) & Causal()": regard.Documents(ids) & regard.Causal(),
    }
    return [Panel(allowed(mask), title) for title, mask in shown.items()]


def window() -> list[Panel]:
    shown = {
        "Window(3, 3)": regard.Window(3, 3),
        "Window(3, 0)": regard.Window(3, 0),
        "Window(2, 0), two sinks": (regard.Window(2, 0) | regard.Lengths(torch.tensor([2]))) & regard.Causal(),
        "Window(2, 2) & Causal()": regard.Window(2, 2) & regard.Causal(),
    }
    return [Panel(allowed(mask), title) for title, mask in shown.items()]


def sparse_masks() -> list[Panel]:
    shown = {
        "Dilated(3, 3)": regard.masks.Dilated(3, 3),
        "Strided(5)": regard.masks.Strided(5),
        "Fixed(6)": regard.masks.Fixed(6),
        "random, global and window": (
            regard.masks.RandomBlocks(24, 3, 2) | regard.masks.Global([0, 9]) | regard.Window(1, 1)
        ),
    }
    return [Panel(allowed(mask, 24), title) for title, mask in shown.items()]


def grid_masks() -> list[Panel]:
    """The keys of the query at row 1, column 4, as the grid that they form."""
    grid = (12, 12)
    shown = {
        "Neighbourhood, 5": regard.masks.Neighbourhood(grid, 5),
        "Neighbourhood, 5, dilation 2": regard.masks.Neighbourhood(grid, 5, 2),
        "Windows, 4, shift 2": regard.masks.Windows(grid, 4, 2),
        "CrissCross": regard.masks.CrissCross(grid),
    }
    return [Panel(allowed(mask, 144)[16].view(grid), title) for title, mask in shown.items()]


@torch.no_grad()
def moba() -> list[Panel]:
    """Blocks of four keys, whose keys are alike, and queries that look for those of one block."""
    torch.manual_seed(4)
    blocks = torch.randn(7, DIM).repeat_interleave(4, 0)
    k, q = blocks + 0.2 * torch.randn(28, DIM), 0.5 * blocks[torch.randint(0, 28, (28,))]
    causal = regard.Causal()
    shown = {"dense": causal, "TopBlocks(4, 3)": regard.masks.TopBlocks(4, 3) & causal}
    shown["TopBlocks(4, 2)"] = regard.masks.TopBlocks(4, 2) & causal
    return [Panel(_of_greatest(weights(q, k, mask=mask)), title) for title, mask in shown.items()]


def _of_greatest(rows: Tensor) -> Tensor:
    """Weights as shares of the greatest one of their row."""
    return rows / rows.amax(-1, keepdim=True).clamp_min(1e-9)


@torch.no_grad()
def nsa() -> list[Panel]:
    torch.manual_seed(0)
    layer = regard.layers.NativeSparseAttention(DIM, 1, block=4, stride=2, size=4, count=4, window=6)
    x, panels = 0.6 * torch.randn(1, 28, DIM), []
    for title, gates in {
        "three reads": (0.0, 0.0, 0.0),
        "compressed": (9.0, -9.0, -9.0),
        "selected": (-9.0, 9.0, -9.0),
        "window": (-9.0, -9.0, 9.0),
    }.items():
        layer.gate.weight.zero_()
        layer.gate.bias.copy_(torch.tensor(gates))
        shares = layer.attend(x, mask=regard.Causal(), need=regard.Need(weights=True)).weights[0, 0]
        panels.append(Panel(_of_greatest(shares), title))
    return panels
