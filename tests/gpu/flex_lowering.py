"""Lowers the kernels of flex to Triton for a pretended A100, without a GPU: python -m tests.gpu.flex_lowering.

torch's compiler takes fake tensors of cuda:0 through Dynamo, autograd and inductor, forward and backward, up to the
source of the Triton kernels, which nothing runs. A function of pairs that Triton cannot compute fails here. Prints a
line per call: its name, the mode, the number of graphs whose source was written, and the number of kernels in it.
"""

# fmt: off
from tests.gpu.plugin import SOURCE  # isort: skip  the guard for devices comes before torch
# fmt: on

import logging
import sys
from collections.abc import Callable
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
import torch._functorch.config
import torch._inductor.config
import triton
from torch._inductor.fx_passes import joint_graph, post_grad
from torch._inductor.graph import GraphLowering
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _triton
from triton.backends.compiler import GPUTarget

import regard
from regard.attn.backends import _flex_blocks, flex

assert SOURCE.exists()
B, H, N, D = 2, 4, 512, 64


def alibi() -> regard.ALiBi:
    with torch.device("cpu"):  # numbers of Python are no fake tensors of the GPU
        bias = regard.ALiBi(H)
    bias.slopes = torch.empty(H)
    return bias


def bilinear() -> regard.Bilinear:
    score = regard.Bilinear(D, D)
    score.key.weight = torch.nn.Parameter(score.key.weight.half())
    return score


CALLS: dict[str, Callable[[], dict[str, Any]]] = {
    "no mask, lse": lambda: {"need": regard.Need(lse=True)},
    "Window, Bilinear": lambda: {"mask": regard.Window(60, 0), "score": bilinear()},
    "tree": lambda: {
        "mask": (regard.Causal() & regard.Lengths(torch.empty(B).long()))
        | ~regard.Documents(torch.empty(B, N).long())
        | regard.Prefix(5)
    },
    "boolean": lambda: {"mask": torch.empty(B, 1, N, N, dtype=torch.bool)},
    "positions": lambda: {"mask": regard.Causal(), "positions": (torch.empty(N).long(), torch.empty(N).long())},
    "sparse": lambda: {"mask": regard.masks.Dilated(5, 3) | regard.masks.Strided(16)},
    "grid": lambda: {"mask": regard.masks.Neighbourhood((16, 32), 5) & ~regard.masks.Windows((16, 32), 4)},
    "ALiBi": lambda: {"bias": alibi(), "mask": regard.Causal()},
    "T5Buckets": lambda: {"bias": regard.T5Buckets(H)},
    "Shaw": lambda: {"bias": regard.Shaw(D)},
    "RelativeXL": lambda: {"bias": regard.RelativeXL(D, H, D)},
    "LocalGaussian": lambda: {"bias": regard.biases.LocalGaussian(D, 16)},
    "tensor": lambda: {"bias": torch.empty(H, N, N, requires_grad=True)},
    "row": lambda: {"bias": torch.empty(B, 1, 1, N, requires_grad=True)},
    "SoftCap, temperature": lambda: {"score": regard.scores.SoftCap(30.0), "normalize": regard.Softmax(0.7)},
    "null slot": lambda: {"normalize": regard.normalizers.WithNullSlot(score=regard.Learnable(0.3, heads=H))},
}
# other widths, key heads and numbers of queries
SHAPES = {"narrow": (8, H, N), "shared heads": (D, 2, N), "one query": (D, H, 1), "odd": (D, H, 333)}

_A100 = SimpleNamespace(
    name="A100",
    major=8,
    minor=0,
    multi_processor_count=108,
    warp_size=32,
    gcnArchName="",
    regs_per_multiprocessor=65536,
    max_threads_per_multi_processor=2048,
    total_memory=80 << 30,
    shared_memory_per_block=49152,
    shared_memory_per_block_optin=166912,
    L2_cache_size=40 << 20,
)
_DRIVER = SimpleNamespace(
    get_current_target=lambda: GPUTarget("cuda", 80, 32),
    get_current_device=lambda: 0,
    get_device_interface=lambda: torch.cuda,
)


class _WrittenError(Exception):
    """The source is written; nothing can run it."""


def _written(sources: list[str]) -> Callable[[GraphLowering], Any]:
    def write(graph: GraphLowering) -> Any:
        sources.append(graph.codegen()[0].value)

        def call(inputs: Any) -> Any:
            raise _WrittenError

        return SimpleNamespace(call=call, __file__="", runner=None)

    return write


def _patches(sources: list[str]) -> ExitStack:
    stack = ExitStack()
    random = torch.zeros(16, dtype=torch.uint8)
    for owner, name, value in (
        *((torch.cuda, name, lambda *_: 1) for name in ("is_available", "device_count")),
        *(
            (torch.cuda, name, lambda *_: 0)
            for name in ("current_device", "_exchange_device", "_maybe_exchange_device")
        ),
        *((torch.cuda, name, lambda *_: None) for name in ("set_device", "synchronize", "set_rng_state")),
        *((torch.cuda, name, lambda *_: _A100) for name in ("get_device_properties", "_get_device_properties")),
        (torch.cuda, "get_device_capability", lambda *_: (8, 0)),
        (torch.cuda, "get_rng_state", lambda *_: random),
        (torch.cuda, "_initialized", True),
        (_triton, "has_triton", lambda: True),
        # patterns and constants are evaluated on the device
        (joint_graph, "lazy_init", lambda *_: None),
        (joint_graph, "constant_fold_uniform_value", lambda _: None),
        (post_grad, "lazy_init", lambda *_: None),
        (GraphLowering, "compile_to_module", _written(sources)),
        (flex, "has_values", lambda _: True),
    ):
        stack.enter_context(mock.patch.object(owner, name, value, create=True))
    stack.enter_context(torch._inductor.config.patch(compile_threads=1, fx_graph_cache=False))
    stack.enter_context(torch._functorch.config.patch(enable_autograd_cache=False))
    return stack


def lower(make: Callable[[], dict[str, Any]], width: int, kv_heads: int, queries: int, training: bool) -> list[str]:
    """The sources of the kernels of a call, of its forward and, in training, its backward."""
    sources: list[str] = []
    torch._dynamo.reset()
    flex._compiled.cache_clear()
    _flex_blocks._kept.clear()
    with _patches(sources), FakeTensorMode(), torch.device("cuda"), torch.set_grad_enabled(training):
        q = torch.empty(B, H, queries, width, dtype=torch.float16, requires_grad=training)
        k, v = (torch.empty(B, kv_heads, N, width, dtype=torch.float16, requires_grad=training) for _ in range(2))
        try:
            regard.attend(q, k, v, **make(), backend="flex")
        except _WrittenError:
            return sources
    raise AssertionError("the call was not compiled")


def main() -> int:
    logging.disable(logging.WARNING)
    triton.runtime.driver.set_active(_DRIVER)
    calls = [(name, make, (D, H, N)) for name, make in CALLS.items()]
    calls += [(name, CALLS["ALiBi"], shape) for name, shape in SHAPES.items()]
    failures = 0
    for name, make, shape in calls:
        for training in (False, True):
            try:
                sources = lower(make, *shape, training)
                kernels = sum(source.count("async_compile.triton(") for source in sources)
                said = f"{len(sources)} graphs, {kernels} kernels" if len(sources) == 1 + training else "no backward"
            except Exception as error:
                said, sources = f"{type(error).__name__}: {str(error).splitlines()[0]}", []
            failures += len(sources) != 1 + training
            print(f"{name:20} {'training' if training else 'inference':9} {said}", flush=True)
    return failures


if __name__ == "__main__":
    sys.exit(main())
