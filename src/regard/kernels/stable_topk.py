"""The k largest of long rows: the one thing in a search that goes over the whole vocabulary."""

import torch
from torch import Tensor

# A row is looked at in groups this wide: the k largest lie in the k groups of the largest maxima, and maxima are cheap.
WIDTH = 128


def stable_topk(rows: Tensor, k: int) -> tuple[Tensor, Tensor]:  # "r v" -> "r k", "r k"
    """The k largest of each row and where they stand, the largest first; of equals the one that stands first.

    `topk` promises no order among equals, and which it takes depends on k. So rows in which it met equals are done
    again by a stable sort: what is found in a row is a function of the row. Minus infinity is no candidate: it has no
    order.
    """
    values, at, tied = _pick(rows, k, stable=False)
    if bool(tied.any()):
        values[tied], at[tied], _ = _pick(rows[tied], k, stable=True)
    return values, at


def _pick(rows: Tensor, k: int, stable: bool) -> tuple[Tensor, Tensor, Tensor]:  # "r k", "r k", "r"
    groups = rows.shape[-1] // WIDTH
    if groups < 4 * (k + 1):
        values, at, equal = _largest(rows, k, stable)
        return values, at, equal.any(-1)
    grouped = rows[:, : groups * WIDTH].unflatten(-1, (groups, WIDTH))
    _, group, same = _largest(grouped.amax(-1), k, stable)
    if stable:
        group = group.sort(dim=-1).values
    every = torch.arange(len(rows), device=rows.device).unsqueeze(-1)
    few = torch.cat((grouped[every, group].flatten(1), rows[:, groups * WIDTH :]), -1)
    values, at, equal = _largest(few, k, stable)
    rest = at - k * WIDTH
    inside = group.gather(-1, (at // WIDTH).clamp(max=k - 1)) * WIDTH + at % WIDTH
    # Among groups only the last that came in and the first that did not must differ.
    return values, torch.where(rest < 0, inside, groups * WIDTH + rest), equal.any(-1) | same[:, -1]


def _largest(t: Tensor, k: int, stable: bool) -> tuple[Tensor, Tensor, Tensor]:  # "r k" each
    """The k largest, where they stand, and whether each equals the one that comes after it."""
    if stable:
        values, at = (got[:, : k + 1] for got in t.sort(dim=-1, descending=True, stable=True))
    else:
        values, at = t.topk(min(k + 1, t.shape[-1]), -1)
    after = torch.nn.functional.pad(values[:, 1:], (0, k + 1 - values.shape[-1]), value=-torch.inf)
    return values[:, :k], at[:, :k], (values[:, :k] == after) & (after > -torch.inf)
