"""Norms of queries and keys in MultiHead: the formulas, steps, and every path that does not have them."""

from collections.abc import Callable

import pytest
import torch
from tests.for_each import for_each
from torch import Tensor, nn

import regard
from regard import MultiHead, Need
from regard.layers import L2QKNorm, LayerQKNorm, QKNorm, RMSQKNorm, WholeRMSQKNorm

DIM, HEADS, KV_HEADS, D, T = 14, 6, 2, 4, 7
NORMS: dict[str, Callable[[], QKNorm]] = {
    "rms": lambda: RMSQKNorm(D),
    "rms, offset": lambda: RMSQKNorm(D, offset=1.0),
    "whole": lambda: WholeRMSQKNorm(HEADS * D, KV_HEADS * D),
    "layer": lambda: LayerQKNorm(D),
    "layer, no bias": lambda: LayerQKNorm(D, bias=False),
    "l2": lambda: L2QKNorm(3.0),
}


def layer(name: str, **options: object) -> MultiHead:
    torch.manual_seed(0)
    heads = MultiHead(DIM, HEADS, kv_heads=KV_HEADS, head_dim=D, qk_norm=NORMS[name](), **options).double()  # type: ignore[arg-type]
    for parameter in heads.qk_norm.parameters():
        nn.init.normal_(parameter, 1.0)
    return heads.eval()


def rms(x: Tensor, gain: Tensor) -> Tensor:
    return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * gain


def unit(x: Tensor) -> Tensor:
    return x / x.norm(dim=-1, keepdim=True)


def centred(x: Tensor, norm: nn.LayerNorm) -> Tensor:
    y = x - x.mean(-1, keepdim=True)
    y = y / (y.square().mean(-1, keepdim=True) + 1e-6).sqrt() * norm.weight
    return y if norm.bias is None else y + norm.bias


def normed(norm: QKNorm, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:  # "b n h·d" -> "b h n d"
    if isinstance(norm, WholeRMSQKNorm):
        q, k = rms(q, norm.query_gain), rms(k, norm.key_gain)
    q, k = (t.unflatten(-1, (-1, D)).transpose(1, 2) for t in (q, k))
    if isinstance(norm, RMSQKNorm):
        return rms(q, norm.query_gain + norm.offset), rms(k, norm.key_gain + norm.offset)
    if isinstance(norm, LayerQKNorm):
        return centred(q, norm.query), centred(k, norm.key)
    return (unit(q) * norm.scale * D**0.5, unit(k)) if isinstance(norm, L2QKNorm) else (q, k)


@for_each("name", NORMS)
def test_it_is_the_formula_and_its_steps_are_the_whole(name: str) -> None:
    rotate = regard.Rotary(D)
    heads = layer(name, rotate=rotate)
    x = torch.randn(2, T, DIM, dtype=torch.float64)
    q, k = normed(heads.qk_norm, heads.query(x), heads.key(x))
    k = rotate(k)
    scores = rotate(q) @ k.repeat_interleave(HEADS // KV_HEADS, 1).mT / D**0.5
    weights = torch.softmax(scores.masked_fill(torch.ones(T, T).triu(1).bool(), -torch.inf), -1)
    values = heads.value(x).unflatten(-1, (-1, D)).transpose(1, 2).repeat_interleave(HEADS // KV_HEADS, 1)
    want = heads.out((weights @ values).transpose(1, 2).flatten(2))
    got = heads.attend(x, mask=regard.Causal(), need=Need(weights=True))
    torch.testing.assert_close(got.weights, weights)
    torch.testing.assert_close(got.out, want)
    torch.testing.assert_close(heads(x, mask=regard.Causal()), want)
    torch.testing.assert_close(heads.project_kv(x).keys, k)  # the cache holds normalized keys
    with torch.no_grad():
        past = None
        for t in range(T):
            step, past = heads.step(x[:, t : t + 1], past, mask=regard.Causal())
            torch.testing.assert_close(step[:, 0], want[:, t])


@for_each("name", NORMS)
def test_gradients(name: str) -> None:
    heads = layer(name)
    x = torch.randn(1, 3, DIM, dtype=torch.float64, requires_grad=True)
    parameters = tuple(heads.qk_norm.parameters())
    assert torch.autograd.gradcheck(lambda x, *_: heads(x, mask=regard.Causal()), (x, *parameters))
    heads.train()(x, mask=regard.Causal()).square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in parameters)


@for_each("name", ["rms", "whole", "layer", "l2"])
def test_scores_are_bounded_whatever_the_projections(name: str) -> None:
    """Projections 10⁶ times as large change the scores by eps alone."""
    heads = layer(name)
    x = torch.randn(2, T, DIM, dtype=torch.float64)
    before = heads.attend(x, need=Need(weights=True)).weights
    for linear in (heads.query, heads.key):
        for parameter in linear.parameters():
            parameter.data.mul_(1e6)
    torch.testing.assert_close(heads.attend(x, need=Need(weights=True)).weights, before, rtol=1e-4, atol=1e-5)


@for_each("name", NORMS)
def test_half_types_and_zeros(name: str) -> None:
    heads = layer(name).bfloat16()
    x = torch.randn(2, T, DIM).bfloat16()
    assert heads(x).dtype == torch.bfloat16
    heads = layer(name).float()
    x = torch.zeros(2, T, DIM, requires_grad=True)
    heads(x).sum().backward()
    assert x.grad.isfinite().all()
    with torch.autocast("cpu", torch.bfloat16):
        assert heads(x).isfinite().all()


def test_the_offset_is_part_of_the_gain() -> None:
    plain, shifted = RMSQKNorm(D), RMSQKNorm(D, offset=1.0)
    x = torch.randn(2, 3, 5, D)
    assert not torch.cat([shifted.query_gain, shifted.key_gain]).any()
    assert torch.equal(plain.queries(x), shifted.queries(x))


def test_paths_for_plain_heads_refuse() -> None:
    heads = MultiHead(12, 3, qk_norm=RMSQKNorm(4))
    x = torch.randn(2, 5, 12, requires_grad=True)
    assert "normalize queries and keys" in heads.explain(x)
    with pytest.raises(ValueError, match=r"nn.MultiheadAttention has no place for RMSQKNorm\(4, eps=1e-06\)"):
        heads.to_torch()
    assert "qk_norm=RMSQKNorm(4, eps=1e-06)" in repr(heads)


ERRORS: dict[str, tuple[Callable[[], object], str]] = {
    "width": (
        lambda: MultiHead(12, 3, qk_norm=RMSQKNorm(5)),
        r"qk_norm must normalize heads of width 4, got RMSQKNorm\(5, eps=1e-06\); try RMSQKNorm\(4\)",
    ),
    "layer": (lambda: MultiHead(12, 3, qk_norm=LayerQKNorm(3)), r"heads of width 4, got LayerQKNorm\(3"),
    "whole": (
        lambda: MultiHead(12, 3, kv_heads=1, qk_norm=WholeRMSQKNorm(12)),
        r"queries 12 wide and keys 4 wide, all heads together, got WholeRMS.* try WholeRMSQKNorm\(12, 4\)",
    ),
    "zero": (lambda: RMSQKNorm(0), "head_dim must be a whole number"),
    "eps": (lambda: WholeRMSQKNorm(4, eps=0.0), "eps must be positive for WholeRMSQKNorm"),
    "scale": (lambda: L2QKNorm(-1.0), "scale must be positive for L2QKNorm"),
    "part": (
        lambda: WholeRMSQKNorm(12).queries(torch.randn(2, 5, 2, 4)),
        "normalizes all heads together, but this process has 2 of them, each 4 wide",
    ),
}


@for_each("name", ERRORS)
def test_bad_norms(name: str) -> None:
    make, message = ERRORS[name]
    with pytest.raises(ValueError, match=message):
        make()


def test_a_switch_is_no_norm() -> None:
    with pytest.raises(TypeError, match=r"qk_norm must be a QKNorm, got True; write qk_norm=RMSQKNorm\(head_dim\)"):
        MultiHead(12, 3, qk_norm=True)  # type: ignore[arg-type]
