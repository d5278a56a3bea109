"""The chain without derivatives: native or in torch. Emissions "b t k", tags and mask "b t".

Both forms scale: alpha_t = (alpha_{t-1} E) ∘ x_t with E = exp(T − max T) and x = exp(e − max e), divided by its sum now
and then. The form in torch runs both directions in one product: w_t = (w_{t+1} Eᵀ) ∘ x_t is the same recursion from the
end. Where a share could underflow (scores of a spread above 80 in float32, of 34 with constraints), float32 is computed
in float64, and what that cannot hold in logarithms.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from regard.kernels.crf.plain import Chain, compact, path_scores, plain_nll
from regard.kernels.native_library import call_kernel

SCALED, LOGS = 0, 1  # how a sequence was computed; the native kernel has further states


class Messages(NamedTuple):
    """The values of a forward pass that its backward pass reads: in the positions that are kept, without gaps."""

    alpha: (
        Tensor  # "b t r" of the native kernel, r is k rounded up to a multiple of 16; "b t k" in torch, maybe float64
    )
    other: Tensor  # the same: x of the native kernel, w in torch
    state: Tensor  # "b", uint8


def room(k: int) -> int:
    """The width of a row of k tags in vectors of every instruction set."""
    return -(-k // 16) * 16


def forward(chain: Chain, native: bool, need_grad: bool = True) -> tuple[Tensor, Messages]:  # "b", and the messages
    """log Z − score(tags), or log Z without tags."""
    if not native:
        return _torch_forward(chain, need_grad)
    emissions, (b, t, k) = chain.emissions, chain.emissions.shape
    messages = Messages(
        emissions.new_empty(b, t, room(k)),
        emissions.new_empty(b, t, room(k)),
        emissions.new_empty(b, dtype=torch.uint8),
    )
    out = emissions.new_empty(b)
    call_kernel("regard_crf", emissions, b, t, k, *contiguous(chain), *messages, out)
    return out, messages


def backward(
    chain: Chain, messages: Messages, grad: Tensor, native: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # "b t k", "k k", "k", "k"
    """The gradients of the emissions, the transitions, the start and the end, for a gradient "b" of the result."""
    if not native:
        return _torch_backward(chain, messages, grad)
    emissions, (b, t, k) = chain.emissions, chain.emissions.shape
    # sums of fixed blocks of sequences, so that the result does not depend on the number of threads
    block = max(1, -(-b // 16))
    of_emissions, of_pairs = emissions.new_empty(b, t, k), emissions.new_empty(-(-b // block), k + 2, k)
    inputs, grad = contiguous(chain), grad.contiguous()
    call_kernel("regard_crf_backward", emissions, b, t, k, block, *inputs, *messages, grad, of_emissions, of_pairs)
    sums = of_pairs.sum(0)
    return of_emissions, sums[:k], sums[k], sums[k + 1]


def contiguous(chain: Chain) -> Chain:
    """The tensors as the native kernels read them."""
    tags = None if chain.tags is None else chain.tags.to(torch.int64)
    return Chain(*(None if t is None else t.contiguous() for t in chain._replace(tags=tags)))  # type: ignore[arg-type]


class _Scores(NamedTuple):
    """Exponentials of scores, with the maxima that were subtracted, and the largest finite difference among them."""

    values: Tensor
    top: Tensor
    spread: float
    has_holes: bool  # whether a score is -inf


def _exponentials(scores: Tensor, axis: int | None) -> _Scores:
    """exp(s − max s) over all scores, or along one axis."""
    top = scores.amax() if axis is None else scores.amax(axis, keepdim=True)
    top = torch.where(top == -torch.inf, 0, top)
    difference = scores - top
    least = difference.amin()
    has_holes = bool(least == -torch.inf)
    if has_holes:
        least = torch.where(difference == -torch.inf, 0, difference).amin()
    return _Scores(difference.exp_(), top, -float(least), has_holes)


def _torch_forward(chain: Chain, need_grad: bool) -> tuple[Tensor, Messages]:
    emissions, transitions, start, end = chain.floats
    state = torch.full((len(emissions),), SCALED, dtype=torch.uint8, device=emissions.device)
    nothing = emissions.new_empty(*emissions.shape[:2], 0)
    if emissions.numel() == 0:
        return emissions.new_zeros(len(emissions)), Messages(nothing, nothing, state)
    kept, gold, lengths, _ = compact_if_needed(*chain[:3])
    scaled = _scaled(kept, lengths, transitions, start, end, need_grad)
    if scaled is None and kept.dtype == torch.float32 and kept.device.type != "mps":
        scaled = _scaled(kept.double(), lengths, transitions.double(), start.double(), end.double(), need_grad)
    if scaled is None:
        return plain_nll(*chain), Messages(nothing, nothing, state.fill_(LOGS))
    out, alpha, w = scaled[0].to(emissions.dtype), *scaled[1:]
    if gold is not None:
        out = out - path_scores(kept, gold, lengths, transitions, start, end)
    return out, Messages(nothing if alpha is None else alpha, nothing if w is None else w, state)


def compact_if_needed(
    emissions: Tensor, tags: Tensor | None, mask: Tensor | None
) -> tuple[Tensor, Tensor | None, Tensor, Tensor | None]:
    """`plain.compact`, without the sort where every mask is a prefix."""
    if mask is None or bool(mask.all()):
        return compact(emissions, tags, None)
    if bool((mask[:, 1:] & ~mask[:, :-1]).any()):
        return compact(emissions, tags, mask)
    tags = None if tags is None else tags.masked_fill(~mask, 0)
    return emissions.masked_fill(~mask.unsqueeze(-1), 0), tags, mask.sum(1), None


def _scaled(
    emissions: Tensor, lengths: Tensor, transitions: Tensor, start: Tensor, end: Tensor, need_grad: bool
) -> tuple[Tensor, Tensor | None, Tensor | None] | None:  # "b", "b t k", "b t k"
    """log Z and, for a backward pass, alpha and w of compact sequences; None if a share could underflow."""
    b, t, k = emissions.shape
    x = _exponentials(emissions, -1)
    pairs, edges = _exponentials(transitions, None), _exponentials(torch.stack([start, end]), 1)
    limit, least = (80.0, 1e-20) if emissions.dtype == torch.float32 else (690.0, 1e-150)
    spread, has_holes = max(pairs.spread, edges.spread) + x.spread, x.has_holes or pairs.has_holes or edges.has_holes
    if not spread <= (limit / 2.4 if has_holes else limit):  # NaN included
        return None
    # a sum changes by at most this factor in one step: it is divided out before it can leave the range of the numbers
    per_step = max(spread if has_holes else max(pairs.spread, edges.spread), math.log(k), 1e-3)
    period = max(1, min(t, int((limit - spread) / per_step)))
    states = emissions.new_empty(t, 2 if need_grad else 1, b, k)
    states[:, 0] = x.values.transpose(0, 1)
    matrix, first = pairs.values.unsqueeze(0), edges.values.unsqueeze(1)  # 1 k k, 2 1 k
    reverse = None
    if need_grad:
        # position n − 1 − s of a sequence of n at step s; the steps behind its end read anything
        steps, rows = torch.arange(t, device=lengths.device).unsqueeze(1), torch.arange(b, device=lengths.device)
        reverse = ((lengths - 1 - steps) % t * b + rows).view(-1)
        states[:, 1] = states[:, 0].reshape(t * b, k).index_select(0, reverse).view(t, b, k)
        matrix = torch.cat([matrix, matrix.mT])
    log_scales = _recursion(states, matrix, first[: len(matrix)], period)
    last = (lengths - 1).clamp(min=0)
    final = states[last, 0, torch.arange(b, device=last.device)] @ edges.values[1]
    if (has_holes and not _shares_are_safe(states, lengths, least)) or bool(((final == 0) & (lengths > 0)).any()):
        return None
    inside = torch.arange(t, device=lengths.device) < lengths.unsqueeze(1)
    tops = torch.where(inside, x.top.squeeze(-1), 0).sum(1)
    scales = log_scales[:, 0].gather(0, (last // period).unsqueeze(0)).squeeze(0)
    log_z = final.log() + scales + tops + last * pairs.top + edges.top.sum()
    log_z = torch.where(lengths > 0, log_z, 0)
    if reverse is None:
        return log_z, None, None
    w = states[:, 1].reshape(t * b, k).index_select(0, reverse).view(t, b, k)
    return log_z, states[:, 0].transpose(0, 1), w.transpose(0, 1)


def _recursion(states: Tensor, matrix: Tensor, first: Tensor, period: int) -> Tensor:
    """states[s] becomes (states[s − 1] @ matrix) ∘ states[s], "t d b k"; returns logarithms of divisors, "n d b"."""
    product = torch.empty_like(states[0])
    log_scale = states.new_zeros(states.shape[1:3])
    log_scales = [log_scale]
    rows, bmm = states.unbind(0), torch.bmm
    before = rows[0].mul_(first)
    for s, row in enumerate(rows[1:], 1):
        before = row.mul_(bmm(before, matrix, out=product))
        if s % period == 0:
            total = row.sum(-1, keepdim=True)
            row.div_(total.masked_fill_(total == 0, 1))
            log_scale = log_scale + total.squeeze(-1).log()
            log_scales.append(log_scale)
    return torch.stack(log_scales)


def _shares_are_safe(states: Tensor, lengths: Tensor, least: float) -> bool:
    """Whether every tag that a path reaches has a share of its sum from which the next product does not underflow."""
    share = states / states.sum(-1, keepdim=True)
    inside = torch.arange(len(states), device=lengths.device).unsqueeze(1) < lengths  # t b
    return not bool(((share < least) & (share > 0) & inside.view(len(states), 1, -1, 1)).any())


def _torch_backward(chain: Chain, messages: Messages, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    emissions, transitions, start, end = chain.floats
    if emissions.numel() == 0:
        return tuple(torch.zeros_like(x) for x in chain.floats)  # type: ignore[return-value]
    if bool((messages.state == LOGS).any()):
        with torch.enable_grad():
            inputs = [x.detach().requires_grad_() for x in chain.floats]
            out = plain_nll(inputs[0], chain.tags, chain.mask, *inputs[1:])
        # a sequence of one position has no transition
        return torch.autograd.grad(out, inputs, grad, materialize_grads=True)  # type: ignore[return-value]
    b, t, k = emissions.shape
    _, gold, lengths, order = compact_if_needed(*chain[:3])
    alpha, w = messages.alpha[..., :k], messages.other[..., :k]
    dtype, grad = alpha.dtype, grad.to(alpha.dtype)
    pairs = _exponentials(transitions.to(dtype), None).values
    first = _exponentials(torch.stack([start, end]).to(dtype), 1).values[0]
    # the share of every tag at its position: (alpha_{t-1} E) ∘ w_t, divided by its sum
    share = emissions.new_empty(b, t, k, dtype=dtype)
    share[:, 0] = first
    share[:, 1:] = alpha[:, :-1] @ pairs
    total = share.mul_(w).sum(-1, keepdim=True)
    inside = torch.arange(t, device=lengths.device) < lengths.unsqueeze(1)
    empty = ~inside.unsqueeze(-1) | (total == 0)
    factor = grad.view(b, 1, 1) / total.masked_fill_(empty, 1)
    weight = w * factor
    share.mul_(factor)
    if bool(empty.any()):
        share.masked_fill_(empty, 0)
        weight.masked_fill_(empty, 0)
    # alpha and weight are time-major in memory
    sources, targets = alpha.transpose(0, 1)[:-1], weight.transpose(0, 1)[1:]
    of_pairs = (sources.reshape(-1, k).mT @ targets.reshape(-1, k)).mul_(pairs)
    if gold is not None:
        less = torch.where(inside, -grad.unsqueeze(1), 0)
        share.scatter_add_(-1, gold.unsqueeze(-1), less.unsqueeze(-1))
        places = gold[:, :-1] * k + gold[:, 1:]
        of_pairs.view(-1).index_add_(0, places.reshape(-1), less[:, 1:].reshape(-1))
    last = (lengths - 1).clamp(min=0).view(b, 1, 1).expand(b, 1, k)
    of_start, of_end = share[:, 0].sum(0), share.gather(1, last).squeeze(1).sum(0)
    if order is not None:
        share = torch.zeros_like(share).scatter_(1, order.unsqueeze(-1).expand(b, t, k), share)
    dtype = emissions.dtype
    return share.to(dtype), of_pairs.to(dtype), of_start.to(dtype), of_end.to(dtype)
