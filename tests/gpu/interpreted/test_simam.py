"""SimAM's kernel in the interpreter."""

import pytest
import torch

from regard.gates import SimAM
from regard.kernels.triton import simam


@pytest.mark.parametrize("shape", [(2, 3, 5, 7), (1, 2, 1, 1), (2, 2, 37, 41), (1, 3, 11), (0, 3, 4, 4)])
def test_output_and_gradient(shape: tuple[int, ...]) -> None:
    x, grad = torch.randn(shape), torch.randn(shape)
    results = []
    for gate, dtype in ((SimAM(0.01, backend="triton"), torch.float32), (SimAM(0.01), torch.float64)):
        leaf = x.to(dtype).requires_grad_()
        out = gate(leaf)
        results.append((out.detach().double(), torch.autograd.grad(out, leaf, grad.to(dtype))[0].double()))
    torch.testing.assert_close(*results, rtol=1e-5, atol=1e-5)


def test_half_types_strides_and_compiled_code() -> None:
    gate, plain = SimAM(backend="triton"), SimAM()
    x = torch.randn(2, 5, 7, 3).permute(0, 3, 1, 2)
    torch.testing.assert_close(gate(x), plain(x))
    torch.testing.assert_close(gate(x.bfloat16()), plain(x.bfloat16()))
    torch.testing.assert_close(torch.compile(gate, fullgraph=True, backend="aot_eager")(x), plain(x))
    utils = ("test_schema", "test_autograd_registration", "test_faketensor")
    torch.library.opcheck(simam._simam, (x.clone().requires_grad_(), 0.1), test_utils=utils)


def test_float64_is_refused() -> None:
    with pytest.raises(ValueError, match="backend 'triton' computes in float32, the map is float64"):
        SimAM(backend="triton")(torch.randn(1, 2, 3, 3, dtype=torch.float64))


def test_transforms_are_refused() -> None:
    """Its operator has no rule for them, and would have a derivative of zero in forward mode."""
    gate, x = SimAM(backend="triton"), torch.randn(1, 2, 3, 3)
    for transform in (
        lambda: torch.func.jvp(gate, (x,), (x,)),
        lambda: torch.func.grad(lambda x: gate(x).sum())(x),
        lambda: torch.func.vmap(gate)(x[None]),
    ):
        with pytest.raises(ValueError, match=r"torch\.func cannot look into its kernels; leave backend out"):
            transform()
    with torch.autograd.forward_ad.dual_level(), pytest.raises(ValueError, match=r"torch\.func cannot look into"):
        gate(torch.autograd.forward_ad.make_dual(x, x))
