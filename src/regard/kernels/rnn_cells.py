"""Recurrent cells: one step after its matrix products, in one native pass; and a whole sequence of steps.

    GRU    r, z = σ(x + p);  n = tanh(x_n + r ∘ p_n);  h' = n + z ∘ (h − n)             (Cho et al. 2014)
    LSTM   i, f, o = σ(x + p);  g = tanh(x + p);  c' = f ∘ c + i ∘ g;  h' = o ∘ tanh(c')  (Gers et al. 2000)

x = W x_t + b and p = U h + b' are the products; gates are in torch's order: r z n, and i f g o. torch makes ten
operations of a step and, over packed sequences, one product per step for the gradient of U. Here all steps are one
call, for which U is packed once, and the gradient of U is one product over all steps. There is no form in torch: use
nn.GRU and nn.LSTM where `dispatch.can_run_native` is false. No second derivative.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor
from torch.amp import custom_bwd, custom_fwd
from torch.autograd import Function

from regard.kernels.native_library import call_kernel, contiguous_rows
from regard.kernels.second_derivatives import no_recurrent_double_backward


def step(x: Tensor, p: Tensor, *state: Tensor) -> tuple[Tensor, ...]:  # "b g·h", "b g·h", "b h" each
    """The state after one step: h of a GRU, h and c of an LSTM, from the products x and p and the state before."""
    new_state = _StepFunction.apply(x, p, state[-1])
    return new_state if isinstance(new_state, tuple) else (new_state,)


def sequence(
    x: Tensor, weights: Sequence[Tensor], initial: Sequence[Tensor], sizes: Sequence[int], reverse: bool = False
) -> Tensor:  # "r d" -> "r h"
    """h of every step over sequences of different lengths: the longest first, packed step by step as torch does.

    Step t has the first sizes[t] sequences. `weights` are W, U, b, b'; `initial` is the state before the first step,
    "b h" each. With `reverse` every sequence starts at its end.
    """
    # torch.no_grad is not visible inside a Function
    need_grad = torch.is_grad_enabled() and any(t.requires_grad for t in (x, *weights, *initial))
    return _SequenceFunction.apply(tuple(sizes), reverse, need_grad, x, *weights, *initial)


class _StepFunction(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, p: Tensor, previous: Tensor) -> Any:
        x, p, previous = contiguous_rows(x), p.contiguous(), contiguous_rows(previous)
        (m, d), lstm = previous.shape, x.shape[1] == 4 * previous.shape[1]
        saved, h = previous.new_empty(m, (5 if lstm else 4) * d), previous.new_empty(m, d)
        c = torch.empty_like(h) if lstm else None
        inputs = (x, x.stride(0), p, None, previous, previous.stride(0))
        call_kernel("regard_cell", h, m, d, *inputs, saved, h, c, None, None, 0)
        ctx.save_for_backward(saved, previous)
        return h if c is None else (h, c)

    @staticmethod
    @no_recurrent_double_backward
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        saved, previous = ctx.saved_tensors
        carry = [grad.clone(memory_format=torch.contiguous_format) for grad in grads]
        (m, d), lstm = previous.shape, len(grads) == 2
        dx = previous.new_empty(m, (4 if lstm else 3) * d)
        dp = dx if lstm else torch.empty_like(dx)
        inputs = (None, saved, previous, previous.stride(0))
        carried = (carry[0], carry[1] if lstm else None)
        call_kernel("regard_cell_backward", dx, m, d, *inputs, *carried, dx, dp)
        return dx, dp, carry[-1]


class _SequenceFunction(Function):
    @staticmethod
    @custom_fwd(device_type="cpu", cast_inputs=torch.float32)  # type: ignore[untyped-decorator]
    def forward(
        ctx: Any,
        sizes: tuple[int, ...],
        reverse: bool,
        need_grad: bool,
        x: Tensor,
        w: Tensor,
        u: Tensor,
        b: Tensor,
        b_recurrent: Tensor,
        initial: Tensor,
        initial_c: Tensor | None = None,
    ) -> Tensor:
        d, lstm, u, b_recurrent = u.shape[1], initial_c is not None, u.contiguous(), b_recurrent.contiguous()
        starts, counts = _steps(sizes, reverse)
        product, recurrent = torch.addmm(b, x, w.t()), x.new_empty(max(sizes), len(u))
        h, previous = x.new_empty(len(x), d), x.new_empty(len(x), d)
        c, previous_c = (torch.empty_like(h), torch.empty_like(h)) if lstm else (None, None)
        running = 0
        for start, count in zip(starts, counts, strict=True):
            if count > running:
                previous[start + running : start + count] = initial[running:count]
                if previous_c is not None and initial_c is not None:
                    previous_c[start + running : start + count] = initial_c[running:count]
            running = count
        # activations that the backward pass reads; without one, room for a single step
        saved = x.new_empty(len(x) if need_grad else max(sizes), (5 if lstm else 4) * d)
        steps = torch.tensor([starts, counts])
        inputs = (steps[0], steps[1], product, u, b_recurrent)
        states, outputs = (recurrent, previous, previous_c), (saved, h, c)
        call_kernel("regard_sequence", h, len(counts), d, *inputs, *states, *outputs, need_grad)
        ctx.save_for_backward(x, w, u, previous, previous_c, saved, steps)
        return h

    @staticmethod
    @custom_bwd(device_type="cpu")  # type: ignore[untyped-decorator]
    @no_recurrent_double_backward
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, w, u, previous, previous_c, saved, steps = ctx.saved_tensors
        grad, d, lstm = grad.contiguous(), u.shape[1], previous_c is not None
        dx = grad.new_empty(len(x), len(u))
        dp = dx if lstm else torch.empty_like(dx)
        carry = grad.new_zeros(int(steps[1].max()), d)
        carry_c = torch.zeros_like(carry) if lstm else None
        inputs, states = (steps[0], steps[1], grad, u, saved), (previous, previous_c, carry, carry_c)
        call_kernel("regard_sequence_backward", grad, steps.shape[1], d, *inputs, *states, dx, dp)
        needs = ctx.needs_input_grad[3:]
        return (
            *(None, None, None),
            dx @ w if needs[0] else None,
            dx.t() @ x if needs[1] else None,
            dp.t() @ previous if needs[2] else None,
            dx.sum(0) if needs[3] else None,
            dp.sum(0) if needs[4] else None,
            carry,
            *(() if carry_c is None else (carry_c,)),
        )


def _steps(sizes: tuple[int, ...], reverse: bool) -> tuple[list[int], list[int]]:
    """The first row and the number of rows of each step, in the order of running."""
    starts, counts = [0, *accumulate(sizes)][:-1], list(sizes)
    return (starts[::-1], counts[::-1]) if reverse else (starts, counts)
