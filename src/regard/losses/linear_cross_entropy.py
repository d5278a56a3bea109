"""The vocabulary layer and its cross-entropy in one: the widest product of a small model, and its widest memory."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.attn import checks
from regard.kernels.cross_entropy import cross_entropy_grad
from regard.kernels.dispatch import choose_route
from regard.kernels.native_library import resolve_native

# logits at once, in elements: 16 MB of float32 stay near the processor
_ROOM = 1 << 22


class _Likelihood(torch.autograd.Function):
    """The gradient is taken while the logits are there, so that they are computed once and kept never."""

    @staticmethod
    def forward(
        ctx: Any, states: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, smoothing: float, back: bool
    ) -> tuple[Tensor, Tensor]:
        wanted = [back and one for one in ctx.needs_input_grad]
        vocabulary = weight.shape[0]
        rows = max(_ROOM // vocabulary, 1)
        total = states.new_zeros((), dtype=torch.float32 if states.dtype != torch.float64 else torch.float64)
        matrix = weight.to(states.dtype)
        nll = total.new_empty(states.shape[0])
        to_states = torch.empty_like(states) if wanted[0] else None
        to_weight = (torch.empty_like if len(states) else torch.zeros_like)(matrix) if wanted[1] else None
        to_bias = torch.zeros_like(bias) if wanted[2] and bias is not None else None
        # what smoothing adds is the same for every word: a mean of W, no pass over the logits
        mean = matrix.mean(0) if smoothing else None
        level = 0.0 if bias is None else bias.mean().to(total.dtype)
        lift = None if bias is None else bias.to(total.dtype)
        native = (
            choose_route(states, weight, bias, targets) == "direct" and resolve_native(None, total) and targets.is_cpu
        )
        for start in range(0, states.shape[0], rows):
            here = slice(start, start + rows)
            some = states[here]
            logits = (some @ matrix.T).to(total.dtype)
            found = cross_entropy_grad(logits, lift, targets[here], 1 - smoothing, any(wanted), native)
            nll[here] = found.nll
            total += found.nll.sum()
            if mean is not None:
                total += smoothing * (found.target_logits - (some @ mean).to(total.dtype) - level).sum()
            if not any(wanted):
                continue
            slope = logits.to(states.dtype)
            if to_states is not None:
                torch.mm(slope, matrix, out=to_states[here])
            if to_weight is not None and start:
                to_weight.addmm_(slope.T, some)
            elif to_weight is not None:
                torch.mm(slope.T, some, out=to_weight)
            if to_bias is not None and found.row_sums is not None:
                to_bias += found.row_sums.to(to_bias.dtype)
        if mean is not None and to_states is not None:
            to_states -= smoothing * mean
        if smoothing and to_weight is not None:
            to_weight -= smoothing / vocabulary * states.sum(0)
        if smoothing and to_bias is not None:
            to_bias -= smoothing * states.shape[0] / vocabulary
        ctx.gradients = (to_states, None if to_weight is None else to_weight.to(weight.dtype), to_bias)
        ctx.mark_non_differentiable(nll)
        return total, nll

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, total: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        if ctx.gradients is None:
            raise RuntimeError(
                "likelihood has one backward pass, which uses up the gradients it computed with the logits; "
                "call likelihood again for another, or add the losses up before backward"
            )
        scaled = [None if t is None else t.mul_(total.to(t.dtype)) for t in ctx.gradients]
        ctx.gradients = None
        return (*scaled, None, None, None)


def linear_cross_entropy(
    states: Tensor, weight: Tensor, targets: Tensor, *, bias: Tensor | None = None, smoothing: float = 0.0
) -> tuple[Tensor, Tensor]:  # "n d", "v d", "n" -> scalar, "n"
    """Σ (1 − ε)(−log p(y)) + ε/v Σ_w (−log p(w)), p = softmax(W s + b)  (Szegedy et al. 2016, label smoothing).

    The sum over all rows, to be trained, and −log p(y) of each row, to be reported, which has no gradient. One
    backward only: the gradient is computed with the logits, which are never kept.
    """
    if states.shape[-1] != weight.shape[-1]:
        raise ValueError(
            f"states must be as wide as weight, got {checks.shape(states)} and {checks.shape(weight)}; "
            f"try the weight of nn.Linear({states.shape[-1]}, {weight.shape[0]})"
        )
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ValueError(
            f"bias must be one number a word of weight, got {checks.shape(bias)} for weight {checks.shape(weight)}; "
            f"try the bias of nn.Linear({states.shape[-1]}, {weight.shape[0]})"
        )
    if targets.shape != states.shape[:-1] or states.ndim != 2:
        raise ValueError(
            f"targets must be one a row of states, got {checks.shape(targets)} for states {checks.shape(states)}; "
            "choose the rows that are no padding first: states[keep], targets[keep]"
        )
    if targets.dtype != torch.int64:
        raise TypeError(f"targets must be int64, the numbers of words, got {targets.dtype}; call targets.long()")
    # a GPU would wait for this, and looks itself; what is traced has no values
    if targets.is_cpu and choose_route(states, weight, bias, targets) == "direct":
        beyond = targets[(targets < 0) | (targets >= weight.shape[0])]
        if len(beyond):
            raise ValueError(
                f"targets must be words 0 to {weight.shape[0] - 1} of weight, got {int(beyond[0])}; "
                "choose the rows that count first: states[keep], targets[keep]"
            )
    if not 0.0 <= smoothing < 1.0:
        raise ValueError(f"smoothing must be 0 or more and below 1, got {smoothing}; try 0.1")
    # inside a Function gradients are always off, and what it is told of its inputs does not know of torch.no_grad
    return _Likelihood.apply(states, weight, bias, targets, smoothing, torch.is_grad_enabled())
