"""A tensor that changes between forward and backward gives the right gradient or an error, never a wrong gradient."""

import random
from typing import Any

import pytest
import torch
from tests.attn.backends.cases import FAST, SOFT, Case, Sizes, close, compared, leaves, tensors
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils.checkpoint import checkpoint

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
    for backend in compared(*tensors(S), **case.terms(S)):
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


IN_BLOCKS = pytest.mark.parametrize(
    ("backend", "normalize"), [("flash", regard.Softmax()), ("blocked", regard.Sparsemax())]
)


@IN_BLOCKS
@pytest.mark.parametrize("name", MASKS)
def test_a_mask_that_is_read_again_in_backward_raises(name: str, backend: str, normalize: regard.Normalizer) -> None:
    numbers, mask = MASKS[name]
    numbers, q = numbers.clone(), torch.randn(2, 3, 64, 8, requires_grad=True)
    out = regard.attention(q, q, mask=mask(numbers), normalize=normalize, backend=backend)
    numbers -= 20
    with pytest.raises(RuntimeError, match=CHANGED):
        out.sum().backward()


@IN_BLOCKS
@pytest.mark.parametrize("of_keys", [False, True])
def test_positions_that_are_read_again_in_backward_raise(
    of_keys: bool, backend: str, normalize: regard.Normalizer
) -> None:
    positions, q = (torch.arange(64), torch.arange(64)), torch.randn(2, 3, 64, 8, requires_grad=True)
    terms = {"bias": regard.ALiBi(3), "mask": regard.Window(8, 0), "normalize": normalize}
    out = regard.attention(q, q, **terms, positions=positions, backend=backend)
    positions[of_keys].add_(3)
    with pytest.raises(RuntimeError, match=CHANGED):
        out.sum().backward()


def windowed(
    x: Tensor, backend: str, normalize: regard.Normalizer, storages: list[StorageWeakRef], dropout: float = 0.0
) -> Tensor:
    """A layer whose projected tensors nothing else holds."""
    q, k, v = x * 1, x * 2, x * 3
    storages += [StorageWeakRef(t.untyped_storage()) for t in (q, k, v)]
    mask = regard.Window(8, 0)
    return regard.attention(q, k, v, mask=mask, normalize=normalize, dropout=dropout, backend=backend)


@IN_BLOCKS
@pytest.mark.parametrize("reentrant", [False, True])
def test_a_checkpoint_holds_its_input_alone(backend: str, normalize: regard.Normalizer, reentrant: bool) -> None:
    x = torch.randn(1, 2, 64, 8, requires_grad=True)
    dropout, storages = 0.0 if backend == "flash" else 0.4, []
    torch.manual_seed(5)
    (want,) = torch.autograd.grad(windowed(x, backend, normalize, [], dropout).square().sum(), x)
    torch.manual_seed(5)
    out = checkpoint(windowed, x, backend, normalize, storages, dropout, use_reentrant=reentrant)
    assert len(storages) == 3
    assert all(storage.expired() for storage in storages)
    out.square().sum().backward()
    torch.testing.assert_close(x.grad, want)


@IN_BLOCKS
def test_saved_tensors_that_are_moved_elsewhere_are_freed(backend: str, normalize: regard.Normalizer) -> None:
    x, storages = torch.randn(1, 2, 64, 8, requires_grad=True), []
    (want,) = torch.autograd.grad(windowed(x, backend, normalize, []).square().sum(), x)
    # as torch.autograd.graph.save_on_cpu does with tensors of a GPU
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.detach().clone().numpy(), torch.from_numpy):
        out = windowed(x, backend, normalize, storages)
    assert all(storage.expired() for storage in storages)
    (got,) = torch.autograd.grad(out.square().sum(), x)
    torch.testing.assert_close(got, want)


@IN_BLOCKS
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
