"""The differences between the versions of torch that regard supports, 2.6 and newer."""

import torch
from torch import Tensor


def at_least(version: str) -> bool:
    """Whether this torch is `version`, "2.9", or newer."""
    release = torch.__version__.split("+")[0].split(".")
    return [int(number) for number in release[:2]] >= [int(number) for number in version.split(".")]


# the flash attention kernel for CPUs read wrong memory for heads that share keys before torch 2.9
SHARES_HEADS_ON_CPU = at_least("2.9")


def kernel_heads(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:  # "b h q d", "b g k d", "b g k v"
    """Keys and values with as many heads as torch's kernels take for these queries: repeated where they share none."""
    if q.shape[1] == k.shape[1] or SHARES_HEADS_ON_CPU or q.device.type == "cuda":
        return k, v
    group = q.shape[1] // k.shape[1]
    return k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
