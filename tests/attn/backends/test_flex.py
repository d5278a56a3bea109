"""flex against the equation: every mask, bias and score that it takes, its blocks, its graphs and its refusals."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import pytest
import torch
from tests.attn.backends.cases import BIASES, MASKS, Case, Sizes, close, resolved, run, tensors
from tests.for_each import for_each
from torch import Tensor
from torch._dynamo.testing import CompileCounterWithBackend
from torch.nn.attention.flex_attention import create_block_mask

import regard
from regard import Need
from regard.attn.backends import _flex_blocks, flex
from regard.attn.backends._flex_blocks import BLOCK, block_mask
from regard.attn.call import AttentionCall

pytestmark = pytest.mark.skipif(not flex.HAS_FLEX, reason=f"flex needs torch {flex.FLEX_SINCE}")

S = Sizes(q=5, k=7)


def agree(case: Case, **more: Any) -> None:
    """The output and all gradients are those of eager."""
    q, k, v = tensors(S)
    out, slopes = run(q, k, v, case.terms(S), "flex", **more)
    want, wanted = run(q, k, v, case.terms(S), "eager", **more)
    close(out, want, "out")
    for name, slope in slopes.items():
        close(slope, wanted[name], f"gradient of {name}")


@for_each("mask", MASKS)
def test_every_mask(mask: str) -> None:
    agree(Case(mask=mask))
    # queries among the keys, at places with gaps
    agree(Case(mask=mask), positions=(torch.tensor([0, 4, 2, 3, 9]), torch.tensor([0, 1, 2, 4, 5, 9, 8])))


@for_each("bias", [name for name, make in BIASES.items() if not getattr(make(S), "reads_scores", False)])
def test_every_bias(bias: str) -> None:
    agree(Case("soft-cap", bias, "causal-lengths", "null-softmax"))
    places = torch.arange(5) * 2 + 3, torch.arange(7) * 2
    agree(Case("dot", bias, "given", "softmax-cool"), positions=places)


@for_each("dtype, tolerance", [(torch.float32, 1e-5), (torch.bfloat16, 2e-2), (torch.float16, 3e-3)])
def test_types_shared_heads_and_widths(dtype: torch.dtype, tolerance: float) -> None:
    q, k, v = torch.randn(2, 6, 9, 4), torch.randn(2, 3, 9, 4), torch.randn(2, 3, 9, 11)
    q, k, v = q.to(dtype), k.to(dtype), v.to(dtype)
    terms = {"mask": regard.Causal(), "bias": regard.ALiBi(6), "need": Need(lse=True)}
    got, want = (regard.attend(q, k, v, **terms, backend=backend) for backend in ("flex", "eager"))
    assert got.out.dtype == dtype
    close(got.out, want.out, "out", rtol=tolerance, atol=tolerance)
    close(got.lse, want.lse, "lse", rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("lead", [(), (3,), (2, 1, 3)], ids=str)
def test_any_leading_axes(lead: tuple[int, ...]) -> None:
    q, k, v = (torch.randn(*lead, 6, 4, dtype=torch.float64) for _ in range(3))
    samples = regard.Lengths(torch.randint(1, 7, lead[:1]))
    terms: dict[str, Any] = {"mask": samples & regard.Window(3, 1)}
    if lead:
        terms["bias"] = regard.ALiBi(3).double()
        terms["normalize"] = regard.normalizers.WithNullSlot(score=torch.randn(3, 1, 1, dtype=torch.float64))
    got, want = (regard.attention(q, k, v, **terms, backend=backend) for backend in ("flex", "eager"))
    close(got, want, "out")
    shared = regard.attention(q, k[..., :1, :, :] if lead else k, v, **terms, backend="flex")
    close(shared, regard.attention(q, k[..., :1, :, :] if lead else k, v, **terms, backend="eager"), "shared keys")


class EveryThird(regard.Mask):
    def dense(self, i: Tensor, j: Tensor) -> Tensor:
        return (i.unsqueeze(-1) + j.unsqueeze(-2)) % 3 > 0


class Ahead(regard.Causal):
    def dense(self, i: Tensor, j: Tensor) -> Tensor:
        return ~super().dense(i, j)


class Doubled(regard.ALiBi):
    def forward(self, *inputs: Any) -> Tensor:
        return 2 * super().forward(*inputs)


def hooked() -> regard.Bias:
    bias = regard.ALiBi(3)
    bias.register_forward_hook(lambda module, inputs, out: out * 3)
    return bias


@for_each(
    "terms",
    [
        {"mask": EveryThird()},
        {"mask": ~EveryThird() | regard.Window(1, 0)},
        {"mask": Ahead()},
        {"bias": Doubled(3)},
        {"bias": hooked()},
    ],
    ids=["mask", "in a tree", "of another mask", "bias", "hook"],
)
def test_terms_of_users_need_no_function_of_pairs(terms: dict[str, Any]) -> None:
    q, k, v = (torch.randn(2, 3, 6, 4) for _ in range(3))
    got, want = (regard.attention(q, k, v, **terms, backend=backend) for backend in ("flex", "eager"))
    close(got, want, "out", rtol=1e-5, atol=1e-5)


LONG = Sizes(h=1, q=300, k=390)


def dense_of(call: AttentionCall) -> Tensor:
    allowed = call.allowed()
    assert allowed is not None
    while allowed.ndim < 4:
        allowed = allowed.unsqueeze(0)
    return allowed.expand(*allowed.shape[:-2], LONG.q, LONG.k)


@for_each("name", [name for name in MASKS if name != "none"])
def test_blocks_hold_every_allowed_pair(name: str) -> None:
    q, k, v = tensors(LONG)
    call = resolved(q, k, v, mask=MASKS[name](LONG))
    if call.mask is None:
        return
    allowed = torch.nn.functional.pad(dense_of(call), (0, -LONG.k % BLOCK, 0, -LONG.q % BLOCK))
    tiles = allowed.unflatten(-1, (-1, BLOCK)).unflatten(-3, (-1, BLOCK))
    some, every = (t.expand(*allowed.shape[:2], -1, -1) for t in _flex_blocks._blocks(call))
    assert (some | every)[tiles.any(-1).any(-2)].all(), "a block with an allowed pair is skipped"
    assert tiles.all(-1).all(-2)[every].all(), "a block with a masked pair is taken for full"
    kept = block_mask(call, lambda b, h, i, j: i >= j).to_dense().bool()
    assert torch.equal(kept.expand_as(some), some | every)


def test_blocks_are_those_of_torch() -> None:
    lengths = torch.tensor([300, 200])
    q = torch.randn(2, 1, 300, 4)
    for mask, mod in (
        (regard.Causal(), lambda b, h, i, j: j <= i),
        (regard.Window(100, 7) & regard.Lengths(lengths), lambda b, h, i, j: (j - i).clamp(-100, 7) == j - i),
    ):
        if isinstance(mask, regard.Causal):
            want = create_block_mask(mod, None, None, 300, 300, device="cpu")
        else:
            want = create_block_mask(
                lambda b, h, i, j, mod=mod: mod(b, h, i, j) & (j < lengths[b]), 2, None, 300, 300, device="cpu"
            )
        got = block_mask(resolved(q, q, mask=mask), mod)
        for name in ("kv", "full_kv", "q", "full_q"):
            counts, wanted = (getattr(t, f"{name}_num_blocks") for t in (got, want))
            assert torch.equal(counts.expand_as(wanted), wanted), name
        assert got.shape == want.shape
        assert got.sparsity() == want.sparsity()


class Counted(regard.Lengths):
    calls = 0

    def tile_coverage(self, *tiles: Any) -> Any:
        Counted.calls += 1
        return super().tile_coverage(*tiles)


def test_blocks_are_made_once_per_mask() -> None:
    q, lengths, mod = torch.randn(2, 1, 300, 4), torch.tensor([300, 140]), lambda b, h, i, j: i >= j
    mask = regard.Causal() & Counted(lengths)

    def made(mask: Any) -> int:
        Counted.calls = 0
        first, again = (block_mask(resolved(q, q, mask=mask), mod) for _ in range(2))
        assert first.mask_mod is again.mask_mod is mod
        return Counted.calls

    _flex_blocks._kept.clear()
    assert made(mask) == 1
    assert made(regard.Causal() & Counted(lengths)) == 0, "another mask of the same tensors"
    lengths[1] = 20
    assert made(mask) == 1, "its numbers were written to"
    assert block_mask(resolved(q, q, mask=mask), mod).kv_num_blocks[1, 0].tolist() == [1, 1, 1]
    assert made(regard.Causal() & Counted(lengths.clone())) == 1
    mask.masks[1].extra = {"any": "thing"}
    assert made(mask) == 2, "nobody counts what changes in a dict"
    several = [torch.tensor([n, n]) for n in range(300, 300 + 2 * _flex_blocks._MOST_KEPT)]
    for lengths in several:
        made(regard.Causal() & Counted(lengths))
    assert len(_flex_blocks._kept) == _flex_blocks._MOST_KEPT


@contextmanager
def compiled(backend: Any) -> Iterator[None]:
    """Runs on a CPU what runs on a GPU: the compiled kernel, from another compiler."""
    torch._dynamo.reset()
    flex._compiled.cache_clear()
    with mock.patch.object(flex, "_is_reference", return_value=False), mock.patch.object(flex, "_count", backend):
        yield
    flex._compiled.cache_clear()


# numbers of blocks, 2, 3 and 5, are no other size: torch would take them for the same
SAMPLES, HEADS, LENGTHS = 4, 7, (130, 300, 520)
GRAPHS: dict[str, Any] = {
    "window, lengths, T5": lambda n: {
        "mask": regard.Window(n // 7, n // 9) & regard.Lengths(torch.full((SAMPLES,), n - n // 4)),
        "bias": regard.T5Buckets(HEADS, max_distance=50 + n),
    },
    "tree, soft cap": lambda n: {
        "mask": regard.Prefix(n // 5) & ~regard.Documents(torch.arange(n).expand(SAMPLES, n) // 40),
        "score": regard.scores.SoftCap(n / 30),
    },
    "positions, temperature": lambda n: {
        "mask": regard.Causal(),
        "positions": (torch.arange(n) * 2 + 3, torch.arange(n) * 2),
        "normalize": regard.Softmax(n / 299),
    },
}
MORE_GRAPHS: dict[str, Any] = {
    "Shaw": lambda n: {"bias": regard.Shaw(8, n // 30)},
    "RelativeXL": lambda n: {"bias": regard.RelativeXL(8, HEADS, 8), "mask": regard.Causal()},
    "LocalGaussian": lambda n: {"bias": regard.biases.LocalGaussian(8, 4, n / 20)},
    "boolean": lambda n: {"mask": torch.rand(SAMPLES, 1, n, n) > 0.3},
    "tensor": lambda n: {"bias": torch.randn(HEADS, n, n)},
    "null slot": lambda n: {"normalize": regard.normalizers.WithNullSlot(score=n / 300)},
    "lse": lambda n: {"need": Need(lse=True)},
    "strided": lambda n: {"mask": regard.masks.Strided(7)},
}


def graphs(make: Any) -> int:
    """The number of graphs for calls of several lengths with other numbers in their terms."""
    counter = CompileCounterWithBackend("eager")
    with compiled(counter), torch.no_grad():
        for n in LENGTHS:
            q, k, v = (torch.randn(SAMPLES, HEADS, n, 8) for _ in range(3))
            terms = make(n)
            got, want = (regard.attend(q, k, v, **terms, backend=backend) for backend in ("flex", "eager"))
            close(got.out, want.out, f"{n}", rtol=1e-5, atol=1e-5)
    return counter.frame_count


@pytest.mark.parametrize("name", GRAPHS)
def test_other_lengths_and_numbers_share_a_graph(name: str) -> None:
    assert graphs(GRAPHS[name]) == 1


@pytest.mark.whole
@pytest.mark.parametrize("name", MORE_GRAPHS)
def test_more_calls_share_a_graph(name: str) -> None:
    assert graphs(MORE_GRAPHS[name]) == 1


def test_calls_of_another_kind_have_a_graph_of_their_own() -> None:
    counter = CompileCounterWithBackend("eager")
    # torch allows some graphs per code, and raises at the next
    with torch._dynamo.config.patch(recompile_limit=1), compiled(counter), torch.no_grad():
        for width in (8, 9, 10):
            q = torch.randn(2, 2, 3, width)
            close(regard.attention(q, q, backend="flex"), regard.attention(q, q), "out", rtol=1e-5, atol=1e-5)
    assert counter.frame_count == 3


@torch.no_grad()
def test_a_compiled_layer_has_one_graph() -> None:
    layer = regard.Attention(bias=regard.ALiBi(3), mask=regard.Causal(), backend="flex")
    q = torch.randn(2, 3, 150, 8)
    want = layer(q, q)
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("eager")
    close(torch.compile(layer, fullgraph=True, backend=counter)(q, q), want, "out", rtol=1e-5, atol=1e-5)
    assert counter.frame_count == 1


@pytest.mark.whole
@torch.no_grad()
def test_inductor_compiles_it() -> None:
    terms = {
        "mask": (regard.Causal() & regard.Lengths(torch.tensor([200, 0]))) | regard.Window(3, 2),
        "bias": regard.T5Buckets(4),
        "score": regard.scores.SoftCap(3.0),
    }
    q, k, v = torch.randn(2, 4, 200, 16), torch.randn(2, 2, 200, 16), torch.randn(2, 2, 200, 24)
    before = flex._graphs
    with mock.patch.object(flex, "_is_reference", return_value=False):
        got = regard.attention(q, k, v, **terms, backend="flex")
    close(got, regard.attention(q, k, v, **terms, backend="eager"), "out", rtol=1e-5, atol=1e-5)
    assert flex._graphs == before + 1


def reason(q: Tensor | None = None, **terms: Any) -> str | None:
    q = torch.randn(2, 3, 6, 4) if q is None else q
    return flex.unsupported_reason(resolved(q, q, **terms))


def test_it_says_what_it_cannot_run() -> None:
    assert reason() is None
    assert reason(dropout=0.1) == "its kernel has no dropout"
    assert reason(normalize=regard.Sparsemax()) == "its kernel has only softmax, not Sparsemax"
    assert reason(score=regard.Additive(4, 4, 3)) == "Additive compares by tanh, not by a dot product"
    assert reason(score=regard.scores.SoftCap(1.0, regard.Additive(4, 4, 3))) is not None
    assert reason(need=Need(weights=True)) == "its kernel never forms the requested weights"
    assert reason(torch.randn(2, 3, 0, 4)) == "a tensor is empty, which its kernel does not take"
    assert reason(torch.randn(2, 3, 6, 4, device="meta")) == "torch's FlexAttention does not run on meta"
    with mock.patch.object(flex, "HAS_FLEX", False):
        assert reason() == f"it needs torch 2.9 or newer, and this is torch {torch.__version__}"
    refused = []
    torch.func.vmap(lambda q: (refused.append(reason(q)), q)[1])(torch.randn(2, 3, 6, 4))
    assert refused == ["torch.func has no rule for its kernel"]
    with mock.patch.object(torch.compiler, "is_compiling", return_value=True):
        assert reason() is None
        sentence = "its compiled kernel for CPUs has neither a gradient nor lse"
        assert reason(torch.randn(2, 3, 6, 4, requires_grad=True)) == sentence
        assert reason(need=Need(lse=True)) == sentence


def test_on_a_cpu_it_says_that_it_is_for_gpus() -> None:
    q = torch.randn(2, 3, 6, 4)
    assert "flex     could, but it is for GPUs" in regard.explain(q, q)
    assert "flex     runs: torch's FlexAttention as its reference" in regard.explain(q, q, backend="flex")
