"""Gates that surveys of attention in vision name, against the formulas of their papers: loops, or other operations."""

import itertools
import math

import pytest
import torch
import torch.nn.functional as F
from tests.gates.test_formulas import (
    B,
    C,
    a_map,
    as_map,
    by_channel,
    columns,
    dense,
    dims_,
    holds,
    means,
    normalized,
    place_weights,
    places,
    sigma,
    weighs,
    with_random_norms,
)
from torch import Tensor, nn

from regard.gates import (
    FCA,
    GCT,
    SRM,
    ConcurrentGate,
    ContextEncoding,
    DoubleAttention,
    DualAttention,
    GatherExcite,
    GlobalAverage,
    GlobalContext,
    GroupEnhance,
    GSoP,
    LargeKernel,
    OffsetAttention,
    SelectiveKernel,
    SplitAttention,
    StripPooling,
    Triplet,
)
from regard.gates.channel_statistics import lowest_frequencies


def random(module: nn.Module) -> nn.Module:
    """No parameter is zero, and the norms are as after some training."""
    for parameter in module.parameters():
        nn.init.normal_(parameter, 0.0, 0.7)
    return with_random_norms(module)


def softmax(scores: list[float]) -> list[float]:
    exps = [math.exp(score - max(scores)) for score in scores]
    return [e / sum(exps) for e in exps]


@dims_
def test_gct(dims: int) -> None:
    gate = random(GCT(C))

    def weights(sample: Tensor) -> Tensor:
        norms = [math.sqrt(sum(v * v for v in row) + 1e-5) for row in sample.flatten(1).tolist()]
        s = [a * norm for a, norm in zip(gate.alpha.tolist(), norms, strict=True)]
        length = math.sqrt(sum(v * v for v in s) + 1e-5)
        terms = zip(gate.gamma.tolist(), s, gate.beta.tolist(), strict=True)
        return by_channel([1 + math.tanh(g * math.sqrt(C) * v / length + b) for g, v, b in terms], sample)

    weighs(gate, a_map(dims), weights)
    x = a_map(dims)
    assert torch.equal(GCT(C)(x), x), "the identity at first"


@dims_
def test_srm(dims: int) -> None:
    gate = random(SRM(C))

    def weights(sample: Tensor) -> Tensor:
        found = []
        for c, (row, mean) in enumerate(zip(sample.flatten(1).tolist(), means(sample), strict=True)):
            deviation = math.sqrt(sum((v - mean) ** 2 for v in row) / len(row) + 1e-5)
            u, v = gate.style[c].tolist()
            found.append(sigma(normalized(gate.norm, c, u * mean + v * deviation)))
        return by_channel(found, sample)

    weighs(gate, a_map(dims), weights)


@dims_
def test_fca(dims: int) -> None:
    gate = FCA(C, 2, frequencies=3)
    frequencies = {1: [(0,), (1,), (2,)], 2: [(0, 0), (0, 1), (1, 0)], 3: [(0, 0, 0), (0, 0, 1), (0, 1, 0)]}[dims]
    assert lowest_frequencies(3, dims) == frequencies

    def weights(sample: Tensor) -> Tensor:
        z = []
        for c, frequency in enumerate(frequencies[part] for part in (0, 0, 1, 1, 2)):
            total = 0.0
            for p in places(sample[None]):
                axes = zip(frequency, p, sample.shape[1:], strict=True)
                total += sample[(c, *p)].item() * math.prod(math.cos(math.pi * f * (i + 0.5) / n) for f, i, n in axes)
            z.append(total / len(places(sample[None])))
        return by_channel([sigma(v) for v in dense(gate.up, [max(0.0, v) for v in dense(gate.down, z)])], sample)

    weighs(gate, a_map(dims), weights)


def test_the_frequencies_are_the_lowest() -> None:
    for count, dims in itertools.product((1, 4, 16, 40), (1, 2, 3)):
        found = lowest_frequencies(count, dims)
        everything = itertools.product(range(count), repeat=dims)
        assert found == sorted(everything, key=lambda frequency: (sum(frequency), frequency))[:count]


@dims_
def test_gsop(dims: int) -> None:
    gate = GSoP(C, 2)

    def weights(sample: Tensor) -> Tensor:
        rows = torch.tensor([dense(gate.down, column) for column in columns(sample)], dtype=torch.float64)
        covariance = torch.cov(rows.T, correction=0).view(rows.shape[1], -1).tolist()
        read = []
        for row, layer in zip(covariance, gate.rows.tolist(), strict=True):
            values = [sum(a * b for a, b in zip(row, out, strict=True)) for out in layer]
            read += [max(value, 0.1 * value) for value in values]
        return by_channel([sigma(v) for v in dense(gate.up, read)], sample)

    weighs(gate, a_map(dims), weights)


@dims_
def test_context_encoding(dims: int) -> None:
    gate = random(ContextEncoding(C, codewords=3))

    def weights(sample: Tensor) -> Tensor:
        words, e = gate.codewords.tolist(), [[0.0] * C for _ in range(3)]
        for column in columns(sample):
            differences = [[x - d for x, d in zip(column, word, strict=True)] for word in words]
            scores = [-s * sum(v * v for v in r) for s, r in zip(gate.smoothing.tolist(), differences, strict=True)]
            for k, share in enumerate(softmax(scores)):
                e[k] = [total + share * r for total, r in zip(e[k], differences[k], strict=True)]
        rows = [[max(0.0, normalized(gate.norm, k, v)) for v in row] for k, row in enumerate(e)]
        return by_channel(
            [sigma(v) for v in dense(gate.excite, [sum(column) for column in zip(*rows, strict=True)])], sample
        )

    weighs(gate, a_map(dims), weights)


@dims_
def test_triplet(dims: int) -> None:
    gate = random(Triplet(kernel=3, dims=dims))

    def weights(sample: Tensor) -> Tensor:
        planes = []
        for axis, branch in enumerate(gate.branches):
            turned = sample.transpose(0, axis)
            mean = turned.mean(0, keepdim=True)
            pooled = torch.cat([turned.amax(0, keepdim=True), mean])
            scores = nn.functional.conv3d if dims == 3 else nn.functional.conv2d if dims == 2 else nn.functional.conv1d
            score = scores(pooled[None], branch.conv.weight.double(), padding=1)[0, 0]
            running = [normalized(branch.norm, 0, value) for value in score.flatten().tolist()]
            plane = torch.tensor([sigma(value) for value in running], dtype=torch.float64).view(1, *score.shape)
            planes.append(plane.transpose(0, axis))
        return sum(planes) / len(planes)

    weighs(gate, a_map(dims), weights)


def test_the_first_plane_of_triplet_is_the_spatial_gate_of_cbam() -> None:
    gate, x = random(Triplet(kernel=3)), a_map(2)
    want = torch.stack([place_weights(gate.branches[0], sample.double()) for sample in x]).unsqueeze(1)
    torch.testing.assert_close(gate.branches[0].weights(x).double(), want, rtol=1e-5, atol=1e-6)


@dims_
def test_scse(dims: int) -> None:
    gate = random(ConcurrentGate(C))

    def weights(sample: Tensor) -> Tensor:
        hidden = [max(0.0, v) for v in dense(gate.channel.down, means(sample))]
        of_channels = by_channel([sigma(v) for v in dense(gate.channel.up, hidden)], sample)
        of_places = [sigma(dense(gate.spatial.query, column)[0]) for column in columns(sample)]
        return of_channels + torch.tensor(of_places, dtype=torch.float64).view(sample.shape[1:])

    weighs(gate, a_map(dims), weights)


@dims_
def test_strip_pooling(dims: int) -> None:
    gate = random(StripPooling(C, dims=dims))

    def weights(sample: Tensor) -> Tensor:
        crossed = torch.zeros(sample.shape, dtype=torch.float64)
        for axis, (conv, norm) in enumerate(gate.strips):
            n = sample.shape[axis + 1]
            lines = [means(sample.select(axis + 1, i).reshape(C, -1)) for i in range(n)]
            for i, o in itertools.product(range(n), range(C)):
                near = [(t, i + t - 1) for t in range(3) if 0 <= i + t - 1 < n]
                total = sum(conv.weight[o, c, t].item() * lines[at][c] for t, at in near for c in range(C))
                crossed.select(axis + 1, i)[o] += normalized(norm, o, total)
        rows = [dense(gate.mix, [max(0.0, v) for v in column]) for column in columns(crossed)]
        return torch.sigmoid(as_map(rows, sample))

    weighs(gate, a_map(dims), weights)


@dims_
@pytest.mark.parametrize("extent", [1, 2, 3, 9])
def test_gather_excite(dims: int, extent: int) -> None:
    def weights(sample: Tensor) -> Tensor:
        found = torch.empty(sample.shape, dtype=torch.float64)
        for p in places(sample[None]):
            window = tuple(slice(max(0, i // extent * extent - extent + 1), i // extent * extent + extent) for i in p)
            for c in range(C):
                values = sample[(c, *window)].flatten().tolist()
                found[(c, *p)] = sigma(sum(values) / len(values))
        return found

    weighs(GatherExcite(extent=extent), a_map(dims), weights)


def test_gathering_all_is_global_average() -> None:
    x = a_map(2)
    torch.testing.assert_close(GatherExcite(extent=9)(x), GlobalAverage()(x))


@dims_
def test_large_kernel(dims: int) -> None:
    """The two convolutions of single channels are one of the product of their kernels."""
    gate, x = LargeKernel(C, kernel=3, far=3, dilation=2, dims=dims).double(), a_map(dims).double()
    apply = (F.conv1d, F.conv2d, F.conv3d)[dims - 1]
    near = apply(x, gate.near.weight, gate.near.bias, padding=1, groups=C)
    far = apply(near, gate.far.weight, gate.far.bias, padding=2, dilation=2, groups=C)
    want = torch.stack([as_map([dense(gate.mix, column) for column in columns(one)], one) for one in far])
    torch.testing.assert_close(gate(x), want * x)


@dims_
def test_group_enhance(dims: int) -> None:
    gate = random(GroupEnhance(6, 2))

    def weights(sample: Tensor) -> Tensor:
        found = []
        for g in range(2):
            group = sample[3 * g : 3 * g + 3]
            mean = means(group)
            s = [sum(a * b for a, b in zip(column, mean, strict=True)) for column in columns(group)]
            centre = sum(s) / len(s)
            deviation = math.sqrt(sum((v - centre) ** 2 for v in s) / len(s) + 1e-5)
            scaled = [gate.gamma[g].item() * (v - centre) / deviation + gate.beta[g].item() for v in s]
            found += [[sigma(v) for v in scaled]] * 3
        return torch.tensor(found, dtype=torch.float64).view(sample.shape)

    weighs(gate, a_map(dims, 6), weights)


# Blocks


def attended(queries: list[list[float]], keys: list[list[float]], values: list[list[float]]) -> list[list[float]]:
    """softmax(q · k) v in loops."""
    rows = []
    for query in queries:
        weights = softmax([sum(a * b for a, b in zip(query, key, strict=True)) for key in keys])
        rows.append([sum(w * v for w, v in zip(weights, column, strict=True)) for column in zip(*values, strict=True)])
    return rows


@dims_
def test_global_context(dims: int) -> None:
    gate = random(GlobalContext(C))

    def block(sample: Tensor) -> Tensor:
        rows = columns(sample)
        (context,) = attended(gate.context.query.tolist(), rows, rows)
        hidden = dense(gate.down, context)
        mean = sum(hidden) / len(hidden)
        deviation = math.sqrt(sum((v - mean) ** 2 for v in hidden) / len(hidden) + gate.norm.eps)
        terms = zip(hidden, gate.norm.weight.tolist(), gate.norm.bias.tolist(), strict=True)
        hidden = [max(0.0, (v - mean) / deviation * w + b) for v, w, b in terms]
        return sample + gate.residual.item() * by_channel(dense(gate.up, hidden), sample)

    x = a_map(dims)
    holds(gate, x, torch.stack([block(sample.double()) for sample in x]))


@dims_
def test_double_attention(dims: int) -> None:
    gate = random(DoubleAttention(C, features=3, value=2))

    def block(sample: Tensor) -> Tensor:
        rows = columns(sample)
        gathered = attended(gate.gather.query.tolist(), rows, [dense(gate.value, row) for row in rows])
        read = attended(rows, gate.keys.tolist(), gathered)
        return sample + gate.residual.item() * as_map([dense(gate.out, row) for row in read], sample)

    x = a_map(dims)
    holds(gate, x, torch.stack([block(sample.double()) for sample in x]))


@dims_
def test_dual_attention(dims: int) -> None:
    gate = random(DualAttention(C, 2))

    def block(sample: Tensor) -> Tensor:
        rows, lines = columns(sample), sample.flatten(1).tolist()
        q, k, v = ([dense(layer, row) for row in rows] for layer in (gate.query, gate.key, gate.value))
        of_channels = torch.tensor(attended(lines, lines, lines), dtype=torch.float64).view(sample.shape)
        of_places = as_map(attended(q, k, v), sample)
        return sample + gate.position_residual.item() * of_places + gate.channel_residual.item() * of_channels

    x = a_map(dims)
    holds(gate, x, torch.stack([block(sample.double()) for sample in x]))


@dims_
def test_offset_attention(dims: int) -> None:
    """As in the authors' code: softmax over the queries' axis of symmetric energies, then sums of one per query."""
    gate = random(OffsetAttention(C, 2)).double()

    def block(sample: Tensor) -> Tensor:
        rows = torch.tensor(columns(sample), dtype=torch.float64)
        q = rows @ gate.query.weight.T
        attention = torch.softmax(q @ q.T, -1)
        attention = attention / attention.sum(0, keepdim=True)
        read = attention.T @ (rows @ gate.value.weight.T + gate.value.bias)
        offset = (rows - read) @ gate.out.weight.T + gate.out.bias
        added = [[max(0.0, normalized(gate.norm, c, v)) for c, v in enumerate(row)] for row in offset.tolist()]
        return sample + as_map(added, sample)

    x = a_map(dims).double()
    holds(gate, x, torch.stack([block(sample) for sample in x]).detach())


@pytest.mark.parametrize("dims", [1, 2])
@pytest.mark.parametrize("kind", [SelectiveKernel, SplitAttention])
def test_branches(kind: type[SelectiveKernel | SplitAttention], dims: int) -> None:
    gate, x = random(kind(C, dims=dims)).double(), a_map(dims).double()
    apply = (F.conv1d, F.conv2d)[dims - 1]
    dilations = [1, 2] if kind is SelectiveKernel else [1, 1]
    values = []
    for dilation, (conv, norm, _) in zip(dilations, gate.branches, strict=True):
        made = apply(x, conv.weight, padding=dilation, dilation=dilation)
        values.append(torch.relu(F.batch_norm(made, norm.running_mean, norm.running_var, norm.weight, norm.bias)))
    want = []
    for sample in range(B):
        z = means(values[0][sample] + values[1][sample])
        hidden = [max(0.0, normalized(gate.norm, i, v)) for i, v in enumerate(dense(gate.down, z))]
        scores = dense(gate.up, hidden)
        shares = [softmax([scores[c], scores[C + c]]) for c in range(C)]
        first, second = (by_channel([share[m] for share in shares], values[m][sample]) for m in (0, 1))
        want.append(first * values[0][sample] + second * values[1][sample])
    torch.testing.assert_close(gate(x), torch.stack(want))
    assert gate.down.out_features == 32


def test_hidden_width_of_branches() -> None:
    """As in the authors' code: max(channels / reduction, 32), and max(radix · channels / reduction, 32)."""
    for channels, reduction, radix in ((24, 2, 2), (96, 2, 2), (96, 4, 3)):
        selective = SelectiveKernel(channels, reduction, kernels=radix, dims=1)
        assert selective.down.out_features == max(channels // reduction, 32)
        split = SplitAttention(channels, reduction, radix=radix, dims=1)
        assert split.down.out_features == max(radix * channels // reduction, 32)
