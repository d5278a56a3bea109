"""Every gate against its paper's formula, written as plain loops over samples, channels and places in float64."""

import itertools
import math
from collections.abc import Iterator

import pytest
import torch
from tests.for_each import for_each
from torch import Tensor, nn

import regard
from regard import Need, Softmax
from regard.gates import (
    BAM,
    CBAM,
    CSRA,
    ECA,
    ChannelGate,
    ContextGating,
    Coordinate,
    External,
    ExternalBlock,
    Gate,
    GlobalAverage,
    MagnitudeSaliency,
    MaxSaliency,
    MultiHeadExternal,
    NonLocal,
    SimAM,
    Spatial,
    SpatialGate,
    SqueezeExcite,
)
from regard.gates.base import BatchNorm

B, C = 2, 5
SPACES = {1: (7,), 2: (4, 3), 3: (2, 3, 4)}
dims_ = pytest.mark.parametrize("dims", [1, 2, 3])


def sigma(z: float) -> float:
    return 1 / (1 + math.exp(-z))


def a_map(dims: int, channels: int = C) -> Tensor:
    return torch.randn(B, channels, *SPACES[dims])


def places(x: Tensor) -> list[tuple[int, ...]]:
    return list(itertools.product(*map(range, x.shape[2:])))


def each(x: Tensor) -> Iterator[tuple[int, int, tuple[int, ...]]]:
    return itertools.product(range(x.shape[0]), range(x.shape[1]), places(x))


def lived(module: nn.Module) -> nn.Module:
    """As after some training: running statistics and affine parameters that are not one and zero."""
    for part in module.modules():
        if isinstance(part, BatchNorm):
            for t, low in ((part.running_mean, -0.5), (part.running_var, 0.5), (part.weight, 0.5), (part.bias, -0.5)):
                nn.init.uniform_(t, low, low + 1)
    return module.eval()


def normed(norm: BatchNorm, c: int, value: float) -> float:
    scaled = (value - norm.running_mean[c].item()) / math.sqrt(norm.running_var[c].item() + norm.eps)
    return scaled * norm.weight[c].item() + norm.bias[c].item()


def dense(layer: nn.Module, vector: list[float]) -> list[float]:
    """A linear layer, or a convolution of width one, at one place."""
    weight, bias = layer.weight.flatten(1).tolist(), layer.bias
    return [
        sum(w * v for w, v in zip(row, vector, strict=True)) + (0.0 if bias is None else bias[o].item())
        for o, row in enumerate(weight)
    ]


def convolved(conv: nn.Module, maps: dict[tuple[int, tuple[int, ...]], float], space: tuple[int, ...]) -> dict:
    """Zero padding that keeps the size; {(channel, place): value}."""
    weight, found = conv.weight, {}
    reach = [conv.dilation[0] * (k - 1) // 2 for k in weight.shape[2:]]
    for o, place in itertools.product(range(weight.shape[0]), itertools.product(*map(range, space))):
        total = 0.0 if conv.bias is None else conv.bias[o].item()
        for i, offset in itertools.product(range(weight.shape[1]), itertools.product(*map(range, weight.shape[2:]))):
            at = tuple(p + k * conv.dilation[0] - r for p, k, r in zip(place, offset, reach, strict=True))
            if (i, at) in maps:
                total += weight[(o, i, *offset)].item() * maps[i, at]
        found[o, place] = total
    return found


def holds(gate: nn.Module, x: Tensor, want: Tensor) -> None:
    """In float32 to 1e-6, and in float64 to rounding."""
    with torch.no_grad():
        torch.testing.assert_close(gate(x).double(), want, rtol=1e-6, atol=1e-6)


def made(x: Tensor) -> Tensor:
    return torch.zeros(x.shape, dtype=torch.float64)


@dims_
@pytest.mark.parametrize("bias", [True, False])
def test_squeeze_excite(dims: int, bias: bool) -> None:
    gate, x = SqueezeExcite(C, 2, bias=bias), a_map(dims)
    want = made(x)
    for b in range(B):
        z = [sum(x[(b, c, *p)].item() for p in places(x)) / len(places(x)) for c in range(C)]
        s = [sigma(v) for v in dense(gate.up, [max(0.0, v) for v in dense(gate.down, z)])]
        for c, p in itertools.product(range(C), places(x)):
            want[(b, c, *p)] = s[c] * x[(b, c, *p)].item()
    holds(gate, x, want)


@dims_
def test_global_average(dims: int) -> None:
    gate, x = GlobalAverage(), a_map(dims)
    want = made(x)
    for b, c, p in each(x):
        want[(b, c, *p)] = sigma(sum(x[(b, c, *q)].item() for q in places(x)) / len(places(x))) * x[(b, c, *p)].item()
    holds(gate, x, want)


@dims_
@pytest.mark.parametrize("name", ["activation=none", "activation=tanh", "normalize=softmax"])
def test_squeeze_excite_part_by_part(dims: int, name: str) -> None:
    """In float64, to 1e-10."""
    gate, x = regard.gate(f"se:reduction=2:{name}", C).double(), a_map(dims).double()
    inner = {"activation=none": float, "activation=tanh": math.tanh}.get(name, lambda v: max(0.0, v))
    want = made(x)
    for b in range(B):
        z = [sum(x[(b, c, *p)].item() for p in places(x)) / len(places(x)) for c in range(C)]
        scores = dense(gate.up, [inner(v) for v in dense(gate.down, z)])
        total = sum(math.exp(s) for s in scores)
        w = [math.exp(s) / total if name == "normalize=softmax" else sigma(s) for s in scores]
        for c, p in itertools.product(range(C), places(x)):
            want[(b, c, *p)] = w[c] * x[(b, c, *p)].item()
    torch.testing.assert_close(gate(x), want, rtol=0, atol=1e-10)
    assert torch.autograd.gradcheck(gate, x[:1, :, :2].clone().requires_grad_(), fast_mode=True)


@dims_
@pytest.mark.parametrize("kernel", [None, 1, 5])
def test_eca(dims: int, kernel: int | None) -> None:
    gate, x = ECA(C, kernel=kernel), a_map(dims)
    weight = gate.conv.weight.flatten().tolist()
    want = made(x)
    for b in range(B):
        z = [sum(x[(b, c, *p)].item() for p in places(x)) / len(places(x)) for c in range(C)]
        for c in range(C):
            near = [c + k - len(weight) // 2 for k in range(len(weight))]
            s = sigma(sum(w * z[n] for w, n in zip(weight, near, strict=True) if 0 <= n < C))
            for p in places(x):
                want[(b, c, *p)] = s * x[(b, c, *p)].item()
    holds(gate, x, want)


@for_each(("channels", "kernel"), [(1, 1), (2, 1), (8, 3), (16, 3), (64, 3), (128, 5), (256, 5), (1024, 5), (2048, 7)])
def test_eca_is_as_wide_as_the_paper_says(channels: int, kernel: int) -> None:
    assert ECA(channels).conv.kernel_size == (kernel,)


def channel_weights(gate: ChannelGate, x: Tensor, b: int) -> list[float]:
    rows = [[x[(b, c, *p)].item() for p in places(x)] for c in range(C)]
    found = []
    for pooled in ([sum(row) / len(row) for row in rows], [max(row) for row in rows]):
        found.append(dense(gate.up, [max(0.0, v) for v in dense(gate.down, pooled)]))
    return [sigma(a + m) for a, m in zip(*found, strict=True)]


def place_weights(gate: SpatialGate, x: Tensor, b: int) -> dict[tuple[int, ...], float]:
    maps = {}
    for p in places(x):
        column = [x[(b, c, *p)].item() for c in range(C)]
        both = [max(column), sum(column) / C]
        for i, value in enumerate(both if gate.order == "max-mean" else both[::-1]):
            maps[i, p] = value
    return {p: sigma(normed(gate.norm, 0, value)) for (_, p), value in convolved(gate.conv, maps, x.shape[2:]).items()}


@dims_
def test_channel_gate(dims: int) -> None:
    gate, x = ChannelGate(C, 2), a_map(dims)
    want = made(x)
    for b, c, p in each(x):
        want[(b, c, *p)] = channel_weights(gate, x, b)[c] * x[(b, c, *p)].item()
    holds(gate, x, want)


@dims_
@pytest.mark.parametrize("order", ["max-mean", "mean-max"])
def test_spatial_gate(dims: int, order: str) -> None:
    gate, x = lived(SpatialGate(3, dims=dims, order=order)), a_map(dims)
    want = made(x)
    for b in range(B):
        w = place_weights(gate, x, b)
        for c, p in itertools.product(range(C), places(x)):
            want[(b, c, *p)] = w[p] * x[(b, c, *p)].item()
    holds(gate, x, want)


@dims_
@pytest.mark.parametrize("order", ["max-mean", "mean-max"])
def test_cbam(dims: int, order: str) -> None:
    gate, x = lived(CBAM(C, 2, 3, dims=dims, order=order)), a_map(dims)
    want = made(x)
    for b in range(B):
        what = torch.tensor(channel_weights(gate.channel, x, b), dtype=torch.float64)
        weighed = x.double() * what.view(1, C, *[1] * dims)
        where = place_weights(gate.spatial, weighed, b)
        for c, p in itertools.product(range(C), places(x)):
            want[(b, c, *p)] = where[p] * weighed[(b, c, *p)].item()
    holds(gate, x, want)


@dims_
@pytest.mark.parametrize("combine", ["sum", "product"])
def test_bam(dims: int, combine: str) -> None:
    gate, x = lived(BAM(C, 2, dilation=2, dims=dims, combine=combine)), a_map(dims)
    want = made(x)
    for b in range(B):
        z = [sum(x[(b, c, *p)].item() for p in places(x)) / len(places(x)) for c in range(C)]
        what = dense(gate.up, [max(0.0, normed(gate.norm, i, v)) for i, v in enumerate(dense(gate.down, z))])
        where = {(c, p): x[(b, c, *p)].item() for c in range(C) for p in places(x)}
        for conv, norm in zip(gate.places[0:9:3], gate.places[1:9:3], strict=True):
            where = {(c, p): max(0.0, normed(norm, c, v)) for (c, p), v in convolved(conv, where, x.shape[2:]).items()}
        where = convolved(gate.places[9], where, x.shape[2:])
        for c, p in itertools.product(range(C), places(x)):
            joined = what[c] + where[0, p] if combine == "sum" else what[c] * where[0, p]
            want[(b, c, *p)] = (1 + sigma(joined)) * x[(b, c, *p)].item()
    holds(gate, x, want)


@dims_
def test_coordinate(dims: int) -> None:
    gate, x = lived(Coordinate(C, min_hidden=3, dims=dims)), a_map(dims)
    want = made(x)
    for b in range(B):
        factors: dict[tuple[int, int, int], float] = {}
        for axis, size in enumerate(x.shape[2:]):
            for i in range(size):
                line = [p for p in places(x) if p[axis] == i]
                mean = [sum(x[(b, c, *p)].item() for p in line) / len(line) for c in range(C)]
                f = [normed(gate.norm, m, v) for m, v in enumerate(dense(gate.down, mean))]
                f = [v * min(max(v + 3, 0.0), 6.0) / 6 for v in f]
                for c, v in enumerate(dense(gate.up[axis], f)):
                    factors[axis, i, c] = sigma(v)
        for c, p in itertools.product(range(C), places(x)):
            want[(b, c, *p)] = x[(b, c, *p)].item() * math.prod(factors[axis, i, c] for axis, i in enumerate(p))
    holds(gate, x, want)


@dims_
@pytest.mark.parametrize("lam", [1e-4, 0.1])
def test_simam(dims: int, lam: float) -> None:
    gate, x = SimAM(lam), a_map(dims)
    want = made(x)
    for b, c, p in each(x):
        row = [x[(b, c, *q)].item() for q in places(x)]
        mean = sum(row) / len(row)
        v = sum((value - mean) ** 2 for value in row) / (len(row) - 1)
        here = x[(b, c, *p)].item()
        want[(b, c, *p)] = here * sigma((here - mean) ** 2 / (4 * (v + lam)) + 0.5)
    holds(gate, x, want)


def test_simam_is_the_inverse_of_the_papers_least_energy() -> None:
    """e* = 4(σ² + λ)/((t − μ)² + 2σ² + 2λ), and the weight is σ(1/e*)."""
    x = torch.randn(2, 3, 5, 7, dtype=torch.float64)
    mean = x.mean((2, 3), keepdim=True)
    v = (x - mean).square().sum((2, 3), keepdim=True) / 34
    energy = 4 * (v + 1e-4) / ((x - mean) ** 2 + 2 * v + 2e-4)
    torch.testing.assert_close(SimAM().weights(x), torch.sigmoid(1 / energy))


@dims_
def test_spatial(dims: int) -> None:
    gate, x = Spatial(C), a_map(dims)
    want = made(x)
    for b, p in itertools.product(range(B), places(x)):
        (score,) = dense(gate.query, [x[(b, c, *p)].item() for c in range(C)])
        for c in range(C):
            want[(b, c, *p)] = sigma(score) * x[(b, c, *p)].item()
    holds(gate, x, want)


@dims_
def test_context_gating(dims: int) -> None:
    """As the head of a widely copied tutorial: a linear layer and a sigmoid, times the input."""
    gate, x = ContextGating(C), a_map(dims)
    want = made(x)
    for b, p in itertools.product(range(B), places(x)):
        values = [x[(b, c, *p)].item() for c in range(C)]
        for c, (score, value) in enumerate(zip(dense(gate.scores, values), values, strict=True)):
            want[(b, c, *p)] = sigma(score) * value
    holds(gate, x, want)


def test_spatial_with_softmax_is_a_distribution_over_places() -> None:
    weights = Spatial(C, normalize=Softmax()).weights(a_map(2))
    torch.testing.assert_close(weights.sum((1, 2, 3)), torch.ones(B))


@dims_
def test_max_saliency_is_max_pooling(dims: int) -> None:
    """Summed over its windows the output is what max pooling gives; also where the last window is cut off."""
    x = a_map(dims)
    pool = {1: nn.functional.max_pool1d, 2: nn.functional.max_pool2d, 3: nn.functional.max_pool3d}[dims]
    add = {1: nn.functional.avg_pool1d, 2: nn.functional.avg_pool2d, 3: nn.functional.avg_pool3d}[dims]
    out = MaxSaliency(2)(x)
    padded = nn.functional.pad(out, [side for n in reversed(x.shape[2:]) for side in (0, n % 2)])
    torch.testing.assert_close(add(padded, 2) * 2**dims, pool(x, 2, ceil_mode=True))
    torch.testing.assert_close(MaxSaliency()(x).flatten(2).sum(-1), x.flatten(2).amax(-1))
    assert MaxSaliency().weights(torch.zeros(1, 1, 3, 3)).sum() == 1


@dims_
@pytest.mark.parametrize("power", [1.0, 2.0, 4.0])
def test_magnitude_saliency(dims: int, power: float) -> None:
    gate, x = MagnitudeSaliency(power), a_map(dims)
    want = made(x)
    for b in range(B):
        active = {p: sum(abs(x[(b, c, *p)].item()) ** power for c in range(C)) for p in places(x)}
        for c, p in itertools.product(range(C), places(x)):
            want[(b, c, *p)] = active[p] / max(active.values()) * x[(b, c, *p)].item()
    holds(gate, x, want)


def external_weights(scores: list[list[float]]) -> list[list[float]]:
    """softmax over places, divided by the sum over slots."""
    exps = [[math.exp(s) for s in row] for row in scores]
    over = [sum(column) for column in zip(*exps, strict=True)]
    shares = [[e / o for e, o in zip(row, over, strict=True)] for row in exps]
    return [[s / sum(row) for s in row] for row in shares]


@dims_
def test_external(dims: int) -> None:
    gate, x = External(C, 3), a_map(dims)
    want = made(x)
    for b in range(B):
        scores = [[sum(x[(b, c, *p)].item() * k[c].item() for c in range(C)) for k in gate.keys] for p in places(x)]
        for p, row in zip(places(x), external_weights(scores), strict=True):
            for c in range(C):
                want[(b, c, *p)] = sum(w * v[c].item() for w, v in zip(row, gate.values, strict=True))
    holds(gate, x, want)


def test_external_of_several_heads() -> None:
    gate, x = MultiHeadExternal(6, 2, 3, widen=2), a_map(2, 6)
    want = made(x)
    for b in range(B):
        wide = [dense(gate.wide, [x[(b, c, *p)].item() for c in range(6)]) for p in places(x)]
        read: list[list[float]] = [[] for _ in wide]
        for head in range(4):
            part = [row[3 * head : 3 * head + 3] for row in wide]
            for n, row in enumerate(external_weights([dense(gate.keys, one) for one in part])):
                read[n] += dense(gate.values, row)
        for p, row in zip(places(x), read, strict=True):
            for c, value in enumerate(dense(gate.narrow, row)):
                want[(b, c, *p)] = value
    holds(gate, x, want)


def test_external_block() -> None:
    gate, x = lived(ExternalBlock(C, External(C, 3))), a_map(2)
    inside = made(x)
    for b, p in itertools.product(range(B), places(x)):
        for c, value in enumerate(dense(gate.before, [x[(b, c, *p)].item() for c in range(C)])):
            inside[(b, c, *p)] = value
    read = gate.attention.double()(inside)
    gate.attention.float()
    want = made(x)
    for b, p in itertools.product(range(B), places(x)):
        for c, value in enumerate(dense(gate.after, [read[(b, c, *p)].item() for c in range(C)])):
            want[(b, c, *p)] = max(0.0, x[(b, c, *p)].item() + normed(gate.norm, c, value))
    holds(gate, x, want)


@dims_
def test_non_local(dims: int) -> None:
    gate, x = NonLocal(C, hidden=3, value=2), a_map(dims)
    assert torch.equal(gate(x), x), "the residual scale starts at zero"
    nn.init.constant_(gate.residual, 0.7)
    want = made(x)
    for b in range(B):
        at = [[x[(b, c, *p)].item() for c in range(C)] for p in places(x)]
        q, k, v = ([dense(layer, one) for one in at] for layer in (gate.query, gate.key, gate.value))
        for i, p in enumerate(places(x)):
            exps = [math.exp(sum(s * t for s, t in zip(q[i], key, strict=True))) for key in k]
            mixed = [sum(e * one[d] for e, one in zip(exps, v, strict=True)) / sum(exps) for d in range(2)]
            for c, value in enumerate(dense(gate.out, mixed)):
                want[(b, c, *p)] = at[i][c] + gate.residual.item() * value
    holds(gate, x, want)
    got = gate.attend(x, need=Need(weights=True))
    assert got.weights.shape == (B, 1, len(places(x)), len(places(x)))
    torch.testing.assert_close(got.weights.sum(-1), torch.ones(B, 1, len(places(x))))


def test_non_local_runs_fused() -> None:
    said = NonLocal(16).explain(torch.randn(2, 16, 8, 8)).splitlines()
    assert [line.split()[:2] for line in said if "runs:" in line] == [["fused", "runs:"]]


@dims_
@pytest.mark.parametrize("heads", [1, 2, 4])
def test_csra(dims: int, heads: int) -> None:
    gate, x = CSRA(C, 3, heads=heads, strength=0.3), a_map(dims)
    want = torch.zeros(B, 3, dtype=torch.float64)
    for b, k, head in itertools.product(range(B), range(3), range(heads)):
        m = gate.weight[head, k].tolist()
        length = math.sqrt(sum(w * w for w in m))
        s = [sum(w * x[(b, c, *p)].item() for c, w in enumerate(m)) / length for p in places(x)]
        temperature = gate.temperatures[head]
        exps = [math.exp(temperature * v) for v in s] if temperature != 99 else [float(v == max(s)) for v in s]
        attended = sum(e * v for e, v in zip(exps, s, strict=True)) / sum(exps)
        want[b, k] += sum(s) / len(s) + 0.3 * attended
    holds(gate, x, want)
    got = gate.attend(x, need=Need(weights=True))
    assert got.weights.shape == (B, heads, 3, len(places(x)))


def test_a_gate_of_ones_own() -> None:
    class Half(Gate):
        def apply_gate(self, x: Tensor, need_weights: bool) -> tuple[Tensor, Tensor | None]:
            return x / 2, torch.full((1,), 0.5) if need_weights else None

    x = a_map(2)
    assert torch.equal(Half()(x), x / 2)
    assert Half().weights(x) == 0.5
