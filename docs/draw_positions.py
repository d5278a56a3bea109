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
