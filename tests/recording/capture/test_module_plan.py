"""The plan of a model's modules: kept while the tree stays, made again when it changes, gone with the model."""

import gc
import weakref

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import regard
from regard.recording.capture.module_plan import plan_of


class Attends(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(x, x, x)


class Stack(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Attends(), Attends()])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def names(model: nn.Module) -> list[str]:
    with torch.no_grad(), regard.record(model) as recording:
        model(torch.randn(2, 3, 5, 7))
    return [each.name for each in recording]


def test_a_plan_is_kept_while_the_tree_stays() -> None:
    model = Stack()
    first = plan_of(model)
    assert names(model) == ["layers.0", "layers.1"]
    assert plan_of(model) is first


@pytest.mark.parametrize("change", ["replaced", "appended", "renamed", "of another type"])
def test_a_change_of_the_tree_makes_another_plan(change: str) -> None:
    model = Stack()
    assert names(model) == ["layers.0", "layers.1"]
    first = plan_of(model)
    expected = ["layers.0", "layers.1"]
    if change == "replaced":
        model.layers[1] = Attends()
    elif change == "appended":
        model.layers.append(Attends())
        expected.append("layers.2")
    elif change == "renamed":
        model.layers._modules = {"a": model.layers[0], "b": model.layers[1]}
        expected = ["layers.a", "layers.b"]
    else:
        model.layers[0].__class__ = type("Other", (Attends,), {})
    assert names(model) == expected
    assert plan_of(model) is not first


def test_hooks_of_a_block_leave_nothing_behind() -> None:
    model = Stack()
    names(model)
    with pytest.raises(RuntimeError, match="early"), regard.record(model):
        raise RuntimeError("early")
    for module in model.modules():
        assert not module._forward_hooks
        assert not module._forward_pre_hooks
        assert not module._forward_hooks_always_called
        assert not module._forward_pre_hooks_with_kwargs


def test_a_plan_ends_with_its_model() -> None:
    model = Stack()
    names(model)
    end = weakref.ref(model)
    del model
    gc.collect()
    assert end() is None


def test_certificates_are_computed_when_they_are_read() -> None:
    model = Stack()
    with torch.no_grad(), regard.record(model) as recording:
        model(torch.randn(2, 3, 5, 7))
    assert all(callable(each.__dict__["certificate"]) for each in recording)
    assert recording[0].verified
    # a second pass numbers its maps without reading their certificates
    with torch.no_grad(), regard.record(model) as twice:
        for _ in range(2):
            model(torch.randn(2, 3, 5, 7))
    assert [each.call for each in twice] == [0, 0, 1, 1]
    assert all(callable(each.__dict__["tolerance"]) for each in twice)
    assert all(each.verified for each in twice)
