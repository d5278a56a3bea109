"""The next hypotheses of a beam: the greedy one, the most probable of the others, and those that end here.

The candidates are few numbers per sentence: in torch each of some twenty operations costs more than its numbers. The
native form selects them in one call. There are no derivatives.
"""

import ctypes
from typing import NamedTuple

import torch
from torch import Tensor

from regard.kernels.dispatch import can_run_native
from regard.kernels.native_library import call_kernel, resolve_native

_TWO_NUMBERS = ctypes.c_int64 * 2


class Continuations(NamedTuple):
    """The ends and continuations of n hypotheses per sentence."""

    ends: Tensor  # "r n", log p of those that end here, else minus infinity
    going: Tensor  # "r m", log p of those that go on
    slot: Tensor  # "r m", the hypothesis that each of them continues
    token: Tensor  # "r m"
    margin: Tensor  # "r", |kept − dropped| / (1 + |dropped|) of the closest decision, see `gap`
    has_ends: bool  # some of `ends` is not minus infinity
    has_impossible: bool  # some of `going` is minus infinity


def continuations(
    log_p: Tensor,
    candidates: Tensor,
    end: Tensor,
    log_prob: Tensor,
    eos: int,
    others: int,
    greedy_first: bool,
    native: bool | None = None,
) -> Continuations:  # "r n k", "r n k", "r n", "r n"
    """Selects by log p of whole sentences, of equals the first slot's, then the more probable.

    `log_p` are of the k most probable tokens of each hypothesis, `candidates`, and `end` of the token `eos`; `log_prob`
    are of the hypotheses. If `greedy_first`, the first continuation is slot 0's most probable token, before sums are
    made, which may round two tokens to one. An end counts if it is that token, or if it is no less probable than the
    last of the others.
    """
    others = min(others, log_p.shape[1] * log_p.shape[2])
    fits = log_p.dtype == log_prob.dtype == end.dtype and can_run_native(log_p, log_prob)
    if native or (native is None and fits):
        resolve_native(True, log_p, log_prob, end)
        return _native(log_p, candidates, end, log_prob, eos, others, greedy_first)
    return _in_torch(log_p, candidates, end, log_prob, eos, others, greedy_first)


def gap(kept: Tensor, dropped: Tensor) -> Tensor:
    """|kept − dropped| / (1 + |dropped|): how near a decision was; infinite if either is, which is no candidate."""
    return ((kept - dropped).abs() / (1 + dropped.abs())).nan_to_num(nan=torch.inf, posinf=torch.inf)


def _native(
    log_p: Tensor, candidates: Tensor, end: Tensor, log_prob: Tensor, eos: int, others: int, greedy_first: bool
) -> Continuations:
    log_p, candidates, end, log_prob = (part.contiguous() for part in (log_p, candidates, end, log_prob))
    (r, n, k), m = log_p.shape, others + greedy_first
    ends, going, margin = torch.empty_like(end), end.new_empty(r, m), end.new_empty(r)
    slot, token = candidates.new_empty(2, r, m).unbind()
    seen = _TWO_NUMBERS()
    call_kernel(
        "regard_continuations",
        log_p,
        *(r, n, k, eos, others, greedy_first),
        *(log_p, candidates, end, log_prob, ends, going, slot, token, margin),
        ctypes.addressof(seen),
    )
    return Continuations(ends, going, slot, token, margin, bool(seen[0]), bool(seen[1]))


def _in_torch(
    log_p: Tensor, candidates: Tensor, end: Tensor, log_prob: Tensor, eos: int, others: int, greedy_first: bool
) -> Continuations:
    k = log_p.shape[-1]
    end = end + log_prob
    counts = torch.zeros_like(end, dtype=torch.bool)
    going, index = end[:, :0], end[:, :0].long()  # "r m", and the index in "n k"
    margins = [end.new_full((len(end), 1), torch.inf)]
    sums = log_p + log_prob.unsqueeze(-1)
    first = sums[:, 0]
    sums = sums.masked_fill(candidates == eos, -torch.inf)
    if greedy_first:
        counts[:, :1] = candidates[:, 0, :1] == eos
        going, index = sums[:, 0, :1].clone(), torch.zeros_like(candidates[:, 0, :1])
        sums[:, 0, 0] = -torch.inf
        margins.append(gap(first[:, :1], first[:, 1:2]) if k > 1 else margins[0])
    if others:
        ranked, order = sums.flatten(1).sort(dim=1, descending=True, stable=True)
        rest, last = ranked[:, :others], ranked[:, others - 1 : others]
        counts |= end >= last
        margins += [gap(end, last), gap(last, ranked[:, others : others + 1])]
        going, index = torch.cat((going, rest), 1), torch.cat((index, order[:, :others]), 1)
    ends, token = end.masked_fill(~counts, -torch.inf), candidates.flatten(1).gather(1, index)
    has_ends, has_impossible = bool((ends > -torch.inf).any()), bool((going == -torch.inf).any())
    margin = torch.cat(margins, 1).amin(1)
    return Continuations(ends, going, index // k, token, margin, has_ends, has_impossible)
