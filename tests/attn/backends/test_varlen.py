"""varlen: packing and unpacking, with the kernel as a plain loop over documents; the kernel itself is for GPUs."""

import gc
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest
import torch
from tests.attn.backends.cases import close, resolved
from tests.attn.backends.document_loop import document_loop
from tests.for_each import for_each
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

import regard
from regard import Need
from regard.attn.backends import _packing, eager, varlen
from regard.attn.backends._packing import PackedDocuments, PackedTokens
from regard.attn.call import AttentionCall
from regard.kernels import torch_versions

B, H, N, D = 3, 4, 7, 5


def lengths(*numbers: int) -> regard.Lengths:
    return regard.Lengths(torch.tensor(numbers))


def ids(rows: list[list[int]]) -> regard.Documents:
    return regard.Documents(torch.tensor(rows))


GAPS = [[4, 4, 1, 4, 1, 1, 9], [0, 0, 0, 0, 0, 0, 0], [-3, 5, 5, -3, -3, 7, 5]]
IN_ORDER = [[0, 0, 0, 1, 1, 2, 2], [0, 1, 2, 3, 4, 5, 6], [0, 0, 0, 0, 0, 0, 0]]

MASKS: dict[str, Callable[[], regard.Mask]] = {
    "lengths": lambda: lengths(7, 4, 1),
    "an empty sample": lambda: lengths(3, 0, 9),
    "all padded": lambda: lengths(0, 0, 0),
    "a list": lambda: regard.Lengths([7, 2, 5]),
    "one length for all": lambda: lengths(4),
    "one number": lambda: regard.Lengths(torch.tensor(4)),
    "two lengths": lambda: lengths(7, 4, 1) & lengths(3, 5, 1),
    "padding before": lambda: ~lengths(0, 4, 7),
    "padding on both sides": lambda: lengths(7, 5, 2) & ~lengths(2, 4, 3),
    "causal lengths": lambda: regard.Causal() & lengths(7, 4, 1),
    "causal, an empty sample": lambda: lengths(2, 0, 7) & regard.Causal(),
    "causal, padding before": lambda: regard.Causal() & ~lengths(0, 4, 7),
    "causal, padding on both sides": lambda: regard.Causal() & lengths(7, 5, 2) & ~lengths(2, 4, 3),
    "window, padding before": lambda: regard.Window(2, 0) & ~lengths(0, 2, 6),
    "documents": lambda: ids(IN_ORDER),
    "documents of all samples": lambda: regard.Documents(torch.tensor(IN_ORDER[0])),
    "documents with gaps": lambda: ids(GAPS),
    "causal documents": lambda: ids(IN_ORDER) & regard.Causal(),
    "causal documents with gaps": lambda: regard.Causal() & ids(GAPS),
}
OF_OTHER_KEYS = {
    "lengths": lambda: lengths(5, 3, 0),
    "documents": lambda: regard.Documents(
        torch.tensor([[0, 0, 1, 2, 2], [3, 3, 3, 3, 3], [1, 0, 1, 0, 1]]), torch.tensor(GAPS)
    ),
}


def inputs(keys: int = N, kv_heads: int = H, value: int = 8) -> tuple[Tensor, Tensor, Tensor]:
    """float64, which only the replaced kernel takes."""
    shapes = (B, H, N, D), (B, kv_heads, keys, D), (B, kv_heads, keys, value)
    return tuple(torch.randn(s, dtype=torch.float64, requires_grad=True) for s in shapes)  # type: ignore[return-value]


def in_double(call: AttentionCall) -> AttentionCall:
    """The call, if varlen takes it in half precision."""
    half = replace(call, **{name: getattr(call, name).detach().half() for name in ("queries", "keys", "v")})
    reason = varlen.call_reason(half)
    assert reason is None, reason
    return call


def check(mask: regard.Mask, q: Tensor, k: Tensor, v: Tensor, **terms: Any) -> None:
    """Output and gradients against the equation."""
    call = in_double(resolved(q, k, v, mask=mask, **terms))
    results = [eager.run(call).out, varlen.run(call, document_loop).out]
    close(results[1], results[0], "out")
    weight = torch.randn_like(results[0])
    wanted, got = (torch.autograd.grad((out * weight).sum(), [q, k, v], retain_graph=True) for out in results)
    for name, a, b in zip("qkv", got, wanted, strict=True):
        close(a, b, f"gradient of {name}")


@for_each("name", MASKS)
def test_packed_tokens_give_what_the_mask_says(name: str) -> None:
    check(MASKS[name](), *inputs())


@for_each("name", OF_OTHER_KEYS)
def test_other_keys_than_queries(name: str) -> None:
    check(OF_OTHER_KEYS[name](), *inputs(keys=5))


@for_each("kv_heads", [1, 2])
def test_heads_share_keys(kv_heads: int) -> None:
    check(regard.Causal() & lengths(7, 4, 0), *inputs(kv_heads=kv_heads))


def test_terms_beside_the_mask() -> None:
    q, k, v = inputs()
    check(lengths(7, 4, 0), q, k, v, score=regard.Dot(scale=0.3), normalize=regard.Softmax(temperature=2.0))
    check(lengths(7, 4, 0), q, k, v, score=regard.Bilinear(D, D).double())
    samples = [t.detach()[:, 0].requires_grad_() for t in (q, k, v)]
    check(lengths(7, 4, 0), *samples)


@for_each("name", ["all tokens", "some tokens"])
def test_the_kernel_gets_aligned_tokens(name: str) -> None:
    mask = {"all tokens": ids(IN_ORDER), "some tokens": lengths(7, 4, 1)}[name]
    shapes = {"last axis": (B, H, N, 16), "offset": (B, H, N, 9), "rows": (B, H, N, 12)}
    for what, shape in shapes.items():
        cut = {"last axis": slice(0, None, 2), "offset": slice(1, None), "rows": slice(0, 8)}[what]
        check(mask, *(torch.randn(shape, dtype=torch.float64, requires_grad=True)[..., cut] for _ in range(3)))
    heads_last = (torch.randn(B, N, H, 8, dtype=torch.float64, requires_grad=True).transpose(1, 2) for _ in range(3))
    check(mask, *heads_last)


@for_each("name", MASKS)
def test_lse(name: str) -> None:
    q, k, v = (t.detach() for t in inputs())
    call = in_double(resolved(q, k, v, mask=MASKS[name](), need=Need(lse=True)))
    want, got = eager.run(call), varlen.run(call, document_loop)
    close(got.lse, want.lse, "lse", rtol=1e-5, atol=1e-6)
    close(got.out, want.out, "out")


def test_tokens_in_their_order_are_not_copied() -> None:
    parts = _packing.mask_parts(resolved(*inputs(), mask=ids(IN_ORDER)).mask)
    (packing,) = _packing.packings(parts, B, N, N)
    assert packing.queries.tokens is packing.keys.tokens is None
    assert packing.queries.ends.tolist() == [0, 3, 5, 7, *range(8, 15), 21]


def test_a_mask_is_packed_once_until_it_is_written_to() -> None:
    numbers = torch.tensor([7, 4, 1])
    mask = regard.Causal() & regard.Lengths(numbers)
    q, k, v = (t.detach() for t in inputs())

    def packed(mask: regard.Mask, sizes: int = N) -> list[PackedDocuments]:
        parts = _packing.mask_parts(resolved(q[:, :, :sizes], k[:, :, :sizes], v[:, :, :sizes], mask=mask).mask)
        return _packing.packings(parts, B, sizes, sizes)

    first = packed(mask)
    with mock.patch.object(_packing, "_pack", side_effect=AssertionError("packed again")):
        assert packed(mask) is first
        assert packed(regard.Lengths(numbers) & regard.Causal()) is first
        listed = regard.Lengths([3, 1, 2])
        for kind in (regard.Lengths(numbers), listed):
            with pytest.raises(AssertionError, match="packed again"):
                packed(kind)
    assert packed(mask, 6)[0].queries.ends.tolist() == [0, 6, 10, 11]
    documents = ids(GAPS)
    assert packed(documents) is packed(documents)
    numbers[0] = 2
    assert packed(mask)[0].queries.ends.tolist() == [0, 2, 6, 7]
    with torch.inference_mode():
        changing = torch.tensor([7, 4, 1])
        assert packed(regard.Lengths(changing))[0].keys.ends.tolist() == [0, 7, 11, 12]
        changing[0] = 2
        assert packed(regard.Lengths(changing))[0].keys.ends.tolist() == [0, 2, 6, 7]
    gc.collect()  # tracebacks of the errors above
    assert numbers in _packing._KEPT
    count = len(_packing._KEPT)
    del numbers, mask
    assert len(_packing._KEPT) == count - 1


@pytest.mark.skipif(not torch_versions.PACKS_DOCUMENTS, reason="this torch has no such kernel")
@for_each("window", [(-1, -1), (-1, 0), (2, 0)])
def test_the_kernel_of_torch_takes_these_arguments(window: tuple[int, int]) -> None:
    with FakeTensorMode():  # tensors without numbers, which have a kernel for the shapes
        q = torch.empty(10, 4, 16, dtype=torch.half, device="cuda")
        k = torch.empty(12, 2, 16, dtype=torch.half, device="cuda")
        ends = torch.empty(3, dtype=torch.int32, device="cuda")
        packed = PackedDocuments(PackedTokens(None, ends, 7), PackedTokens(None, ends, 9), window)
        out, lse = varlen.flash_attention(q, k, k, packed, 0.25)
    assert (out.shape, out.dtype) == (q.shape, q.dtype)
    assert (lse.shape, lse.dtype) == ((4, 10), torch.float32)


REASONS: dict[str, tuple[dict[str, Any], str]] = {
    "weights": ({"need": Need(weights=True)}, "never forms the requested weights"),
    "entmax": ({"normalize": regard.Sparsemax()}, "only softmax"),
    "bias": ({"bias": regard.ALiBi(H)}, "its kernel has no bias"),
    "dropout": ({"dropout": 0.5}, "its kernel has no dropout"),
    "no mask": ({"mask": None}, "no mask that leaves tokens out"),
    "window": ({"mask": regard.Window(2, 0)}, r"takes Lengths or Documents, each also & Causal, not Window\(2, 0\)"),
    "or": ({"mask": lengths(1, 2, 3) | regard.Causal()}, "takes Lengths or Documents"),
    "two": ({"mask": lengths(1, 2, 3) & ids(IN_ORDER)}, "takes Lengths or Documents"),
    "lengths per head": ({"mask": regard.Lengths(torch.ones(B, H, dtype=torch.long))}, "takes Lengths or Documents"),
    "window & lengths": ({"mask": regard.Window(2, 0) & lengths(1, 2, 3)}, "padding behind the tokens sees a part"),
    "window to the right": ({"mask": regard.Window(2, 1) & ~lengths(1, 2, 3)}, "padding behind the tokens sees a"),
    "window & documents": ({"mask": regard.Window(2, 0) & ids(IN_ORDER)}, "a document may have gaps"),
    "other documents": (
        {"mask": regard.Causal() & regard.Documents(torch.tensor(GAPS), torch.tensor(IN_ORDER))},
        r"under Causal\(\) queries and keys must be of the same documents",
    ),
    "positions": ({"mask": lengths(1, 2, 3), "positions": (torch.arange(N), torch.arange(N))}, "positions are given"),
    "scale": ({"mask": lengths(1, 2, 3), "score": regard.Dot(scale=-1.0)}, "needs a positive scale"),
}


@for_each("name", REASONS)
def test_it_says_what_it_does_not_take(name: str) -> None:
    terms, sentence = REASONS[name]
    q = torch.randn(B, H, N, D).half()
    terms = {"mask": lengths(1, 2, 3), **terms}
    with pytest.raises(AssertionError, match=sentence):
        in_double(resolved(q, q, q, **terms))


def test_it_says_which_tensors_it_does_not_take() -> None:
    mask = lengths(1, 2, 3)
    half = torch.randn(B, H, N, D).half()

    def reason(q: Tensor, k: Tensor | None = None, **terms: Any) -> str:
        return varlen.call_reason(resolved(q, q if k is None else k, **{"mask": mask, **terms}))

    assert reason(half.float()) == "its kernel takes float16 or bfloat16, not torch.float32"
    assert reason(torch.zeros(B, H, N, 257).half()) == "its kernel takes a width of at most 256 per head, not 257"
    assert "as many queries as keys" in reason(half[:, :, 2:], half, mask=regard.Causal() & mask)
    assert "a tensor is empty" in reason(half[:, :, :0], half)
    assert "lse has no gradient" in reason(half.clone().requires_grad_(), need=Need(lse=True))
    assert "samples, or samples and heads" in reason(half[None], mask=regard.Lengths(torch.tensor([3])))
    assert reason(half, half[:, :2]) is None
    with torch.device("meta"):
        meta = torch.zeros(B, H, N, D, dtype=torch.half)
        assert "not compiled, traced" in reason(meta, mask=regard.Lengths(torch.ones(B, dtype=torch.long)))


def test_it_says_which_devices_it_does_not_take() -> None:
    call = resolved(*[torch.randn(B, H, N, D).half()] * 3, mask=lengths(1, 2, 3))
    assert varlen.unsupported_reason(call) == "its kernel is for GPUs, and q is on cpu"
    with pytest.raises(ValueError, match="backend 'varlen' cannot run this: its kernel is for GPUs"):
        regard.attention(call.q, call.keys, mask=lengths(1, 2, 3), backend="varlen")
    gpu = torch.device("cuda:0")

    def reason(
        owner: Any = torch.version,
        name: str = "hip",
        value: Any = None,
        capability: Any = (8, 0),
        is_capturing: bool = False,
    ) -> str:
        cuda = {"get_device_capability": lambda _: capability, "is_current_stream_capturing": lambda: is_capturing}
        is_new = mock.patch.object(varlen, "PACKS_DOCUMENTS", True)
        with is_new, mock.patch.multiple(torch.cuda, **cuda), mock.patch.object(owner, name, value):
            return varlen.device_reason(gpu)

    assert reason() is None
    assert "torch is built for ROCm" in reason(value="6.0")
    assert f"from torch {torch_versions.VARLEN_SINCE} on, and this is" in reason(varlen, "PACKS_DOCUMENTS", False)
    assert "compute capability 8.0 or newer, and this has 7.5" in reason(capability=(7, 5))
    assert "a CUDA graph is being captured" in reason(is_capturing=True)


def test_small_calls_are_skipped() -> None:
    call = resolved(*[torch.randn(B, H, N, D).half()] * 3, mask=lengths(1, 2, 3))
    assert varlen.skip_reason(call) == f"only {B * H * N * N} weights: a dense mask is faster than packing"
    large = torch.empty(2, 8, 256, 8).half()
    assert varlen.skip_reason(resolved(large, large, mask=regard.Lengths(torch.tensor([200, 256])))) is None
