"""Gates of feature maps, compared with the same formulas in plain torch operations."""

from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import regard
from benchmarks import memory
from benchmarks.table import Case, Row, amount, gain
from benchmarks.timing import Effort, backward, compare

SHAPE = (32, 256, 56, 56)
# the speed-up that forward and backward together must reach
LEAST = {"simam": 3.0, "cbam": 2.0, "se": 1.0, "eca": 1.0}


def plain_simam(gate: nn.Module, x: Tensor) -> Tensor:
    n = x.shape[2] * x.shape[3] - 1
    d = (x - x.mean(dim=(2, 3), keepdim=True)).pow(2)
    return x * torch.sigmoid(d / (4 * (d.sum(dim=(2, 3), keepdim=True) / n + 1e-4)) + 0.5)


def plain_se(gate: nn.Module, x: Tensor) -> Tensor:
    assert isinstance(gate, regard.gates.SqueezeExcite)
    s = torch.sigmoid(gate.up(F.relu(gate.down(x.mean(dim=(2, 3))))))
    return x * s[:, :, None, None]


def plain_eca(gate: nn.Module, x: Tensor) -> Tensor:
    assert isinstance(gate, regard.gates.ECA)
    s = torch.sigmoid(gate.conv(x.mean(dim=(2, 3)).unsqueeze(1))).squeeze(1)
    return x * s[:, :, None, None]


def plain_cbam(gate: nn.Module, x: Tensor) -> Tensor:
    assert isinstance(gate, regard.gates.CBAM)
    one, two = gate.channel, gate.spatial
    mean, most = x.mean(dim=(2, 3)), x.amax(dim=(2, 3))
    what = torch.sigmoid(one.up(F.relu(one.down(mean))) + one.up(F.relu(one.down(most))))
    x = x * what[:, :, None, None]
    both = torch.cat([x.max(dim=1, keepdim=True).values, x.mean(dim=1, keepdim=True)], dim=1)
    return x * torch.sigmoid(two.norm(two.conv(both)))


PLAIN: dict[str, Callable[[nn.Module, Tensor], Tensor]] = {
    "simam": plain_simam,
    "cbam": plain_cbam,
    "se": plain_se,
    "eca": plain_eca,
}


def job(name: str, which: str, batch: int) -> Callable[[], object]:
    """Forward and backward of one form, to measure its memory."""
    gate = regard.gate(name, SHAPE[1])
    x = torch.randn(batch, *SHAPE[1:], requires_grad=True)
    grad = torch.randn(batch, *SHAPE[1:])

    def call() -> object:
        out = gate(x) if which == "regard" else PLAIN[name](gate, x)
        return out, torch.autograd.grad(out, [x, *gate.parameters()], grad)

    return call


def train(effort: Effort) -> Iterator[Row]:
    """SimAM, CBAM, SE and ECA at (32, 256, 56, 56), forward and backward: time and peak memory"""
    shape = (8, *SHAPE[1:]) if effort.quick else SHAPE
    x = torch.randn(shape, requires_grad=True)
    for name, least in LEAST.items():
        gate = regard.gate(name, shape[1])
        plain = PLAIN[name]
        mine, other = f"regard.{type(gate).__name__}", "plain torch"
        calls: dict[str, Callable[[], Tensor]] = {
            mine: lambda gate=gate: gate(x),  # type: ignore[misc]
            other: lambda gate=gate, plain=plain: plain(gate, x),  # type: ignore[misc]
        }
        leaves = [x, *gate.parameters()]
        timed = compare({key: backward(call, leaves) for key, call in calls.items()}, effort, grad=True, agree=[other])
        case = f"{type(gate).__name__} {' × '.join(map(str, shape))} +backward"
        yield gain(case, timed, mine, other, least)
        taken = [
            memory.extra(job, {"name": name, "which": which, "batch": shape[0]}, {"batch": 1})
            for which in ("regard", "plain")
        ]
        note = f"{taken[0].megabytes:,.0f} MB to {taken[1].megabytes:,.0f} MB"
        ratio = taken[0].megabytes / taken[1].megabytes
        yield amount(case, f"{mine} : {other}, peak extra memory", "× the memory", ratio, 1.0, note=note)


CASES: dict[str, Case] = {"train": train}
