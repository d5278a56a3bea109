"""`backend="triton"` in the interpreter: outputs and gradients of the equation in float64."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import regard
from regard import Need
from regard.kernels.triton import additive, launch, sparse

# sizes that share no factor, more than a tile of keys for sparse weights, widths that are padded
B, Q, K, D, V = 2, 5, 34, 11, 7

MASKS: dict[str, Any] = {
    "none": lambda n, q, k: None,
    "lengths": lambda n, q, k: regard.Lengths(torch.tensor([k, 0] * n)[:n]),
    "causal": lambda n, q, k: regard.Causal(),
    # a row and a key that nobody reaches
    "pairs": lambda n, q, k: regard.BooleanMask(
        (torch.rand(n, q, k) < 0.4).index_fill(1, torch.tensor([0]), False).index_fill(2, torch.tensor([k - 1]), False)
    ),
    "nothing": lambda n, q, k: regard.BooleanMask(torch.zeros(1, 1, 1, dtype=torch.bool)),
}
TERMS: dict[str, Any] = {
    "additive": lambda: {"score": regard.Additive(D, D, 13), "normalize": regard.Softmax(0.7)},
    "sparsemax": lambda: {"normalize": regard.Sparsemax()},
    "entmax": lambda: {"normalize": regard.Entmax(1.5), "score": regard.Bilinear(D, D)},
}


def close(got: Tensor, want: Tensor, what: str, tolerance: float = 1e-5) -> None:
    """Within the tolerance of the greatest number, which rounding is relative to."""
    scale = max(1.0, want.masked_fill(~want.isfinite(), 0.0).abs().max().item()) if want.numel() else 1.0
    torch.testing.assert_close(
        got.double() / scale,
        want.double() / scale,
        rtol=0,
        atol=tolerance,
        equal_nan=True,
        msg=lambda m: f"{what}: {m}",
    )


def results(backend: str, terms: dict[str, Any], dtype: torch.dtype, *inputs: Tensor, mask: Any) -> dict[str, Tensor]:
    """The output, lse of a softmax, and the gradients of the inputs and of the parameters."""
    leaves = [t.detach().to(dtype).requires_grad_() for t in inputs]
    score = terms.get("score")
    parameters = list(score.to(dtype).parameters()) if isinstance(score, nn.Module) else []
    need = Need(lse="additive" in type(score).__name__.lower())
    got = regard.attend(*leaves, **terms, mask=mask, need=need, backend=backend)
    weights = torch.linspace(-1, 2, got.out.numel(), dtype=torch.float64).reshape(got.out.shape).to(dtype)
    loss = (got.out * weights).sum()
    named = {"out": got.out.detach()}
    if got.lse is not None:
        loss = loss + got.lse.masked_fill(got.lse == -torch.inf, 0.0).cos().sum()
        named["lse"] = got.lse.detach()
    gradients = torch.autograd.grad(loss, [*leaves, *parameters])
    return named | {f"gradient {n}": g for n, g in enumerate(gradients)}


def agree(terms: dict[str, Any], q: Tensor, k: Tensor, v: Tensor, mask: Any, what: str) -> None:
    before = [t.clone() for t in (q, k, v)]
    got = results("triton", terms, torch.float32, q, k, v, mask=mask)
    want = results("eager", terms, torch.float64, q, k, v, mask=mask)
    for name, tensor in want.items():
        close(got[name], tensor, f"{what} {name}")
    assert all(torch.equal(*pair) for pair in zip(before, (q, k, v), strict=True)), "an input was changed"


@pytest.mark.parametrize("terms", TERMS)
def test_masks_at_odd_sizes(terms: str) -> None:
    q, k, v = torch.randn(B, Q, D), torch.randn(B, K, D), torch.randn(B, K, V)
    for name, mask in MASKS.items():
        agree(TERMS[terms](), q, k, v, mask(B, Q, K), f"{terms} {name}")


@pytest.mark.parametrize("terms", TERMS)
def test_one_row_and_no_rows(terms: str) -> None:
    for q, k in ((1, 1), (1, K), (3, 0), (0, 3)):
        sizes = ((2, q, D), (2, k, D), (2, k, V))
        agree(TERMS[terms](), *(torch.randn(s) for s in sizes), None, f"{terms} of {q} queries, {k} keys")


@pytest.mark.parametrize("terms", TERMS)
def test_leading_axes_shared_heads_and_strides(terms: str) -> None:
    """Two axes, keys of one head for three, a mask of one head, and tensors whose rows are not contiguous."""
    q, k, v = (
        torch.randn(2, 3, D, 5).mT,
        torch.randn(2, 1, 9, D + 3)[..., 2:-1],
        torch.randn(9, 1, 2, V).transpose(0, 2),
    )
    allowed = (torch.rand(2, 1, 5, 9) < 0.6).index_fill(3, torch.tensor([0]), True)
    agree(TERMS[terms](), q, k, v, regard.BooleanMask(allowed), terms)


@pytest.mark.parametrize("terms", ["additive", "entmax", pytest.param("sparsemax", marks=pytest.mark.whole)])
def test_several_tiles_and_wide_rows(terms: str) -> None:
    """Rows that are padded to 64, and more than a tile of queries and of keys."""
    wide = dict(TERMS[terms]())
    if terms != "sparsemax":
        wide["score"] = regard.Additive(41, 41, 50) if terms == "additive" else regard.Bilinear(41, 41)
    agree(wide, torch.randn(1, 35, 41), torch.randn(1, 66, 41), torch.randn(1, 66, 60), regard.Causal(), terms)


def test_rows_of_unequal_widths() -> None:
    q, k = torch.randn(1, 2, 5), torch.randn(1, 3, 5)
    agree({"score": regard.Additive(5, 5, 3)}, q, k, torch.randn(1, 3, 300), None, "additive")
    for width in (2, 70):
        agree({"normalize": regard.Sparsemax()}, q, k, torch.randn(1, 3, width), None, f"sparsemax {width}")


def test_masks_are_read_along_their_keys() -> None:
    """Kernels count keys in 32 bits, so that a step of more than one number would overflow in a large mask."""
    allowed = (torch.rand(2, 9, 5) < 0.6).mT
    mask = launch.mask_of(allowed, 2, 5, 9, allowed)
    assert mask.strides[2] == 1
    assert torch.equal(mask.allowed.bool(), allowed)
    assert launch.mask_of(allowed[..., :1], 2, 5, 9, allowed).strides[2] == 0


def test_half_types() -> None:
    """float16, whose products the interpreter computes; it multiplies the bits of bfloat16."""
    q, k, v = (torch.randn(s, dtype=torch.half) for s in ((1, 5, D), (1, 9, D), (1, 9, V)))
    for name, make in TERMS.items():
        terms = make()
        if "score" in terms:
            terms["score"].half()
        want = regard.attention(q, k, v, **terms, backend="eager")
        got = regard.attention(q, k, v, **terms, backend="triton")
        assert got.dtype == torch.half
        torch.testing.assert_close(got, want, rtol=2e-3, atol=2e-3, msg=lambda m, name=name: f"{name}: {m}")


# the interpreter computes with numpy, which warns of what a GPU does in silence
@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")
def test_sums_beyond_the_range_of_exponentials() -> None:
    """Queries and keys that cancel at 100, and -inf, whose tanh is -1."""
    a, b, w, v = torch.randn(1, 5, 3), torch.randn(1, 6, 3), torch.randn(3), torch.randn(1, 6, 2)
    a, b = a + 100.0, b - 100.0
    a[0, 1, 0], b[0, 2, 1] = -torch.inf, -torch.inf
    out, lse = additive.attend(a, b, w, v, None)
    scores = torch.tanh(a.unsqueeze(-2).double() + b.unsqueeze(-3).double()) @ w.double()
    close(lse, scores.logsumexp(-1), "lse")
    close(out, scores.softmax(-1) @ v.double(), "out")


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("squared", [False, True])
def test_scores_that_are_not_finite(squared: bool) -> None:
    """-inf has no weight; NaN and inf make their row NaN, forward and backward, and no other row."""
    normalize = regard.Entmax(1.5) if squared else regard.Sparsemax()
    q, k, v = torch.ones(1, 5, 1), torch.randn(1, 40, 1), torch.randn(1, 40, 3)
    k[0, 3] = -torch.inf
    q[0, 1], q[0, 2] = torch.nan, -1.0
    q.requires_grad_()
    out = sparse.attend(q, k, v, None, 1.0, squared)
    want = normalize.weights(q @ k.mT, None) @ v
    close(out.detach(), want.detach(), "out")
    assert out[0, 1:3].isnan().all()
    assert out[0, [0, 3, 4]].isfinite().all()
    (grad,) = torch.autograd.grad(out.sum(), q)
    assert grad[0, 1:3].isnan().all()


@pytest.mark.parametrize("squared", [False, True])
def test_thresholds_of_hard_rows(squared: bool) -> None:
    """Equal scores, one that stands out, and scores that fall slowly: many steps of Newton's search."""
    normalize = regard.Entmax(1.5) if squared else regard.Sparsemax()
    n = 100
    rows = torch.stack([
        torch.zeros(n), torch.zeros(n).index_fill(0, torch.tensor([7]), 50.0), -torch.linspace(0, 2, n), torch.rand(n),
        0.98 ** torch.arange(n), torch.linspace(900, 1000, n),
    ])  # fmt: skip
    q, k, v = torch.eye(6)[None], rows.mT.contiguous()[None], torch.randn(1, n, 4)
    want = normalize.weights(rows.double(), None) @ v.double()
    close(sparse.attend(q, k, v, None, 1.0, squared), want, "out", 3e-5)


@pytest.mark.parametrize("terms", ["additive", *(pytest.param(name, marks=pytest.mark.whole) for name in [*TERMS][1:])])
def test_compiled_as_one_operator(terms: str) -> None:
    parts = TERMS[terms]()
    layer = regard.Attention(**{"score": regard.Dot(), **parts}, backend="triton")
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    q, k, v = (torch.randn(s, requires_grad=True) for s in ((1, 3, D), (1, 5, D), (1, 5, V)))
    mask = regard.Lengths(torch.tensor([4]))
    results = []
    for run in (compiled, layer):
        out = run(q, k, v, mask=mask)
        results.append([out, *torch.autograd.grad(out.sum(), [q, k, v, *layer.parameters()])])
    torch.testing.assert_close(*results)


def test_second_derivatives_are_refused() -> None:
    q = torch.randn(1, 3, 4, requires_grad=True)
    out = regard.attention(q, q, normalize=regard.Sparsemax(), backend="triton")
    (grad,) = torch.autograd.grad(out.square().sum(), q, create_graph=True)
    with pytest.raises(RuntimeError, match="no autograd formula was registered"):
        grad.sum().backward()


def test_operators_are_declared_as_they_are() -> None:
    """Fake shapes, aliases and gradients, by torch's own checks."""
    allowed = torch.rand(2, 3, 5) < 0.7
    rows = [torch.randn(s, requires_grad=True) for s in ((2, 3, 4), (2, 5, 4), (2, 5, 6))]
    utils = ("test_schema", "test_autograd_registration", "test_faketensor")
    w = torch.randn(4, requires_grad=True)
    torch.library.opcheck(additive._attend, (rows[0], rows[1], w, rows[2], allowed), test_utils=utils)
    torch.library.opcheck(sparse._attend, (*rows, allowed, 0.5, True), test_utils=utils)


def test_explain_names_the_kernels() -> None:
    q = torch.randn(1, 3, D)
    said = regard.explain(q, q, normalize=regard.Sparsemax(), backend="triton")
    assert "triton   runs: Triton kernels, scores and their threshold in tiles, without weights in memory" in said
    said = regard.explain(q, q, score=regard.Additive(D, D, 3), backend="triton")
    assert "triton   runs: Triton kernels, tanh scores and softmax in tiles, without weights in memory" in said


def test_calls_that_the_kernels_do_not_take() -> None:
    q, wide = torch.randn(1, 2, 3, 8), torch.randn(1, 2, 3, 129)
    cases: list[tuple[dict[str, Any], str]] = [
        ({}, "tanh scores with Softmax, and for dot products with Sparsemax"),
        ({"normalize": regard.Entmax(1.3)}, r"not for Dot with Entmax\(1.3\)"),
        ({"score": regard.Additive(8, 8, 4), "normalize": regard.Sparsemax()}, "not for Additive with Sparsemax"),
        (
            {"score": regard.Additive(8, 8, 4), "normalize": regard.Softmax(regard.Learnable(1.0))},
            "temperature is trained",
        ),
        ({"normalize": regard.Sparsemax(), "read": regard.Argmax()}, "Argmax selects one key"),
        ({"normalize": regard.Sparsemax(), "bias": regard.ALiBi(2)}, "its kernels add no bias"),
        ({"normalize": regard.Sparsemax(), "dropout": 0.1}, "never form the weights that dropout needs"),
        ({"normalize": regard.Sparsemax(), "q": q.double()}, "it computes in float32, the call in float64"),
        ({"normalize": regard.Sparsemax(), "q": wide}, "rows of up to 128 numbers, and a row has 129"),
        ({"score": regard.Additive(8, 8, 4), "v": torch.randn(1, 2, 3, 513)}, "rows of up to 512 numbers"),
        ({"normalize": regard.Sparsemax(), "q": torch.zeros(1).expand(1, 1 << 26, 5)}, "67108864 rows of 32 are more"),
    ]
    for terms, message in cases:
        q_here = terms.pop("q", q)
        with pytest.raises(ValueError, match=f"backend 'triton' cannot run this: .*{message}"):
            regard.attention(q_here, q_here, terms.pop("v", None), **terms, backend="triton")
    with pytest.raises(ValueError, match=r"its kernels never form the weights; leave backend out"):
        regard.attend(q, q, normalize=regard.Sparsemax(), need=Need(weights=True), backend="triton")
    with pytest.raises(ValueError, match=r"torch\.func cannot look into its kernels"):
        torch.vmap(lambda x: regard.attention(x, x, normalize=regard.Sparsemax(), backend="triton"))(q)
