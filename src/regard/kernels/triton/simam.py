"""SimAM by the kernels of simam_kernels.py, as a custom operator; see kernels/feature_maps."""

import torch
from torch import Tensor

from regard.kernels.operators import declare, register_gradient
from regard.kernels.triton import simam_kernels as kernels
from regard.kernels.triton.configs import SIMAM_BLOCK, SIMAM_WARPS
from regard.kernels.triton.launch import launch


def simam(x: Tensor, lam: float) -> Tensor:
    """x σ(d²/(4(v + λ)) + 1/2), d = x − mean over positions, v = Σd²/(n − 1): "b c *s" -> "b c *s"."""
    return _simam(x, lam)


def _forward(x: Tensor, lam: float) -> Tensor:
    x = x.contiguous()
    out = torch.empty_like(x)
    if x.numel():
        positions = x.shape[2:].numel()
        launch(kernels.forward, (x.shape[0], x.shape[1], 1), SIMAM_WARPS, x, out, positions, lam, BLOCK=SIMAM_BLOCK)
    return out


def _backward(x: Tensor, grad: Tensor, lam: float) -> Tensor:
    x, grad = x.contiguous(), grad.contiguous()
    out = torch.empty_like(x)
    if x.numel():
        positions = x.shape[2:].numel()
        rows = (x.shape[0], x.shape[1], 1)
        launch(kernels.backward, rows, SIMAM_WARPS, x, grad, out, positions, lam, BLOCK=SIMAM_BLOCK)
    return out


_simam = declare("triton_simam", "(Tensor x, float lam) -> Tensor", _forward, lambda x, _: x.new_empty(x.shape))
_simam_backward = declare(
    "triton_simam_backward",
    "(Tensor x, Tensor grad, float lam) -> Tensor",
    _backward,
    lambda x, *_: x.new_empty(x.shape),
)
register_gradient(_simam, lambda *arguments: (_simam_backward(*arguments),), 1, slice(0), (0,))
