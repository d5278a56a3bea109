"""All that torch offers under a name: functions, methods, those that write in place, operators."""

from typing import Any

import torch
import torch.nn.functional as F

from regard.recording.capture.tracked_tensors import FLIP


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
    *functions("matmul", "bmm", "mm", "mv", "addmm", "addbmm", "baddbmm", "addmv", "linear", "bilinear"),
    *functions("tensordot", "inner", "dot", "vdot", "einsum", "chain_matmul", "addcmul"),
    *operators("matmul", "rmatmul"),
    torch.functional.einsum,
    torch.functional.tensordot,
    torch.linalg.matmul,
    torch.linalg.vecdot,
    torch.linalg.multi_dot,
    torch.sparse.mm,
    torch.sparse.addmm,
}
SUMS = set(functions("sum", "nansum"))
# what lays numbers beside others, and multiplies none
ADDS = {*functions("add", "sub", "subtract"), *operators("add", "radd", "iadd", "sub", "rsub", "isub")}

_TYPES = ("to", "float", "half", "bfloat16", "double", "type_as", "type")
# where scores and weights begin, and what they go through: a function, and what it does to them
BEGIN: dict[Any, str] = {
    **dict.fromkeys([*functions("matmul", "bmm"), *operators("matmul")], "product"),
    **dict.fromkeys(functions("baddbmm"), "added product"),
    torch.functional.einsum: "einsum",
    **dict.fromkeys([*functions("softmax"), torch.special.softmax], "softmax"),
}
FOLLOW: dict[Any, str] = {
    **dict.fromkeys([*functions("mul", "multiply"), *operators("mul", "rmul", "imul")], "times"),
    **dict.fromkeys([*functions("div", "divide", "true_divide"), *operators("truediv", "itruediv")], "by"),
    **dict.fromkeys([*functions("add"), *operators("add", "radd", "iadd")], "plus"),
    **dict.fromkeys([*functions("sub", "subtract"), *operators("sub", "isub")], "minus"),
    **dict.fromkeys(functions("masked_fill"), "fill"),
    **dict.fromkeys(functions("dropout", "feature_dropout"), "drop"),
    **dict.fromkeys(functions(*SHAPES), "shape"),
    **dict.fromkeys(functions(*_TYPES), "type"),
    **dict.fromkeys(operators("getitem"), "cut"),
    **dict.fromkeys(TURNS, "turn"),
}
