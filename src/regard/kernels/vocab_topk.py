"""The likeliest words: the k largest of log softmax(W x + b), which is all that a search reads of a vocabulary.

The native form multiplies and keeps the k largest at once: the logits are never written. What it finds for a state
depends on that state alone, whatever the others in the call are and however many threads run. There are no derivatives.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from regard.kernels.dispatch import route
from regard.kernels.native_library import call, choose
from regard.kernels.stable_topk import stable_topk

Likeliest = tuple[Tensor, Tensor, Tensor]  # log p "n k" and the words "n k", log p of the word asked for "n"


@torch.no_grad()
def vocab_topk(
    states: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    k: int,
    also: int,
    never: Sequence[int] = (),
    native: bool | None = None,
) -> Likeliest:  # "n d", "v d", "v"
    """The k most probable words of each state without those of `never`, the first of equals first, and log p of `also`.

    Probabilities are of the whole vocabulary. Where fewer than k words have one, word 0 follows with minus infinity.
    A state is NaN throughout if one of its logits is NaN or plus infinity, or if all are minus infinity.
    """
    fits = states.ndim == weight.ndim == 2 and states.shape[1] == weight.shape[1]
    if not fits or (bias is not None and bias.shape != weight.shape[:1]):
        lift = None if bias is None else tuple(bias.shape)
        raise ValueError(
            f"states must be (n, d) for a weight (v, d) and a bias (v), got {tuple(states.shape)}, "
            f"{tuple(weight.shape)} and {lift}; build the vocabulary layer as nn.Linear(d, v)"
        )
    given = [one for one in (states, weight, bias) if one is not None]
    # Autocast multiplies what is not of one type.
    way = route(*given)
    if native and way != "direct":
        raise RuntimeError(
            "native=True cannot be had under torch.compile, transforms and tracing; native=None takes what runs"
        )
    if way != "direct" or not choose(native, *given):
        return of_logits(torch.nn.functional.linear(states, weight, bias), k, also, never)
    _check(k, also, never, len(weight))
    states, weight = states.contiguous(), weight.contiguous()
    bias = None if bias is None else bias.contiguous()
    (n, d), k = states.shape, min(k, len(weight))
    values, told = states.new_empty(n, k), states.new_empty(n)
    words, nevers = torch.empty(n, k, dtype=torch.long), torch.tensor(never, dtype=torch.long)
    call(
        "regard_likeliest",
        states,
        *(n, len(weight), d, k),
        *(states.data_ptr(), weight.data_ptr(), None if bias is None else bias.data_ptr()),
        *(also, len(never), nevers.data_ptr()),
        *(values.data_ptr(), words.data_ptr(), told.data_ptr()),
    )
    return values, words, told


@torch.no_grad()
def of_logits(logits: Tensor, k: int, also: int, never: Sequence[int] = ()) -> Likeliest:  # "n v"
    """`likeliest` of logits that are there already, in torch; in float32 at least."""
    _check(k, also, never, logits.shape[-1])
    log_p = logits.log_softmax(-1, dtype=logits.dtype if logits.dtype.itemsize >= 4 else torch.float32)
    told = log_p[:, also].clone()
    if never:
        log_p[:, list(never)] = -torch.inf
    values, words = stable_topk(log_p, min(k, log_p.shape[1]))
    # One NaN or plus infinity makes NaN of its whole row.
    return values.masked_fill(told.isnan().unsqueeze(1), torch.nan), words.masked_fill(values == -torch.inf, 0), told


def _check(k: int, also: int, never: Sequence[int], v: int) -> None:
    if k < 1:
        raise ValueError(f"k must be 1 or more, the words to be found, got {k}; try k=1")
    for name, word in [("also", also), *(("never", word) for word in never)]:
        if not 0 <= word < v:
            raise ValueError(f"{name} must be of the words 0 to {v - 1}, got {word}; count from the first word on")
