"""blocked and flash: spans with holes, many spans, and memory that grows with the queries, not with their square."""

import subprocess
import sys

import pytest
import torch
from tests.attn.backends.cases import Case, Sizes, close, resolved, run, tensors
from tests.for_each import for_each
from tests.product import first
from torch import Tensor

import regard
from regard import BooleanMask, Causal, Documents, Lengths, Mask, Need, Prefix, Window, masks
from regard.attn.backends import BACKENDS, blocked
from regard.attn.terms.read import ReadResult

KINDS = {
    "flash": Case("dot"),
    "sparsemax": Case("dot", normalize="sparsemax"),
    "sigmoid": Case("bilinear", normalize="sigmoid-trained"),
    "own": Case("euclid"),
    "additive": Case("additive", normalize="entmax15"),
}


def loop_of(case: Case) -> str:
    """The backend that runs the case block by block."""
    return "flash" if case == KINDS["flash"] else "blocked"


def same(case: Case, sizes: Sizes, mask: Mask | None) -> None:
    """The loop over blocks gives what eager gives, forward and backward."""
    terms = case.terms(sizes) | {"mask": mask}
    q, k, v = tensors(sizes)
    want, slopes = run(q, k, v, terms, "eager")
    got, again = run(q, k, v, terms, loop_of(case))
    close(got, want, "out")
    for name, slope in slopes.items():
        close(again[name], slope, f"gradient of {name}")


@pytest.mark.parametrize("kind", KINDS)
def test_a_hole_in_the_middle_of_a_row(kind: str) -> None:
    sizes = Sizes(b=1, h=2, q=6, k=6)
    for hole in ([[1, 0, 1, 1, 1, 1]], [[0, 1, 1, 0, 1, 1]], [[1, 0, 0, 0, 0, 1]], [[1, 0, 1, 0, 1, 0]]):
        same(KINDS[kind], sizes, BooleanMask(torch.tensor(hole).bool()))
        same(KINDS[kind], sizes, Causal() & torch.tensor(hole).bool())
    same(
        KINDS[kind],
        Sizes(b=2, h=2, q=6, k=6),
        BooleanMask(torch.tensor([[1, 0, 1, 1, 1, 1], [1, 1, 1, 1, 0, 1]]).bool()[:, None, None]),
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "ids",
    [[[0, 1, 0, 1, 0, 1]], [[2, 0, 0, 1, 0, 2]], [[5, 5, 1, 1, 5, 5]], [[0, 2, 1, 0, 2, 1], [3, 3, 0, 0, 3, 0]]],
    ids=str,
)
def test_documents_in_any_order(kind: str, ids: list[list[int]]) -> None:
    sizes = Sizes(b=len(ids), h=2, q=6, k=6)
    for mask in (Documents(torch.tensor(ids)), Causal() & Documents(torch.tensor(ids)), ~Documents(torch.tensor(ids))):
        same(KINDS[kind], sizes, mask)


T = 700
MANY = {
    "window": lambda: Window(40, 20),
    "documents": lambda: Causal() & Documents((torch.arange(T) // 97 % 5).expand(2, T)),
    "packed": lambda: Documents(torch.stack([torch.arange(T) // 140, torch.arange(T) // 300])),
    "lengths": lambda: Lengths(torch.tensor([650, 90])),
    "prefixes": lambda: Prefix(torch.tensor([300, 0])) & Lengths(torch.tensor([700, 333])),
    "edges": lambda: masks.Edges(torch.arange(4 * T).view(2, -1) % T // 3) | Window(0, 0),
    "neighbourhood": lambda: masks.Neighbourhood((23, 31), (5, 3), (2, 1)),
    "square": lambda: masks.Neighbourhood((T // 28, 28), 5),
    "cube": lambda: masks.Neighbourhood((7, 10, 10), 3) & Lengths(torch.tensor([650, 90])),
    "windows": lambda: masks.Windows((25, 28), (5, 4), (2, 1)) | masks.Global([3, 600]),
    "axial": lambda: masks.Axial((25, 28), axis=0) & ~Documents(torch.arange(T) // 97 % 5),
    "dilated": lambda: masks.Dilated(9, 7) & Causal(),
    "fixed": lambda: masks.Fixed(50, 3),
    "bigbird": lambda: masks.RandomBlocks(T, 32, 2) | Window(9, 9) | masks.Global(3),
    "either": lambda: Window(3, 3) | Lengths(torch.tensor([20, 0])),
    "not": lambda: ~Window(200, 200) & Causal(),
    "given": lambda: BooleanMask(torch.rand(2, 1, 1, T, generator=torch.Generator().manual_seed(0)) < 0.5) & Causal(),
}


@pytest.mark.parametrize("kind", ["flash", "sparsemax", "sigmoid", "own"])
@pytest.mark.parametrize("mask", MANY)
def test_many_spans_equal_the_whole_square(kind: str, mask: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocked, "_WEIGHTS", 1 << 17)  # a span of blocked then has 46 queries, not 128
    same(KINDS[kind], Sizes(b=2, h=2, q=T, k=T, d=4, v=4), MANY[mask]())


@pytest.mark.parametrize("mask", ["window", "documents", "lengths", "prefixes"])
def test_the_last_queries_of_many_keys(mask: str) -> None:
    """Fewer queries than keys: they are the last ones, and spans count from there."""
    for kind in ("flash", "own"):
        same(KINDS[kind], Sizes(b=2, h=1, q=T - 150, k=T, d=4, v=4), MANY[mask]())


@pytest.mark.parametrize("mask", [None, "window", "lengths"])
def test_constants_and_entropies_over_many_spans(mask: str | None) -> None:
    q, k, v = (t.detach() for t in tensors(Sizes(b=2, h=2, q=T, k=T)))
    need = Need(lse=True, entropy=True)
    want, got = (
        regard.attend(q, k, v, mask=mask and MANY[mask](), need=need, backend=backend)
        for backend in ("eager", "blocked")
    )
    close(got.lse, want.lse, "lse")
    close(got.entropy, want.entropy, "entropy")
    only = regard.attend(q, k, v, mask=mask and MANY[mask](), need=Need(lse=True), backend="flash")
    close(only.lse, want.lse, "lse by the flash kernel")


@pytest.mark.parametrize("mask", ["window", "not"])
def test_keys_of_hard_reads_are_those_of_the_call(mask: str) -> None:
    q, k, v = (t.detach() for t in tensors(Sizes(b=2, h=2, q=T, k=T)))
    holes = MANY[mask]() & (torch.arange(T) % 311 < 200).expand(T, T)
    for read in (regard.Argmax(), regard.reads.StraightThrough()):
        want, got = (
            regard.attend(q, k, v, mask=holes, read=read, need=Need(key_index=True, log_prob=True), backend=backend)
            for backend in ("eager", "blocked")
        )
        assert torch.equal(got.key_index, want.key_index)
        close(got.log_prob, want.log_prob, "log_prob")


@for_each("mask", ["square", "cube"])
def test_sorted_tokens_of_every_result(mask: str) -> None:
    """Tokens sorted into tiles come back in their order: in every result, with biases, second derivatives too."""
    sizes = Sizes(b=2, h=2, q=T, k=T, d=4, v=4)
    for case in (
        Case("dot"),
        Case("dot", bias="alibi"),
        Case("dot", bias="added"),
        Case("dot", normalize="null-softmax"),
    ):
        same(case, sizes, MANY[mask]())
    q, k, v = (t.detach().requires_grad_() for t in tensors(sizes))
    need = Need(lse=True, entropy=True, key_index=True, log_prob=True)
    want, got = (
        regard.attend(q, k, v, mask=MANY[mask](), read=regard.Argmax(), need=need, backend=backend)
        for backend in ("eager", "blocked")
    )
    for name in ("out", "lse", "entropy", "key_index", "log_prob"):
        close(getattr(got, name), getattr(want, name), name)
    whole = [regard.attention(q, k, v, mask=MANY[mask](), backend=backend) for backend in ("eager", "flash")]
    twice = []
    for out in whole:
        (slope,) = torch.autograd.grad(out.square().sum(), q, create_graph=True)
        twice.append(torch.autograd.grad(slope.square().sum(), [q, k, v]))
    for a, b in zip(*twice, strict=True):
        close(b, a, "second derivative")
    assert "queries are sorted into" in regard.explain(q, k, v, mask=MANY[mask](), backend="flash")
    at = torch.arange(T).expand(2, T)  # an order per sample: the tokens stay where they are
    some = regard.attention(q, k, v, mask=MANY[mask](), positions=(at, at), backend="flash")
    close(some, whole[0], "positions of samples")
    assert "sorted" not in regard.explain(q, k, v, mask=MANY[mask](), positions=(at, at), backend="flash")


def test_a_trained_bias_over_many_spans() -> None:
    sizes = Sizes(b=2, h=2, q=T, k=T, d=4, v=4)
    for bias in ("t5", "shaw", "gaussian", "added"):
        same(Case("dot", bias), sizes, MANY["window"]() & MANY["lengths"]())


def test_parameters_put_in_for_one_call_receive_the_gradient() -> None:
    layer = regard.Attention(bias=regard.T5Buckets(2, buckets=4, max_distance=6), normalize=regard.Sparsemax()).double()
    x = torch.randn(1, 2, 5, 4, dtype=torch.float64)
    weights = {name: torch.randn_like(p).requires_grad_() for name, p in layer.named_parameters()}
    g = torch.randn_like(x)
    slopes = {}
    for layer.backend in ("eager", "blocked"):
        out = torch.func.functional_call(layer, weights, (x, x))
        slopes[layer.backend] = torch.autograd.grad(out, list(weights.values()), g, allow_unused=True)
    for got, want in zip(slopes["blocked"], slopes["eager"], strict=True):
        close(got, want, "gradient")


class Twins(regard.Bias):
    """Two maps of the query that are one and the same."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.here, self.there = torch.nn.Linear(dim, 1, bias=False), torch.nn.Linear(dim, 1, bias=False)
        self.there.weight = self.here.weight

    def forward(self, q: torch.Tensor, i: torch.Tensor, j: torch.Tensor, total: int | torch.Tensor) -> torch.Tensor:
        return self.here(q).sin() * i.unsqueeze(-1) + self.there(q) * j


def test_a_parameter_that_two_modules_share_counts_once() -> None:
    bias = Twins(4).double()
    q, k, v = tensors(Sizes(b=1, h=2, q=6, k=6))
    slopes = [
        torch.autograd.grad(regard.attention(q, k, v, bias=bias, backend=backend).square().sum(), bias.here.weight)[0]
        for backend in ("eager", "blocked")
    ]
    close(slopes[1], slopes[0], "gradient")


LINEAR = """
import resource
import sys

import torch

import regard

torch.set_num_threads(1)
T = 20000
q, k, v = (torch.randn(1, 1, T, 16, requires_grad=True) for _ in range(3))
backend = sys.argv[1]
terms = {"normalize": regard.Sparsemax()} if backend == "blocked" else {}
small = [t[:, :, :300] for t in (q, k, v)]
regard.attention(*small, mask=regard.Window(64, 0), backend=backend, **terms).sum().backward()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
regard.attention(q, k, v, mask=regard.Window(64, 0), backend=backend, **terms).sum().backward()
assert torch.isfinite(q.grad).all()
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // (1 if sys.platform != "darwin" else 1024))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="resource is a module of Unix")
@pytest.mark.parametrize("backend", first(["blocked", "flash"]))
def test_memory_grows_with_the_queries(backend: str) -> None:
    """20,000 queries in a window, forward and backward, in half of what the mask alone would take as booleans."""
    ran = subprocess.run([sys.executable, "-c", LINEAR, backend], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert int(ran.stdout) < 200_000, f"{int(ran.stdout) / 1000:.0f} MB"


def test_a_mask_that_hides_everything() -> None:
    for kind in KINDS.values():
        sizes = Sizes(b=2, h=2, q=5, k=5)
        q, k, v = tensors(sizes)
        terms = kind.terms(sizes) | {"mask": torch.zeros(1, 1, dtype=torch.bool)}
        out, slopes = run(q, k, v, terms, loop_of(kind))
        assert (out == 0).all()
        assert all((slope == 0).all() for slope in slopes.values())


def test_no_block_that_is_empty_is_computed() -> None:
    """A window over many keys costs as many scores as the window is wide, about."""
    n, seen = 2048, []

    class Watched(regard.Distance):
        def compare(self, queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
            seen.append(queries.shape[-2] * keys.shape[-2])
            return super().compare(queries, keys)

    q = torch.randn(1, n, 4)
    BACKENDS["blocked"].run(resolved(q, q, q, score=Watched(1), mask=Window(16, 0)))
    assert sum(seen) < n * n // 3


def test_a_read_of_ones_own_draws_the_same_again() -> None:
    class Thinned(regard.Read):
        def read(self, weights: Tensor, v: Tensor, generator: torch.Generator | None = None) -> ReadResult:
            return ReadResult((weights * torch.empty_like(weights).bernoulli_(0.5, generator=generator)) @ v)

    q, k = (torch.randn(1, 1, 9, 4, dtype=torch.float64) for _ in range(2))
    v = torch.randn(1, 1, 9, 4, dtype=torch.float64, requires_grad=True)
    out = regard.attention(q, k, v, read=Thinned(), backend="blocked").sum()
    (slope,) = torch.autograd.grad(out, v)
    close((slope * v).sum(), out.detach(), "linear in v")


@pytest.mark.parametrize("shape", [(2, 3, 5, 4), (0, 3, 5, 4), (2, 3, 0, 4)], ids=["masked", "no sample", "no key"])
def test_the_gradients_of_no_block_are_zeros(shape: tuple[int, ...]) -> None:
    q, k, v = (torch.randn(n, dtype=torch.float64, requires_grad=True) for n in ((*shape[:2], 5, 4), shape, shape))
    bias = torch.randn(3, 5, shape[2], dtype=torch.float64, requires_grad=True)
    mask = regard.Lengths([0] * shape[0])
    for backend in ("eager", "blocked"):
        out = regard.attention(q, k, v, bias=bias, mask=mask, backend=backend)
        slopes = torch.autograd.grad(out.sum(), (q, k, v, bias), create_graph=True)
        assert all(slope.eq(0).all() for slope in slopes)
        seconds = torch.autograd.grad(sum(slope.square().sum() for slope in slopes), (q, k, v, bias))
        assert all(second.eq(0).all() for second in seconds)


def test_second_derivatives_of_no_block_are_zeros_on_flash() -> None:
    q, k, v = (torch.randn(2, 3, n, 4, dtype=torch.float64, requires_grad=True) for n in (5, 7, 7))
    for normalize in (regard.Softmax(), regard.normalizers.WithNullSlot(score=regard.Learnable(0.5))):
        out = regard.attention(q, k, v, mask=Lengths([0, 0]), normalize=normalize, backend="flash")
        slopes = torch.autograd.grad(out.sum(), (q, k, v), create_graph=True)
        seconds = torch.autograd.grad(sum(slope.square().sum() for slope in slopes), (q, k, v))
        assert all(slope.eq(0).all() for slope in (*slopes, *seconds))


@for_each(
    "keys, normalize, chosen",
    [
        (512, regard.Softmax(), "flash"),
        (256, regard.Softmax(), "fused"),
        (512, regard.Entmax(1.5), "blocked"),
        (256, regard.Entmax(1.5), "eager"),
    ],
)
def test_a_bias_under_causality_is_computed_in_blocks(keys: int, normalize: regard.Normalizer, chosen: str) -> None:
    q = torch.randn(1, 8, keys, 4)
    plan = regard.explain(q, q, bias=regard.ALiBi(8), mask=regard.Causal(), normalize=normalize)
    assert f"{chosen:8} runs:" in plan
