"""The differences between the versions of torch that regard supports, 2.6 and newer."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor


def at_least(version: str) -> bool:
    """Whether this torch is `version`, "2.9", or newer."""
    release = torch.__version__.split("+")[0].split(".")
    return [int(number) for number in release[:2]] >= [int(number) for number in version.split(".")]


# before, the flash attention kernel for CPUs reads wrong memory for heads that share keys
SHARES_HEADS_ON_CPU = at_least("2.9")
# before, that kernel reads the last axis of an added tensor as if its stride were 1 or 0
READS_STRIDES_ON_CPU = at_least("2.8")
# torch 2.9 and older, maybe up to 2.12: a mapped number as an index is read by .item(), which torch.vmap refuses
INDEXES_UNDER_VMAP = at_least("2.13")
# before, torch.nn.attention.varlen does not exist, or takes neither windows nor heads that share keys
VARLEN_SINCE = "2.12"
PACKS_DOCUMENTS = at_least(VARLEN_SINCE)
# before, Dynamo may not know whether it traces inside of torch.func
TRACES_TRANSFORMS = at_least("2.9")
# FlexAttention returns its log-sum-exp as this package reads it
FLEX_SINCE = "2.9"
HAS_FLEX = at_least(FLEX_SINCE)


def kernel_heads(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:  # "b h q d", "b g k d", "b g k v"
    """Keys and values with as many heads as torch's kernels take for these queries: repeated where they share none."""
    if q.shape[1] == k.shape[1] or SHARES_HEADS_ON_CPU or q.device.type == "cuda":
        return k, v
    group = q.shape[1] // k.shape[1]
    return k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)


def kernel_bias(bias: Tensor) -> Tensor:  # "b h q k"
    """The tensor added to the scores with strides that torch's kernels read."""
    if READS_STRIDES_ON_CPU or bias.device.type != "cpu" or bias.stride(-1) <= 1:
        return bias
    return bias.contiguous()


def indexing_under_vmap() -> AbstractContextManager[Any]:
    """A context in which functions under torch.vmap may index a tensor by a mapped one."""
    if INDEXES_UNDER_VMAP:
        return nullcontext()
    from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex

    return TransformGetItemToIndex()
