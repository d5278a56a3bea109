"""Each kind of fault that the other tests look for is noticed."""

import copy
from pathlib import Path

import pytest
import torch
from tests.gpu.pretend_cuda import CudaTensor, Observation, observed
from tests.gpu.tables import Table
from torch import Tensor, nn


class Scale(nn.Module):
    """x times a weight; a subclass has a fault."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(6))
        self.left_behind = torch.ones(6)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight


def test_a_tensor_left_on_the_cpu_is_noticed() -> None:
    layer, x = Scale().to("cuda"), torch.randn(3, 6, device="cuda")
    for other in (layer.left_behind, torch.arange(6), torch.ones(6, device="cpu")):
        with pytest.raises(RuntimeError, match="of cuda:0 and one of cpu, of shape"):
            layer(x) + other
    with pytest.raises(RuntimeError, match="stack.default takes tensors of cuda:0 and one of cpu"):
        torch.stack([x.sum(), torch.ones(())])
    assert (layer(x) + torch.ones(())).device.type == "cuda"


def test_a_tensor_left_on_the_cpu_is_noticed_in_backward() -> None:
    class Faulty(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: Tensor) -> Tensor:
            return 2 * x

        @staticmethod
        def backward(ctx: object, grad: Tensor) -> Tensor:
            return grad * torch.full((6,), 2.0)

    x = torch.randn(3, 6, device="cuda", requires_grad=True)
    with pytest.raises(RuntimeError, match="of cuda:0 and one of cpu"):
        Faulty.apply(x).sum().backward()


def test_an_address_is_noticed() -> None:
    x = torch.randn(3, 6, device="cuda")
    with pytest.raises(RuntimeError, match="address of a tensor on a GPU"):
        x.data_ptr()
    with pytest.raises(RuntimeError, match="not supported"):
        x.numpy()


def test_reads_are_counted() -> None:
    x = torch.randn(3, 6, device="cuda")
    counts = {}
    for name, call in {
        "item": lambda: x[0, 0].item(),
        "bool": lambda: bool((x > 0).any()),
        "list": lambda: x.tolist(),
        "cpu": lambda: x.cpu(),
        "nonzero": lambda: x.nonzero(),
        "index": lambda: x[x > 0],
        "written": lambda: x[:, x[0] > 5].fill_(1.0),
        "filled": lambda: x.masked_fill_(x > 0, 1.0),
        "equal": lambda: torch.equal(x, x),
        "none": lambda: x @ x.T,
    }.items():
        with observed() as observation:
            call()
        counts[name] = observation.reads.total()
    assert counts == {**dict.fromkeys(counts, 1), "filled": 0, "none": 0}


def test_operations_are_counted() -> None:
    x = torch.randn(3, 5, 6, device="cuda", requires_grad=True)
    with observed() as observation:
        (x.transpose(-1, -2)[None] * 2 + 1).sum()
    assert observation == Observation(3)
    with observed() as observation:
        out = nn.functional.scaled_dot_product_attention(x, x, x)
        assert observation.operations == 1
        out.backward(torch.ones_like(out))
    # a kernel, ones, its gradient, and the sum of the gradients of queries, keys and values
    assert observation.operations == 1 + 1 + 1 + 2


def test_numbers_are_those_of_the_cpu() -> None:
    layers = [nn.LSTM(5, 7, batch_first=True), nn.GRU(5, 7, bidirectional=True), nn.Conv1d(3, 2, 2), nn.Linear(5, 3)]
    for layer in layers:
        x = torch.randn(4, 3, 5)
        # the layers of another device are other ones: a graph holds the weights that it was made with
        out, moved = layer(x), copy.deepcopy(layer).to("cuda")(x.to("cuda"))
        out, moved = (t[0] if isinstance(t, tuple) else t for t in (out, moved))
        assert isinstance(moved, CudaTensor)
        torch.testing.assert_close(moved.cpu(), out)


def test_a_table_may_only_fall_and_is_never_stale(tmp_path: Path) -> None:
    path = tmp_path / "reads.txt"
    path.write_text("# a heading\nsix, training  6\na step of tag+slow  5\n")
    table = Table(path, "a heading", is_written=False)
    table.compare({"six, training": 6, "none": 0})
    for numbers, sentence in (
        ({"six, training": 7}, "more than the table allows. six, training: 7, not 6"),
        ({"six, training": 5}, "fewer, which is good. six, training: 5 instead of 6"),
        ({"new": 1}, "not in the table. new: 1"),
    ):
        with pytest.raises(AssertionError, match=sentence):
            table.compare(numbers)
    table.check_names(skipped={"tag+slow"})
    with pytest.raises(AssertionError, match="no test makes these calls: a step of tag\\+slow"):
        table.check_names(skipped=())
    table.seen = {"six, training": 4}
    table.write({"tag+slow"})
    assert path.read_text().split("\n")[1:] == ["a step of tag+slow      5", "six, training           4", ""]
    table.write(())
    assert "slow" not in path.read_text()
