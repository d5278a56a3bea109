"""The chain as custom operators; see additive/custom_ops.py."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.kernels.crf import compute
from regard.kernels.crf.plain import Chain
from regard.kernels.operators import like_inputs, operator, register_gradient

_CHAIN = "Tensor emissions, Tensor? tags, Tensor? mask, Tensor transitions, Tensor start, Tensor end"
_FOUR = "(Tensor, Tensor, Tensor, Tensor)"


def _nll(*arguments: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    *inputs, runs_native = arguments
    emissions = inputs[0]
    out, (alpha, other, state) = compute.forward(Chain(*inputs), runs_native)
    if runs_native:
        return out, alpha, other, state
    if alpha.dtype != emissions.dtype:
        # an operator returns one dtype: the backward pass computes these sequences again
        alpha, state = alpha[..., :0].to(emissions.dtype), torch.full_like(state, compute.LOGS)
        other = alpha
    # whether the operator runs native is not known when it is traced, so both forms return the same shapes
    pad = (0, compute.room(emissions.shape[-1]) - alpha.shape[-1])
    return out, F.pad(alpha, pad).contiguous(), F.pad(other, pad).contiguous(), state


def _nll_shapes(emissions: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    b, t, k = emissions.shape
    row = emissions.new_empty(b, t, compute.room(k))
    return emissions.new_empty(b), row, torch.empty_like(row), emissions.new_empty(b, dtype=torch.uint8)


def _nll_backward(*arguments: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    chain, messages, (grad, runs_native) = Chain(*arguments[:6]), compute.Messages(*arguments[6:9]), arguments[9:]
    emission_grad, *others = compute.backward(chain, messages, grad, runs_native)
    return emission_grad.contiguous(), others[0].clone(), others[1].clone(), others[2].clone()


nll = operator("crf_nll", f"({_CHAIN}, bool? native) -> {_FOUR}", _nll, _nll_shapes)
nll_backward = operator(
    "crf_nll_backward",
    f"({_CHAIN}, Tensor alpha, Tensor other, Tensor state, Tensor grad, bool? native) -> {_FOUR}",
    _nll_backward,
    like_inputs(0, 3, 4, 5),
)


def _gradient(*arguments: Any) -> Any:
    """`nll_backward`; the messages, which `nll` returns beside its result, have no gradient."""
    *saved, grad, _, _, _, native = arguments
    return nll_backward(*saved, grad, native)


register_gradient(nll, _gradient, 6, slice(1, None), (0, 3, 4, 5))
