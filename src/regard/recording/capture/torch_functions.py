"""Groups of torch functions by what they do to a tensor: all spellings of each, as functions, methods and operators."""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

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


class TorchCall(NamedTuple):
    """A call func(*args, **kwargs), and what it returned."""

    func: Any
    out: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @property
    def first(self) -> Any:
        """The first argument, also where it has its name."""
        return self.args[0] if self.args else self.kwargs["input"]

    @property
    def dim(self) -> Any:
        """The second argument, `dim`."""
        return self.kwargs.get("dim", self.args[1] if len(self.args) > 1 else None)

    def named(self, *names: str) -> dict[str, Any]:
        """The arguments by their names, of which the first are these."""
        return {**dict(zip(names, self.args, strict=False)), **self.kwargs}

    def repeated_on(self, t: Tensor) -> Any:
        """The result of the same call of another first argument."""
        return self.func(t, *self.args[1:], **self.kwargs)

    def tensors(self) -> list[Tensor]:
        """All tensors among the arguments, also those in lists."""
        return all_tensors(*self.args, *self.kwargs.values())


def all_tensors(*values: Any) -> list[Tensor]:
    """All tensors among values, also those in lists."""
    tensors = []
    for value in values:
        if isinstance(value, Tensor):
            tensors.append(value)
        elif isinstance(value, list | tuple):
            tensors += [t for t in value if isinstance(t, Tensor)]
    return tensors
