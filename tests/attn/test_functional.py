"""attention, attend and explain: steps, positions, what is asked for, and which backend runs."""

import pytest
import torch
from tests.attn.backends.cases import (
    AVAILABLE,
    BIASES,
    CASE_OF_BACKEND,
    MASKS,
    SCORES,
    SIZES,
    Case,
    Sizes,
    close,
    tensors,
)
from tests.for_each import for_each
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import regard
from regard import KVCache, Need
from regard.attn import functional
from regard.attn.backends import BACKENDS

T = 7
STEPS = Sizes(q=T, k=T)
# how many positions come at a time; the first three together, because a prefix looks ahead inside itself
CHUNKS = [3, 1, 2, 1]
IDS = torch.tensor([[0, 0, 1, 1, 1, 2, 2], [5, 5, 5, 5, 3, 3, 3]])
GROWING = {
    "causal": lambda n: regard.Causal(),
    "window": lambda n: regard.Window(2, 0),
    "prefix": lambda n: regard.Prefix(3),
    "documents": lambda n: regard.Causal() & regard.Documents(IDS[:, :n]),
    "lengths": lambda n: regard.Causal() & regard.Lengths(torch.tensor([5, 7])),
}


@pytest.mark.parametrize("mask", GROWING)
@pytest.mark.parametrize("bias", ["none", "alibi", "t5", "t5-back", "shaw", "xl"])
@pytest.mark.parametrize("score", ["dot", "additive", "cosine", "trilinear", "distance", "bilinear"])
def test_one_step_at_a_time_equals_all_at_once(score: str, bias: str, mask: str) -> None:
    q, k, v = (t.detach() for t in tensors(STEPS))
    terms = Case(score, bias).terms(STEPS)
    whole = regard.attention(q, k, v, **dict(terms, mask=GROWING[mask](T)))
    memory = KVCache(terms["score"].keys(k[..., :0, :]).detach(), v[..., :0, :])
    start, outs = 0, []
    for n in CHUNKS:
        here = slice(start, start + n)
        memory = memory.extend(terms["score"].keys(k[..., here, :]).detach(), v[..., here, :])
        start += n
        outs.append(regard.attention(q[..., here, :], memory, **dict(terms, mask=GROWING[mask](start))))
    close(torch.cat(outs, -2), whole, "steps")


@for_each("backend", AVAILABLE)
def test_a_step_is_the_last_row(backend: str) -> None:
    case = CASE_OF_BACKEND.get(backend, Case())
    terms = case.terms()
    q, k, v = (t.detach() for t in tensors(STEPS))
    whole = regard.attention(q, k, v, **dict(terms, mask=regard.Causal()), backend="eager")
    last = dict(terms, mask=None if backend == "linear" else regard.Causal())
    close(regard.attention(q[..., -1:, :], k, v, **last, backend=backend), whole[..., -1:, :], "step")


@for_each("score", [name for name in SCORES if name != "location"])
def test_kept_keys_equal_fresh_keys(score: str) -> None:
    q, k, v = (t.detach() for t in tensors())
    terms = Case(score, mask="lengths").terms()
    memory = KVCache(terms["score"].keys(k), v)
    close(regard.attention(q, memory, **terms), regard.attention(q, k, v, **terms), "kept")
    assert torch.equal(regard.Attention(terms["score"]).project_kv(k, v).keys, terms["score"].keys(k))


def test_positions_of_a_memory_are_used() -> None:
    q, k, v = torch.randn(2, 3, 4), torch.randn(2, 5, 4), torch.randn(2, 5, 6)
    j = torch.tensor([0, 3, 4, 8, 9])
    mask = regard.Window(1, 0)
    got = regard.attention(q, KVCache(k, v, j), mask=mask)
    want = regard.attention(q, k, v, mask=regard.BooleanMask(mask.dense(j[2:], j)))
    close(got, want, "positions")
    close(regard.attention(q, k, v, mask=mask, positions=(j[2:], j)), want, "positions")


@for_each("bias", [name for name in BIASES if not name.startswith(("added", "hiding"))])
def test_positions_may_start_anywhere(bias: str) -> None:
    q, k, v = (t.detach() for t in tensors())
    terms = Case(bias=bias, mask="causal").terms()
    i, j = torch.arange(2, 7), torch.arange(7)
    here = regard.attention(q, k, v, **terms)
    close(regard.attention(q, k, v, **terms, positions=(i, j)), here, "the default positions")
    if bias not in ("gaussian", "selective"):  # which know the start of the keys
        moved = regard.attention(q, k, v, **terms, positions=(i + 100, j + 100))
        close(moved, here, "moved", rtol=1e-4, atol=1e-5)  # angles are float32


def test_keys_are_the_values_unless_given() -> None:
    q, k = torch.randn(2, 3, 4), torch.randn(2, 5, 4)
    assert torch.equal(regard.attention(q, k), regard.attention(q, k, k))


def test_attended_has_what_was_asked_for_and_nothing_else() -> None:
    q, k = torch.randn(2, 3, 4), torch.randn(2, 5, 4)
    assert regard.attend(q, k)[1:] == (None,) * (len(regard.Attended._fields) - 1)
    for name in ("weights", "lse", "map", "entropy"):
        got = regard.attend(q, k, need=Need(**{name: True}))
        assert [f for f in got._fields if getattr(got, f) is not None] == ["out", name]
    out, weights, *_ = regard.attend(q, k, need=Need(weights=True))
    assert (out.shape, weights.shape) == ((2, 3, 4), (2, 3, 5))
    for name in ("log_prob", "key_index", "entropy", "weights"):
        got = regard.attend(q, k, read=regard.Sample(), need=Need(**{name: True}))
        assert [f for f in got._fields if getattr(got, f) is not None] == ["out", name]


def test_weights_keep_the_values_type_and_do_not_show_dropout() -> None:
    q, k = torch.randn(2, 3, 4), torch.randn(2, 5, 4)
    got = regard.attend(q, k, dropout=0.9, need=Need(weights=True))
    close(got.weights, torch.softmax(q @ k.mT / 2, -1), "weights", rtol=1e-5, atol=1e-6)
    half = regard.attend(q.half(), k.half(), need=Need(weights=True, lse=True))
    assert half.weights.dtype == torch.float16
    assert half.lse.dtype == torch.float32


@pytest.mark.parametrize("mask", [None, regard.Causal()])
@pytest.mark.parametrize("is_cached", [False, True])
@pytest.mark.parametrize("needs_grad", [False, True])
def test_a_plain_call_is_the_fused_one_without_being_resolved(
    needs_grad: bool, is_cached: bool, mask: regard.Mask | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    q, k, v = (t.detach().requires_grad_(needs_grad) for t in tensors(Sizes(q=T, k=T, d=5, v=5), torch.float32))

    def run(backend: str | None) -> list[Tensor]:
        arguments = (q, KVCache(k, v)) if is_cached else (q, k, v)
        out = regard.attend(*arguments, mask=mask, backend=backend).out
        return [out, *torch.autograd.grad(out.square().sum(), (q, k, v))] if needs_grad else [out]

    want = run("fused")
    monkeypatch.setattr(functional, "build_call", None)
    for one, other in zip(run(None), want, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("is_cached", [False, True])
def test_a_causal_call_that_holds_a_nan_is_resolved(is_cached: bool) -> None:
    q, k, v = (t.detach() for t in tensors(Sizes(q=T, k=T, d=5, v=5), torch.float32))
    want = regard.attention(q, k, v, mask=regard.Causal())
    k[0, 0, 4], v[1, 0, 5] = torch.nan, torch.inf
    out = regard.attention(*((q, KVCache(k, v)) if is_cached else (q, k, v)), mask=regard.Causal())
    is_nan = torch.zeros(out.shape[:-1], dtype=torch.bool)
    is_nan[0, 0, 4:], is_nan[1, 0, 5:] = True, True
    assert torch.equal(out.isnan().all(-1), is_nan)
    torch.testing.assert_close(out[~is_nan], want[~is_nan])


@for_each("backend", [name for name in BACKENDS if name != "eager"])
def test_a_forced_backend_that_cannot_run_raises_what_explain_says(backend: str) -> None:
    q = torch.randn(2, 3, 4)
    terms = {"score": regard.Distance(power=1), "normalize": regard.Sparsemax(), "need": Need(weights=True)}
    said = regard.explain(q, q, **terms)
    sentence = next(line for line in said.splitlines() if line.split()[0] == backend).split("cannot: ")[1]
    with pytest.raises(ValueError, match=f"backend '{backend}' cannot run this") as caught:
        regard.attend(q, q, **terms, backend=backend)
    assert sentence in str(caught.value)
    assert "leave backend out" in str(caught.value)


class Unread(TorchDispatchMode):
    """Raises where a number in a tensor would be looked at."""

    READS = frozenset(
        {"_local_scalar_dense", "item", "equal", "is_nonzero", "nonzero", "masked_select", "unique", "_unique2"}
    )

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        assert func.overloadpacket.__name__ not in self.READS, f"{func} reads values"
        return func(*args, **(kwargs or {}))


class Untold(TorchFunctionMode):
    """Raises where Python is told a number in a tensor: some ways of reading never reach the dispatcher."""

    READS = frozenset(
        {"item", "tolist", "numpy", "__bool__", "__int__", "__float__", "__index__", "__array__", "__iter__"}
    )

    def __torch_function__(self, func, types, args=(), kwargs=None):
        assert getattr(func, "__name__", "") not in self.READS, f"{func} reads values"
        return func(*args, **(kwargs or {}))


def test_the_watch_sees_what_reads_values() -> None:
    x = torch.ones(1)
    for read in (
        bool,
        int,
        float,
        Tensor.tolist,
        Tensor.item,
        Tensor.numpy,
        lambda t: torch.equal(t, t),
        torch.nonzero,
    ):
        with pytest.raises(AssertionError, match="reads values"), Untold(), Unread():
            read(x)


@for_each("mask", MASKS)
def test_explain_reads_no_values(mask: str) -> None:
    """Not a number of q, k, v, bias or mask, whatever their kind: what is said depends on shapes and types."""
    for size, score, bias, normalize in (
        (7, "dot", "none", "softmax"),
        (600, "dot", "none", "softmax"),
        (7, "dot", "xl", "softmax"),
        (7, "additive", "hiding", "softmax"),
        (7, "euclid", "t5", "sparsemax"),
        (7, "kernel-elu", "none", "sum"),
        (7, "location", "gaussian", "topk"),
    ):
        sizes = Sizes(q=size, k=size)
        terms = Case(score, bias, mask, normalize).terms(sizes)
        q, k, v = tensors(sizes)
        q.data[0, 0, 0] = k.data[0, 0, 0] = torch.nan
        places = torch.arange(size).expand(sizes.b, size)
        layer = regard.MultiHead(6, sizes.h, attention=regard.Attention(normalize=terms["normalize"]))
        x = torch.randn(sizes.b, size, 6, dtype=torch.float64)
        layer.double()
        with Untold(), Unread():
            for positions in (None, (places, places)):
                assert " runs: " in regard.explain(q, k, v, **terms, positions=positions)
            memory = KVCache(terms["score"].keys(k), v)
            # TopBlocks compares queries with the keys of a cache, which this score makes wider
            if mask != "moba" or memory.keys.shape[-1] == q.shape[-1]:
                assert " runs: " in regard.explain(q, memory, **terms, need=Need(lse=normalize == "softmax"))
            assert " runs: " in layer.explain(x, mask=terms["mask"])


def test_explain_needs_no_values() -> None:
    """On a device that keeps shapes alone there is nothing to read."""
    q = torch.randn(2, 3, 5, 4, device="meta")
    lengths, ids = torch.empty(2, dtype=torch.long, device="meta"), torch.empty(2, 5, dtype=torch.long, device="meta")
    masks = [
        None,
        regard.Causal(),
        regard.Lengths(lengths),
        regard.Prefix(lengths) & regard.Documents(ids),
        regard.BooleanMask(torch.empty(2, 1, 5, 5, dtype=torch.bool, device="meta")) | regard.Window(2, 0),
        ~regard.Documents(ids),
    ]
    for mask in masks:
        assert "runs: " in regard.explain(q, q, mask=mask)
    big = torch.empty(1, 1, 1 << 17, 64, device="meta")
    assert "runs: " in regard.explain(big, big, mask=regard.Window(64, 0))


@pytest.mark.parametrize("backend", ["eager", "fused", "blocked"])
def test_a_bias_tensor_that_hides_is_a_mask(backend: str) -> None:
    q, k, v = (t.detach() for t in tensors())
    allowed = torch.rand(SIZES.b, SIZES.h, SIZES.q, SIZES.k) < 0.5
    allowed[0, 0, 0] = False
    hiding = torch.zeros(allowed.shape, dtype=torch.float64).masked_fill(~allowed, -torch.inf)
    got = regard.attention(q, k, v, bias=hiding, backend=backend)
    close(got, regard.attention(q, k, v, mask=allowed, backend="eager"), "bias of -inf")


@pytest.mark.parametrize("axes", [(), (SIZES.b, 1), (SIZES.b, SIZES.h)], ids=["pairs", "samples", "heads"])
def test_a_mask_of_numbers_is_that_of_layers_and_of_torch(axes: tuple[int, ...]) -> None:
    q, k, v = (t.detach() for t in tensors())
    numbers = torch.randn(*axes, SIZES.q, SIZES.k, dtype=torch.float64)
    numbers[..., 0, 1] = -torch.inf
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=numbers)
    for attention in (regard.attention, regard.Attention()):
        close(attention(q, k, v, mask=numbers), expected, "mask of numbers")
    assert "runs: " in regard.explain(q, k, v, mask=numbers)


def test_bare_calls_on_grouped_odd_and_empty_shapes_equal_the_equation() -> None:
    for lead_q, lead_k in (((2, 6), (2, 2)), ((2, 6), (2, 1)), ((), ()), ((3,), (1,)), ((2, 3), (2, 3))):
        for n, m in ((3, 3), (1, 5), (0, 3), (3, 0), (5, 2)):
            q, k, v = torch.randn(*lead_q, n, 4), torch.randn(*lead_k, m, 4), torch.randn(*lead_k, m, 4)
            got = regard.attention(q, k, v)
            close(got, regard.attention(q, k, v, backend="eager"), f"{q.shape} {k.shape}", rtol=1e-5, atol=1e-6)


def test_a_mask_with_some_of_the_leading_axes_is_refused() -> None:
    """It could be one per sample or per head. A multi-head layer, whose input has no heads, takes one per sample."""
    q, k = torch.randn(3, 3, 4, 8), torch.randn(3, 3, 5, 8)
    allowed = torch.rand(3, 4, 5) < 0.6
    allowed[..., 0] = True
    numbers = torch.zeros(3, 4, 5).masked_fill(~allowed, -torch.inf)
    for way in (regard.attention, regard.Attention()):
        for mask in (allowed, regard.Window(2, 2) & allowed, numbers):
            with pytest.raises(ValueError, match=r"first or the last of them; write mask\[:, None\] if its first axis"):
                way(q, k, mask=mask)
        close(way(q, k, mask=allowed[:, None]), way(q, k, mask=numbers[:, None]), "samples", 1e-5, 1e-6)
        close(way(q, k, mask=allowed[None]), regard.attention(q, k, bias=numbers), "heads", 1e-5, 1e-6)
    layer, x, source = regard.MultiHead(8, 3, head_dim=2), torch.randn(3, 4, 8), torch.randn(3, 5, 8)
    expected = layer(x, source, mask=allowed[:, None])
    for mask in (allowed, numbers, regard.Window(9, 9) & allowed):
        close(layer(x, source, mask=mask), expected, "samples of a layer", 1e-5, 1e-6)


@pytest.mark.parametrize(
    "normalize",
    [regard.Softmax(), regard.normalizers.WithNullSlot(), regard.TopK(2), regard.Sparsemax(), regard.Entmax(1.3)],
    ids=repr,
)
def test_a_batch_that_only_the_values_have(normalize: regard.Normalizer) -> None:
    q, k, v = torch.randn(1, 2, 4), torch.randn(1, 3, 4), torch.randn(2, 3, 4)
    mask, need = regard.Lengths([3, 2]), Need(weights=True, entropy=True)
    got = regard.attend(q, k, v, mask=mask, normalize=normalize, need=need)
    want = regard.attend(q.expand(2, -1, -1), k.expand(2, -1, -1), v, mask=mask, normalize=normalize, need=need)
    assert got.weights.shape == (2, 2, 3)
    assert got.entropy.shape == (2, 2)
    torch.testing.assert_close(got, want)


def test_queries_before_the_first_key_are_reported() -> None:
    q, k = torch.randn(2, 9, 4), torch.randn(2, 7, 4)
    with pytest.warns(UserWarning, match=r"^Causal\(\) leaves the first 2 of 9 queries without a key"):
        out = regard.attention(q, k, mask=regard.Causal())
    assert not out[:, :2].any()
    with pytest.warns(UserWarning, match="leaves the first 1 of 9 queries without a key"):
        regard.attention(q, k, mask=regard.Window(3, 1) & torch.ones(9, 7, dtype=torch.bool))
    for mask, count in (
        (regard.masks.Neighbourhood(7, 3), 2),
        (regard.masks.Edges(torch.tensor([[0], [1]])), 2),
        (regard.masks.Strided(3) | regard.masks.Dilated(1, 1), 1),
    ):
        with pytest.warns(UserWarning, match=f"leaves the first {count} of 9 queries without a key"):
            assert not regard.attention(q, k, mask=mask)[:, :count].any()
    regard.attention(q, k, mask=regard.masks.Strided(3) | regard.masks.Global(1))
    regard.attention(q, k, mask=regard.Causal(), positions=(torch.arange(9), torch.arange(7)))
    regard.attention(q, k, mask=regard.Window(3, 2))


def test_a_mask_of_the_numbers_0_and_1_is_reported() -> None:
    x = torch.randn(2, 5, 8)
    ones = torch.ones(5, 5).tril()
    for attend in (regard.attention, regard.Attention(), regard.MultiHead(8, 2)):
        with pytest.warns(UserWarning, match=r"^mask holds the numbers 0 and 1, which are added to the scores"):
            attend(x, x, mask=ones)
    # numbers of a bias, and of a mask that hides nothing
    for mask in (torch.zeros(5, 5), torch.zeros(5, 5).masked_fill(ones == 0, -torch.inf), ones * 0.5):
        regard.attention(x, x, mask=mask)
    regard.attention(x, x, bias=ones)
