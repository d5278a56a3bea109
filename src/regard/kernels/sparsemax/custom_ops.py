"""The sparse normalizers as custom operators; see additive/custom_ops.py."""

from typing import Any

import torch
from torch import Tensor

from regard.kernels.native_library import resolve_native
from regard.kernels.sparsemax import compute, plain
from regard.kernels.sparsemax.autograd import alpha_gradient, threshold_gradient


@torch.library.custom_op("regard::sparse", mutates_args=())
def sparse(scores: Tensor, allowed: Tensor | None, squared: bool, native: bool | None) -> tuple[Tensor, Tensor]:
    return compute.sparse_forward(scores, allowed, squared, resolve_native(native, scores))


@sparse.register_fake
def _(scores: Tensor, allowed: Tensor | None, squared: bool, native: bool | None) -> tuple[Tensor, Tensor]:
    return scores.new_empty(scores.shape), scores.new_empty(scores.shape[:-1])


@torch.library.custom_op("regard::sparse_backward", mutates_args=())
def sparse_backward(weights: Tensor, grad: Tensor, squared: bool, native: bool | None) -> Tensor:
    return compute.sparse_backward(weights, grad, squared, resolve_native(native, weights))


sparse_backward.register_fake(lambda weights, *_: weights.new_empty(weights.shape))


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


def _entmax_gradient(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    weights, alpha = ctx.saved_tensors
    grad_alpha = alpha_gradient(weights, alpha, grad) if ctx.needs_input_grad[1] else None
    return plain.project(plain.slopes(weights, alpha), grad).sum_to_size(ctx.shape), grad_alpha, None


sparse.register_autograd(_sparse_gradient, setup_context=_save_sparse)
entmax.register_autograd(_entmax_gradient, setup_context=_save_entmax)
