"""The sparse normalizers as custom operators; see additive/custom_ops.py."""

from typing import Any

import torch
from torch import Tensor

from regard.kernels.operators import operator
from regard.kernels.sparsemax import compute, plain
from regard.kernels.sparsemax.autograd import EntmaxFunction, threshold_gradient

sparse = operator(
    "sparse",
    "(Tensor scores, Tensor? allowed, bool squared, bool? native) -> (Tensor, Tensor)",
    compute.sparse_forward,
    lambda scores, *_: (scores.new_empty(scores.shape), scores.new_empty(scores.shape[:-1])),
)
sparse_backward = operator(
    "sparse_backward",
    "(Tensor weights, Tensor grad, bool squared, bool? native) -> Tensor",
    compute.sparse_backward,
    lambda weights, *_: weights.new_empty(weights.shape),
)


@torch.library.custom_op("regard::entmax", mutates_args=())
def entmax(scores: Tensor, alpha: Tensor, allowed: Tensor | None) -> Tensor:
    return plain.entmax_forward(scores, alpha, allowed).contiguous()


@entmax.register_fake
def _(scores: Tensor, alpha: Tensor, allowed: Tensor | None) -> Tensor:
    shapes = [x.shape for x in (scores, alpha, allowed) if x is not None]
    return scores.new_empty(torch.broadcast_shapes(*shapes))


def _save_sparse(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(output[0])
    ctx.squared, ctx.native = inputs[2:]


def _sparse_gradient(ctx: Any, grad: Tensor, grad_tau: Tensor) -> tuple[Tensor | None, ...]:
    (weights,) = ctx.saved_tensors
    total = sparse_backward(weights, grad, ctx.squared, ctx.native)
    return total + threshold_gradient(weights, 1.5 if ctx.squared else 2.0, grad_tau), None, None, None


def _save_entmax(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(output, inputs[1])
    ctx.shape = inputs[0].shape


sparse.register_autograd(_sparse_gradient, setup_context=_save_sparse)
entmax.register_autograd(EntmaxFunction.backward, setup_context=_save_entmax)
