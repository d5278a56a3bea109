"""Groups of torch functions by what they do to a tensor: all spellings of each, as functions, methods and operators."""

from typing import Any

import torch
import torch.nn.functional as F

# `t.mT` calls a getter; every access makes a new one, which equals this one
MT: Any = vars(torch._C.TensorBase)["mT"].__get__
T: Any = vars(torch._C.TensorBase)["T"].__get__


def functions(*names: str) -> list[Any]:
    """All torch functions and methods with these names, also those that write in place."""
    spellings = []
    for name in names:
        for owner, spelling in ((torch, name), (torch.Tensor, name), (torch.Tensor, f"{name}_"), (F, name)):
            function = getattr(owner, spelling, None)
            if callable(function):
                spellings.append(function)
    return spellings


def operators(*names: str) -> list[Any]:
    return [getattr(torch.Tensor, f"__{name}__") for name in names]


RESHAPES = functions("view", "reshape", "unsqueeze", "squeeze", "flatten", "unflatten", "expand", "contiguous", "clone")
TRANSPOSES = [*functions("transpose", "swapaxes", "permute"), MT]
CASTS = functions("to", "float", "half", "bfloat16", "double", "type_as", "type")
# move numbers and change none
REARRANGES = {*RESHAPES, *TRANSPOSES}
# multiply and sum: they mix values, if one of their arguments are weights
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
ADDITIONS = {*functions("add", "sub", "subtract"), *operators("add", "radd", "iadd", "sub", "rsub", "isub")}
