"""The kernel of `varlen` written plainly: a loop over packed documents."""

import itertools

import torch
from torch import Tensor

from regard.attn.backends._packing import PackedDocuments, PackedTokens


def document_loop(q: Tensor, k: Tensor, v: Tensor, packing: PackedDocuments, scale: float) -> tuple[Tensor, Tensor]:
    """softmax(scale · q kᵀ) v of each document: "t h d", and log Σ exp, "h t"."""
    for t in (q, k, v):
        assert t.stride(-1) == 1
        assert not any(n % 8 for n in (t.shape[-1], t.storage_offset(), *t.stride()[:-1]))
    group = q.shape[1] // k.shape[1]
    outs, lses = [], []
    for rows, keys in zip(_slices(packing.queries, q), _slices(packing.keys, k), strict=True):
        queries, key = q[rows].transpose(0, 1), k[keys].transpose(0, 1).repeat_interleave(group, 0)
        scores = (queries @ key.mT).to(torch.promote_types(q.dtype, torch.float32)) * scale
        left, right = packing.window
        if (left, right) != (-1, -1):
            # kernels count causality from other corners; of a square there is no difference
            assert len(queries[0]) == len(key[0])
            ahead = torch.arange(len(key[0]), device=q.device) - torch.arange(len(key[0]), device=q.device)[:, None]
            hidden = (ahead > right) & (right >= 0) | (ahead < -left) & (left >= 0)
            scores = scores.masked_fill(hidden, -torch.inf)
        value = v[keys].transpose(0, 1).repeat_interleave(group, 0)
        outs.append((scores.softmax(-1).to(v.dtype) @ value).transpose(0, 1))
        lses.append(scores.logsumexp(-1))
    return torch.cat(outs), torch.cat(lses, -1)


def _slices(packed: PackedTokens, t: Tensor) -> list[slice]:
    """The tokens of each document; checks what kernels rely on."""
    ends = packed.ends.tolist()
    assert packed.ends.dtype == torch.int32
    assert ends[0] == 0
    assert ends[-1] == len(t)
    slices = [slice(a, b) for a, b in itertools.pairwise(ends)]
    assert packed.longest == max(s.stop - s.start for s in slices)
    assert all(s.start < s.stop for s in slices), "an empty document"
    return slices
