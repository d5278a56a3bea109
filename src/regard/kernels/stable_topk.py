"""The k largest entries of long rows, in a defined order: the only step of a search over the whole vocabulary."""

import torch
from torch import Tensor

# A row is split into groups of this width: the k largest lie in the k groups with the largest maxima, and a maximum is
# cheap.
GROUP_WIDTH = 128


def stable_topk(rows: Tensor, k: int) -> tuple[Tensor, Tensor]:  # "r v" -> "r k", "r k"
    """The k largest entries of each row and their indices, the largest first; of equal entries the first one first.

    `topk` promises no order among equal entries, and its choice depends on k. So rows in which it met equal entries are
    repeated by a stable sort: the result of a row is a function of the row alone. Minus infinity is no candidate: it
    has no order.
    """
    values, index, tied = _select(rows, k, stable=False)
    if bool(tied.any()):
        values[tied], index[tied], _ = _select(rows[tied], k, stable=True)
    return values, index


def _select(rows: Tensor, k: int, stable: bool) -> tuple[Tensor, Tensor, Tensor]:  # "r k", "r k", "r"
    groups = rows.shape[-1] // GROUP_WIDTH
    if groups < 4 * (k + 1):
        values, index, tied = _largest(rows, k, stable)
        return values, index, tied.any(-1)
    grouped = rows[:, : groups * GROUP_WIDTH].unflatten(-1, (groups, GROUP_WIDTH))
    _, group, tied_groups = _largest(grouped.amax(-1), k, stable)
    if stable:
        group = group.sort(dim=-1).values
    every_row = torch.arange(len(rows), device=rows.device).unsqueeze(-1)
    candidates = torch.cat((grouped[every_row, group].flatten(1), rows[:, groups * GROUP_WIDTH :]), -1)
    values, at, tied = _largest(candidates, k, stable)
    beyond_groups = at - k * GROUP_WIDTH
    in_group = group.gather(-1, (at // GROUP_WIDTH).clamp(max=k - 1)) * GROUP_WIDTH + at % GROUP_WIDTH
    index = torch.where(beyond_groups < 0, in_group, groups * GROUP_WIDTH + beyond_groups)
    # Among groups only the last selected and the first not selected must differ.
    return values, index, tied.any(-1) | tied_groups[:, -1]


def _largest(t: Tensor, k: int, stable: bool) -> tuple[Tensor, Tensor, Tensor]:  # "r k" each
    """The k largest entries, their indices, and whether each equals the next one."""
    if stable:
        values, index = (result[:, : k + 1] for result in t.sort(dim=-1, descending=True, stable=True))
    else:
        values, index = t.topk(min(k + 1, t.shape[-1]), -1)
    following = torch.nn.functional.pad(values[:, 1:], (0, k + 1 - values.shape[-1]), value=-torch.inf)
    return values[:, :k], index[:, :k], (values[:, :k] == following) & (following > -torch.inf)
