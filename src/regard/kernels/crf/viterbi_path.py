"""The best path of a linear-chain CRF (Viterbi 1967), native or in torch.

δ_t(j) = max_i δ_{t-1}(i) + A_ij + e_tj
"""

import torch
from torch import Tensor

from regard.kernels.crf.compute import compact_if_needed, contiguous
from regard.kernels.crf.plain import Chain
from regard.kernels.native_library import call_kernel


def viterbi(chain: Chain, native: bool) -> tuple[Tensor, Tensor]:  # "b t", "b"
    """The path of the largest score, -1 behind its end, and that score."""
    if not native:
        return _torch_viterbi(chain)
    b, t, k = chain.emissions.shape
    path, score = chain.emissions.new_empty(b, t, dtype=torch.int64), chain.emissions.new_empty(b)
    emissions, _, *rest = contiguous(chain)
    call_kernel("regard_viterbi", score, b, t, k, emissions, *rest, path, score)
    return path, score


def _torch_viterbi(chain: Chain) -> tuple[Tensor, Tensor]:
    """Largest scores forward; pointers only for the tags of the best path, on the way back."""
    emissions, transitions, start, end = chain.floats
    b, t, k = emissions.shape
    path = torch.full((b, t), -1, device=emissions.device)
    if t == 0 or b == 0:
        return path, emissions.new_zeros(b)
    kept, _, lengths, _ = compact_if_needed(emissions, None, chain.mask)
    rows = kept.transpose(0, 1).contiguous().unbind(0)
    deltas, pairs = [rows[0] + start], transitions.mT.contiguous()  # to from
    for row in rows[1:]:
        deltas.append((deltas[-1].unsqueeze(1) + pairs).amax(-1).add_(row))
    uneven = bool((lengths != t).any())
    last, following = lengths - 1, end.expand(b, k)
    columns = path.unbind(1)
    score = emissions.new_zeros(b)
    for s in range(t - 1, -1, -1):
        total = deltas[s] + following
        tag = total.argmax(-1)
        if uneven:
            columns[s].copy_(torch.where(last >= s, tag, -1))
            score = torch.where(last == s, total.amax(-1), score)
            following = torch.where((last >= s).unsqueeze(-1), pairs[tag], end)
        else:
            columns[s].copy_(tag)
            score = total.amax(-1) if s == t - 1 else score
            following = pairs[tag]
    return path, score
