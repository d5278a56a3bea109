"""Time and memory of calls beside those of other libraries, interleaved."""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

import regard
from benchmarks.gpu import rivals
from benchmarks.timing import Effort, measure


@dataclass(frozen=True)
class Sizes:
    """Numbers of a batch."""

    samples: int = 4
    heads: int = 16
    length: int = 4096
    width: int = 64
    # the calls that compute all scores in float32, and additive ones of a hidden width
    short: int = 1024
    hidden: int = 512
    # of a feature map
    maps: tuple[int, int, int, int] = (64, 64, 56, 56)


class Speed(NamedTuple):
    """A call in one mode: milliseconds (median and quartiles), the memory beyond the inputs, and the greatest
    difference from the first call of its case, as a share of the largest number."""

    case: str
    mode: str
    call: str
    median: float | None = None
    low: float | None = None
    high: float | None = None
    megabytes: float | None = None
    difference: float | None = None
    error: str = ""


class Comparison(NamedTuple):
    """Calls that compute the same of the same leaves; None: not installed, or not for this device."""

    calls: Mapping[str, Callable[[], Tensor] | None]
    leaves: list[Tensor]


def _leaves(sizes: Sizes, device: torch.device, length: int, dtype: torch.dtype) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    shape = sizes.samples, sizes.heads, length, sizes.width
    return [torch.randn(shape, generator=generator).to(device, dtype).requires_grad_() for _ in range(3)]


def _regard(tensors: list[Tensor], backends: tuple[str, ...] = (), **terms: Any) -> dict[str, Callable[[], Tensor]]:
    """The call on the backend that regard chooses, which the name says, and on others where they can run."""
    layer_terms = {name: term for name, term in terms.items() if name != "mask"}
    mask = terms.get("mask")

    def call(backend: str | None) -> Callable[[], Tensor]:
        return lambda: regard.attention(*tensors, **layer_terms, mask=mask, backend=backend)

    lines = regard.explain(*tensors, **layer_terms, mask=mask).splitlines()[2:]
    states = {line.split()[0]: line.split()[1] for line in lines}
    (chosen,) = (name for name, state in states.items() if state == "runs:")
    calls = {f"regard ({chosen})": call(None)}
    others = (name for name in backends if name != chosen and states.get(name) not in (None, "cannot:"))
    return calls | {f"regard, backend={name!r}": call(name) for name in others}


def causal(sizes: Sizes, device: torch.device) -> Comparison:
    q, k, v = leaves = _leaves(sizes, device, sizes.length, torch.bfloat16)
    xformers = rivals.xformers_causal()
    return Comparison(
        {
            **_regard(leaves, ("flex",), mask=regard.Causal()),
            "torch, SDPA": lambda: rivals.sdpa(is_causal=True)(q, k, v),
            "xformers": xformers and (lambda: xformers(q, k, v)),
        },
        leaves,
    )


def _masked(
    sizes: Sizes, device: torch.device, mask: regard.masks.Mask, mask_mod: Any, lengths: list[int] | None = None
) -> Comparison:
    """A mask, which SDPA takes as a dense tensor."""
    q, k, v = leaves = _leaves(sizes, device, sizes.length, torch.bfloat16)
    i = torch.arange(sizes.length, device=device)
    dense = mask.fit((sizes.samples, sizes.heads), sizes.length, sizes.length, device).dense(i, i)
    dense = dense[:, None] if dense.ndim == 3 else dense
    flex = rivals.flex(mask_mod, sizes.samples, sizes.length, device)
    xformers = None if lengths is None else rivals.xformers_documents(lengths)
    return Comparison(
        {
            **_regard(leaves, ("varlen", "flex", "fused"), mask=mask),
            "torch, SDPA with a dense mask": lambda: rivals.sdpa(dense)(q, k, v),
            "torch, flex_attention": flex and (lambda: flex(q, k, v)),
            "xformers": xformers and (lambda: xformers(q, k, v)),
        },
        leaves,
    )


def _half_lengths(sizes: Sizes, device: torch.device) -> Tensor:
    """Samples of half the length and more."""
    return torch.linspace(sizes.length / 2, sizes.length, sizes.samples).long().to(device)


def padded(sizes: Sizes, device: torch.device) -> Comparison:
    lengths = _half_lengths(sizes, device)
    return _masked(sizes, device, regard.Lengths(lengths), lambda b, h, i, j: j < lengths[b])


def documents(sizes: Sizes, device: torch.device) -> Comparison:
    count = math.ceil(sizes.length / 8)
    ids = (torch.arange(sizes.length, device=device) // count).expand(sizes.samples, -1)
    every = [min(count, sizes.length - start) for start in range(0, sizes.length, count)] * sizes.samples
    mask = regard.Causal() & regard.Documents(ids)
    return _masked(sizes, device, mask, lambda b, h, i, j: (ids[b, i] == ids[b, j]) & (j <= i), every)


def windowed(sizes: Sizes, device: torch.device) -> Comparison:
    lengths, left = _half_lengths(sizes, device), sizes.length // 16
    mask = regard.Window(left, 0) & regard.Lengths(lengths)
    return _masked(sizes, device, mask, lambda b, h, i, j: (j <= i) & (j >= i - left) & (j < lengths[b]))


def alibi(sizes: Sizes, device: torch.device) -> Comparison:
    q, k, v = leaves = _leaves(sizes, device, sizes.length, torch.bfloat16)
    bias = regard.ALiBi(sizes.heads).to(device)
    ahead = torch.arange(sizes.length, device=device) - torch.arange(sizes.length, device=device)[:, None]
    dense = (-bias.slopes[:, None, None] * ahead.abs()).masked_fill(ahead > 0, -torch.inf).to(q.dtype)
    return Comparison(
        {
            **_regard(leaves, ("flex", "fused"), bias=bias, mask=regard.Causal()),
            "torch, SDPA with a dense bias": lambda: rivals.sdpa(dense)(q, k, v),
        },
        leaves,
    )


def sparse(alpha: float, sizes: Sizes, device: torch.device) -> Comparison:
    q, k, v = leaves = _leaves(sizes, device, sizes.short, torch.float32)
    normalize = regard.Sparsemax() if alpha == 2.0 else regard.Entmax(alpha)
    package, splash = rivals.entmax(alpha), None if device.type == "cpu" else rivals.adasplash(alpha)
    return Comparison(
        {
            **_regard(leaves, ("triton",), normalize=normalize),
            "entmax": package and (lambda: package(q, k, v)),
            "adasplash": splash and (lambda: splash(q, k, v)),
        },
        leaves,
    )


def additive(sizes: Sizes, device: torch.device) -> Comparison:
    torch.manual_seed(0)
    score = regard.Additive(sizes.width, sizes.width, sizes.hidden).to(device)
    leaves = _leaves(sizes, device, sizes.short // 8, torch.float32)  # the formula takes length² × hidden
    q, k, v = leaves

    def formula() -> Tensor:
        hidden = score.queries(q).unsqueeze(-2) + score.keys(k).unsqueeze(-3)
        return (torch.tanh(hidden) @ score.energy).softmax(-1) @ v

    return Comparison({**_regard(leaves, ("triton",), score=score), "the formula": formula}, leaves)


def simam(sizes: Sizes, device: torch.device) -> Comparison:
    x = torch.randn(sizes.maps, generator=torch.Generator().manual_seed(0)).to(device).requires_grad_()

    def formula() -> Tensor:
        squares = (x - x.mean((-2, -1), keepdim=True)) ** 2
        variance = squares.sum((-2, -1), keepdim=True) / (x[0, 0].numel() - 1)
        return x * torch.sigmoid(squares / (4 * (variance + 1e-4)) + 0.5)

    gate, kernel = regard.gates.SimAM(), regard.gates.SimAM(backend="triton")
    calls: dict[str, Callable[[], Tensor] | None] = {
        "regard": lambda: gate(x),
        "the formula": formula,
        "regard, backend='triton'": None if device.type == "cpu" else lambda: kernel(x),
    }
    return Comparison(calls, [x])


CASES: dict[str, Callable[[Sizes, torch.device], Comparison]] = {
    "causal": causal,
    "padded": padded,
    "packed, causal": documents,
    "windowed and padded": windowed,
    "ALiBi, causal": alibi,
    "sparsemax": lambda sizes, device: sparse(2.0, sizes, device),
    "entmax 1.5": lambda sizes, device: sparse(1.5, sizes, device),
    "additive": additive,
    "SimAM": simam,
}


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def measure_all(sizes: Sizes, device: torch.device, effort: Effort) -> Iterator[Speed]:
    """Every case, forward and with backward."""
    for case, build in CASES.items():
        yield from measure_case(case, build(sizes, device), device, effort)


def measure_case(case: str, comparison: Comparison, device: torch.device, effort: Effort) -> Iterator[Speed]:
    for mode in ("forward", "forward and backward"):
        calls: dict[str, Callable[[], object]] = {}
        rows: dict[str, dict[str, Any]] = {}
        reference: Tensor | None = None
        for name, call in comparison.calls.items():
            if call is None:
                yield Speed(case, mode, name, error="not installed, or not for this device")
                continue
            timed = call if mode == "forward" else _with_backward(call, comparison.leaves)
            try:
                with torch.set_grad_enabled(mode != "forward"):
                    out, megabytes = _memory(timed, device)
            except Exception as error:
                yield Speed(case, mode, name, error=f"{type(error).__name__}: {str(error).strip().splitlines()[0]}")
                continue
            out = out.nan_to_num()  # of a row without a key, which is zeros in regard and NaN in some kernels
            reference = out if reference is None else reference
            size = reference.abs().max().clamp_min(1e-6)
            rows[name] = {"megabytes": megabytes, "difference": ((out - reference).abs().max() / size).item()}
            calls[name] = timed
        if calls:
            yield from _rows(case, mode, calls, rows, device, effort)


def _rows(
    case: str,
    mode: str,
    calls: Mapping[str, Callable[[], object]],
    rows: Mapping[str, dict[str, Any]],
    device: torch.device,
    effort: Effort,
) -> Iterator[Speed]:
    def clock() -> float:
        _synchronize(device)
        return time.perf_counter()

    threads = effort.threads or torch.get_num_threads()
    timed = measure(calls, effort, threads, grad=mode != "forward", clock=clock)
    for name in calls:
        yield Speed(case, mode, name, *(1e3 * seconds for seconds in timed.of(name)), **rows[name])


def _with_backward(call: Callable[[], Tensor], leaves: list[Tensor]) -> Callable[[], Tensor]:
    """A call that also computes the gradients of the leaves."""

    def both() -> Tensor:
        out = call()
        torch.autograd.grad(out, leaves, torch.ones_like(out))
        return out.detach()

    return both


def _memory(call: Callable[[], Tensor], device: torch.device) -> tuple[Tensor, float | None]:
    """The result of the second of two calls, and its megabytes beside what there was; None on a CPU."""
    call()  # compiles, and fills caches
    if device.type != "cuda":
        return call().float(), None
    _synchronize(device)
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    out = call()
    _synchronize(device)
    return out.float(), (torch.cuda.max_memory_allocated(device) - before) / 1e6
