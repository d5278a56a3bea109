"""Attention in pieces: bands, blocks of queries, parts of a softmax: one map, or a warning that names the module."""

import math
import warnings
import weakref
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import regard

B, H, L, D = 2, 3, 20, 5
WINDOW = 4


class Pieces(nn.Module):
    """Self attention whose values are read by a function of weights that it computes itself."""

    def __init__(self, attend: Callable[[Tensor, Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(H * D, H * D) for _ in range(3))
        self.attend = attend

    def heads(self, x: Tensor) -> tuple[Tensor, ...]:
        return tuple(layer(x).view(*x.shape[:2], H, D).transpose(1, 2) for layer in (self.q, self.k, self.v))

    def forward(self, x: Tensor) -> Tensor:
        return self.attend(*self.heads(x)).transpose(1, 2).reshape(B, -1, H * D)


class Model(nn.Module):
    def __init__(self, attend: Callable[[Tensor, Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.layer = Pieces(attend)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)


def model_and_input(attend: Callable[[Tensor, Tensor, Tensor], Tensor]) -> tuple[Model, Tensor]:
    torch.manual_seed(0)
    return Model(attend), 3 * torch.randn(B, L, H * D)


def scores(model: Model, x: Tensor) -> Tensor:
    q, k, _ = model.layer.heads(x)
    return q @ k.mT / math.sqrt(D)


def band(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Blocks of queries, which attend to their own block and to those beside it; padded, overlapping."""
    blocks = L // WINDOW
    q = q.reshape(B * H, blocks, WINDOW, D)

    def windows(t: Tensor, value: float) -> Tensor:
        t = F.pad(t.reshape(B * H, L, D), (0, 0, WINDOW, WINDOW), value=value)
        return t.as_strided(
            (B * H, blocks, 3 * WINDOW, D), (t.stride(0), WINDOW * t.stride(1), t.stride(1), t.stride(2))
        )

    logits = torch.einsum("bcxd,bcyd->bcxy", q, windows(k, 0.0)) / math.sqrt(D)
    logits[:, 0, :, :WINDOW] = -torch.inf
    logits[:, -1, :, -WINDOW:] = -torch.inf
    out = torch.einsum("bcwd,bcdh->bcwh", logits.softmax(-1), windows(v, -1.0))
    return out.view(B, H, L, D)


def query_blocks(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.cat([(part @ k.mT / math.sqrt(D)).softmax(-1) @ v for part in q.split(7, 2)], 2)


def halves(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """One softmax, read in two parts."""
    weights = (q @ k.mT / math.sqrt(D)).softmax(-1)
    out = torch.matmul(weights[..., :6], v[:, :, :6])
    out += torch.matmul(weights.narrow(-1, 6, L - 6), v[:, :, 6:])
    return out


def dense_band(logits: Tensor) -> Tensor:
    block = torch.arange(L) // WINDOW
    return logits.masked_fill((block[:, None] - block).abs() > 1, -torch.inf).softmax(-1)


@pytest.mark.parametrize(
    ("attend", "expected"),
    [(band, dense_band), (query_blocks, lambda t: t.softmax(-1)), (halves, lambda t: t.softmax(-1))],
)
def test_pieces_are_joined_to_one_map(
    attend: Callable[[Tensor, Tensor, Tensor], Tensor], expected: Callable[[Tensor], Tensor]
) -> None:
    model, x = model_and_input(attend)
    with torch.no_grad(), regard.record(model) as recording:
        out = model(x)
    with torch.no_grad():
        assert torch.equal(out, model(x))
        want = expected(scores(model, x))
    assert [m.name for m in recording] == ["layer"]
    (joined,) = recording
    assert (joined.shape, joined.step, joined.call, joined.kind) == ((B, H, L, L), 0, 0, "self")
    assert joined.captured_from == "pieces"
    assert joined.verified
    torch.testing.assert_close(joined.weights.dense(), want, rtol=0.0, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("attend", [band, query_blocks, halves])
def test_pieces_of_every_type_are_joined(attend: Callable[..., Tensor], dtype: torch.dtype) -> None:
    """Each piece is rounded by itself, so that the output differs from that of the whole."""
    for seed in range(5):
        model, x = model_and_input(attend)
        torch.manual_seed(seed)
        with torch.no_grad(), regard.record(model.to(dtype)) as recording:
            model(torch.randn_like(x).to(dtype))
        assert [m.captured_from for m in recording] == ["pieces"]
        assert recording[0].verified


def test_every_call_is_joined_and_counted() -> None:
    model, x = model_and_input(band)
    with torch.no_grad(), regard.record(model) as recording:
        model(x)
        model(x + 1)
    assert [m.call for m in recording] == [0, 1]


@pytest.mark.parametrize("go_on", [lambda out, q: out * q.sigmoid(), lambda out, q: out + q, lambda out, q: 1 - out])
def test_pieces_are_joined_though_the_module_goes_on(go_on: Callable[[Tensor, Tensor], Tensor]) -> None:
    """A gate or a residual connection behind the blocks, in the same module."""

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return go_on(torch.cat([(block @ k.mT).softmax(-1) @ v for block in q.chunk(2, 2)], 2), q)

    model, x = model_and_input(attend)
    with torch.no_grad(), regard.record(model) as recording:
        model(x)
    (joined,) = recording
    assert joined.captured_from == "pieces"
    assert joined.verified
    q, k, _ = model.layer.heads(x)
    torch.testing.assert_close(joined.weights.dense(), (q @ k.mT).softmax(-1), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("order", ["whole first second", "first whole second", "first second whole"])
def test_calls_are_numbered_without_gaps_beside_joined_pieces(order: str) -> None:
    """A module that attends as a whole and in pieces, in any order, has one number per map."""

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        reads = {}
        for name in order.split():
            rows = {"whole": slice(None), "first": slice(L // 2), "second": slice(L // 2, None)}[name]
            values = v + 1 if name == "whole" else v
            reads[name] = (q[:, :, rows] @ k.mT).softmax(-1) @ values
        return torch.cat([reads["first"], reads["second"]], -2) * reads["whole"].tanh()

    model, x = model_and_input(attend)
    with torch.no_grad(), regard.record(model) as recording:
        for _ in range(2):
            model(x)
    assert sorted(m.captured_from for m in recording) == ["pieces"] * 2 + ["softmax"] * 2
    assert [m.call for m in recording] == [0, 1, 2, 3]


def test_some_rows_and_heads_of_a_joined_map() -> None:
    model, x = model_and_input(band)
    with torch.no_grad(), regard.record(model, rows=[3, 11], heads=[2]) as recording:
        model(x)
    (joined,) = recording
    assert joined.verified
    with torch.no_grad():
        torch.testing.assert_close(
            joined.weights.dense(), dense_band(scores(model, x))[:, 2:, [3, 11]], rtol=0.0, atol=1e-6
        )


def test_the_gradient_of_a_joined_map() -> None:
    model, x = model_and_input(band)
    with regard.record(model, gradients=True) as recording:
        out = model(x)
    target = torch.randn_like(out)
    (out * target).sum().backward()
    _, _, v = model.layer.heads(x)
    (joined,) = recording
    want = target.view(B, L, H, D).transpose(1, 2) @ v.detach().mT
    torch.testing.assert_close(joined.gradient.dense(), want, rtol=1e-4, atol=1e-4)


def test_global_tokens_have_values_of_their_own() -> None:
    """Row 0 attends to all tokens by other values, and its result is written over that of the band."""

    class Global(Pieces):
        def __init__(self) -> None:
            super().__init__(band)
            self.other = nn.Linear(H * D, H * D)

        def forward(self, x: Tensor) -> Tensor:
            q, k, v = self.heads(x)
            out = band(q, k, v).transpose(1, 2).reshape(B, L, H * D).contiguous()
            others = self.other(x).view(B, L, H, D).transpose(1, 2)
            first = ((q[:, :, :1] @ k.mT / math.sqrt(D)).softmax(-1) @ others).transpose(1, 2).reshape(B, 1, H * D)
            out[:, :1] = first
            return out

    model, x = model_and_input(band)
    model.layer = Global()
    with torch.no_grad(), regard.record(model) as recording:
        model(x)
        want = dense_band(scores(model, x))
        want[:, :, 0] = scores(model, x)[:, :, 0].softmax(-1)
    (joined,) = recording
    assert joined.verified
    torch.testing.assert_close(joined.weights.dense(), want, rtol=0.0, atol=1e-6)


def test_a_map_beyond_the_budget_is_refused_before_it_is_made() -> None:
    model, x = model_and_input(band)
    with (
        torch.no_grad(),
        pytest.raises(MemoryError, match=r"the budget of .* 'layer' needs .* more; record fewer layers="),
        regard.record(model, budget=4 * B * H * L * 3 * WINDOW + 2000),
    ):
        model(x)


def test_pieces_that_cannot_be_joined_are_named() -> None:
    """Squares of values are not linear: no map explains the output, and the parts are no maps of the module."""

    def squared(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        weights = (q @ k.mT / math.sqrt(D)).softmax(-1)
        return torch.cat([weights[..., :6] @ v[:, :, :6], (weights[..., 6:] @ v[:, :, 6:]) ** 2], 2)

    model, x = model_and_input(squared)
    message = "record found attention in 'layer' that is computed in pieces, or between channels instead of"
    with torch.no_grad(), pytest.warns(UserWarning, match=message), regard.record(model) as recording:
        model(x)
    assert len(recording) == 0


def test_dropout_in_pieces_is_named() -> None:
    model, x = model_and_input(halves_with_dropout)
    message = r"'layer' that is computed in pieces, .* call model\.eval\(\)"
    with torch.no_grad(), pytest.warns(UserWarning, match=message), regard.record(model) as recording:
        model(x)
    assert len(recording) == 0


def halves_with_dropout(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    weights = F.dropout((q @ k.mT / math.sqrt(D)).softmax(-1), 0.5)
    return weights[..., :6] @ v[:, :, :6] + weights[..., 6:] @ v[:, :, 6:]


def test_complete_maps_that_are_put_together_stay_as_they_are() -> None:
    """Two attentions side by side, and two that are added: no pieces of one."""

    def both(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        first, second = (q @ k.mT).softmax(-1) @ v, (k @ q.mT).softmax(-1) @ q
        return (torch.cat([first, second], -1).unflatten(-1, (2, D)).sum(-2) + first) / 2

    model, x = model_and_input(both)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error")
        with regard.record(model) as recording:
            model(x)
    assert [(m.shape, m.captured_from) for m in recording] == [((B, H, L, L), "softmax")] * 2


def test_weights_by_relative_position_are_no_second_map() -> None:
    """P V + P' R, where P' has the weights of P at their distances  (Shaw et al. 2018)."""
    relative = torch.randn(2 * L - 1, D)

    def shaw(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        weights = (q @ k.mT).softmax(-1)
        padded = F.pad(weights, (0, L - 1)).flatten(-2)
        distances = F.pad(padded, (L, 0)).view(B, H, L, 2 * L)[..., 1:]
        return weights @ v + distances @ relative

    model, x = model_and_input(shaw)
    with torch.no_grad(), regard.record(model) as recording:
        model(x)
    assert [m.shape for m in recording] == [(B, H, L, L)]


def test_a_cache_keeps_no_values_of_earlier_steps() -> None:
    class Cached(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.v = nn.Linear(D, D)
            self.values, self.made = torch.zeros(B, 0, D), []

        def forward(self, x: Tensor) -> Tensor:
            v = self.v(x)
            self.made.append(weakref.ref(v))
            self.values = torch.cat([self.values, v], 1)[:, -4:]
            return (x @ self.values.mT).softmax(-1) @ self.values

    model = Cached()
    with torch.no_grad(), regard.record(model):
        for _ in range(9):
            model(torch.randn(B, 1, D))
    assert [value() for value in model.made] == [None] * 9


# attention without weights, and weights that are masked or not used


class LightningAttention(nn.Module):
    """Linear attention: no softmax over keys."""

    def forward(self, x: Tensor) -> Tensor:
        return F.silu(x) @ (F.silu(x).mT @ x)


class Softmax(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return (x @ x.mT).softmax(-1) @ x


def test_attention_without_weights_is_named() -> None:
    model = nn.Sequential(Softmax(), LightningAttention())
    message = "record found no weights in '1', which ran and is attention by its name"
    with pytest.warns(UserWarning, match=message), regard.record(model) as recording:
        model(torch.randn(B, L, D))
    assert recording.names == ("0",)
    # it is excluded by its name
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with regard.record(model, layers="0"):
            model(torch.randn(B, L, D))


def test_weights_are_followed_through_a_mask_of_zeros() -> None:
    hidden = torch.arange(L) > 13

    class Masked(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            weights = (x @ x.mT).masked_fill(hidden, torch.finfo(x.dtype).min).softmax(-1)
            return torch.matmul(torch.masked_fill(weights, hidden[:, None], 0.0), x)

    x = torch.randn(B, L, D)
    model = Masked()
    with regard.record(model) as recording:
        model(x)
    want = (x @ x.mT).masked_fill(hidden, -torch.inf).softmax(-1).masked_fill(hidden[:, None], 0.0)
    (masked,) = recording
    assert masked.verified
    torch.testing.assert_close(masked.weights.dense(), want, rtol=0.0, atol=1e-6)


def test_a_softmax_that_nothing_uses_is_no_attention() -> None:
    class Unused(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            weights = (x @ x.mT).softmax(-1)
            weights.to(x.dtype)
            return F.scaled_dot_product_attention(x, x, x)

    model = Unused()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with regard.record(model) as recording:
            model(torch.randn(B, H, L, D))
    assert [m.captured_from for m in recording] == ["sdpa"]


class ChannelAttention(nn.Module):
    """Attention between channels, as in XCiT: the queries and keys of a head are its channels."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(6, 18), nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:  # "b t d"
        q, k, v = self.qkv(x).unflatten(-1, (3, 2, -1)).permute(2, 0, 3, 4, 1)  # "b h c t"
        return self.out(((q @ k.mT).softmax(-1) @ v).permute(0, 3, 1, 2).reshape(x.shape))


def test_attention_between_channels_is_named_as_such() -> None:
    model = nn.Sequential(ChannelAttention()).eval()
    with (
        pytest.warns(UserWarning, match="between channels instead of positions") as caught,
        torch.no_grad(),
        regard.record(model),
    ):
        model(torch.randn(2, 5, 6))
    assert not any("model.eval()" in str(warning.message) for warning in caught)
