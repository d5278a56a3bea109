"""The most probable words: the k largest of log softmax(W x + b), which is all that a search reads of a vocabulary.

The native form multiplies and selects the k largest in one pass: the logits are never written. The result of a state
depends on that state alone, not on the other states of the call or the number of threads. There are no derivatives.
"""

import ctypes
from collections.abc import Sequence

import torch
from torch import Tensor

from regard.kernels.dispatch import choose_route
from regard.kernels.int8_linear import Int8Matrix, int8_linear, is_native
from regard.kernels.linear import Weight
from regard.kernels.native_library import call_kernel, resolve_native
from regard.kernels.stable_topk import stable_topk

VocabTopK = tuple[Tensor, Tensor, Tensor]  # log p "n k" and the words "n k", log p of the extra word "n"


@torch.no_grad()
def vocab_topk(
    states: Tensor,
    weight: Weight,
    bias: Tensor | None,
    k: int,
    extra: int,
    forbidden: Sequence[int] = (),
    native: bool | None = None,
) -> VocabTopK:  # "n d", "v d", "v"
    """The k most probable words of each state except `forbidden`, the first of equals first, and log p of `extra`.

    Probabilities are of the whole vocabulary. Where fewer than k words have one, word 0 follows with minus infinity.
    A state is NaN throughout if one of its logits is NaN or plus infinity, or if all are minus infinity.
    """
    fits = states.ndim == len(weight.shape) == 2 and states.shape[1] == weight.shape[1]
    if not fits or (bias is not None and tuple(bias.shape) != tuple(weight.shape[:1])):
        bias_shape = None if bias is None else tuple(bias.shape)
        raise ValueError(
            f"states must be (n, d) for a weight (v, d) and a bias (v), got {tuple(states.shape)}, "
            f"{tuple(weight.shape)} and {bias_shape}; build the vocabulary layer as nn.Linear(d, v)"
        )
    if isinstance(weight, Int8Matrix):
        return _int8_topk(states, weight, bias, k, extra, forbidden, native)
    tensors = [tensor for tensor in (states, weight, bias) if tensor is not None]
    route = choose_route(*tensors)
    if native and route != "direct":
        raise RuntimeError(
            "native=True is not possible under torch.compile, transforms and tracing; native=None falls back to torch"
        )
    if route != "direct" or not resolve_native(native, *tensors):
        # linear, because autocast lets it multiply tensors of different dtypes
        return topk_of_logits(torch.nn.functional.linear(states, weight, bias), k, extra, forbidden)
    return _native_topk("regard_likeliest", states, weight, [weight.contiguous()], bias, (), k, extra, forbidden)


def _int8_topk(
    states: Tensor,
    weight: Int8Matrix,
    bias: Tensor | None,
    k: int,
    extra: int,
    forbidden: Sequence[int],
    native: bool | None,
) -> VocabTopK:
    """The same with 8-bit weights."""
    if native is False or not is_native(states, weight, bias):
        return topk_of_logits(int8_linear(states, weight, bias, native=native), k, extra, forbidden)
    parts = [weight.packed, weight.scale]
    return _native_topk("regard_int8_likeliest", states, weight, parts, bias, (weight.is_float,), k, extra, forbidden)


def _native_topk(
    kernel: str,
    states: Tensor,
    weight: Weight,
    parts: Sequence[Tensor],
    bias: Tensor | None,
    settings: Sequence[int],
    k: int,
    extra: int,
    forbidden: Sequence[int],
) -> VocabTopK:
    """One call of a kernel that reads a weight as these tensors."""
    _check(k, extra, forbidden, len(weight))
    states, bias = states.contiguous(), None if bias is None else bias.contiguous()
    (n, d), k = states.shape, min(k, len(weight))
    values, extra_log_prob = states.new_empty(n, k), states.new_empty(n)
    words = states.new_empty(n, k, dtype=torch.long)
    forbidden_words = (ctypes.c_int64 * len(forbidden))(*forbidden)
    call_kernel(
        kernel,
        states,
        *(n, len(weight), d, k, states, *parts, bias, *settings),
        *(extra, len(forbidden), ctypes.addressof(forbidden_words)),
        *(values, words, extra_log_prob),
    )
    return values, words, extra_log_prob


@torch.no_grad()
def topk_of_logits(logits: Tensor, k: int, extra: int, forbidden: Sequence[int] = ()) -> VocabTopK:  # "n v"
    """`vocab_topk` of computed logits, in torch; in float32 at least."""
    _check(k, extra, forbidden, logits.shape[-1])
    log_p = logits.log_softmax(-1, dtype=logits.dtype if logits.dtype.itemsize >= 4 else torch.float32)
    extra_log_prob = log_p[:, extra].clone()
    if forbidden:
        log_p[:, list(forbidden)] = -torch.inf
    values, words = stable_topk(log_p, min(k, log_p.shape[1]))
    # one NaN or plus infinity makes its whole row NaN
    log_probs = values.masked_fill(extra_log_prob.isnan().unsqueeze(1), torch.nan)
    return log_probs, words.masked_fill(values == -torch.inf, 0), extra_log_prob


def _check(k: int, extra: int, forbidden: Sequence[int], v: int) -> None:
    if k < 1:
        raise ValueError(f"k must be 1 or more, the number of words per state, got {k}; try k=1")
    for name, word in [("extra", extra), *(("forbidden", word) for word in forbidden)]:
        if not 0 <= word < v:
            raise ValueError(f"{name} must be a word from 0 to {v - 1}, got {word}; words are counted from 0")
