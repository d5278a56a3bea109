"""All that torch offers under a name: functions, methods, those that write in place, operators."""

from typing import Any

import torch
import torch.nn.functional as F

from regard.tape.followed import FLIP


def functions(*names: str) -> list[Any]:
    """All that torch offers under these names: functions and methods, also those that write in place."""
    found = []
    for name in names:
        for owner, spelt in ((torch, name), (torch.Tensor, name), (torch.Tensor, f"{name}_"), (F, name)):
            one = getattr(owner, spelt, None)
            if callable(one):
                found.append(one)
    return found


def operators(*names: str) -> list[Any]:
    return [getattr(torch.Tensor, f"__{name}__") for name in names]


SHAPES = ("view", "reshape", "unsqueeze", "squeeze", "flatten", "unflatten", "expand", "contiguous", "clone")
TURNS = [*functions("transpose", "swapaxes", "permute"), FLIP]
# what moves numbers and changes none
LAYS_OUT = {*functions(*SHAPES), *TURNS}
# what sums over what it multiplies: mixes values, if one of its arguments are weights
PRODUCTS = {
    *functions("matmul", "bmm", "mm", "mv", "addmm", "addbmm", "baddbmm", "linear", "tensordot", "inner", "einsum"),
    *operators("matmul", "rmatmul"),
    torch.functional.einsum,
    torch.functional.tensordot,
}
