"""Linear-chain conditional random field (Lafferty et al. 2001): log Z, its gradient by forward-backward, the best path.

    score(y) = start[y_1] + Σ_t e[t, y_t] + Σ_t T[y_{t-1}, y_t] + end[y_n];   Z = Σ_y exp score(y)

The gradient of log Z with respect to the emissions is the probability of each tag, with respect to T the expected
number of each pair: the backward pass is the other half of forward-backward, not a graph through the loop. Positions
with `mask` False are skipped: the transition joins their neighbours. -inf forbids a tag, a pair, a start or an end.
`native` None uses the native kernels where they run, True requires them, False uses torch. Inputs are float32 or
float64, of one dtype.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from regard.kernels.crf import viterbi_path
from regard.kernels.crf.autograd import NllFunction
from regard.kernels.crf.plain import Chain, plain_nll
from regard.kernels.dispatch import choose_route
from regard.kernels.native_library import resolve_native


class Potentials(NamedTuple):
    """The scores of a chain beside its emissions; transitions[i, j] is the score of tag j after tag i."""

    transitions: Tensor  # "k k"
    start: Tensor  # "k"
    end: Tensor  # "k"


def nll(
    emissions: Tensor, tags: Tensor | None, mask: Tensor | None, potentials: Potentials, native: bool | None = None
) -> Tensor:  # "b t k", "b t", "b t" -> "b"
    """log Z − score(tags), or log Z without tags; 0 for an empty sequence, -inf for log Z where no path is allowed."""
    chain = Chain(emissions, tags, mask, *potentials)
    match choose_route(*chain):
        case "plain":
            return plain_nll(*chain)
        case "operator":
            from regard.kernels.crf import custom_ops

            return custom_ops.nll(*chain, native)[0]
        case _:
            # torch.no_grad is not visible inside a Function
            need_grad = torch.is_grad_enabled() and any(t.requires_grad for t in chain.floats)
            return NllFunction.apply(resolve_native(native, *chain.floats), need_grad, *chain)


def marginals(emissions: Tensor, mask: Tensor | None, potentials: Potentials) -> Tensor:  # "b t k", "b t" -> "b t k"
    """∂ log Z / ∂ e: the probability of every tag at every position, without derivatives of its own."""
    # inference mode records no graph, and its tensors cannot enter one
    with torch.inference_mode(False), torch.enable_grad():
        leaf, kept = _detached(emissions).requires_grad_(), None if mask is None else _detached(mask)
        log_z = nll(leaf, None, kept, Potentials(*map(_detached, potentials)))
        return torch.autograd.grad(log_z.sum(), leaf)[0]


def _detached(t: Tensor) -> Tensor:
    return t.clone() if t.is_inference() else t.detach()


def viterbi(
    emissions: Tensor, mask: Tensor | None, potentials: Potentials, native: bool | None = None
) -> tuple[Tensor, Tensor]:  # "b t k", "b t" -> "b t", "b"
    """The best path of every sequence, its kept positions first and then -1, and its score: -inf if none is allowed."""
    native = resolve_native(native, emissions, *potentials)
    return viterbi_path.viterbi(Chain(emissions, None, mask, *potentials), native)
