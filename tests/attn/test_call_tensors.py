"""Terms of other authors train on long inputs as on short ones, wherever they hold their tensors; or an error says why
not.
"""

import functools
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from tests.for_each import for_each
from torch import Tensor, nn
from torch.nn.utils import prune

import regard
from regard.attn.call_tensors import put_tensors, take_tensors


def matrix() -> nn.Parameter:
    return nn.Parameter(torch.randn(4, 4, dtype=torch.float64))


class Product(regard.Score):
    """(q W)ᵀ k with W = matrix()."""

    def matrix(self) -> Tensor:
        raise NotImplementedError

    def compare(self, queries: Tensor, keys: Tensor) -> Tensor:
        return queries @ self.matrix() @ keys.transpose(-1, -2)


class _InMethod(Product):
    def __init__(self) -> None:
        super().__init__()
        self.w = matrix()
        self.matrix = self._matrix  # type: ignore[method-assign]

    def _matrix(self) -> Tensor:
        return self.w


class _InPartial(Product):
    def __init__(self) -> None:
        super().__init__()
        self.matrix = functools.partial(torch.mul, matrix(), 2.0)  # type: ignore[method-assign]


class _InSlot(Product):
    __slots__ = ("w",)

    def __init__(self) -> None:
        super().__init__()
        object.__setattr__(self, "w", matrix())

    def matrix(self) -> Tensor:
        return self.w  # type: ignore[return-value]


class _InDefaultDict(Product):
    def __init__(self) -> None:
        super().__init__()
        self.held = defaultdict(matrix, w=matrix())

    def matrix(self) -> Tensor:
        return self.held["w"]


class _InCycle(Product):
    def __init__(self) -> None:
        super().__init__()
        self.held: list[object] = [self, matrix()]
        self.held.append(self.held)

    def matrix(self) -> Tensor:
        return self.held[1]  # type: ignore[return-value]


@dataclass(eq=False)
class _OfDataclass(Product):
    width: int = 4

    def __post_init__(self) -> None:
        super().__init__()
        self.w = matrix()

    def matrix(self) -> Tensor:
        return self.w


class _Compiled(Product):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4, bias=False, dtype=torch.float64)
        self.linear.compile(backend="eager")

    def matrix(self) -> Tensor:
        return self.linear(torch.eye(4, dtype=torch.float64))


class _InClosure(Product):
    def __init__(self) -> None:
        super().__init__()
        w = matrix()
        self.matrix = lambda: w  # type: ignore[method-assign]


class _Scripted(Product):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.jit.script(nn.Linear(4, 4, bias=False, dtype=torch.float64))

    def matrix(self) -> Tensor:
        return self.linear(torch.eye(4, dtype=torch.float64))


def gradients(score: Product, backend: str) -> tuple[Tensor, ...]:
    q = torch.randn(2, 40, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    out = regard.attention(q, q, score=score, mask=regard.Window(8, 0), backend=backend)
    wanted: list[Tensor] = []
    stack = [score.matrix().grad_fn or score.matrix()]
    while stack:
        node = stack.pop()
        if isinstance(node, Tensor) or hasattr(node, "variable"):
            wanted.append(node if isinstance(node, Tensor) else node.variable)
        else:
            stack += [following for following, _ in node.next_functions if following is not None]
    return torch.autograd.grad(out.square().sum(), [q, *wanted])


@for_each("kind", [_InMethod, _InPartial, _InSlot, _InDefaultDict, _InCycle, _OfDataclass, _Compiled])
def test_tensors_are_found(kind: Callable[[], Product]) -> None:
    score = kind()
    for got, want in zip(gradients(score, "blocked"), gradients(score, "eager"), strict=True):
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize("kind", [_InClosure, _Scripted])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_gradient_that_would_be_lost_raises(kind: Callable[[], Product]) -> None:
    score, q = kind(), torch.randn(2, 40, 4, dtype=torch.float64)
    with pytest.raises(RuntimeError, match=r"one of _\w+, Softmax, WeightedSum computes with a trained tensor that is"):
        regard.attention(q, q, score=score, backend="blocked")
    with torch.no_grad():
        got = regard.attention(q, q, score=score, backend="blocked")
    torch.testing.assert_close(got, regard.attention(q, q, score=score, backend="eager"))


def test_a_pruned_layer_trains_for_several_steps() -> None:
    class Pruned(Product):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4, bias=False, dtype=torch.float64)
            prune.random_unstructured(self.linear, "weight", 0.5)

        def matrix(self) -> Tensor:
            return self.linear(torch.eye(4, dtype=torch.float64))

    score = Pruned()
    for _ in range(2):
        for got, want in zip(gradients(score, "blocked"), gradients(score, "eager"), strict=True):
            torch.testing.assert_close(got, want)


def test_what_holds_no_tensor_stays() -> None:
    shape = torch.Size([2, 3])
    template, tensors = take_tensors([shape, torch.ones(2)])
    assert put_tensors(template, tensors)[0] is shape
