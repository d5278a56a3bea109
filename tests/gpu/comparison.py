"""A call on the CPU and on the pretended GPU: no fault, equal numbers, and the reads and operations of the GPU's."""

import copy
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from tests.gpu.pretend_cuda import Observation, observed
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map_only

# of a module and a function that moves what it makes to the device; returns tensors, or raises what users may expect
Call = Callable[[Any, Callable[[Tensor], Tensor]], Any]
REFUSALS = (ValueError, TypeError)


class Run(NamedTuple):
    """The tensors that a call returned, the gradients of what it was given, the sentence by which it refused, and its
    costs on the GPU."""

    outputs: list[Tensor]
    gradients: list[Tensor]
    refusal: str
    observation: Observation


def run(module: nn.Module, call: Call, device: str, training: bool) -> Run:
    """The call, and in training the gradients of its floating outputs."""
    given: list[Tensor] = []

    def place(t: Tensor) -> Tensor:
        operations = observation.operations
        moved = t.to(device).requires_grad_(training and t.is_floating_point())
        observation.operations = operations  # the copy is not part of the call
        given.append(moved)
        return moved

    torch.manual_seed(1)
    module = module.to(device).train(training)
    outputs, refusal = [], ""
    with observed() as observation:
        try:
            with torch.set_grad_enabled(training):
                outputs = [t for t in tree_leaves(call(module, place)) if isinstance(t, Tensor)]
        except REFUSALS as error:
            refusal = str(error).replace("cuda:0", "cpu")
        total = [t.float().sum() for t in outputs if t.requires_grad]
        if total:
            sum(total).backward()
    for t in outputs:
        assert t.device.type == device, f"an output is on {t.device}"
    gradients = [t.grad for t in (*given, *module.parameters()) if t.grad is not None]
    return Run([t.detach() for t in outputs], gradients, refusal, observation)


def compare(build: Callable[[], nn.Module], call: Call, training: bool = True, tolerance: float = 1e-4) -> Observation:
    """Runs the call on both devices, whose results differ by at most the tolerance; the costs of that on the GPU."""
    torch.manual_seed(0)
    module = build()
    expected = run(copy.deepcopy(module), call, "cpu", training)
    actual = run(module, call, "cuda", training)
    assert actual.refusal == expected.refusal
    numbers = tree_map_only(Tensor, lambda t: t.cpu(), (actual.outputs, actual.gradients))
    torch.testing.assert_close(numbers, expected[:2], rtol=tolerance, atol=tolerance, equal_nan=True)
    return actual.observation
