"""What the hosts of the Triton kernels share: tensors as the kernels take them, and their launch."""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.kernels.triton import check, is_interpreted, target_of
from regard.kernels.triton.configs import PRECISION, Kind


class MaskArguments(NamedTuple):
    """What the kernels read of a mask: any tensor and no stride in place of none."""

    allowed: Tensor  # bytes
    counts: Tensor  # "n", int32, keys up to the last one that a query of the sample may attend to
    strides: tuple[int, int, int]  # over samples, queries and keys
    hides: bool  # whether there is one


def mask_of(allowed: Tensor | None, n: int, queries: int, keys: int, like: Tensor) -> MaskArguments:
    """`allowed` "n q k", any axis 1, for tensors on the device of `like`."""
    if allowed is None:
        return MaskArguments(like, torch.full((n,), keys, dtype=torch.int32, device=like.device), (0, 0, 0), False)
    numbers = torch.arange(1, keys + 1, dtype=torch.int32, device=like.device)
    counts = (allowed.any(-2) * numbers).amax(-1).to(torch.int32).expand(n).contiguous()
    if allowed.stride(2) > 1:  # offsets of keys are int32
        allowed = allowed.contiguous()
    strides = allowed.expand(n, queries, keys).stride()
    return MaskArguments(allowed.view(torch.uint8), counts, (strides[0], strides[1], strides[2]), True)


def pad_width(x: Tensor, width: int) -> Tensor:
    """x with zeros up to `width` columns, contiguous, at an address that vector loads take."""
    x = F.pad(x, (0, width - x.shape[-1])) if x.shape[-1] < width else x.contiguous()
    return x if x.data_ptr() % 16 == 0 else x.clone()


def kind_of(x: Tensor) -> Kind:
    return "float32" if x.dtype == torch.float32 else "half"


def precision(x: Tensor) -> str:
    """How products of tiles of x are computed; the interpreter has one way."""
    check(x.device)
    if is_interpreted():
        return "ieee"
    return PRECISION[target_of(x.device)][kind_of(x)]


def launch(kernel: Any, rows: tuple[int, int, int], warps: int, *arguments: Any, **constants: Any) -> None:
    """Runs a program for each tile of the rows: `rows` are samples, rows of a sample and rows of a tile."""
    check(arguments[0].device)
    samples, length, tile = rows
    options = {} if is_interpreted() else {"num_warps": warps, "num_stages": 1, "enable_fp_fusion": True}
    with torch.cuda.device_of(arguments[0]):
        kernel[(samples * -(-length // tile),)](*arguments, **constants, **options)
