"""Every gate against its paper's formula, written as plain loops over samples, channels and places in float64."""

import itertools
import math
from collections.abc import Callable, Iterable

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


def with_random_norms(module: nn.Module) -> nn.Module:
    """As after some training: running statistics and affine parameters that are not one and zero."""
    for part in module.modules():
        if isinstance(part, BatchNorm):
            for t, low in ((part.running_mean, -0.5), (part.running_var, 0.5), (part.weight, 0.5), (part.bias, -0.5)):
                nn.init.uniform_(t, low, low + 1)
    return module.eval()


def normalized(norm: BatchNorm, c: int, value: float) -> float:
    scaled = (value - norm.running_mean[c].item()) / math.sqrt(norm.running_var[c].item() + norm.eps)
    return scaled * norm.weight[c].item() + norm.bias[c].item()


def dense(layer: nn.Module, vector: list[float]) -> list[float]:
    """A linear layer, or a convolution of width one, at one place."""
    weight, bias = layer.weight.flatten(1).tolist(), layer.bias
    return [inner(row, vector) + (0.0 if bias is None else bias[o].item()) for o, row in enumerate(weight)]


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


def weighs(gate: nn.Module, x: Tensor, weights: Callable[[Tensor], Tensor]) -> None:
    """The output is that of weights which broadcast to a sample, "c *s" -> "c *s", computed in float64."""
    holds(gate, x, torch.stack([weights(sample.double()) * sample for sample in x]))


def inner(a: Iterable[float], b: Iterable[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))


def means(sample: Tensor) -> list[float]:
    """z, the mean of every channel."""
    return [sum(channel) / len(channel) for channel in sample.flatten(1).tolist()]


def by_channel(weights: list[float], sample: Tensor) -> Tensor:
    return torch.tensor(weights, dtype=torch.float64).view(-1, *[1] * (sample.ndim - 1))


def by_place(weights: Iterable[float], sample: Tensor) -> Tensor:
    """Weights in the order of `places`."""
    return torch.tensor(list(weights), dtype=torch.float64).view(sample.shape[1:])


@dims_
@pytest.mark.parametrize("bias", [True, False])
def test_squeeze_excite(dims: int, bias: bool) -> None:
    gate = SqueezeExcite(C, 2, bias=bias)

    def weights(sample: Tensor) -> Tensor:
        hidden = [max(0.0, v) for v in dense(gate.down, means(sample))]
        return by_channel([sigma(v) for v in dense(gate.up, hidden)], sample)

    weighs(gate, a_map(dims), weights)


@dims_
def test_global_average(dims: int) -> None:
    weighs(GlobalAverage(), a_map(dims), lambda sample: by_channel([sigma(z) for z in means(sample)], sample))
    weighs(regard.gate("gap:normalize=none", C, dims), a_map(dims), lambda sample: by_channel(means(sample), sample))


@dims_
@pytest.mark.parametrize("name", ["activation=none", "activation=tanh", "normalize=softmax"])
def test_squeeze_excite_part_by_part(dims: int, name: str) -> None:
    """Also in float64, with its gradient."""
    gate, x = regard.gate(f"se:reduction=2:{name}", C).double(), a_map(dims).double()
    activation = {"activation=none": float, "activation=tanh": math.tanh}.get(name, lambda v: max(0.0, v))

    def weights(sample: Tensor) -> Tensor:
        scores = dense(gate.up, [activation(v) for v in dense(gate.down, means(sample))])
        total = sum(math.exp(s) for s in scores)
        return by_channel([math.exp(s) / total if name == "normalize=softmax" else sigma(s) for s in scores], sample)

    weighs(gate, x, weights)
    assert torch.autograd.gradcheck(gate, x[:1, :, :2].clone().requires_grad_(), fast_mode=True)


@dims_
@pytest.mark.parametrize("kernel", [None, 1, 5])
def test_eca(dims: int, kernel: int | None) -> None:
    gate = ECA(C, kernel=kernel)
    kernel_weights = gate.conv.weight.flatten().tolist()

    def weight(z: list[float], c: int) -> float:
        near = [c + k - len(kernel_weights) // 2 for k in range(len(kernel_weights))]
        return sigma(sum(w * z[n] for w, n in zip(kernel_weights, near, strict=True) if 0 <= n < C))

    weighs(gate, a_map(dims), lambda sample: by_channel([weight(means(sample), c) for c in range(C)], sample))


@for_each(("channels", "kernel"), [(1, 1), (2, 1), (8, 3), (16, 3), (64, 3), (128, 5), (256, 5), (1024, 5), (2048, 7)])
def test_eca_is_as_wide_as_the_paper_says(channels: int, kernel: int) -> None:
    conv = ECA(channels).conv
    assert conv.kernel_size == (kernel,)
    assert conv.bias is None


def channel_weights(gate: ChannelGate, sample: Tensor) -> Tensor:
    parts = [
        dense(gate.up, [max(0.0, v) for v in dense(gate.down, pooled)])
        for pooled in (means(sample), [max(channel) for channel in sample.flatten(1).tolist()])
    ]
    return by_channel([sigma(mean + maximum) for mean, maximum in zip(*parts, strict=True)], sample)


def place_weights(gate: SpatialGate, sample: Tensor) -> Tensor:
    maps = {}
    for p in places(sample[None]):
        column = sample[(slice(None), *p)].tolist()
        both = [max(column), sum(column) / C]
        for i, value in enumerate(both if gate.order == "max-mean" else both[::-1]):
            maps[i, p] = value
    scores = convolved(gate.conv, maps, sample.shape[1:]).values()
    return by_place([sigma(normalized(gate.norm, 0, score)) for score in scores], sample)


@dims_
def test_channel_gate(dims: int) -> None:
    gate = ChannelGate(C, 2)
    weighs(gate, a_map(dims), lambda sample: channel_weights(gate, sample))


@dims_
@pytest.mark.parametrize("order", ["max-mean", "mean-max"])
def test_spatial_gate(dims: int, order: str) -> None:
    gate = with_random_norms(SpatialGate(3, dims=dims, order=order))
    weighs(gate, a_map(dims), lambda sample: place_weights(gate, sample))


@dims_
@pytest.mark.parametrize("order", ["max-mean", "mean-max"])
def test_cbam(dims: int, order: str) -> None:
    gate = with_random_norms(CBAM(C, 2, 3, dims=dims, order=order))

    def weights(sample: Tensor) -> Tensor:
        of_channels = channel_weights(gate.channel, sample)
        return of_channels * place_weights(gate.spatial, of_channels * sample)

    weighs(gate, a_map(dims), weights)


@dims_
@pytest.mark.parametrize("combine", ["sum", "product"])
def test_bam(dims: int, combine: str) -> None:
    gate = with_random_norms(BAM(C, 2, dilation=2, dims=dims, combine=combine))

    def weights(sample: Tensor) -> Tensor:
        hidden = [max(0.0, normalized(gate.norm, i, v)) for i, v in enumerate(dense(gate.down, means(sample)))]
        of_channels = by_channel(dense(gate.up, hidden), sample)
        where = {(c, p): sample[(c, *p)].item() for c in range(C) for p in places(sample[None])}
        for conv, norm in zip(gate.places[0:9:3], gate.places[1:9:3], strict=True):
            values = convolved(conv, where, sample.shape[1:])
            where = {(c, p): max(0.0, normalized(norm, c, value)) for (c, p), value in values.items()}
        of_places = by_place(convolved(gate.places[9], where, sample.shape[1:]).values(), sample)
        return 1 + torch.sigmoid(of_channels + of_places if combine == "sum" else of_channels * of_places)

    weighs(gate, a_map(dims), weights)


@dims_
def test_coordinate(dims: int) -> None:
    gate = with_random_norms(Coordinate(C, min_hidden=3, dims=dims))

    def weights(sample: Tensor) -> Tensor:
        product = torch.ones(sample.shape, dtype=torch.float64)
        for axis, size in enumerate(sample.shape[1:]):
            for i in range(size):
                line = sample.select(axis + 1, i)
                f = [normalized(gate.norm, m, v) for m, v in enumerate(dense(gate.down, means(line.unsqueeze(-1))))]
                f = [v * min(max(v + 3, 0.0), 6.0) / 6 for v in f]
                factors = by_channel([sigma(v) for v in dense(gate.up[axis], f)], sample).squeeze(-1)
                product.select(axis + 1, i).mul_(factors)
        return product

    weighs(gate, a_map(dims), weights)


@dims_
@pytest.mark.parametrize("lam", [1e-4, 0.1])
def test_simam(dims: int, lam: float) -> None:
    def weights(sample: Tensor) -> Tensor:
        rows = []
        for row, mean in zip(sample.flatten(1).tolist(), means(sample), strict=True):
            v = sum((value - mean) ** 2 for value in row) / (len(row) - 1)
            rows.append([sigma((value - mean) ** 2 / (4 * (v + lam)) + 0.5) for value in row])
        return torch.tensor(rows, dtype=torch.float64).view(sample.shape)

    weighs(SimAM(lam), a_map(dims), weights)


def test_simam_is_the_inverse_of_the_papers_least_energy() -> None:
    """e* = 4(σ² + λ)/((t − μ)² + 2σ² + 2λ), and the weight is σ(1/e*)."""
    x = torch.randn(2, 3, 5, 7, dtype=torch.float64)
    mean = x.mean((2, 3), keepdim=True)
    v = (x - mean).square().sum((2, 3), keepdim=True) / 34
    energy = 4 * (v + 1e-4) / ((x - mean) ** 2 + 2 * v + 2e-4)
    torch.testing.assert_close(SimAM().weights(x), torch.sigmoid(1 / energy))


def columns(sample: Tensor) -> list[list[float]]:
    """The channels at every place."""
    return sample.flatten(1).T.tolist()


@dims_
def test_spatial(dims: int) -> None:
    gate = Spatial(C)
    weighs(
        gate,
        a_map(dims),
        lambda sample: by_place([sigma(dense(gate.query, column)[0]) for column in columns(sample)], sample),
    )


@dims_
def test_context_gating(dims: int) -> None:
    """As the head of a widely copied tutorial: a linear layer and a sigmoid, times the input."""
    gate = ContextGating(C)

    def weights(sample: Tensor) -> Tensor:
        rows = [[sigma(score) for score in dense(gate.scores, column)] for column in columns(sample)]
        return as_map(rows, sample)

    weighs(gate, a_map(dims), weights)


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
    def weights(sample: Tensor) -> Tensor:
        active = [sum(abs(value) ** power for value in column) for column in columns(sample)]
        return by_place([value / max(active) for value in active], sample)

    weighs(MagnitudeSaliency(power), a_map(dims), weights)


def external_weights(scores: list[list[float]]) -> list[list[float]]:
    """softmax over places, divided by the sum over slots."""
    exps = [[math.exp(s) for s in row] for row in scores]
    over = [sum(column) for column in zip(*exps, strict=True)]
    shares = [[e / o for e, o in zip(row, over, strict=True)] for row in exps]
    return [[s / sum(row) for s in row] for row in shares]


def as_map(rows: list[list[float]], sample: Tensor) -> Tensor:
    """The channels of every place as a map."""
    return torch.tensor(rows, dtype=torch.float64).T.unflatten(1, sample.shape[1:])


@dims_
def test_external(dims: int) -> None:
    gate, x = External(C, 3), a_map(dims)
    keys, values = gate.keys.tolist(), gate.values.T.tolist()

    def read(sample: Tensor) -> Tensor:
        weights = external_weights([[inner(key, column) for key in keys] for column in columns(sample)])
        return as_map([[inner(row, value) for value in values] for row in weights], sample)

    holds(gate, x, torch.stack([read(sample) for sample in x]))


def test_external_of_several_heads() -> None:
    gate, x = MultiHeadExternal(6, 2, 3, widen=2), a_map(2, 6)

    def read(sample: Tensor) -> Tensor:
        wide = [dense(gate.wide, column) for column in columns(sample)]
        rows: list[list[float]] = [[] for _ in wide]
        for head in range(4):
            scores = [dense(gate.keys, row[3 * head : 3 * head + 3]) for row in wide]
            for row, weights in zip(rows, external_weights(scores), strict=True):
                row += dense(gate.values, weights)
        return as_map([dense(gate.narrow, row) for row in rows], sample)

    holds(gate, x, torch.stack([read(sample) for sample in x]))


def test_external_block() -> None:
    gate, x = with_random_norms(ExternalBlock(C, External(C, 3))), a_map(2)
    before = torch.stack([as_map([dense(gate.before, column) for column in columns(sample)], sample) for sample in x])
    read = gate.attention.double()(before)
    gate.attention.float()

    def block(sample: Tensor, read: Tensor) -> Tensor:
        after = [dense(gate.after, column) for column in columns(read)]
        normalized_rows = [[normalized(gate.norm, c, value) for c, value in enumerate(row)] for row in after]
        return torch.relu(sample + as_map(normalized_rows, sample))

    holds(gate, x, torch.stack([block(*each) for each in zip(x, read, strict=True)]))


@dims_
def test_non_local(dims: int) -> None:
    gate, x = NonLocal(C, hidden=3, value=2), a_map(dims)
    assert torch.equal(gate(x), x), "the residual scale starts at zero"
    nn.init.constant_(gate.residual, 0.7)

    def block(sample: Tensor) -> Tensor:
        rows = columns(sample)
        q, k, v = ([dense(layer, row) for row in rows] for layer in (gate.query, gate.key, gate.value))
        read = []
        for query in q:
            exps = [math.exp(inner(query, key)) for key in k]
            read.append([inner(exps, values) / sum(exps) for values in zip(*v, strict=True)])
        return sample + gate.residual * as_map([dense(gate.out, row) for row in read], sample)

    want = torch.stack([block(sample) for sample in x]).detach()
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


def test_a_subclass_is_a_gate() -> None:
    class Half(Gate):
        def apply_gate(self, x: Tensor, need_weights: bool) -> tuple[Tensor, Tensor | None]:
            return x / 2, torch.full((1,), 0.5) if need_weights else None

    x = a_map(2)
    assert torch.equal(Half()(x), x / 2)
    assert Half().weights(x) == 0.5
