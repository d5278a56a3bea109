"""Rotary positions, by their formulas: frequencies, scalings, parts of a head and several axes."""

import itertools
import math

import pytest
import torch
from tests.for_each import for_each
from torch import Tensor

import regard
from regard import MultiHead, Rotary
from regard.positions import (
    AxialSections,
    DynamicNTKScaling,
    LinearScaling,
    Llama3Scaling,
    LongRoPEScaling,
    MRoPESections,
    NTKScaling,
    ProportionalScaling,
    RotaryScaling,
    YaRNScaling,
)

DIM, BASE, L = 12, 100.0, 11
SHORT, LONG = (1.0, 1.1, 1.3, 1.5, 2.0, 2.5), (1.0, 1.5, 2.0, 3.0, 4.0, 5.0)
FIXED: dict[str, RotaryScaling] = {
    "linear": LinearScaling(3.0),
    "proportional": ProportionalScaling(0.5, 2.0),
    "ntk": NTKScaling(3.0),
    "dynamic, length": DynamicNTKScaling(3.0, L, length=17),
    "yarn": YaRNScaling(4.0, L, fast=2.0, slow=0.5),
    "yarn, whole": YaRNScaling(4.0, L, fast=2.0, slow=0.1, truncate=False, attention_factor=1.5),
    "longrope, length": LongRoPEScaling(4.0, L, SHORT, LONG, length=17),
    "llama3": Llama3Scaling(8.0, 0.2, 1.0, L),
}
MOVING: dict[str, RotaryScaling] = {
    "dynamic": DynamicNTKScaling(3.0, L),
    "longrope": LongRoPEScaling(4.0, L, SHORT, LONG),
}


@pytest.mark.parametrize("pairs", ["halves", "neighbours"])
def test_rotary_turns_pairs_by_position_times_rate(pairs: str) -> None:
    x = torch.randn(3, 6, dtype=torch.float64)
    got = Rotary(6, base=100.0, pairs=pairs)(x, start=2)
    for n in range(3):
        for c in range(3):
            a, b = (c, c + 3) if pairs == "halves" else (2 * c, 2 * c + 1)
            turn = complex(math.cos(t := (n + 2) * 100.0 ** (-2 * c / 6)), math.sin(t))
            want = complex(x[n, a], x[n, b]) * turn
            assert got[n, a].item() == pytest.approx(want.real, abs=1e-6)
            assert got[n, b].item() == pytest.approx(want.imag, abs=1e-6)


@pytest.mark.parametrize("pairs", ["halves", "neighbours"])
def test_rotary_products_depend_on_distance_alone(pairs: str) -> None:
    turn = Rotary(8, pairs=pairs)
    q, k = torch.randn(5, 8, dtype=torch.float64), torch.randn(7, 8, dtype=torch.float64)
    here = turn(q, start=2) @ turn(k).T
    there = turn(q, start=902) @ turn(k, start=900).T
    torch.testing.assert_close(here, there, atol=1e-3, rtol=0)  # angles are float32
    torch.testing.assert_close(turn(q).norm(dim=-1), q.norm(dim=-1), atol=1e-6, rtol=0)


def test_rotary_takes_a_row_of_positions_for_each_sample() -> None:
    x = torch.randn(2, 3, 5, 4)
    places = torch.tensor([[0, 1, 2, 3, 4], [7, 8, 9, 10, 11]])
    got = Rotary(4)(x, places)
    torch.testing.assert_close(got[0], Rotary(4)(x[0]))
    torch.testing.assert_close(got[1], Rotary(4)(x[1], start=7))


def rates_of(scaling: RotaryScaling, tokens: int) -> list[float]:
    """The formulas in plain floats."""
    plain = [BASE ** (-2 * k / DIM) for k in range(DIM // 2)]
    turns = [L * rate / (2 * math.pi) for rate in plain]
    match scaling:
        case LinearScaling(factor):
            return [rate / factor for rate in plain]
        case ProportionalScaling(share, factor):
            return [rate / factor if k < share * DIM / 2 else 0.0 for k, rate in enumerate(plain)]
        case NTKScaling(factor):
            # the first pair as before, the last `factor` times as slowly, and geometrically between them
            return [rate / factor ** (k / (DIM / 2 - 1)) for k, rate in enumerate(plain)]
        case DynamicNTKScaling(factor, original, length):
            n = max(length or tokens, original)
            growth = factor * n / original - factor + 1
            return [rate / growth ** (k / (DIM / 2 - 1)) for k, rate in enumerate(plain)]
        case LongRoPEScaling(_, original, short, long, _, length):
            factors = long if (length or tokens) > original else short
            return [rate / factor for rate, factor in zip(plain, factors, strict=True)]
        case Llama3Scaling(factor, low, high, _):
            shares = [min(max((turn - low) / (high - low), 0), 1) for turn in turns]
        case YaRNScaling(factor, _, fast, slow, _, truncate):
            # the pair that turns t times over L tokens: L base^(-2k/d) / 2 pi = t
            ends = [DIM / 2 * math.log(L / (2 * math.pi * t)) / math.log(BASE) for t in (fast, slow)]
            ends = [math.floor(ends[0]), math.ceil(ends[1])] if truncate else ends
            first, last = max(ends[0], 0), min(ends[1], DIM - 1)
            shares = [1 - min(max((k - first) / (last - first), 0), 1) for k in range(DIM // 2)]
        case _:
            raise AssertionError(scaling)
    assert any(0 < share < 1 for share in shares)
    return [rate * (share + (1 - share) / factor) for rate, share in zip(plain, shares, strict=True)]


def amplitude_of(scaling: RotaryScaling) -> float:
    match scaling:
        case YaRNScaling(factor, attention_factor=given):
            return given or 0.1 * math.log(factor) + 1
        case LongRoPEScaling(factor, original):
            return math.sqrt(1 + math.log(factor) / math.log(original))
        case _:
            return 1.0


@for_each("name", [*FIXED, *MOVING])
def test_scalings_are_their_formulas(name: str) -> None:
    scaling = (FIXED | MOVING)[name]
    for tokens in (5, 16):  # within and beyond the length of the training
        x = torch.randn(tokens, DIM, dtype=torch.float64)
        got = Rotary(DIM, base=BASE, scaling=scaling)(x)
        given = Rotary(DIM, base=BASE, scaling=scaling)(x, torch.arange(tokens))
        torch.testing.assert_close(got, given, rtol=0, atol=1e-5)
        for k, rate in enumerate(rates_of(scaling, tokens)):
            for n in range(tokens):
                turn = complex(math.cos(n * rate), math.sin(n * rate)) * amplitude_of(scaling)
                want = complex(x[n, k], x[n, k + DIM // 2]) * turn
                assert got[n, k].item() == pytest.approx(want.real, abs=2e-5)
                assert got[n, k + DIM // 2].item() == pytest.approx(want.imag, abs=2e-5)


@for_each("name", [*FIXED, *MOVING])
def test_only_the_amplitude_remains_at_position_0(name: str) -> None:
    scaling = (FIXED | MOVING)[name]
    x = torch.randn(2, 1, DIM, dtype=torch.float64)
    before = x.clone()
    rotate = Rotary(DIM, scaling=scaling)
    torch.testing.assert_close(rotate(x), x * scaling.amplitude)
    assert torch.equal(x, before)
    assert torch.autograd.gradcheck(lambda x: rotate(x, start=3), x.requires_grad_())
    mapped = torch.func.vmap(lambda x: rotate(x, torch.tensor([0])))(x.detach())
    torch.testing.assert_close(mapped, x.detach() * scaling.amplitude)
    assert rotate(x.to("meta"), torch.tensor([0], device="meta")).shape == x.shape
    assert rotate(x.detach().bfloat16().expand(2, 5, DIM)).dtype == torch.bfloat16
    assert rotate(x[:, :0]).shape == rotate(x[:, :0], torch.arange(0)).shape == (2, 0, DIM)
    assert repr(rotate) == f"Rotary({DIM}, base=10000, pairs='halves', scaling={scaling!r})"


@for_each("name", FIXED)
def test_scaled_products_depend_on_distance_alone(name: str) -> None:
    turn = Rotary(DIM, base=BASE, scaling=FIXED[name])
    q, k = torch.randn(2, 1, DIM, dtype=torch.float64)
    scores = [turn(q, start=i) @ turn(k, start=i - 5).mT for i in (5, 6, 90)]
    torch.testing.assert_close(scores[0], scores[1], atol=1e-4, rtol=0)
    torch.testing.assert_close(scores[0], scores[2], atol=1e-4, rtol=0)


def heads(rotate: Rotary) -> MultiHead:
    torch.manual_seed(3)
    return MultiHead(24, 2, rotate=rotate).double()


def steps(layer: MultiHead, x: Tensor) -> Tensor:
    past, outs = None, []
    for t in range(x.shape[-2]):
        out, past = layer.step(x[:, t : t + 1], past)
        outs.append(out)
    return torch.cat(outs, 1)


@for_each("name", [*FIXED, "partial", "mrope", "axial"])
@torch.no_grad()
def test_a_step_is_the_whole(name: str) -> None:
    rotates = {
        "partial": Rotary(DIM, rotary_dim=4),
        "mrope": Rotary(DIM, axes=MRoPESections((1, 2, 3))),
        "axial": Rotary(DIM, axes=AxialSections((3, 3), grid=(5, 4))),
    }
    layer = heads(rotates[name] if name in rotates else Rotary(DIM, base=BASE, scaling=FIXED[name]))
    x = torch.randn(2, 19, 24, dtype=torch.float64)
    torch.testing.assert_close(steps(layer, x), layer(x, mask=regard.Causal()), rtol=0, atol=1e-6)


@for_each("name", MOVING)
@torch.no_grad()
def test_beyond_the_training_keys_keep_the_rotation_of_their_call(name: str) -> None:
    """So a step is the whole up to the length of the training alone, unless `length` fixes the frequencies."""
    rotate = Rotary(DIM, base=BASE, scaling=MOVING[name])
    layer, x = heads(rotate), torch.randn(2, L + 3, 24, dtype=torch.float64)
    stepped, whole = steps(layer, x), layer(x, mask=regard.Causal())
    within = layer(x[:, :L], mask=regard.Causal())
    torch.testing.assert_close(stepped[:, :L], within, rtol=0, atol=1e-6)
    assert (stepped - whole).abs().max() > 1e-3
    # the last step: its query by the length of the text, each key by the length at its own step
    last = L + 2
    keys = layer.key(x).unflatten(-1, (2, DIM)).transpose(1, 2)
    keys = torch.cat([rotate(keys[:, :, n : n + 1], start=n) for n in range(last + 1)], 2)
    query = rotate(layer.query(x[:, last:]).unflatten(-1, (2, DIM)).transpose(1, 2), start=last)
    values = layer.value(x).unflatten(-1, (2, DIM)).transpose(1, 2)
    out = layer.out(regard.attention(query, keys, values).transpose(1, 2).flatten(2))
    torch.testing.assert_close(stepped[:, last:], out, rtol=0, atol=1e-6)


@for_each("name", MOVING)
def test_each_row_has_its_own_length(name: str) -> None:
    rotate = Rotary(DIM, base=BASE, scaling=MOVING[name])
    x = torch.randn(3, 2, 5, DIM, dtype=torch.float64)
    rows = torch.stack([torch.arange(5), torch.arange(5) + L, torch.arange(5) + 3 * L])
    together = rotate(x, rows)
    for n in range(3):
        torch.testing.assert_close(together[n], rotate(x[n], start=int(rows[n, 0])), rtol=0, atol=1e-5)
        torch.testing.assert_close(together[n], rotate(x[n], rows[n]), rtol=0, atol=1e-5)


@pytest.mark.parametrize("pairs", ["halves", "neighbours"])
def test_part_of_a_head_is_rotated(pairs: str) -> None:
    x = torch.randn(2, 5, 7, dtype=torch.float64)
    got = Rotary(7, rotary_dim=4, pairs=pairs)(x)
    torch.testing.assert_close(got[..., :4], Rotary(4, pairs=pairs)(x[..., :4]))
    assert torch.equal(got[..., 4:], x[..., 4:])


@pytest.mark.parametrize("pairs", ["halves", "neighbours"])
def test_axes_rotate_their_sections(pairs: str) -> None:
    """The pairs of a section turn by their own axis: with all frequencies (axial), or with those of their place."""
    x, places = torch.randn(2, 3, 5, DIM, dtype=torch.float64), [torch.randint(0, 30, (2, 5)) for _ in range(3)]
    sections = (1, 3, 2)
    for axes in (AxialSections(sections), MRoPESections(sections)):
        got = Rotary(DIM, base=BASE, pairs=pairs, axes=axes)(x, places)
        pair = itertools.count()
        for axis, size in enumerate(sections):
            for n in range(size):
                k = next(pair)
                rate = BASE ** (-n / size if isinstance(axes, AxialSections) else -2 * k / DIM)
                a, b = (k, k + DIM // 2) if pairs == "halves" else (2 * k, 2 * k + 1)
                angle = places[axis].double().unsqueeze(1) * rate
                want = x[..., a] * angle.cos() - x[..., b] * angle.sin()
                torch.testing.assert_close(got[..., a], want, rtol=0, atol=1e-4)
    text = torch.randint(0, 30, (2, 5))
    plain = Rotary(DIM, pairs=pairs)(x, text)
    torch.testing.assert_close(Rotary(DIM, pairs=pairs, axes=MRoPESections(sections))(x, text), plain)


def test_an_image_in_heads() -> None:
    """Positions on axes rotate, tokens are counted by masks; a grid knows its rows and columns."""
    x = torch.randn(2, 6, 24, dtype=torch.float64)
    axial = heads(Rotary(DIM, axes=AxialSections((4, 2))))
    gridded = heads(Rotary(DIM, axes=AxialSections((4, 2), grid=(2, 3))))
    rows, columns = torch.tensor([0, 0, 0, 1, 1, 1]), torch.tensor([0, 1, 2, 0, 1, 2])
    both = ((rows, columns), (rows, columns))
    for mask in (None, regard.Causal()):
        torch.testing.assert_close(axial(x, mask=mask, positions=both), gridded(x, mask=mask))
    past, outs = None, []
    for n in range(6):
        here = (rows[n : n + 1], columns[n : n + 1])
        out, past = axial.step(x[:, n : n + 1], past, positions=(here, both[1]))
        outs.append(out)
    torch.testing.assert_close(torch.cat(outs, 1), gridded(x, mask=regard.Causal()))
    assert "Causal" in axial.explain(x, mask=regard.Causal(), positions=both) or axial.explain(x, positions=both)
