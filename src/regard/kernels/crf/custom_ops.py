"""The chain as custom operators; see additive/custom_ops.py."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.kernels.crf import compute
from regard.kernels.native_library import resolve_native
from regard.kernels.operators import like_inputs, register_gradient


@torch.library.custom_op("regard::crf_nll", mutates_args=())
def nll(
    emissions: Tensor,
    tags: Tensor | None,
    mask: Tensor | None,
    transitions: Tensor,
    start: Tensor,
    end: Tensor,
    native: bool | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    runs_native = resolve_native(native, emissions, transitions, start, end)
    out, (alpha, other, state) = compute.forward(emissions, tags, mask, transitions, start, end, runs_native)
    if runs_native:
        return out, alpha, other, state
    if alpha.dtype != emissions.dtype:
        # an operator returns one dtype: the backward pass computes these sequences again
        alpha, state = alpha[..., :0].to(emissions.dtype), torch.full_like(state, compute.LOGS)
        other = alpha
    # whether the operator runs native is not known when it is traced, so both forms return the same shapes
    pad = (0, compute.room(emissions.shape[-1]) - alpha.shape[-1])
    return out, F.pad(alpha, pad).contiguous(), F.pad(other, pad).contiguous(), state


@nll.register_fake
def _(
    emissions: Tensor,
    tags: Tensor | None,
    mask: Tensor | None,
    transitions: Tensor,
    start: Tensor,
    end: Tensor,
    native: bool | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    b, t, k = emissions.shape
    row = emissions.new_empty(b, t, compute.room(k))
    return emissions.new_empty(b), row, torch.empty_like(row), emissions.new_empty(b, dtype=torch.uint8)


@torch.library.custom_op("regard::crf_nll_backward", mutates_args=())
def nll_backward(
    emissions: Tensor,
    tags: Tensor | None,
    mask: Tensor | None,
    transitions: Tensor,
    start: Tensor,
    end: Tensor,
    alpha: Tensor,
    other: Tensor,
    state: Tensor,
    grad: Tensor,
    native: bool | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    runs_native = resolve_native(native, emissions, transitions, start, end)
    chain = (emissions, tags, mask, transitions, start, end, compute.Messages(alpha, other, state))
    emission_grad, *others = compute.backward(*chain, grad, runs_native)
    return emission_grad.contiguous(), others[0].clone(), others[1].clone(), others[2].clone()


nll_backward.register_fake(like_inputs(0, 3, 4, 5))


def _gradient(*arguments: Any) -> tuple[Tensor, ...]:
    """`nll_backward`; the messages, which `nll` returns beside its result, have no gradient."""
    *saved, grad, _, _, _, native = arguments
    return nll_backward(*saved, grad, native)


register_gradient(nll, _gradient, 6, slice(1, None), (0, 3, 4, 5))
