"""The additive kernels as custom operators, for torch.compile, torch.export and dispatch modes.

Imported when one of these traces its first call: registration takes milliseconds that `import regard` must not spend.
Whether the native library is used is decided when the operator runs, not when it is traced.
"""

import torch
from torch import Tensor

from regard.kernels.additive import compute
from regard.kernels.native_library import resolve_native
from regard.kernels.operators import like_inputs, register_gradient


@torch.library.custom_op("regard::additive_scores", mutates_args=())
def scores(a: Tensor, b: Tensor, w: Tensor, native: bool | None) -> Tensor:
    return compute.scores_forward(a, b, w, resolve_native(native, a, b, w))


@scores.register_fake
def _(a: Tensor, b: Tensor, w: Tensor, native: bool | None) -> Tensor:
    return a.new_empty(a.shape[0], a.shape[1], b.shape[1])


@torch.library.custom_op("regard::additive_scores_backward", mutates_args=())
def scores_backward(
    a: Tensor, b: Tensor, w: Tensor, grad: Tensor, native: bool | None
) -> tuple[Tensor, Tensor, Tensor]:
    return compute.scores_backward(a, b, w, grad, resolve_native(native, a, b, w))


scores_backward.register_fake(like_inputs(0, 1, 2))


@torch.library.custom_op("regard::additive_weights", mutates_args=())
def weights(a: Tensor, b: Tensor, w: Tensor, allowed: Tensor | None, native: bool | None) -> tuple[Tensor, Tensor]:
    return compute.weights_forward(a, b, w, allowed, resolve_native(native, a, b, w))


@weights.register_fake
def _(a: Tensor, b: Tensor, w: Tensor, allowed: Tensor | None, native: bool | None) -> tuple[Tensor, Tensor]:
    return a.new_empty(a.shape[0], a.shape[1], b.shape[1]), a.new_empty(a.shape[0], a.shape[1])


@torch.library.custom_op("regard::additive_weights_backward", mutates_args=())
def weights_backward(
    a: Tensor, b: Tensor, w: Tensor, out: Tensor, grad: Tensor, grad_lse: Tensor, native: bool | None
) -> tuple[Tensor, Tensor, Tensor]:
    return compute.weights_backward(a, b, w, out, grad, grad_lse, resolve_native(native, a, b, w))


weights_backward.register_fake(like_inputs(0, 1, 2))


@torch.library.custom_op("regard::additive_attend", mutates_args=())
def attend(
    a: Tensor, b: Tensor, w: Tensor, v: Tensor, allowed: Tensor | None, native: bool | None
) -> tuple[Tensor, Tensor]:
    return compute.attend_forward(a, b, w, v, allowed, resolve_native(native, a, b, w, v))


@attend.register_fake
def _(a: Tensor, b: Tensor, w: Tensor, v: Tensor, allowed: Tensor | None, native: bool | None) -> tuple[Tensor, Tensor]:
    return v.new_empty(a.shape[0], a.shape[1], v.shape[2]), a.new_empty(a.shape[0], a.shape[1])


@torch.library.custom_op("regard::additive_attend_backward", mutates_args=())
def attend_backward(
    a: Tensor,
    b: Tensor,
    w: Tensor,
    v: Tensor,
    allowed: Tensor | None,
    grad: Tensor,
    grad_lse: Tensor,
    native: bool | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return compute.attend_backward(a, b, w, v, allowed, grad, grad_lse, resolve_native(native, a, b, w, v))


attend_backward.register_fake(like_inputs(0, 1, 2, 3))


register_gradient(scores, scores_backward, 3, slice(0), (0, 1, 2))
register_gradient(weights, weights_backward, 3, slice(1), (0, 1, 2))
register_gradient(attend, attend_backward, 5, slice(0), (0, 1, 2, 3))
