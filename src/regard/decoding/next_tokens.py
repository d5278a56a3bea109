"""log p of the next token of every hypothesis, and the checks that all searches share.

Logits of minus infinity mean "never"; NaN and plus infinity are an error.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from regard.common import checks
from regard.decoding.protocol import LazyLogits, Step
from regard.kernels.vocab_topk import VocabTopK, topk_of_logits, vocab_topk


def log_probs(
    step: Step, alive: Tensor, rows: Tensor, t: int, eos: int | None, forbidden: Sequence[int]
) -> Tensor:  # alive "b n", rows "b" -> "b n v"
    """log p of every token, minus infinity for forbidden ones; not renormalised: the decoder's own."""
    _check_logits(step, alive.shape, eos, forbidden)
    logits = step.logits
    log_p = logits.log_softmax(-1, dtype=checks.accumulate_dtype(logits.dtype))
    # One NaN or plus infinity makes its whole row NaN, so one column is enough.
    broken = log_p[..., 0].isnan()
    if bool(broken.any()):
        _check_finite(broken & alive, rows, t)
        log_p[broken] = 0  # rows of finished hypotheses, which nobody reads
    if forbidden:
        log_p[..., list(forbidden)] = -torch.inf
    return log_p


def top_tokens(
    step: Step,
    shape: Sequence[int],
    alive: Tensor | None,
    rows: Tensor,
    t: int,
    eos: int,
    forbidden: Sequence[int],
    k: int,
) -> VocabTopK:  # shape (b, n), alive "b n" or None: all, rows "b" -> "b n k", "b n k", "b n"
    """log p of the k most probable tokens that are not forbidden, their ids, and log p of the end of the sentence.

    Hypotheses that are not alive are not computed: all their tokens have log p minus infinity.
    """
    _check_logits(step, shape, eos, forbidden)
    logits = step.logits_or_lazy
    index = None if alive is None or bool(alive.all()) else alive.flatten().nonzero().squeeze(1)
    states = (logits.states if isinstance(logits, LazyLogits) else logits).flatten(0, 1)
    states = states if index is None else states.index_select(0, index)
    if isinstance(logits, LazyLogits):
        log_p, tokens, end = vocab_topk(states, logits.weight, logits.bias, k, eos, forbidden)
    else:
        log_p, tokens, end = topk_of_logits(states, k, eos, forbidden)
    # a sum of logarithms of probabilities is NaN only if one of them is
    if math.isnan(end.sum().item()):
        _check_finite(_scatter(end.isnan(), index, shape, False), rows, t)
    return (
        _scatter(log_p, index, shape, -torch.inf),
        _scatter(tokens, index, shape, 0),
        _scatter(end, index, shape, -torch.inf),
    )


def _scatter(values: Tensor, index: Tensor | None, shape: Sequence[int], fill: float) -> Tensor:  # "m …" -> "b n …"
    """Values of the hypotheses at `index` of all that there are; None: of every one."""
    if index is not None:
        values = values.new_full((math.prod(shape), *values.shape[1:]), fill).index_copy_(0, index, values)
    return values.view(*shape, *values.shape[1:])


def _check_logits(step: Step, shape: Sequence[int], eos: int | None, forbidden: Sequence[int]) -> None:
    logits_shape = tuple(step.logits_or_lazy.shape)
    if len(logits_shape) != 3 or logits_shape[:2] != tuple(shape):
        raise ValueError(
            f"decoder.step must give logits (sentences, hypotheses, vocabulary) = {(*shape, 'v')}, got {logits_shape}"
        )
    for name, token in (("eos", eos), *(("forbidden", f) for f in forbidden)):
        if token is not None and not 0 <= token < logits_shape[-1]:
            raise ValueError(f"{name} must be an id of the vocabulary, 0 to {logits_shape[-1] - 1}, got {token}")


def _check_finite(broken: Tensor, rows: Tensor, t: int) -> None:  # "b n", "b"
    if bool(broken.any()):
        sentence = int(rows[broken.any(-1)][0])
        raise ValueError(
            f"decoder.step gave logits with NaN or infinity for sentence {sentence} at step {t}; "
            "look for NaN in the model's parameters, or decode in float32"
        )


def check_possible(log_p: Tensor, alive: Tensor) -> None:  # "b n" each
    """Raises where the most probable token of a living hypothesis has probability 0."""
    if bool(((log_p == -torch.inf) & alive).any()):
        raise impossible()


def impossible() -> ValueError:
    return ValueError(
        "every token that may come next has probability 0, so there is nothing to say; "
        "forbid fewer tokens, or let the decoder give one of the others a finite logit"
    )


def first_tokens(bos: int | Tensor, limits: Tensor) -> Tensor:  # "b", "b" -> "b 1"
    """The token before the first prediction: the same for all sentences, or the last one of each prompt."""
    if not isinstance(bos, Tensor):
        return torch.full((len(limits), 1), bos, device=limits.device)
    if bos.shape != limits.shape or bos.dtype != torch.long:
        raise ValueError(
            f"bos must be one token, or int64 with one token per sentence {checks.shape(limits)}, got {bos.dtype} "
            f"{checks.shape(bos)}; pass the last token of each prompt, prompt[:, -1]"
        )
    return bos.unsqueeze(1).to(limits.device)


def check_arguments(limits: Tensor, eos: int | None, forbidden: Sequence[int]) -> None:
    if not isinstance(limits, Tensor):
        raise TypeError(
            f"limits must be a tensor with one whole number a sentence, got {limits!r}; "
            "write torch.full((sentences,), 50), or 2 * lengths + 10"
        )
    if limits.ndim != 1 or limits.is_floating_point() or limits.dtype == torch.bool:
        raise TypeError(
            f"limits must be one whole number a sentence, got {limits.dtype} {checks.shape(limits)}; "
            "write torch.full((sentences,), 50), or 2 * lengths + 10"
        )
    if not len(limits):
        raise ValueError("limits is empty: there is no sentence to decode; pass one limit a sentence")
    if bool((limits < 1).any()):
        raise ValueError(f"limits must be 1 or more, got {int(limits.min())}; the end of the sentence is counted too")
    if eos in forbidden:
        raise ValueError(f"forbidden holds eos={eos}: no sentence could end; take it out of {list(forbidden)}")
