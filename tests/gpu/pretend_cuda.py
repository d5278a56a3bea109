"""A pretended GPU: tensors that say they are on cuda:0, and compute on the CPU.

Code that branches on the device, autocast and autograd take them for tensors of a GPU. Unlike fake tensors they have
numbers, so that what a GPU would compute is compared with what a CPU computes. As on a GPU, an operation on tensors of
both devices raises, their memory has no address, and `numpy()` refuses them.

`Observation` counts what a GPU pays for: operations (launches of kernels; views are none) and reads (the host asks for
a number and waits: `item`, `tolist`, `bool`, `nonzero`, a boolean index, a copy to the CPU).
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from types import CellType, FrameType, FunctionType
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F
from tests.attn.backends.document_loop import document_loop
from torch import Tensor
from torch.nn.attention import varlen
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map_only, tree_unflatten

from regard.attn.backends import flex
from regard.attn.backends._packing import PackedDocuments, PackedTokens
from regard.kernels import dispatch

aten = torch.ops.aten
CPU = torch.device("cpu")

# tensors of both devices are the purpose of copies; indices, and lengths of packed sequences, may be on the CPU
_COPIES = {aten._to_copy.default, aten.copy_.default}
_TAKES_CPU = {
    *(aten.index.Tensor, aten.index_put.default, aten.index_put_.default, aten._index_put_impl_.default),
    *(aten._pack_padded_sequence.default, aten._pack_padded_sequence_backward.default),
}
# a number on the CPU is an argument of other kernels, but not of these
_TAKES_NO_NUMBER = {aten.stack.default, aten.cat.default}
# results whose shape depends on values
_SHAPED_BY_VALUES = {
    *(aten.nonzero.default, aten.masked_select.default, aten.repeat_interleave.Tensor, aten.bincount.default),
    *(aten._unique2.default, aten.unique_dim.default, aten.unique_consecutive.default),
}
# neither views by their schema nor launches
_NO_LAUNCH = {aten._unsafe_view.default, aten.empty.memory_format, aten.empty_like.default, aten.empty_strided.default}


@dataclass
class Observation:
    """The operations and the reads of a call, by the lines of regard that ask for them."""

    operations: int = 0
    reads: Counter[str] = field(default_factory=Counter)

    def read(self) -> None:
        self.reads[_line_of_regard()] += 1


_observations: list[Observation] = []


@contextmanager
def observed() -> Iterator[Observation]:
    """Counts what is done on the pretended GPU."""
    observation = Observation()
    _observations.append(observation)
    try:
        yield observation
    finally:
        _observations.remove(observation)


def _line_of_regard() -> str:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        _, package, path = frame.f_code.co_filename.rpartition("/src/regard/")
        if package:
            return f"{path}:{frame.f_lineno}"
        frame = frame.f_back
    return "outside of regard"


class CudaTensor(Tensor):
    """A tensor of the pretended GPU; `host` has its numbers."""

    host: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def __new__(cls, host: Tensor) -> "CudaTensor":
        t = Tensor._make_wrapper_subclass(
            *(cls, host.size()), strides=host.stride(), storage_offset=host.storage_offset(), dtype=host.dtype,
            layout=host.layout, device="cuda:0",
        )  # fmt: skip
        t.host = host
        return t

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})

    def __repr__(self) -> str:  # type: ignore[override]
        return f"CudaTensor({self.host!r})"

    def tolist(self) -> Any:
        return self.cpu().tolist()

    def data_ptr(self) -> int:
        raise RuntimeError("the address of a tensor on a GPU was asked for: a kernel for CPUs cannot read it")


def _run(func: Any, args: Any, kwargs: Any) -> Any:
    """The operation on the numbers, checked and counted; the result is on the GPU if an argument is."""
    leaves, structure = tree_flatten((args, kwargs))
    tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    wrappers = {id(t.host): t for t in tensors if isinstance(t, CudaTensor)}
    on_gpu = bool(wrappers)
    if func not in _COPIES and func not in _TAKES_CPU and on_gpu:
        for t in tensors:
            if not isinstance(t, CudaTensor) and (t.ndim or func in _TAKES_NO_NUMBER):
                raise RuntimeError(f"{func} takes tensors of cuda:0 and one of cpu, of shape {tuple(t.shape)}")
    args, kwargs = tree_unflatten([t.host if isinstance(t, CudaTensor) else t for t in leaves], structure)
    was_on_gpu = on_gpu
    if func is aten.copy_.default:
        on_gpu = isinstance(leaves[0], CudaTensor)
    elif kwargs.get("device") is not None:
        on_gpu = torch.device(kwargs["device"]).type == "cuda"
        if on_gpu:
            kwargs["device"] = CPU
    out = func(*args, **kwargs)
    if on_gpu or was_on_gpu:
        _count(func, args, out, left_gpu=was_on_gpu and not on_gpu)
    if not on_gpu:
        return out
    if func is aten._pack_padded_sequence.default:
        return CudaTensor(out[0]), out[1]  # the numbers of samples per step stay on the CPU
    return tree_map_only(Tensor, lambda t: wrappers[id(t)] if id(t) in wrappers else CudaTensor(t), out)


def _count(func: Any, args: Any, out: Any, left_gpu: bool) -> None:
    gives_number = isinstance(out, bool | int | float | complex)
    is_read = left_gpu or gives_number or func in _SHAPED_BY_VALUES
    if func in _TAKES_CPU and len(args) > 1 and isinstance(args[1], list | tuple):
        is_boolean = any(t is not None and t.dtype in (torch.bool, torch.uint8) for t in args[1])
        # writing one number is a masked fill
        is_read |= is_boolean and (len(args) < 3 or args[2].numel() != 1)
    for observation in _observations:
        if is_read:
            observation.read()
        if not (func.is_view or func in _NO_LAUNCH or gives_number):
            observation.operations += 1


class _Factories(TorchDispatchMode):
    """Puts new tensors on the pretended GPU where that is asked for."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})


class _OneKernel(torch.autograd.Function):
    """A function that is one kernel on a GPU, and many operations elsewhere; so is its backward."""

    @staticmethod
    def forward(ctx: Any, function: Callable[..., Any], *tensors: Tensor | None) -> Any:
        hosts = [t.host.detach() if isinstance(t, CudaTensor) else t for t in tensors]
        for host, needed in zip(hosts, ctx.needs_input_grad[1:], strict=True):
            if needed:
                host.requires_grad_()
        with torch.enable_grad():
            out = function(*hosts)
        ctx.hosts, ctx.outputs = hosts, [out] if isinstance(out, Tensor) else list(out)
        _launch()
        results = tuple(CudaTensor(t.detach()) for t in ctx.outputs)
        return results[0] if isinstance(out, Tensor) else results

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        pairs = [(t, g.host) for t, g in zip(ctx.outputs, grads, strict=True) if g is not None and t.requires_grad]
        needed = [host for host in ctx.hosts if host is not None and host.requires_grad]
        outputs, upstream = zip(*pairs, strict=True)
        gradients = iter(torch.autograd.grad(outputs, needed, upstream, allow_unused=True))
        _launch()
        hosts = (None if h is None or not h.requires_grad else next(gradients) for h in ctx.hosts)
        return None, *(None if g is None else CudaTensor(g) for g in hosts)


def _launch() -> None:
    for observation in _observations:
        observation.operations += 1


def one_kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with its calls on the pretended GPU counted as one operation."""

    def call(*args: Any, **kwargs: Any) -> Any:
        leaves, structure = tree_flatten((args, kwargs))
        if not any(isinstance(leaf, CudaTensor) for leaf in leaves):
            return function(*args, **kwargs)
        places = [n for n, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
        if torch.is_autocast_enabled("cuda"):
            half = torch.get_autocast_dtype("cuda")
            leaves = [t.to(half) if isinstance(t, CudaTensor) and t.dtype == torch.float32 else t for t in leaves]

        def on_hosts(*tensors: Tensor) -> Any:
            for place, tensor in zip(places, tensors, strict=True):
                leaves[place] = tensor
            args, kwargs = tree_unflatten(leaves, structure)
            with torch.utils._python_dispatch._disable_current_modes():
                return function(*args, **kwargs)

        return _OneKernel.apply(on_hosts, *(leaves[place] for place in places))

    return call


def packed_attention(
    q: Tensor, k: Tensor, v: Tensor, ends: Tensor, key_ends: Tensor, longest: int, longest_keys: int, **options: Any
) -> tuple[Tensor, Tensor]:
    """`torch.nn.attention.varlen.varlen_attn` with its lse, written plainly: it has no kernel for CPUs."""
    assert {*options} == {"return_aux", "scale", "window_size", "enable_gqa"}
    assert options["return_aux"].lse
    assert options["enable_gqa"]
    assert q.shape[-1] % 8 == 0
    packing = PackedDocuments(
        PackedTokens(None, ends, longest), PackedTokens(None, key_ends, longest_keys), options["window_size"]
    )
    return document_loop(q, k, v, packing, options["scale"])


def _rebuilt(value: Any, kind: type, replace: Callable[[Any], Any]) -> Any:
    """A function with another value in place of every one of a kind that it, and the functions in it, take from
    closures.
    """
    if isinstance(value, kind):
        return replace(value)
    if isinstance(value, list):
        return [_rebuilt(part, kind, replace) for part in value]
    if not isinstance(value, FunctionType) or not value.__closure__:
        return value
    cells = tuple(CellType(_rebuilt(cell.cell_contents, kind, replace)) for cell in value.__closure__)
    return FunctionType(value.__code__, value.__globals__, value.__name__, value.__defaults__, cells)


@dataclass
class _Slot:
    number: int


def flex_kernel(kind: object) -> Callable[..., Any]:
    """torch's FlexAttention as one operation, which computes its reference."""

    def call(q: Tensor, k: Tensor, v: Tensor, score: Any, blocks: Any, needs_lse: bool) -> Any:
        captured: list[Tensor] = []

        def take(t: Tensor) -> _Slot:
            captured.append(t)
            return _Slot(len(captured) - 1)

        mods = [score, None if blocks is None else blocks.mask_mod]
        template = _rebuilt(mods, Tensor, take)

        def reference(q: Tensor, k: Tensor, v: Tensor, captured: list[Tensor]) -> Any:
            score, mask = _rebuilt(template, _Slot, lambda slot: captured[slot.number])
            zero = q.new_zeros(())
            # as in the kernel, a row that its bias hides has no gradient
            bias = None if score is None else lambda b, h, i, j: score(zero, b, h, i, j)
            out, lse = flex._reference(q, k, v, score, mask, bias)
            return (out, lse) if needs_lse else (out,)

        out, *lse = one_kernel(reference)(q, k, v, captured)
        return out, lse[0] if lse else None

    return call


@contextmanager
def pretended_gpu() -> Iterator[None]:
    """A machine with a GPU: regard takes its tensors for ordinary ones."""
    torch.cuda._initialized = True
    torch.__future__.set_swap_module_params_on_conversion(True)
    with ExitStack() as stack:
        for owner, name in (
            (F, "scaled_dot_product_attention"),
            *((torch._VF, name) for name in ("lstm", "gru", "rnn_tanh", "rnn_relu", "lstm_cell", "gru_cell")),
        ):
            stack.enter_context(mock.patch.object(owner, name, one_kernel(getattr(owner, name))))
        stack.enter_context(mock.patch.object(varlen, "varlen_attn", one_kernel(packed_attention)))
        stack.enter_context(mock.patch.object(flex, "_compiled", flex_kernel))
        # torch warns that this build has no cuDNN
        stack.enter_context(mock.patch.object(torch.backends.cudnn, "is_acceptable", return_value=False))
        for name, value in (
            *(("is_available", True), ("is_bf16_supported", True), ("device_count", 1), ("manual_seed_all", None)),
            *(("manual_seed", None), ("mem_get_info", (1 << 34, 1 << 34)), ("set_device", None)),
            # the generator of the CPU serves both
            *(("get_rng_state", torch.get_rng_state()), ("set_rng_state", None)),
            *(("get_device_capability", (9, 0)), ("is_current_stream_capturing", False)),
        ):
            stack.enter_context(mock.patch.object(torch.cuda, name, return_value=value))
        # code, not names: modules import these functions by name
        for function, disguised in (
            (dispatch.has_values, lambda _: True),
            (dispatch.choose_route, lambda *_: "direct"),
        ):
            stack.callback(setattr, function, "__code__", function.__code__)
            function.__code__ = disguised.__code__
        # tensors of Python's numbers and lists are made on the CPU and copied, which torch_dispatch sees
        torch._C._set_only_lift_cpu_tensors(True)
        stack.callback(torch._C._set_only_lift_cpu_tensors, False)
        # the threads of autograd do not know the mode of this one
        stack.enter_context(torch.autograd.set_multithreading_enabled(False))
        stack.enter_context(_Factories())
        yield
