"""Each version of torch that is supported gets what it can run; `make test-torch` runs the core tests with others."""

import tomllib
from pathlib import Path

import pytest
import torch
from torch import nn

import regard
from regard.common import checks
from regard.kernels import torch_versions


def test_versions_are_compared_by_number(monkeypatch: pytest.MonkeyPatch) -> None:
    for installed in ("2.9.0", "2.10.1+cpu", "2.15.0a0+git1a2b3c4", "3.0.0"):
        monkeypatch.setattr(torch, "__version__", installed)
        assert torch_versions.at_least("2.9")
    for installed in ("2.6.0+cu124", "2.8.1"):
        monkeypatch.setattr(torch, "__version__", installed)
        assert not torch_versions.at_least("2.9")


def test_the_oldest_version_is_that_of_the_requirements() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (requirement,) = [line for line in project["dependencies"] if line.startswith("torch")]
    oldest = requirement.removeprefix("torch>=").split(",")[0]
    assert f"regard supports, {oldest} and newer" in (torch_versions.__doc__ or "")
    assert torch_versions.at_least(oldest)


@pytest.mark.parametrize("mask", [None, regard.Causal()], ids=["none", "causal"])
def test_shared_heads_of_an_old_torch_are_repeated(mask: regard.Mask | None, monkeypatch: pytest.MonkeyPatch) -> None:
    q = torch.randn(2, 6, 7, 8, requires_grad=True)
    k, v = torch.randn(2, 3, 7, 8, requires_grad=True), torch.randn(2, 3, 7, 5, requires_grad=True)
    forced = regard.Attention(mask=mask, backend="eager")(q, k, v)
    gradients = torch.autograd.grad(forced.square().sum(), (q, k, v))
    monkeypatch.setattr(torch_versions, "SHARES_HEADS_ON_CPU", False)
    seen = torch_versions.kernel_heads(q, k, v)
    assert [t.shape[1] for t in seen] == [6, 6]
    out = regard.attention(q, k, v, mask=mask)
    torch.testing.assert_close(out, forced)
    torch.testing.assert_close(torch.autograd.grad(out.square().sum(), (q, k, v)), gradients)


def test_first_parameter() -> None:
    layer = nn.Sequential(nn.ReLU(), nn.Linear(2, 3))
    assert checks.first_parameter(layer) is layer[1].weight
    assert checks.first_parameter(layer[0]) is None


def test_biases_of_an_old_torch_have_strides_that_it_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    bias = torch.randn(2, 7, 7, 3).permute(0, 3, 1, 2)
    monkeypatch.setattr(torch_versions, "READS_STRIDES_ON_CPU", False)
    contiguous = torch_versions.kernel_bias(bias)
    assert contiguous.stride(-1) == 1
    assert torch.equal(contiguous, bias)
    assert torch_versions.kernel_bias(contiguous) is contiguous


def test_functions_under_vmap_may_index(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers, index = torch.randn(5), torch.tensor([4, 2])
    want = numbers[index]
    for is_new in (torch_versions.INDEXES_UNDER_VMAP, False):
        monkeypatch.setattr(torch_versions, "INDEXES_UNDER_VMAP", is_new)
        with torch_versions.indexing_under_vmap():
            got = torch.vmap(lambda i: numbers[i])(index)
        assert torch.equal(got, want)
