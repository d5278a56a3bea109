"""Recurrent cells: a step after its products, in one native pass; and a whole sequence of steps.

    GRU    r, z = σ(x + p);  n = tanh(x_n + r ∘ p_n);  h' = n + z ∘ (h − n)             (Cho et al. 2014)
    LSTM   i, f, o = σ(x + p);  g = tanh(x + p);  c' = f ∘ c + i ∘ g;  h' = o ∘ tanh(c')  (Gers et al. 2000)

x = W x_t + b and p = U h + b' are the products; gates lie as torch orders them: r z n, and i f g o. torch makes ten
operations of a step and, over packed sequences, a product a step for the gradient of U. Here all steps are one call, in
which U lies as products want it, and the gradient of U is one product over all steps. There is no form in torch: nn.GRU
and nn.LSTM are that, for whatever `native` refuses. No second derivative.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor
from torch.amp import custom_bwd, custom_fwd
from torch.autograd import Function

from regard.kernels.dispatch import route
from regard.kernels.native_library import call, refusal
from regard.kernels.no_double_backward import once


def native(*tensors: Tensor) -> bool:
    """Do the native cells take these?"""
    return route(*tensors) == "direct" and all(tensor.numel() for tensor in tensors) and refusal(*tensors) is None


def step(gates: Tensor, past: Tensor, *state: Tensor) -> tuple[Tensor, ...]:  # "b g·h", "b g·h", "b h" each
    """The state after one step: h of a GRU, h and c of an LSTM, from x, p and the state before."""
    got = _Step.apply(gates, past, state[-1])
    return got if isinstance(got, tuple) else (got,)


def sequence(
    x: Tensor, weights: Sequence[Tensor], first: Sequence[Tensor], sizes: Sequence[int], reverse: bool = False
) -> Tensor:  # "r d" -> "r h"
    """h of every step over sequences that end at different times: the longest first, packed step by step as torch does.

    Step t has the first sizes[t] sequences. `weights` are W, U, b, b'; `first` is the state before, "b h" each. In
    `reverse` every sequence starts at its end.
    """
    # a Function cannot see torch.no_grad from inside
    back = torch.is_grad_enabled() and any(t.requires_grad for t in (x, *weights, *first))
    return _Sequence.apply(tuple(sizes), reverse, back, x, *weights, *first)


def _at(t: Tensor | None) -> int | None:
    return None if t is None else t.data_ptr()


def _rows(t: Tensor) -> Tensor:
    """With rows that are contiguous each."""
    return t if t.stride(-1) == 1 else t.contiguous()


class _Step(Function):
    @staticmethod
    def forward(ctx: Any, gates: Tensor, past: Tensor, before: Tensor) -> Any:
        gates, past, before = _rows(gates), past.contiguous(), _rows(before)
        (m, d), lstm = before.shape, gates.shape[1] == 4 * before.shape[1]
        kept, h = before.new_empty(m, (5 if lstm else 4) * d), before.new_empty(m, d)
        c = torch.empty_like(h) if lstm else None
        came = (gates.data_ptr(), gates.stride(0), past.data_ptr(), None, before.data_ptr(), before.stride(0))
        call("regard_cell", h, m, d, *came, kept.data_ptr(), h.data_ptr(), _at(c), None, None, 0)
        ctx.save_for_backward(kept, before)
        return h if c is None else (h, c)

    @staticmethod
    @once
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        kept, before = ctx.saved_tensors
        carry = [grad.clone(memory_format=torch.contiguous_format) for grad in grads]
        (m, d), lstm = before.shape, len(grads) == 2
        dx = before.new_empty(m, (4 if lstm else 3) * d)
        dp = dx if lstm else torch.empty_like(dx)
        came = (None, kept.data_ptr(), before.data_ptr(), before.stride(0), carry[0].data_ptr())
        call(
            "regard_cell_backward", dx, m, d, *came, carry[1].data_ptr() if lstm else None, dx.data_ptr(), dp.data_ptr()
        )
        return dx, dp, carry[-1]


class _Sequence(Function):
    @staticmethod
    @custom_fwd(device_type="cpu", cast_inputs=torch.float32)  # type: ignore[untyped-decorator]
    def forward(
        ctx: Any,
        sizes: tuple[int, ...],
        reverse: bool,
        back: bool,
        x: Tensor,
        w: Tensor,
        u: Tensor,
        b: Tensor,
        b_past: Tensor,
        first: Tensor,
        first_c: Tensor | None = None,
    ) -> Tensor:
        d, lstm, u, b_past = u.shape[1], first_c is not None, u.contiguous(), b_past.contiguous()
        at, m = _steps(sizes, reverse)
        gates, past = torch.addmm(b, x, w.t()), x.new_empty(max(sizes), len(u))
        h, before = x.new_empty(len(x), d), x.new_empty(len(x), d)
        c, before_c = (torch.empty_like(h), torch.empty_like(h)) if lstm else (None, None)
        begun = 0
        for start, count in zip(at, m, strict=True):
            if count > begun:
                before[start + begun : start + count] = first[begun:count]
                if before_c is not None and first_c is not None:
                    before_c[start + begun : start + count] = first_c[begun:count]
            begun = count
        # what the steps keep for the way back; of one step where nobody goes back
        kept = x.new_empty(len(x) if back else max(sizes), (5 if lstm else 4) * d)
        steps = torch.tensor([at, m])
        came = (steps[0].data_ptr(), steps[1].data_ptr(), gates.data_ptr(), u.data_ptr(), b_past.data_ptr())
        states = (past.data_ptr(), before.data_ptr(), _at(before_c))
        call("regard_sequence", h, len(m), d, *came, *states, kept.data_ptr(), h.data_ptr(), _at(c), back)
        ctx.save_for_backward(x, w, u, before, before_c, kept, steps)
        return h

    @staticmethod
    @custom_bwd(device_type="cpu")  # type: ignore[untyped-decorator]
    @once
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, w, u, before, before_c, kept, steps = ctx.saved_tensors
        grad, d, lstm = grad.contiguous(), u.shape[1], before_c is not None
        dx = grad.new_empty(len(x), len(u))
        dp = dx if lstm else torch.empty_like(dx)
        carry = grad.new_zeros(int(steps[1].max()), d)
        carry_c = torch.zeros_like(carry) if lstm else None
        came = (steps[0].data_ptr(), steps[1].data_ptr(), grad.data_ptr(), u.data_ptr(), kept.data_ptr())
        states = (before.data_ptr(), _at(before_c), carry.data_ptr(), _at(carry_c))
        call("regard_sequence_backward", grad, steps.shape[1], d, *came, *states, dx.data_ptr(), dp.data_ptr())
        needs = ctx.needs_input_grad[3:]
        return (
            *(None, None, None),
            dx @ w if needs[0] else None,
            dx.t() @ x if needs[1] else None,
            dp.t() @ before if needs[2] else None,
            dx.sum(0) if needs[3] else None,
            dp.sum(0) if needs[4] else None,
            carry,
            *(() if carry_c is None else (carry_c,)),
        )


def _steps(sizes: tuple[int, ...], reverse: bool) -> tuple[list[int], list[int]]:
    """Where each step's rows begin, and how many they are, in the order of running."""
    at, m = [0, *accumulate(sizes)][:-1], list(sizes)
    return (at[::-1], m[::-1]) if reverse else (at, m)
