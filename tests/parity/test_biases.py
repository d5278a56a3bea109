"""Biases without a package of their authors, against the formulas of their papers and code, pair by pair in float64."""

import math

import pytest
import torch
from tests.for_each import for_each
from torch import Tensor

import regard
from regard.attn.call import AttentionInputs, Terms
from regard.biases import FIRE, CoPE, KerpleLog, KerplePower, Selective
from regard.interop.swapped_terms import SwappedTerms

H, N, D = 3, 11, 4


def numbers(t: Tensor) -> list[float]:
    return t.detach().double().tolist()


def kerple_log(bias: KerpleLog, h: int, i: int, j: int) -> float:
    """GPT-NeoX's ParallelKerpleLog: -p log(1 + a |m - n|)."""
    p, a = (math.exp(numbers(t)[h]) for t in (bias.log_scale, bias.shape))
    return -p * math.log(1 + a * abs(i - j))


def kerple_power(bias: KerplePower, h: int, i: int, j: int) -> float:
    """ParallelKerplePower: -a |m - n|^p, 0 < p <= 2."""
    a, p = math.exp(numbers(bias.log_scale)[h]), 2 / (1 + math.exp(-numbers(bias.shape)[h]))
    return -a * abs(i - j) ** p


def fire(bias: FIRE, h: int, i: int, j: int) -> float:
    """The class FIRE of the paper's appendix, with its first values of c and of the multiplier of L."""
    c = bias.c.item()
    share = math.log(abs(c * (i - j)) + 1) / (math.log(abs(c * max(i, bias.factor.item() * bias.threshold)) + 1) + 1e-6)
    weights, offsets = numbers(bias.inner.weight[:, 0]), numbers(bias.inner.bias)
    hidden = [max(w * share + b, 0.0) for w, b in zip(weights, offsets, strict=True)]
    return sum(w * x for w, x in zip(numbers(bias.outer.weight[h]), hidden, strict=True)) + numbers(bias.outer.bias)[h]


FORMULAS = {
    "kerple": (lambda: KerpleLog(H), kerple_log),
    "kerple-power": (lambda: KerplePower(H), kerple_power),
    "fire": (lambda: FIRE(H, hidden=7, threshold=5.0), fire),
}


@for_each("name", FORMULAS)
def test_the_formula_for_every_pair(name: str) -> None:
    torch.manual_seed(0)
    make, formula = FORMULAS[name]
    bias, q, i = make().double(), torch.zeros(2, H, N, D, dtype=torch.float64), torch.arange(N)
    got = bias(q, i, i, N).expand(2, H, N, N)
    for h in range(H):
        want = torch.tensor([[formula(bias, h, row, key) for key in range(N)] for row in range(N)]).double()  # type: ignore[operator]
        torch.testing.assert_close(got[1, h], want, rtol=1e-6, atol=1e-9)
    # positions per sample have the same numbers
    batched = bias(q, i.expand(2, N), i.expand(2, N), N)
    torch.testing.assert_close(batched, got)


@for_each("name", FORMULAS)
def test_gradients_and_half_types_at_far_positions(name: str) -> None:
    torch.manual_seed(1)
    bias = FORMULAS[name][0]().double()
    i = torch.arange(3)
    parameters = list(bias.parameters())
    assert torch.autograd.gradcheck(lambda *_: bias(torch.zeros(H, 3, D).double(), i, i, 3), parameters)
    far = torch.tensor([100_000]), torch.tensor([99_998, 99_999, 100_000])
    wide = bias(torch.zeros(H, 1, D).double(), *far, 3)
    half = bias.bfloat16()(torch.zeros(H, 1, D).bfloat16(), *far, 3)
    assert half.dtype == torch.float32
    torch.testing.assert_close(half.double(), wide, rtol=0.05, atol=0.05)


def test_kerple_power_of_one_is_alibi() -> None:
    bias, alibi = KerplePower(4), regard.ALiBi(4)
    with torch.no_grad():
        bias.log_scale.copy_(alibi.slopes.log())
        bias.shape.zero_()
    q, i = torch.zeros(4, N, D), torch.arange(N)
    torch.testing.assert_close(bias(q, i, i, N), alibi(q, i, i, N))


def test_heads_and_thresholds_that_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^threshold must be positive for FIRE, got 0"):
        FIRE(2, threshold=0)
    for bias in (FIRE(2), KerpleLog(2), KerplePower(2)):
        with pytest.raises(ValueError, match="2 heads"):
            regard.attention(torch.randn(1, 3, 5, 4), torch.randn(1, 3, 5, 4), bias=bias)


CAUSAL = torch.ones(N, N, dtype=torch.bool).tril()


def drawn(*shape: int) -> list[Tensor]:
    torch.manual_seed(2)
    return [torch.randn(*shape, dtype=torch.float64) for _ in range(3)]


@pytest.mark.parametrize("positions", [64, 4])
def test_contextual_positions_by_the_loops_of_the_paper(positions: int) -> None:
    """g = σ(q k / √d), p_ij = Σ g_il from j to i, and q · e between the two whole numbers around p."""
    (q, k, v), bias = drawn(2, H, N, D), CoPE(D, positions).double()
    torch.nn.init.normal_(bias.table)
    got = regard.attend(q, k, v, bias=bias, mask=regard.Causal(), need=regard.Need(scores=True, weights=True))
    s = q @ k.mT / math.sqrt(D)
    want = torch.full_like(s, -torch.inf)
    for b, h, i in torch.cartesian_prod(torch.arange(2), torch.arange(H), torch.arange(N)).tolist():
        for j in range(i + 1):
            place = min(torch.sigmoid(s[b, h, i, j : i + 1]).sum().item(), positions - 1)
            low, high = math.floor(place), math.ceil(place)
            ends = [(q[b, h, i] @ bias.table[n]).item() for n in (low, high)]
            want[b, h, i, j] = s[b, h, i, j] + ends[1] * (place - low) + ends[0] * (1 - place + low)
    torch.testing.assert_close(got.scores, want)
    torch.testing.assert_close(got.weights, want.softmax(-1))


def test_contextual_positions_with_all_gates_open_count_keys() -> None:
    q, bias = drawn(1, H, N, D)[0], CoPE(D).double()
    torch.nn.init.normal_(bias.table)
    i = torch.arange(N)
    numbers = bias.of_scores(q, torch.full((1, H, N, N), 50.0).double(), CAUSAL, i, i)
    distance = (i[:, None] - i + 1).clamp_min(0)  # the query itself is key number one
    want = (q @ bias.table.mT).gather(-1, distance.expand(1, H, N, N))
    torch.testing.assert_close(numbers.masked_fill(~CAUSAL, 0), want.masked_fill(~CAUSAL, 0))


def test_selective_attention_by_the_loops_of_the_paper() -> None:
    """Minus the sum of relu(scores of head 0) of the queries before; none masks itself or the first key."""
    q, k, v = drawn(2, H, N, D)
    need = regard.Need(scores=True)
    got = regard.attend(q, k, v, bias=Selective(H), mask=regard.Causal(), need=need)
    s = q @ k.mT / math.sqrt(D)
    want = torch.full_like(s, -torch.inf)
    for b, i in torch.cartesian_prod(torch.arange(2), torch.arange(N)).tolist():
        for j in range(i + 1):
            voters = [row for row in range(i) if row > j > 0]
            votes = sum(max(s[b, 0, row, j].item(), 0.0) for row in voters)
            want[b, :, i, j] = s[b, :, i, j] - votes
    torch.testing.assert_close(got.scores, want)


@for_each("bias", [Selective(H), CoPE(D, 4)], ids=["selective", "cope"])
def test_a_part_of_the_map_is_that_of_the_whole(bias: regard.Bias) -> None:
    """Rows and heads of a recorded map, although a row may depend on others and on head 0."""
    if isinstance(bias, CoPE):
        torch.nn.init.normal_(bias.table)
    q, k, v = (t.float() for t in drawn(2, H, N, D))
    need = regard.Need(map=True, weights=True)
    got = regard.attend(q, k, v, bias=bias, mask=regard.Causal(), need=need)
    torch.testing.assert_close(got.map.rows(slice(4, 6)), got.weights[..., 4:6, :])
    torch.testing.assert_close(got.map.pick(1, 2).dense(), got.weights[1, 2])


def test_swapped_into_a_call_that_adds_numbers_they_are_refused() -> None:
    q, k, v = drawn(2, H, N, D)
    terms = Terms.with_defaults(bias=torch.zeros(N, N))
    message = r"^bias=Selective\(heads=3\) reads the scores, and this call already adds a tensor to them; swap it into"
    with pytest.raises(ValueError, match=message):
        SwappedTerms(bias=Selective(H)).apply(AttentionInputs(q, k, v), terms, training=False)


def test_a_cache_of_steps_holds_what_the_queries_before_have_masked() -> None:
    heads = regard.MultiHead(H * D, H, attention=regard.Attention(bias=Selective(H), mask=regard.Causal()))
    x, past, outs = torch.randn(2, N, H * D), None, []
    for part in x.split([4, 1, 1, 5], dim=1):
        out, past = heads.step(part, past)
        outs.append(out)
    torch.testing.assert_close(torch.cat(outs, 1), heads(x))
    keys = heads.project_kv(x)
    with pytest.raises(
        ValueError, match=r"has no scores of earlier queries, which Selective\(heads=3\) reads; take that"
    ):
        heads.step(x[:, :1], keys)


@for_each("terms", [{"bias": CoPE(D, 4)}, {"normalize": regard.normalizers.StickBreaking()}], ids=str)
def test_tokens_are_not_sorted_where_their_order_counts(terms: dict[str, regard.Bias]) -> None:
    """Masks of grids let a backend sort tokens into squares."""
    q, k, v = (torch.randn(1, 1, 64, D) for _ in range(3))
    mask = regard.masks.Neighbourhood((8, 8), 3)
    got, want = (regard.attention(q, k, v, mask=mask, **terms, backend=name) for name in ("blocked", "eager"))
    torch.testing.assert_close(got, want)


def test_backends_that_cannot_run_them_say_why() -> None:
    q, k, v = drawn(2, H, N, D)
    text = regard.explain(q, k, v, bias=Selective(H), mask=regard.Causal())
    assert "cannot: Selective reads the scores, which its kernel never forms" in text
    assert "cannot: a row of Selective depends on the rows before it, which other blocks hold" in text
    with pytest.raises(
        ValueError, match="'fused' cannot run this: CoPE reads the scores, which its kernel never forms"
    ):
        regard.attention(q, k, v, bias=CoPE(D).double(), backend="fused")
    with pytest.raises(TypeError, match=r"Selective\(heads=3\) reads the scores, which positions alone do not give"):
        Selective(H)(q, torch.arange(N), torch.arange(N), N)
    with pytest.raises(ValueError, match=r"CoPE\(5, positions=64\)"):
        regard.attention(q, k, v, bias=CoPE(5).double())
