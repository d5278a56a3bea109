"""The plan of a model's modules: kept while the tree stays, made again when it changes, gone with the model."""

import copy
import gc
import pickle
import weakref
from concurrent.futures import ThreadPoolExecutor

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


@pytest.mark.parametrize("change", ["replaced", "appended", "renamed", "moved", "of another type"])
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
    elif change == "moved":
        # breadth first, the modules and their names are the same before and after
        model.layers = nn.ModuleList([nn.Sequential(Attends()), nn.Sequential()])
        model.layers[1].add_module("1", Attends())
        assert names(model) == ["layers.0.0", "layers.1.1"]
        first = plan_of(model)
        model.layers[0].add_module("1", model.layers[1]._modules.pop("1"))
        expected = ["layers.0.0", "layers.0.1"]
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


@pytest.mark.parametrize("has_back_reference", [False, True])
def test_a_plan_ends_with_its_model(has_back_reference: bool) -> None:
    model = Stack()
    if has_back_reference:
        model.layers[0].whole = [model]
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


def test_certificates_are_of_the_recorded_pass_whoever_reads_them() -> None:
    """Weights and inputs that change afterwards, copies and threads get the numbers of a reading at once."""
    torch.manual_seed(1)
    model, x = nn.MultiheadAttention(8, 2, batch_first=True).eval(), torch.randn(2, 5, 8)
    with torch.no_grad(), regard.record(model) as recording:
        for _ in range(20):
            model(x, x, x)
    with torch.no_grad(), regard.record(model) as at_once:
        model(x, x, x)
        expected = at_once[0].certificate
    with torch.no_grad():
        x.add_(1.0)
        for parameter in model.parameters():
            parameter.mul_(3.0)
    copies = [copy.deepcopy(recording), pickle.loads(pickle.dumps(recording))]
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda each: each.certificate, recording))
    assert len(found) == 20
    for certificates in (found, *([each.certificate for each in other] for other in copies)):
        assert certificates == pytest.approx([expected] * 20, abs=1e-6)
    assert all(each.verified for each in recording)
