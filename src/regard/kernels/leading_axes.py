"""Leading axes of tensors: the kernels take one, their callers any number that broadcasts."""

from math import prod

import torch
from torch import Tensor


def flatten(x: Tensor, lead: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """ "*b i d" -> "n i d"."""
    if x.ndim != 3 or len(lead) != 1 or x.shape[0] != lead[0]:
        x = x.expand(*lead, *x.shape[-2:]).reshape(prod(lead), *x.shape[-2:])
    return x if x.dtype == dtype else x.to(dtype)


def flatten_mask(allowed: Tensor, lead: tuple[int, ...], q: int, k: int) -> Tensor:
    """ "*b q k" -> "n q k", keeping axes of 1."""
    if allowed.ndim < 2:
        allowed = allowed.reshape((1,) * (2 - allowed.ndim) + tuple(allowed.shape))
    rows, columns = allowed.shape[-2:]
    if rows not in (1, q) or columns not in (1, k):
        raise ValueError(
            f"allowed must broadcast to (*b, {q}, {k}): got {tuple(allowed.shape)}; its last axes are queries and keys"
        )
    if allowed.ndim == 3 and len(lead) == 1:
        return allowed
    if prod(allowed.shape[:-2]) == 1:
        return allowed.reshape(1, rows, columns)
    return allowed.expand(*lead, rows, columns).reshape(prod(lead), rows, columns)


def restore_shape(x: Tensor, lead: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """ "n ..." -> "*b ..."."""
    if len(lead) != 1:
        x = x.reshape(*lead, *x.shape[1:])
    return x if x.dtype == dtype else x.to(dtype)
