"""Other libraries that compute the same, where they are installed; a function is None where it is not."""

import functools
import importlib
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]  # "b h n d" each


def _module(name: str) -> Any | None:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def sdpa(mask: Tensor | None = None, is_causal: bool = False) -> Attend:
    """torch's scaled_dot_product_attention, with a dense mask or bias."""
    return lambda q, k, v: F.scaled_dot_product_attention(q, k, v, mask, is_causal=is_causal)


@functools.cache
def _compiled_flex() -> Any:
    from torch.nn.attention.flex_attention import flex_attention

    return torch.compile(flex_attention)


def flex(mask_mod: Any, samples: int, length: int, device: torch.device, score_mod: Any = None) -> Attend | None:
    """FlexAttention as its documentation has it, compiled; its kernels are for GPUs."""
    if device.type == "cpu":
        return None
    from torch.nn.attention.flex_attention import create_block_mask

    block = create_block_mask(mask_mod, samples, None, length, length, device=str(device))
    return lambda q, k, v: _compiled_flex()(q, k, v, block_mask=block, score_mod=score_mod)


def xformers_causal() -> Attend | None:
    ops = _module("xformers.ops")
    if ops is None:
        return None

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        heads_last = (t.transpose(1, 2) for t in (q, k, v))
        return ops.memory_efficient_attention(*heads_last, attn_bias=ops.LowerTriangularMask()).transpose(1, 2)

    return attend


def xformers_documents(lengths: list[int]) -> Attend | None:
    """Causal documents that fill the samples."""
    ops = _module("xformers.ops")
    if ops is None:
        return None
    bias = ops.fmha.attn_bias.BlockDiagonalCausalMask.from_seqlens(lengths)

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        packed = (t.transpose(1, 2).flatten(0, 1)[None] for t in (q, k, v))
        out = ops.memory_efficient_attention(*packed, attn_bias=bias)[0]
        return out.unflatten(0, (len(q), -1)).transpose(1, 2)

    return attend


def entmax(alpha: float) -> Attend | None:
    """The package entmax on all scores."""
    package = _module("entmax")
    if package is None:
        return None
    normalize = package.sparsemax if alpha == 2.0 else package.entmax15
    return lambda q, k, v: normalize(q @ k.mT * q.shape[-1] ** -0.5, dim=-1) @ v


def adasplash(alpha: float) -> Attend | None:
    package = _module("adasplash")
    return None if package is None else lambda q, k, v: package.adasplash(q, k, v, alpha=alpha, is_causal=False)
