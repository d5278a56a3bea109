"""Half types, far places and extreme parameters do not cost more digits than the type has."""

import copy
import math

import pytest
import torch
import torch.nn.functional as F
from tests.attn.backends.cases import willing
from torch import Tensor, nn

import regard
from regard import MECHANISMS, Need
from regard.attn.terms import distance

HALF = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
D = 64


def error(got: Tensor, want: Tensor) -> float:
    """√(mean of squared errors), relative to that of the numbers. The greatest error would depend on the binade of the
    greatest number.
    """
    return ((got.double() - want).norm() / want.norm()).item()


def half_inputs(dtype: torch.dtype, *lead: int) -> list[Tensor]:
    """q and k ~ N(0, 9), rounded: scores of deviation 9, whose rounding changes the weights."""
    return [(torch.randn(*lead, n, D) * 3).to(dtype) for n in (13, 37)]


def sdpa_error(q: Tensor, k: Tensor) -> float:
    """The error of torch's scaled_dot_product_attention in the dtype of q, against float64 of the same inputs."""
    want = F.scaled_dot_product_attention(q.double(), k.double(), k.double())
    return error(F.scaled_dot_product_attention(q, k, k), want)


def heads_by_sdpa(heads: regard.MultiHead, q: Tensor, k: Tensor) -> Tensor:
    """The heads computed around torch's kernel: projections, rotation and bias rounded to the dtype of q."""
    i, j = torch.arange(k.shape[-2] - q.shape[-2], k.shape[-2]), torch.arange(k.shape[-2])
    queries, keys, values = (
        linear(x).unflatten(-1, (-1, heads.head_dim)).transpose(-2, -3)
        for linear, x in ((heads.query, q), (heads.key, k), (heads.value, k))
    )
    if heads.rotate is not None:
        queries, keys = heads.rotate(queries, i), heads.rotate(keys, j)
    (bias, mask), added = (heads.attention.bias, heads.attention.mask), None
    allowed = None if mask is None else mask.dense(i, j)
    if bias is not None and bias.reads_scores:
        scores = queries @ keys.transpose(-1, -2) * heads.head_dim**-0.5
        added = bias.of_scores(queries, scores, allowed, i, j).to(q.dtype)
    elif bias is not None:
        added = bias(queries, i, j, k.shape[-2]).to(q.dtype)
        queries = bias.content(queries)
    if allowed is not None:
        numbers = torch.zeros(allowed.shape, dtype=q.dtype) if added is None else added
        added = numbers.masked_fill(~allowed, -torch.inf)
    out = F.scaled_dot_product_attention(queries, keys, values, added, enable_gqa=True)
    return heads.out(out.transpose(-2, -3).flatten(-2))


def latent_by_sdpa(heads: regard.layers.Latent, q: Tensor, k: Tensor) -> Tensor:
    """The same of latent attention, whose keys and values are rounded behind every projection."""
    memory = heads.project_kv(k)
    keys, values = (
        linear(memory.values.squeeze(-3)).unflatten(-1, (heads.heads, -1)).transpose(-2, -3)
        for linear in (heads.key_up, heads.value_up)
    )
    keys = torch.cat([keys, memory.keys.expand(*keys.shape[:-1], -1)], -1)
    queries = heads.query(q).unflatten(-1, (heads.heads, -1)).transpose(-2, -3)
    rotated = heads.rotate(queries[..., heads.head_dim :], start=k.shape[-2] - q.shape[-2])
    queries = torch.cat([queries[..., : heads.head_dim], rotated], -1)
    return heads.out(F.scaled_dot_product_attention(queries, keys, values).transpose(-2, -3).flatten(-2))


def graph_by_sdpa(graph: regard.layers.GraphAttention, q: Tensor, k: Tensor) -> Tensor:
    """The same of graph attention, whose nodes are rounded behind their projection: its scores are the mask of sdpa."""
    queries, keys = (
        linear(t).unflatten(-1, (graph.heads, -1)).transpose(-2, -3) for linear, t in ((graph.query, q), (graph.key, k))
    )
    scores = graph.attention.score(queries, keys).to(q.dtype)
    out = F.scaled_dot_product_attention(0 * queries, keys, keys, attn_mask=scores)
    return out.transpose(-2, -3).flatten(-2)


def decided_rows(module: nn.Module, q: Tensor, k: Tensor) -> Tensor:
    """The queries whose deciding scores differ by more than 1e-5: the last kept and the first dropped of TopK, the two
    greatest of a hard read.
    """
    kept = module.normalize.k if isinstance(module.normalize, regard.TopK) else 1
    ranked = module.score(q, k).sort(-1, descending=True).values
    return ranked[..., kept - 1] - ranked[..., kept] > 1e-5


@HALF
@pytest.mark.parametrize("name", sorted(MECHANISMS))
@torch.no_grad()
def test_half_types_err_at_most_twice_as_much_as_sdpa(name: str, dtype: torch.dtype) -> None:
    q, k = half_inputs(dtype, 2)
    module = MECHANISMS[name](D, D)
    if name in ("monotonic", "mocha"):  # at -4 no step stops
        nn.init.zeros_(module.offset)
    module = module.to(dtype).eval()
    exact = copy.deepcopy(module).double()
    want = exact(q.double(), k.double())
    by_sdpa = {
        regard.MultiHead: heads_by_sdpa,
        regard.layers.Latent: latent_by_sdpa,
        regard.layers.GraphAttention: graph_by_sdpa,
    }.get(type(module))
    bound = 2 * (sdpa_error(q, k) if by_sdpa is None else error(by_sdpa(module, q, k), want))
    if name == "nsa":  # its projections, compressed blocks and gates are rounded before and behind three such reads
        bound *= 2
    out, with_weights = module(q, k), module.attend(q, k, need=Need(weights=True)).out
    if name == "topk" or name in ("hard", "hard-argmax", "gumbel", "straight-through"):
        decided = decided_rows(exact, q.double(), k.double())
        assert decided.float().mean() > 0.9
        out, with_weights, want = out[decided], with_weights[decided], want[decided]
    assert out.dtype == with_weights.dtype == dtype
    assert error(out, want) <= bound
    assert error(with_weights, want) <= bound
    # one unit in the last place of the greatest number: two kernels round differently
    assert (with_weights.double() - out.double()).abs().max() <= torch.finfo(dtype).eps * want.abs().max()


@HALF
@pytest.mark.parametrize(
    "normalize",
    [
        regard.Softmax(),
        regard.Softmax(0.7),
        regard.Sparsemax(),
        regard.Entmax(1.5),
        regard.Entmax(1.3),
        regard.TopK(4),
        regard.Sigmoid(-1.0),
        regard.normalizers.NormalizedSigmoid(),
        regard.normalizers.WithNullSlot(),
    ],
    ids=repr,
)
@torch.no_grad()
def test_every_backend_compares_half_types_in_float32(normalize: regard.Normalizer, dtype: torch.dtype) -> None:
    q, k = half_inputs(dtype, 2, 3)
    bound = 2 * sdpa_error(q, k)
    # far positions: a bias rounded to a half type would be off by more than one
    positions = torch.arange(13) + 3000, torch.arange(37)
    added = torch.randn(13, 37) * 20
    for bias, mask in ((None, None), (regard.ALiBi(3), regard.Lengths(torch.tensor([20, 37]))), (added, None)):
        terms = {"normalize": normalize, "bias": bias, "mask": mask, "positions": positions}
        exact = {**terms, "bias": bias.double() if isinstance(bias, Tensor) else bias}
        want = regard.attention(q.double(), k.double(), **exact, backend="eager")
        for backend in willing(q, k, **terms):
            assert error(regard.attention(q, k, **terms, backend=backend), want) <= bound, backend


@HALF
def test_squared_distances_of_half_types(dtype: torch.dtype) -> None:
    q, k = ((torch.randn(1, n, 64) * 3).to(dtype) for n in (7, 11))
    got = regard.attend(
        q, k, score=regard.Distance(scale=0.01), need=regard.Need(weights=True), backend="eager"
    ).weights
    want = torch.softmax(-0.01 * torch.cdist(q.double(), k.double()).square(), -1)
    assert (got.double() - want).abs().max() < torch.finfo(dtype).eps


def test_a_great_square_of_float16_stays_finite() -> None:
    q, k = (torch.randn(1, n, 64).half() + 40 for n in (3, 5))  # squares beyond 65504
    assert torch.isfinite(regard.Distance(scale=1e-3)(q, k)).all()


def test_distances_of_what_lies_close_together_but_far_away() -> None:
    q = torch.randn(1, 4, 8) + 800
    k = q + 0.01 * torch.randn(1, 4, 8)
    want = -torch.cdist(q.double(), k.double(), compute_mode="donot_use_mm_for_euclid_dist")
    assert (regard.Distance(1)(q, k).double() - want).abs().max() < 1e-5
    with torch.autocast("cpu", torch.bfloat16):
        assert (regard.Distance(1)(q, k).double() - want).abs().max() < 1e-5


def test_distances_far_away_on_a_device_without_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distance, "_has_float64", lambda t: False)
    q = torch.randn(1, 4, 8) + 800
    k = q + 0.01 * torch.randn(1, 4, 8)
    want = -torch.cdist(q.double(), k.double(), compute_mode="donot_use_mm_for_euclid_dist")
    assert (regard.Distance(1)(q, k).double() - want).abs().max() < 0.05


@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("offset", [0.0, 10.0, 100.0, 1000.0])
def test_distances_do_not_depend_on_the_origin(offset: float, power: int) -> None:
    """Squares of coordinates cancel; the weights stay exact on every backend, with and without values to read."""
    q, k, v = torch.randn(1, 2, 6, 8) + offset, torch.randn(1, 2, 9, 8) + offset, torch.randn(1, 2, 9, 8)
    apart = torch.cdist(q.double(), k.double(), compute_mode="donot_use_mm_for_euclid_dist")
    want = torch.softmax(-(apart**power), -1) @ v.double()
    score = regard.Distance(power)
    for backend in willing(q, k, v, score=score):
        got = regard.attention(q, k, v, score=score, backend=backend)
        assert got.dtype == torch.float32
        assert (got - want).abs().max() < 1e-5, backend
    compiled = torch.compile(regard.attention, fullgraph=True, backend="aot_eager")
    assert (compiled(q, k, v, score=score) - want).abs().max() < 1e-5


@pytest.mark.parametrize("power", [1, 2])
def test_distances_within_clusters_that_are_far_apart(power: int) -> None:
    centres = torch.tensor([0.0, 2000.0]).repeat_interleave(4).view(1, 8, 1)
    q, k = (centres + torch.randn(1, 8, 5) for _ in range(2))
    apart = torch.cdist(q.double(), k.double(), compute_mode="donot_use_mm_for_euclid_dist")
    got = regard.attend(q, k, score=regard.Distance(power), need=regard.Need(weights=True)).weights
    assert (got - torch.softmax(-(apart**power), -1)).abs().max() < 1e-6


def test_gradients_of_distances_do_not_depend_on_the_origin() -> None:
    q, k, v = torch.randn(1, 6, 8), torch.randn(1, 9, 8), torch.randn(1, 9, 8)

    def gradients(dtype: torch.dtype, offset: float) -> tuple[Tensor, ...]:
        inputs = [(t + offset).to(dtype).requires_grad_() for t in (q, k)]
        out = regard.attention(*inputs, v.to(dtype), score=regard.Distance(scale=0.1))
        return torch.autograd.grad(out.square().sum(), inputs)

    for got, want in zip(gradients(torch.float32, 512.0), gradients(torch.float64, 512.0), strict=True):
        assert (got - want).abs().max() < 1e-5


def test_a_cached_key_of_a_distance_is_the_key() -> None:
    layer, q, k = regard.Attention(regard.Distance()), torch.randn(2, 3, 4) + 300, torch.randn(2, 5, 4) + 300
    torch.testing.assert_close(layer(q, layer.project_kv(k)), layer(q, k))


def test_squared_distances_under_autocast() -> None:
    """Autocast rounds the points; the squares are those of the rounded points."""
    q, k = (torch.randn(1, n, 8).bfloat16().float() + 16 for n in (6, 9))
    rounded = [t.bfloat16().double() for t in (q, k)]
    want = regard.attend(*rounded, score=regard.Distance(), need=Need(weights=True)).weights
    with torch.autocast("cpu", torch.bfloat16):
        got = regard.attend(q, k, score=regard.Distance(), need=Need(weights=True)).weights
    assert (got - want).abs().max() < 0.01


def test_a_far_place_of_a_half_type() -> None:
    bias = regard.biases.LocalGaussian(4, 3, window=4.0)
    q = torch.randn(1, 2, 4)
    near = bias.bfloat16().centre(q.bfloat16(), 1001)
    assert near.dtype == torch.float32
    alibi = regard.ALiBi(2).bfloat16()
    i, j = torch.tensor([1000]), torch.tensor([0, 1, 2])
    got = alibi(torch.zeros(2, 1, 4, dtype=torch.bfloat16), i, j, 3).double()
    want = -torch.tensor([2.0**-4, 2.0**-8], dtype=torch.float64)[:, None, None] * torch.tensor([1000.0, 999.0, 998.0])
    assert ((got - want) / want).abs().max() < 2**-8


@pytest.mark.parametrize("raw", [-40.0, -18.0, 18.0, 40.0])
def test_a_trained_alpha_never_leaves_its_range(raw: float) -> None:
    normalize = regard.Entmax(regard.Learnable(1.5))
    torch.nn.init.constant_(normalize.raw_alpha, raw)
    scores = torch.randn(3, 7, requires_grad=True)
    weights = normalize(scores)
    torch.testing.assert_close(weights.sum(-1), torch.ones(3), rtol=1e-3, atol=1e-3)
    weights.square().sum().backward()
    assert torch.isfinite(scores.grad).all()
    limit = torch.softmax(scores.detach(), -1) if raw < 0 else regard.Sparsemax()(scores.detach())
    assert (weights - limit).abs().max() < 0.02


@pytest.mark.parametrize("power", [1, 2])
def test_a_query_of_nan_leaves_the_distances_of_others_exact(power: int) -> None:
    q, k = (torch.randn(2, 1, n, 8) * 0.3 + 1e3 for n in (6, 9))
    want = regard.attention(q.double(), k.double(), score=regard.Distance(power))
    q[:, :, -1] = torch.nan
    got = regard.attention(q, k, score=regard.Distance(power))
    torch.testing.assert_close(got[:, :, :-1].double(), want[:, :, :-1], rtol=1e-6, atol=0.0)


def test_a_float32_bias_of_float64_queries() -> None:
    """torch's kernel for CPUs adds other numbers to float64 scores, from some number of keys on."""
    q, k = torch.randn(1, 1, 3, 8, dtype=torch.float64), torch.randn(1, 1, 700, 8, dtype=torch.float64)
    bias = torch.randn(1, 1, 3, 700)
    want = torch.softmax(q @ k.mT / math.sqrt(8) + bias, -1) @ k
    for leaf in (q, q.clone().requires_grad_()):
        torch.testing.assert_close(regard.attention(leaf, k, bias=bias).detach(), want)
