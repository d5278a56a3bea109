"""Latent attention: both forms are one function, the cache holds latents alone, and inputs that do not fit."""

from collections.abc import Callable

import pytest
import torch
from tests.for_each import for_each
from torch import Tensor, nn

import regard
from regard import Attention, Need
from regard.layers import Latent

DIM, HEADS, C, N, R, V, T = 13, 3, 10, 5, 4, 7, 9


def layer(form: str | None = None, **options: object) -> Latent:
    torch.manual_seed(0)
    options = {"latent_dim": C, "head_dim": N, "rotated_dim": R, "head_value_dim": V, "bias": True, **options}
    return Latent(DIM, HEADS, form=form, **options).double().eval()  # type: ignore[arg-type]


def both(**options: object) -> tuple[Latent, Latent]:
    return layer("expanded", **options), layer("absorbed", **options)


def loop(heads: Latent, x: Tensor) -> Tensor:  # "t d"
    """Head by head and query by query, as the paper writes it."""
    down = heads.key(x)
    latents = down[:, :C] / (down[:, :C].square().mean(-1, keepdim=True) + 1e-6).sqrt() * heads.norm.weight
    shared = heads.rotate(down[:, C:])
    q = heads.query(x).view(T, HEADS, N + R)
    rows = []
    for t in range(T):
        parts = []
        for h in range(HEADS):
            keys = torch.cat([latents @ heads.key_up.weight[h * N : (h + 1) * N].T, shared], -1)
            values = latents @ heads.value_up.weight[h * V : (h + 1) * V].T
            query = torch.cat([q[t, h, :N], heads.rotate(q[t, h, None, N:], start=t)[0]])
            weights = torch.softmax(keys[: t + 1] @ query / (N + R) ** 0.5, 0)
            parts.append(weights @ values[: t + 1])
        rows.append(torch.cat(parts))
    return heads.out(torch.stack(rows))


@for_each("form", ["expanded", "absorbed", None])
@for_each("query_latent_dim", [None, 6])
def test_it_is_the_formula_and_its_steps_are_the_whole(form: str | None, query_latent_dim: int | None) -> None:
    heads = layer(form, query_latent_dim=query_latent_dim)
    x = torch.randn(2, T, DIM, dtype=torch.float64)
    want = heads(x, mask=regard.Causal())
    for row, expected in zip(x, want, strict=True):
        torch.testing.assert_close(loop(heads, row), expected, rtol=1e-6, atol=1e-6)
    with torch.no_grad():
        past = None
        for t in range(T):
            step, past = heads.step(x[:, t : t + 1], past, mask=regard.Causal())
            torch.testing.assert_close(step[:, 0], want[:, t])


@for_each("mask", [None, regard.Causal(), regard.Lengths([T, 4]), regard.Window(2, 0) & regard.Lengths([T, 0])])
def test_absorbed_equals_expanded(mask: regard.Mask | None) -> None:
    expanded, absorbed = both()
    x = torch.randn(2, T, DIM, dtype=torch.float64, requires_grad=True)
    want, got = (heads.attend(x, mask=mask, need=Need(weights=True, scores=True)) for heads in (expanded, absorbed))
    torch.testing.assert_close(got.out, want.out)
    torch.testing.assert_close(got.weights, want.weights)
    torch.testing.assert_close(got.scores, want.scores)
    gradients = [
        torch.autograd.grad(result.out.square().sum(), [x, *heads.parameters()])
        for heads, result in ((expanded, want), (absorbed, got))
    ]
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other)


def test_the_form_of_fewer_products_runs() -> None:
    heads = layer()  # q · (20 − 12) < 10 · 12
    for queries, form in ((1, "absorbed"), (14, "absorbed"), (15, "expanded"), (40, "expanded")):
        assert f"Latent, {form}" in heads.explain(torch.randn(1, queries, DIM, dtype=torch.float64))
    narrow = layer(latent_dim=6)  # twice the latent is no wider than a head
    assert "Latent, absorbed" in narrow.explain(torch.randn(1, 99, DIM, dtype=torch.float64))


def test_the_cache_holds_latents_and_rotated_keys_alone() -> None:
    """DeepSeek-V2, table 1: d_c + d_r numbers per token and layer; of 128 heads of 128, 576 instead of 32,768."""
    heads = layer()
    past = heads.project_kv(torch.randn(2, T, DIM, dtype=torch.float64))
    assert past.keys.numel() + past.values.numel() == 2 * T * (C + R)
    published = Latent(
        16, 128, latent_dim=512, head_dim=128, rotated_dim=64, query_latent_dim=8, head_value_dim=128
    ).bfloat16()
    past = published.project_kv(torch.randn(1, 3, 16).bfloat16())
    assert (past.keys.numel() + past.values.numel()) * past.keys.element_size() == 3 * 1152


def test_positions_and_caches() -> None:
    heads = layer()
    x = torch.randn(1, T, DIM, dtype=torch.float64)
    want = heads(x, mask=regard.Causal())
    later = torch.arange(100, 100 + T)
    torch.testing.assert_close(heads(x, mask=regard.Causal(), positions=(later, later)), want)
    past = heads.project_kv(x[:, :5], positions=later[:5])
    step, past = heads.step(x[:, 5:], past, mask=regard.Causal(), positions=(later[5:], later))
    torch.testing.assert_close(step, want[:, 5:])
    assert torch.equal(past.positions, later)
    torch.testing.assert_close(heads(x[:, 5:], past, mask=regard.Causal()), want[:, 5:])


def test_other_terms_and_changed_layers() -> None:
    """A normalizer in both forms; another score, 8-bit weights and hooks in the expanded form alone."""
    expanded, absorbed = both(attention=Attention(normalize=regard.Sparsemax()))
    x = torch.randn(2, T, DIM, dtype=torch.float64)
    torch.testing.assert_close(expanded(x), absorbed(x))
    plain, other = layer(), layer("expanded")
    for heads in (plain, other):
        regard.swap(heads, score=regard.Cosine(3.0))
    assert "Latent, expanded" in plain.explain(x[:, :1])
    torch.testing.assert_close(plain(x[:, :1], x), other(x[:, :1], x))
    seen: list[int] = []
    hooked = layer()
    hooked.key_up.register_forward_hook(lambda *_: seen.append(1))
    hooked(x[:, :1], x)
    assert seen
    wide = Latent(64, 4, latent_dim=32, head_dim=16, rotated_dim=8).eval()
    x = torch.randn(1, 5, 64)
    want = wide(x)
    regard.quantize(wide)
    torch.testing.assert_close(wide(x), want, rtol=0.1, atol=0.1)
    assert "Latent, expanded" in wide.explain(x)


def test_half_types_masked_rows_and_nan() -> None:
    x = torch.randn(2, T, DIM)
    for form in ("expanded", "absorbed"):
        heads = layer(form).bfloat16()
        assert heads(x.bfloat16()).dtype == torch.bfloat16
        heads = layer(form).float()
        empty = heads(x, mask=regard.Lengths([T, 0]))[1]
        assert torch.equal(empty, heads.out.bias.expand_as(empty))
        with torch.autocast("cpu", torch.bfloat16):
            assert heads(x).isfinite().all()
        bad = x.clone()
        bad[0, 3] = torch.nan
        assert heads(bad, mask=regard.Causal())[0].isnan().all(-1).tolist() == [False] * 3 + [True] * (T - 3)


def test_nan_behind_a_mask_of_samples() -> None:
    """A tensor "*b q k", whose first axis is as long as that of the heads, and is not theirs."""
    heads, x = layer(), torch.randn(HEADS, T, DIM, dtype=torch.float64)
    mask = torch.ones(HEADS, T, T, dtype=torch.bool)
    mask[1, :, 2:] = False
    bad = x.clone()
    bad[1, 5:] = torch.nan
    torch.testing.assert_close(heads(bad, mask=mask)[1, :5], heads(x, mask=mask)[1, :5])


def test_it_is_recorded() -> None:
    for heads in both():
        x = torch.randn(2, T, DIM, dtype=torch.float64)
        with regard.record(heads) as recording:
            out = heads(x, mask=regard.Causal())
        torch.testing.assert_close(out, heads(x, mask=regard.Causal()))
        (recorded,) = recording
        want = heads.attend(x, mask=regard.Causal(), need=Need(weights=True)).weights
        torch.testing.assert_close(recorded.weights[:, :], want)


X = torch.randn(1, 5, DIM, dtype=torch.float64)
ERRORS: dict[str, tuple[Callable[[], object], str]] = {
    "values": (lambda: layer()(X, X, X), "v must be None for Latent, which reads k itself"),
    "queries": (lambda: layer()(X[..., :5]), r"q must be 13 wide for Latent\(13, 3, latent_dim=10"),
    "keys": (lambda: layer()(X, X[..., :5]), r"k must be 13 wide for Latent"),
    "cache": (
        lambda: layer()(X, regard.KVCache(torch.randn(1, 1, 2, 4), torch.randn(1, 1, 2, 4))),
        r"k must be a cache of 4 rotated and 10 latent numbers, got KVCache\(.* pass what project_kv or step of this",
    ),
    "rotation": (
        lambda: layer(rotate=regard.Rotary(6)),
        r"rotate must turn the 4 rotated channels of Latent, got Rotary\(6.* try Rotary\(4, pairs=\"neighbours\"\)",
    ),
    "form": (lambda: layer("folded"), "unknown form 'folded'"),
    "absorbed": (
        lambda: layer("absorbed", attention=Attention(regard.Cosine()))(X),
        "form='absorbed' needs plain linear layers and the score Dot, got .*Cosine",
    ),
    "latent": (lambda: layer(latent_dim=0), "latent_dim must be a whole number, 1 or more, for Latent"),
    "query latent": (lambda: layer(query_latent_dim=0), "query_latent_dim must be a whole number"),
}


@for_each("name", ERRORS)
def test_bad_input(name: str) -> None:
    make, message = ERRORS[name]
    with pytest.raises(ValueError, match=message):
        make()


def test_bad_kinds() -> None:
    with pytest.raises(TypeError, match="attention must be an Attention, got True"):
        layer(attention=True)
    with pytest.raises(TypeError, match="rotate must be a Rotary, got True"):
        layer(rotate=True)
    with pytest.raises(TypeError, match="parameters of torch.float64, q is torch.float32"):
        layer()(X.float())


def test_every_parameter_gets_a_gradient() -> None:
    for heads in both(query_latent_dim=6):
        heads.train()(X, mask=regard.Causal()).square().sum().backward()
        assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in heads.parameters())
        assert isinstance(heads.query, nn.Sequential)
