"""A tensor that changes between forward and backward gives the right gradient or an error, never a wrong gradient."""

import random
from typing import Any

import pytest
import torch
from tests.attn.backends.cases import FAST, SOFT, Case, Sizes, close, leaves, tensors, willing
from torch import Tensor

import regard
from regard.attn.call_tensors import take_tensors

S = Sizes(b=2, h=3, q=5, k=5, d=4, v=7)
CASES = SOFT + FAST
SAMPLE = random.Random(0).sample(CASES, 40)
CHANGED = "modified by an inplace operation"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "case" in metafunc.fixturenames:
        metafunc.parametrize("case", CASES if metafunc.config.getoption("--whole") else SAMPLE, ids=str)


def change(t: Tensor) -> None:
    with torch.no_grad():
        t.logical_not_() if t.dtype == torch.bool else t.add_(1)


def gradients(case: Case, backend: str, changed: int | None) -> tuple[list[Tensor | None], int]:
    """The gradients of all inputs and parameters after tensor number `changed` changed, and the number of tensors."""
    terms, inputs = case.terms(S), tensors(S)
    trained = [*inputs, *leaves(terms).values()]
    out = regard.attention(*inputs, **terms, backend=backend)
    held: list[Tensor] = take_tensors([inputs, *terms.values()])[1]
    if changed is not None:
        change(held[changed])
    return list(torch.autograd.grad(out.square().sum(), trained, allow_unused=True)), len(held)


def test_every_tensor_of_a_call(case: Case) -> None:
    for backend in willing(*tensors(S), **case.terms(S)):
        want, count = gradients(case, backend, None)
        for number in range(count):
            try:
                got, _ = gradients(case, backend, number)
            except RuntimeError as error:
                assert CHANGED in str(error)  # noqa: PT017  either outcome is right
                continue
            for a, b in zip(got, want, strict=True):
                if b is not None:
                    close(a, b, f"{backend}, tensor {number}")


MASKS: dict[str, Any] = {
    "lengths": (torch.tensor([60, 40]), regard.Lengths),
    "prefix": (torch.tensor([50, 30]), regard.Prefix),
    "documents": (torch.arange(64) // 9 * torch.ones(2, 1, dtype=torch.long), regard.Documents),
    "causal-lengths": (torch.tensor([60, 40]), lambda t: regard.Lengths(t) & regard.Causal()),
}


@pytest.mark.parametrize(("backend", "normalize"), [("flash", regard.Softmax()), ("blocked", regard.Sparsemax())])
@pytest.mark.parametrize("name", MASKS)
def test_a_mask_that_is_read_again_in_backward_raises(name: str, backend: str, normalize: regard.Normalizer) -> None:
    numbers, mask = MASKS[name]
    numbers, q = numbers.clone(), torch.randn(2, 3, 64, 8, requires_grad=True)
    out = regard.attention(q, q, mask=mask(numbers), normalize=normalize, backend=backend)
    numbers -= 20
    with pytest.raises(RuntimeError, match=CHANGED):
        out.sum().backward()


@pytest.mark.parametrize(("backend", "normalize"), [("flash", regard.Softmax()), ("blocked", regard.Sparsemax())])
def test_checkpointing_frees_what_blocks_would_keep(backend: str, normalize: regard.Normalizer) -> None:
    """Saved tensors alone keep the keys, so that hooks of checkpointing and offloading see all of them."""
    q, packed = torch.randn(1, 2, 64, 8, requires_grad=True), []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t) or len(packed) - 1, packed.__getitem__):
        out = regard.attention(q * 1, q * 2, q * 3, mask=regard.Window(8, 0), normalize=normalize, backend=backend)
    node: Any = out.grad_fn
    while not hasattr(node, "rest"):
        node = node.next_functions[0][0]
    assert take_tensors(node.rest)[1] == []
    out.sum().backward()
    assert q.grad is not None
