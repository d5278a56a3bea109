"""generator=: dropout and reads that sample are reproducible on every backend, and leave torch's generator alone."""

from collections.abc import Callable

import pytest
import torch
from tests.for_each import for_each
from torch import Tensor

import regard
from regard import Attention, MultiHead
from regard.attn.terms.read import Read

Call = Callable[[Tensor, torch.Generator], Tensor]


def heads(**choices: object) -> Call:
    torch.manual_seed(0)
    layer = MultiHead(12, 3, attention=choices.pop("attention", None), **choices)  # type: ignore[arg-type]
    return lambda x, generator: layer(x, generator=generator)


def function(backend: str | None, read: Read | None, dropout: float) -> Call:
    return lambda x, generator: regard.attention(
        x, x, mask=regard.Causal(), read=read, dropout=dropout, backend=backend, generator=generator
    )


CALLS: dict[str, Call] = {
    f"{backend}, {read}, {dropout}": function(backend, read, dropout)
    for backend in (None, "eager", "blocked")
    for read, dropout in ((None, 0.5), (regard.reads.Sample(), 0.0), (regard.Gumbel(), 0.3))
}
CALLS |= {
    "heads": heads(dropout=0.5),
    "a list": heads(attention=[Attention(dropout=0.5, backend=name) for name in (None, "eager", "blocked")]),
    "sampling": heads(attention=Attention(read=regard.reads.Sample())),
    "additive": heads(attention=Attention(regard.Additive(4, 4, 5), dropout=0.5)),
    "monotonic": lambda x, generator: MONOTONIC(x, x, generator=generator),
}
MONOTONIC = regard.mechanism("monotonic", 12).train()


@for_each("name", CALLS)
def test_a_generator_makes_calls_reproducible(name: str) -> None:
    x, results = torch.randn(2, 7, 12), []
    state = torch.get_rng_state()
    for seed in (1, 1, 2):
        leaf = x.clone().requires_grad_()
        out = CALLS[name](leaf, torch.Generator().manual_seed(seed))
        results.append((out, *torch.autograd.grad(out.square().sum(), leaf)))
    assert torch.equal(torch.get_rng_state(), state)
    for first, second, other in zip(*results, strict=True):
        assert torch.equal(first, second)
        assert not torch.equal(first, other)


def test_a_generator_goes_on() -> None:
    x, generator = torch.randn(2, 7, 12), torch.Generator().manual_seed(1)
    first, second = (regard.attention(x, x, dropout=0.5, generator=generator) for _ in range(2))
    assert not torch.equal(first, second)


def test_kernels_without_a_generator_say_so() -> None:
    x, generator = torch.randn(2, 3, 7, 12), torch.Generator()
    reason = "its kernel samples dropout from torch's own generator, and takes no other"
    assert f"fused    cannot: {reason}" in regard.explain(x, x, dropout=0.5, generator=generator)
    with pytest.raises(ValueError, match=f"backend 'fused' cannot run this: {reason}"):
        regard.attention(x, x, dropout=0.5, backend="fused", generator=generator)
    with pytest.raises(TypeError, match=r"generator must be a Generator.* got 3.*torch.Generator\(\).manual_seed"):
        regard.attention(x, x, dropout=0.5, generator=3)  # type: ignore[arg-type]
