"""A MultiHead that torch splits over two processes gives the numbers of one process, or a sentence."""

import tempfile
from pathlib import Path

import pytest
import torch
import torch.multiprocessing as processes
from torch import Tensor, nn
from torch.distributed import destroy_process_group, init_device_mesh, init_process_group
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import regard

PLAN = {"query": ColwiseParallel, "key": ColwiseParallel, "value": ColwiseParallel, "out": RowwiseParallel}
LAYERS = {
    "plain": lambda: regard.MultiHead(16, 4),
    "grouped": lambda: regard.MultiHead(16, 4, kv_heads=2, rotate=regard.Rotary(4)),
    "values": lambda: regard.MultiHead(16, 4, head_value_dim=3),
}
REFUSED = {
    "alibi": lambda: regard.MultiHead(16, 4, attention=regard.Attention(bias=regard.ALiBi(4))),
    "t5": lambda: regard.MultiHead(16, 4, attention=regard.Attention(bias=regard.T5Buckets(4))),
    "relative": lambda: regard.MultiHead(16, 4, attention=regard.Attention(bias=regard.RelativeXL(16, 4, 4))),
    "one key head": lambda: regard.MultiHead(16, 4, kv_heads=1),
    "layers": lambda: regard.MultiHead(16, 4, attention=[regard.Attention() for _ in range(4)]),
}


def results(heads: nn.Module, x: Tensor) -> list[Tensor]:
    x = x.clone().requires_grad_()
    out = heads(x, mask=regard.Causal())
    return [out.detach(), *torch.autograd.grad(out.square().sum(), x)]


def work(rank: int, folder: str) -> None:
    init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    mesh = init_device_mesh("cpu", (2,))
    x = torch.linspace(-1, 1, 2 * 5 * 16).sin().view(2, 5, 16)
    for make in (*LAYERS.values(), *REFUSED.values()):
        torch.manual_seed(0)
        heads = make()
        want = results(heads, x)
        parallel = parallelize_module(heads, mesh, {name: style() for name, style in PLAN.items()})
        if make in REFUSED.values():
            with pytest.raises(ValueError, match="heads"):
                parallel(x)
        else:
            for got, expected in zip(results(parallel, x), want, strict=True):
                torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)
    # keys and values whole on every process: query head n would read key head n, not that of its group
    for kv_heads in (1, 2, 4):
        heads = regard.MultiHead(16, 4, kv_heads=kv_heads)
        part = {name: style() for name, style in PLAN.items() if name in ("query", "out")}
        with pytest.raises(ValueError, match=f"has 2 of 4 query heads, but {kv_heads} of {kv_heads} key heads; split"):
            parallelize_module(heads, mesh, part)(x)
    Path(folder, f"done {rank}").touch()
    destroy_process_group()


def test_two_processes() -> None:
    with tempfile.TemporaryDirectory() as folder:
        processes.spawn(work, (folder,), nprocs=2)
        assert len(list(Path(folder).glob("done *"))) == 2
