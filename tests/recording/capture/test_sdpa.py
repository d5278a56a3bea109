"""scaled_dot_product_attention in all its forms: what is recorded is what the kernel did."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, strategies as st
from tests.for_each import for_each
from torch import Tensor, nn
from torch.nn.attention.bias import causal_lower_right, causal_upper_left
from torch.nn.functional import scaled_dot_product_attention as early_bound

import regard
from regard.attn.maps.attention_map import LazyMap
from regard.recording.capture import mask_rules, sdpa

B, H, Q, K, D = 2, 3, 5, 7, 11


class Calls(nn.Module):
    """A model that is one call."""

    def __init__(self, call: Callable[..., Tensor]) -> None:
        super().__init__()
        self.call = call

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        return self.call(*args, **kwargs)


def recorded(
    *args: Any, call: Callable[..., Tensor] = early_bound, **kwargs: Any
) -> tuple[regard.recording.RecordedMap, Tensor]:
    model = Calls(call)
    torch.manual_seed(3)
    want = model(*args, **kwargs)
    torch.manual_seed(3)
    with regard.record(model) as tape:
        got = model(*args, **kwargs)
    torch.testing.assert_close(got, want, rtol=0.0, atol=0.0, equal_nan=True)
    (one,) = tape
    return one, got.detach()


def written(q: Tensor, k: Tensor, scale: float | None, bias: Tensor | None) -> Tensor:
    """The weights as the formula says, zero where a row may look at nothing."""
    s = q @ k.repeat_interleave(q.shape[-3] // k.shape[-3], -3).mT * (q.shape[-1] ** -0.5 if scale is None else scale)
    s = s if bias is None else s + bias
    return torch.softmax(s, -1).nan_to_num(0.0)


def tensors(queries: int = Q, keys: int = K, shared: int = H) -> tuple[Tensor, Tensor, Tensor]:
    return torch.randn(B, H, queries, D), torch.randn(B, shared, keys, D), torch.randn(B, shared, keys, D)


def hidden(allowed: Tensor) -> Tensor:
    return torch.zeros(allowed.shape).masked_fill(~allowed, -torch.inf)


@pytest.mark.parametrize(
    "call",
    [early_bound, F.scaled_dot_product_attention, torch.ops.aten.scaled_dot_product_attention],
    ids=["early", "F", "aten"],
)
def test_whoever_calls_is_heard(call: Callable[..., Tensor]) -> None:
    q, k, v = tensors()
    one, _ = recorded(q, k, v, call=call)
    torch.testing.assert_close(one.weights.dense(), written(q, k, None, None), rtol=0.0, atol=1e-6)
    assert one.verified
    assert one.captured_from == "sdpa"


@pytest.mark.parametrize(("queries", "keys"), [(5, 5), (5, 7), (7, 5)])
def test_causality_counts_from_the_upper_left_corner(queries: int, keys: int) -> None:
    q, k, v = tensors(queries, keys)
    one, _ = recorded(q, k, v, is_causal=True)
    want = written(q, k, None, hidden(torch.ones(queries, keys, dtype=torch.bool).tril()))
    torch.testing.assert_close(one.weights.dense(), want, rtol=0.0, atol=1e-6)
    assert one.verified
    assert one.kind == "self"


@pytest.mark.parametrize("make", [causal_lower_right, causal_upper_left])
def test_a_causal_bias_is_told_by_its_corner(make: Callable[[int, int], Tensor]) -> None:
    q, k, v = tensors()
    one, _ = recorded(q, k, v, attn_mask=make(Q, K))
    assert one.verified
    assert one.certificate is not None
    assert one.certificate < 1e-5
    allowed = torch.ones(Q, K, dtype=torch.bool).tril(K - Q if make is causal_lower_right else 0)
    torch.testing.assert_close(one.weights.dense(), written(q, k, None, hidden(allowed)), rtol=0.0, atol=1e-6)


def test_a_row_that_may_look_at_nothing_is_zero() -> None:
    q, k, v = tensors()
    allowed = torch.rand(B, 1, Q, K) > 0.4
    allowed[1, :, 2] = False
    for mask in (allowed, hidden(allowed)):
        one, out = recorded(q, k, v, mask)
        assert not out[1, :, 2].any()
        assert not one.weights.dense()[1, :, 2].any()
        assert one.verified


def test_dropout_is_no_part_of_the_map() -> None:
    q, k, v = tensors()
    one, out = recorded(q, k, v, dropout_p=0.5)
    torch.testing.assert_close(one.weights.dense(), written(q, k, None, None), rtol=0.0, atol=1e-6)
    assert one.verified
    assert (one.weights.dense() @ v - out).abs().max() > 0.1


@st.composite
def calls(draw: st.DrawFn) -> dict[str, Any]:
    heads, shared = draw(st.sampled_from([(1, 1), (3, 3), (6, 2), (4, 1)]))
    queries, keys = draw(st.integers(1, 70)), draw(st.integers(1, 9))
    kind = draw(st.sampled_from(["none", "bool", "float", "causal", "keys", "numbers"]))
    shape = draw(st.sampled_from([(queries, keys), (B, 1, queries, keys), (1, heads, queries, keys), (B, 1, 1, keys)]))
    return {
        "heads": (heads, shared),
        "lengths": (queries, keys),
        "mask": (kind, shape),
        "scale": draw(st.sampled_from([None, 0.3, 1.0])),
        "seed": draw(st.integers(0, 99)),
    }


@given(calls())
def test_every_shape_and_mask_is_certified(drawn: dict[str, Any]) -> None:
    (heads, shared), (queries, keys), (kind, shape) = drawn["heads"], drawn["lengths"], drawn["mask"]
    torch.manual_seed(drawn["seed"])
    q, k, v = (torch.randn(B, h, n, D) for h, n in ((heads, queries), (shared, keys), (shared, keys)))
    mask: Tensor | None = None
    bias = None
    if kind in ("bool", "float"):
        allowed = torch.rand(shape) > 0.4
        mask, bias = (allowed, hidden(allowed)) if kind == "bool" else (hidden(allowed), hidden(allowed))
    elif kind == "numbers":
        mask = bias = torch.randn(shape)
    elif kind == "causal":
        bias = hidden(torch.ones(queries, keys, dtype=torch.bool).tril())
    elif kind == "keys":
        bias = hidden(torch.rand(B, 1, 1, keys) > 0.3)
        mask = bias > -1
    one, _ = recorded(q, k, v, mask, is_causal=kind == "causal", scale=drawn["scale"], enable_gqa=heads != shared)
    assert one.shape == (B, heads, queries, keys)
    assert one.verified
    torch.testing.assert_close(one.weights.dense(), written(q, k, drawn["scale"], bias), rtol=0.0, atol=1e-5)


def test_a_corrupted_map_is_caught_by_its_certificate(monkeypatch: pytest.MonkeyPatch) -> None:
    q, k, v = tensors()
    plain = sdpa.as_call

    def upside_down(q: Tensor, k: Tensor, *others: Any) -> Any:
        return plain(q, k.flip(-2), *others)

    monkeypatch.setattr(sdpa, "as_call", upside_down)
    one, _ = recorded(q, k, v)
    assert one.certificate is not None
    assert one.certificate > 0.1
    assert not one.verified
    assert "unverified" in repr(one)


@pytest.mark.parametrize("row", [0, 37, 99])
def test_a_map_with_one_wrong_row_among_those_checked_is_caught(row: int, monkeypatch: pytest.MonkeyPatch) -> None:
    q, k, v = tensors(100, 9)
    plain = LazyMap.rows
    from regard.recording.capture import certificate

    checked = certificate.checked_rows(100)
    assert isinstance(checked, Tensor)
    assert len(checked) == 32
    assert checked[0] == 0
    assert checked[-1] == 99
    near = int(checked[(checked - row).abs().argmin()])

    def wrong(self: LazyMap, rows: Any) -> Tensor:
        found = plain(self, rows)
        return torch.where((torch.arange(100)[rows] == near).unsqueeze(-1), found.flip(-1), found)

    monkeypatch.setattr(LazyMap, "rows", wrong)
    assert not recorded(q, k, v)[0].verified


def test_what_the_model_writes_later_does_not_reach_the_map() -> None:
    q, k, v = tensors()
    allowed = torch.rand(Q, K) > 0.4
    one, _ = recorded(q, k, v, allowed)
    before = one.weights.dense().clone()
    for t in (q, k, v, allowed):
        t.zero_()
    assert torch.equal(one.weights.dense(), before)


def test_half_types_have_a_tolerance_of_their_own() -> None:
    for kind in (torch.bfloat16, torch.float16, torch.float64):
        q, k, v = (t.to(kind) for t in tensors())
        one, _ = recorded(q, k, v)
        assert one.verified
        want = written(q.double(), k.double(), None, None)
        torch.testing.assert_close(one.weights.dense().double(), want, rtol=0.0, atol=1e-6)


# a mask of many cells is kept as what it says

N = 1100


def lengths(*ends: int) -> Tensor:
    return (torch.arange(N) < torch.tensor(ends)[:, None])[:, None, None]


def causal(offset: int = 0) -> Tensor:
    return torch.ones(N, N, dtype=torch.bool).tril(offset)


MASKS: dict[str, tuple[Tensor, bool]] = {
    "causal": (causal()[None, None], True),
    "causal with padding": (causal() & lengths(N, 700), True),
    "padding before": (causal() & ~lengths(0, 300), True),
    "window": ((causal() & ~causal(-100))[None, None], True),
    "padding on both sides": (lengths(N, 900).expand(2, 1, N, N) & ~lengths(10, 0), True),
    "all": (torch.ones(2, 1, N, N, dtype=torch.bool), True),
    "shifted": (causal(7)[None, None], True),
    "any": (torch.rand(1, 1, N, N, generator=torch.Generator().manual_seed(0)) > 0.5, False),
    "prefix": ((causal() | (torch.arange(N) < 50))[None, None], False),
}


@for_each("name", MASKS)
def test_large_masks_take_linear_memory_where_they_can(name: str) -> None:
    allowed, small = MASKS[name]
    found = mask_rules.find_rule(allowed)
    assert (found is not None) == small
    if found is not None:
        i, j = torch.arange(N) + found.offset, torch.arange(N)
        made = found.mask.dense(i, j)
        made = made.unsqueeze(1) if made.ndim == 3 else made
        assert torch.equal(made.expand(allowed.shape), allowed)
    q, k, v = torch.randn(2, 2, N, 3), torch.randn(2, 2, N, 3), torch.randn(2, 2, N, 3)
    one, _ = recorded(q, k, v, allowed)
    assert one.verified
    want = written(q[..., 500:505, :], k, None, hidden(allowed)[..., 500:505, :])
    torch.testing.assert_close(one.weights[500:505], want, rtol=0.0, atol=1e-6)
