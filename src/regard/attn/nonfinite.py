"""What may not be looked at is not felt, even if it is NaN: it is taken out before a matrix product can meet it."""

import torch
from torch import Tensor

from regard.attn.terms.mask import Mask, lead, tiles
from regard.attn.terms.position import Positions, default_positions
from regard.kernels.dispatch import values_are_readable


def without_hidden(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Mask,
    positions: Positions | None,
    batch: tuple[int, ...],
    sound: bool = False,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """q, k and v without NaN and inf, and the rows that are to be NaN for it (None: none); `sound` k and v have none.

    Where values may not be read, keys and values that no query of a sample may look at are made zero, whatever they
    hold; what is hidden from some rows only is then left as it is.
    """
    if not values_are_readable(q):
        return q, *_unseen(q, k, v, mask, positions, batch), None
    felt = None
    if not sound:
        k, v, felt = cleaned(k, v, mask, positions, q.shape[-2], batch)
    if finite(q):
        return q, k, v, felt
    lost = ~torch.isfinite(q).all(-1)  # a query that is no number: its row, but not the gradient of what it looks at
    return q.masked_fill(lost.unsqueeze(-1), 0.0), k, v, lost if felt is None else lost | felt


def _unseen(
    q: Tensor, k: Tensor, v: Tensor, mask: Mask, positions: Positions | None, batch: tuple[int, ...]
) -> tuple[Tensor, Tensor]:
    queries, keys = q.shape[-2], k.shape[-2]
    if queries == 0 or keys == 0:
        return k, v
    i, j = default_positions(queries, keys, k.device) if positions is None else positions
    seen = lead(mask.tiled(tiles(i, queries), tiles(j, 1)).some, len(batch) + 2)  # (*b, 1, k)
    if seen.shape[-1] != keys:
        return k, v
    hidden = ~seen.transpose(-1, -2)
    clean = k.masked_fill(_for_all(hidden, k), 0)
    return clean, clean if v is k else v.masked_fill(_for_all(hidden, v), 0)


def _for_all(hidden: Tensor, t: Tensor) -> Tensor:
    """`hidden` for the leading axes of t: where t serves several samples or heads, what is hidden from all of them."""
    while hidden.ndim > t.ndim:
        hidden = hidden.all(0)
    for axis in range(hidden.ndim - 2):
        if hidden.shape[axis] not in (1, t.shape[axis + t.ndim - hidden.ndim]):
            hidden = hidden.all(axis, keepdim=True)
    return hidden


def cleaned(
    k: Tensor, v: Tensor, mask: Mask, positions: Positions | None, queries: int, batch: tuple[int, ...]
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Keys and values without NaN and inf, and the rows that may look at one.

    What a query may not look at must not reach it; but 0 · NaN is NaN in every matrix product, forward and backward. So
    whatever is not a number is taken out first, and the rows that do look at it are made NaN afterwards.
    """
    if finite(*((k,) if v is k else (k, v))):
        return k, v, None
    with torch.no_grad():
        good = torch.isfinite(k).all(-1) & torch.isfinite(v).all(-1)  # (*b, k)
        columns = (~good.reshape(-1, good.shape[-1]).all(0)).nonzero().squeeze(-1)
        i, j = default_positions(queries, k.shape[-2], k.device) if positions is None else positions
        seen = lead(mask.part(slice(None), columns).dense(i, j[..., columns]), len(batch) + 2)
        wrong = ~good[..., columns].unsqueeze(-2)
        if wrong.ndim > 2 and wrong.shape[-3] not in (1, batch[-1]):  # heads that share a key
            wrong = wrong.repeat_interleave(batch[-1] // wrong.shape[-3], dim=-3)
        felt = (seen & wrong).any(-1)
    hidden = ~good.unsqueeze(-1)
    clean = k.masked_fill(hidden, 0)
    return clean, clean if v is k else v.masked_fill(hidden, 0), felt if bool(felt.any()) else None


def finite(*tensors: Tensor) -> bool:
    """Surely no NaN, no inf?  A sum feels every one of them, in one pass; one too great for its type looks like one."""
    with torch.no_grad():
        return all(bool(torch.isfinite(t.sum())) for t in tensors)
