"""The difference of two maps: the formula, its limits, steps, and both maps in a recording."""

from collections.abc import Callable

import pytest
import torch
from tests.for_each import for_each
from torch import Tensor, nn

import regard
from regard import MultiHead, Need
from regard.layers import Differential, OutputGate, RMSQKNorm

DIM, HEADS, D, T = 14, 6, 4, 7


class Scaled(nn.Module):
    """In place of the norm."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        return x * self.factor


def layer(kv_heads: int = HEADS, layer: int = 2, **options: object) -> MultiHead:
    torch.manual_seed(0)
    difference = Differential(D, layer=layer)
    heads = MultiHead(DIM, HEADS, kv_heads=kv_heads, head_dim=D, difference=difference, **options)  # type: ignore[arg-type]
    return heads.double().eval()


def loop(heads: MultiHead, x: Tensor) -> Tensor:  # "t d"
    """Pair by pair and query by query, in the symbols of the paper."""
    difference, half, group = heads.difference, HEADS // 2, HEADS // heads.kv_heads
    start = 0.8 - 0.6 * torch.tensor(-0.3 * (difference.layer - 1), dtype=torch.float64).exp()
    factor = (difference.query_1 @ difference.key_1).exp() - (difference.query_2 @ difference.key_2).exp() + start
    q = heads.query(x).view(T, HEADS, D)
    k, v = (linear(x).view(T, heads.kv_heads, D) for linear in (heads.key, heads.value))
    rows = []
    for t in range(T):
        pairs = []
        for n in range(half):
            first, second = (torch.softmax(k[: t + 1, h // group] @ q[t, h] / D**0.5, 0) for h in (n, n + half))
            values = torch.cat([v[: t + 1, n // group], v[: t + 1, (n + half) // group]], -1)
            out = (first - factor * second) @ values
            pairs.append((1 - start) * out / (out.square().mean() + 1e-5).sqrt())
        rows.append(torch.cat(pairs))
    return heads.out(torch.stack(rows))


@for_each("kv_heads", [HEADS, 2])
@for_each("number", [1, 5])
def test_it_is_the_formula_and_its_steps_are_the_whole(kv_heads: int, number: int) -> None:
    heads = layer(kv_heads, number)
    x = torch.randn(2, T, DIM, dtype=torch.float64)
    want = heads(x, mask=regard.Causal())
    for row, expected in zip(x, want, strict=True):
        torch.testing.assert_close(loop(heads, row), expected)
    with torch.no_grad():
        past = None
        for t in range(T):
            step, past = heads.step(x[:, t : t + 1], past, mask=regard.Causal())
            torch.testing.assert_close(step[:, 0], want[:, t])
    assert past.values.shape == (2, kv_heads, T, D)  # the cache holds no value twice


def test_steps_hear_the_votes_of_a_selective_bias() -> None:
    """The paired memory of a step keeps what earlier queries have masked."""
    heads = layer(attention=regard.Attention(bias=regard.biases.Selective(HEADS)))
    x = torch.randn(2, T, DIM, dtype=torch.float64)
    want, past, steps = heads(x, mask=regard.Causal()), None, []
    for t in range(T):
        assert heads.explain_step(x[:, t : t + 1], past, mask=regard.Causal())
        step, past = heads.step(x[:, t : t + 1], past, mask=regard.Causal())
        steps.append(step)
    torch.testing.assert_close(torch.cat(steps, 1), want)


def test_without_the_second_map_it_is_plain_attention() -> None:
    """λ = 0, and the norm replaced by 1 / (1 − λ₀): plain heads of twice the values."""
    heads = layer()
    heads.difference.norm = Scaled(1 / (1 - heads.difference.start))
    heads.difference.subtract = lambda t: t.chunk(2, dim=-3)[0]
    x = torch.randn(2, T, DIM, dtype=torch.float64)
    plain = MultiHead(DIM, HEADS // 2, head_dim=D, head_value_dim=2 * D).double()
    with torch.no_grad():
        for name, rows in (("query", HEADS * D // 2), ("key", HEADS * D // 2)):
            for part in ("weight", "bias"):
                getattr(plain.get_submodule(name), part).copy_(getattr(heads.get_submodule(name), part)[:rows])
        for part in ("weight", "bias"):
            halves = getattr(heads.value, part).unflatten(0, (2, HEADS // 2, D)).transpose(0, 1).flatten(0, 2)
            getattr(plain.value, part).copy_(halves)
        plain.out.load_state_dict(heads.out.state_dict())
    torch.testing.assert_close(heads(x), plain(x))


def test_both_maps_are_recorded_and_subtracted() -> None:
    heads, x = layer(), torch.randn(2, T, DIM, dtype=torch.float64)
    with regard.record(heads) as recording:
        out = heads(x)
    (recorded,) = recording
    weights = recorded.weights[:, :]
    assert weights.shape == (2, HEADS, T, T)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, HEADS, T, dtype=weights.dtype))
    got = heads.attend(x, need=Need(weights=True))
    torch.testing.assert_close(got.out, out)
    difference = heads.difference.subtract(got.weights)
    torch.testing.assert_close(difference.sum(-1), (1 - heads.difference.factor()).expand(2, HEADS // 2, T))


def test_gradients_and_other_parts() -> None:
    gate = OutputGate(DIM, HEADS // 2, 2 * D)
    heads = layer(2, gate=gate, qk_norm=RMSQKNorm(D), rotate=regard.Rotary(D))
    x = torch.randn(1, 3, DIM, dtype=torch.float64, requires_grad=True)
    parameters = tuple(heads.difference.parameters())
    assert torch.autograd.gradcheck(lambda x, *_: heads(x, mask=regard.Causal()), (x, *parameters))
    heads.zero_grad()
    heads(x).square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in heads.parameters())


def test_half_types_and_masked_rows() -> None:
    x = torch.randn(2, T, DIM)
    assert layer().bfloat16()(x.bfloat16()).isfinite().all()
    heads = layer().float()
    empty = heads(x, mask=regard.Lengths([T, 0]))[1]
    torch.testing.assert_close(empty, heads.out.bias.expand_as(empty))


def test_paths_for_plain_heads_refuse() -> None:
    heads = MultiHead(12, 4, difference=Differential(3))
    x = torch.randn(2, 5, 12, requires_grad=True)
    assert "subtract maps" in heads.explain(x)
    with pytest.raises(ValueError, match=r"nn.MultiheadAttention has no place for Differential\(3, layer=1\)"):
        heads.to_torch()
    assert "difference=Differential(3, layer=1)" in repr(heads)


ERRORS: dict[str, tuple[Callable[[], object], str]] = {
    "odd": (
        lambda: MultiHead(12, 3, difference=Differential(4)),
        "difference pairs head n with n [+] h/2: heads and kv_heads must be even, got 3 and 3; try heads=4, kv_heads=4",
    ),
    "one key head": (lambda: MultiHead(12, 4, kv_heads=1, difference=Differential(3)), "must be even, got 4 and 1"),
    "width": (
        lambda: MultiHead(12, 4, difference=Differential(4)),
        r"heads of width 3, keys and values alike, got Differential\(4, layer=1\) and values of width 3; try Diff",
    ),
    "values": (lambda: MultiHead(12, 4, head_value_dim=5, difference=Differential(3)), "and values of width 5"),
    "layer": (lambda: Differential(4, layer=0), "layer must be a whole number, 1 or more, for Differential"),
    "eps": (lambda: Differential(4, eps=0.0), "eps must be positive for Differential"),
    "part": (
        lambda: Differential(4).pair(regard.KVCache(torch.randn(1, 3, 2, 4), torch.randn(1, 3, 2, 4))),
        "this process has 3 key heads; leave the difference out",
    ),
}


@for_each("name", ERRORS)
def test_bad_differences(name: str) -> None:
    make, message = ERRORS[name]
    with pytest.raises(ValueError, match=message):
        make()


def test_a_switch_is_no_difference() -> None:
    with pytest.raises(TypeError, match=r"difference must be a Differential, got True; write difference=Differential"):
        MultiHead(12, 4, difference=True)  # type: ignore[arg-type]
