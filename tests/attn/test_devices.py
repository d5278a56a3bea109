"""Devices that this machine may not have, by fake tensors: the backend that runs, and the number of operations."""

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

import regard
from regard.attn.backends import _block_plan
from regard.kernels import sparsemax


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The device of fake tensors that attention takes for tensors with values, as those of a GPU are."""
    monkeypatch.setattr(_block_plan, "has_values", lambda t: True)
    # a build of torch with CUDA would ask the driver for a device that is not there
    monkeypatch.setattr(torch.version, "cuda", None)
    with FakeTensorMode():
        yield "cuda"


def runs(layer: regard.Attention, q: Tensor, mask: regard.Mask | None) -> str:
    (line,) = [line for line in layer.explain(q, mask=mask).splitlines() if " runs: " in line]
    return line.split()[0]


MASKS: dict[str, Callable[[str], regard.Mask | None]] = {
    "none": lambda device: None,
    "causal": lambda device: regard.Causal(),
    "window": lambda device: regard.Window(64, 0),
    "lengths": lambda device: regard.Lengths(torch.full((2,), 9, device=device)),
    "causal-lengths": lambda device: regard.Causal() & regard.Lengths(torch.full((2,), 9, device=device)),
}


# a build of torch without CUDA has no graph of fake tensors, so that a bias, which is computed, is tested without one
@pytest.mark.parametrize("kind", ["train", "eval", "alibi"])
@pytest.mark.parametrize("mask", MASKS)
def test_softmax_of_dot_products_on_a_gpu_is_one_kernel(mask: str, kind: str, cuda: str) -> None:
    q = torch.empty(2, 8, 1024, 64, device=cuda, requires_grad=kind == "train")
    with torch.device(cuda):
        layer = regard.Attention(bias=regard.ALiBi(8) if kind == "alibi" else None)
    assert runs(layer, q, MASKS[mask](cuda)) == "fused"


def test_a_bias_of_gigabytes_is_computed_block_by_block(cuda: str) -> None:
    q = torch.empty(2, 8, 8192, 64, device=cuda)
    with torch.device(cuda):
        layer = regard.Attention(bias=regard.ALiBi(8))
    assert runs(layer, q, regard.Causal()) == "blocked"


def test_on_a_cpu_masked_blocks_are_skipped() -> None:
    q = torch.empty(2, 8, 1024, 64)
    assert runs(regard.Attention(), q, regard.Window(64, 0)) == "flash"
    assert runs(regard.Attention(), q, regard.Causal()) == "fused"


class Operations(TorchDispatchMode):
    """Counts the operations of a block."""

    count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        self.count += 1
        return function(*args, **(kwargs or {}))


def operations(call: Callable[[], object]) -> int:
    with Operations() as counted:
        call()
    return counted.count


def test_a_boolean_mask_costs_as_many_operations_for_any_number_of_keys() -> None:
    def count(n: int) -> int:
        q, allowed = torch.empty(1, 2, n, 8, device="meta"), torch.ones(n, n, dtype=torch.bool, device="meta")
        return operations(lambda: regard.attention(q, q, mask=allowed))

    assert count(64) == count(16)


@pytest.mark.parametrize("name", ["simam", "cbam", "se"])
def test_a_gate_costs_as_many_operations_for_any_batch(name: str) -> None:
    def count(b: int) -> int:
        with torch.device("meta"):
            made = regard.gate(name, 8)
        x = torch.empty(b, 8, 256, 256, device="meta", requires_grad=True)
        return operations(lambda: made(x).sum().backward())

    assert count(6) == count(2)


def test_linear_attention_without_readable_values_is_computed_once() -> None:
    def count(device: str) -> int:
        q = torch.rand(1, 128, 8, device=device)
        terms = {"score": regard.scores.Kernel("square"), "normalize": regard.normalizers.Sum(), "backend": "linear"}
        with FlopCounterMode(display=False) as flops:
            regard.attention(q, q, **terms)
        return flops.get_total_flops()

    assert count("meta") == count("cpu")


def test_a_search_for_a_threshold_waits_for_the_device_once_in_eight_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    scores, looks = torch.randn(3, 2, 40) * 3, []
    want = sparsemax.compute.sparse_forward(scores, None, squared=False, native=False)[0]
    may_read = sparsemax.plain._may_read

    def as_on_a_gpu(t: Tensor, step: int) -> bool:
        looks.append(may_read(t.to("meta"), step))
        return looks[-1]

    monkeypatch.setattr(sparsemax.plain, "_may_read", as_on_a_gpu)
    weights = sparsemax.compute.sparse_forward(scores, None, squared=False, native=False)[0]
    torch.testing.assert_close(weights, want)
    assert looks == [*[False] * 7, True]
