"""Scores and weights on their way through a model that writes its attention out: what is known of a tensor."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from regard.attn.call import AttentionCall
from regard.attn.terms.bias import Added
from regard.recording.capture import sdpa
from regard.recording.capture.module_stack import ModuleFrame

# what `t.mT` calls
FLIP: Any = vars(torch._C.TensorBase)["mT"].__get__


@dataclass(frozen=True, eq=False)
class ScoresFact:
    """scale · q kᵀ + Σ biases."""

    q: Tensor  # "*b q d"
    k: Tensor  # "*b k d"
    scale: float = 1.0
    biases: tuple[Tensor, ...] = ()

    def times(self, factor: float) -> "ScoresFact":
        return replace(self, scale=self.scale * factor, biases=tuple(b * factor for b in self.biases))

    def plus(self, bias: Tensor) -> "ScoresFact":
        return replace(self, biases=(*self.biases, bias))


@dataclass(eq=False)
class SoftmaxFact:
    """One that ran: where, whether its scores came from a product, whether that was of queries and keys, and whether
    anything was mixed by it yet, so that it was heard or otherwise."""

    name: str
    product: bool
    attends: bool = False  # neither side of the product is a table that was learned
    heard: bool = False
    mixed: bool = False


@dataclass(frozen=True, eq=False)
class WeightsFact:
    """A tensor that holds weights: as they came from the softmax, or after dropout and reshaping."""

    scores: ScoresFact | None
    before: Tensor | None  # the same without dropout; None: it is the tensor itself
    softmax: SoftmaxFact
    flipped: bool = False  # keys before queries
    by: Tensor | None = None  # as many numbers that they were multiplied by: a mask, or values, if they are summed


def as_call(scores: ScoresFact | None, v: Tensor, weights: Tensor) -> AttentionCall | None:
    """The call of scores that were followed all the way."""
    if scores is None or weights.ndim < 3 or scores.q.shape[-2] != weights.shape[-2]:
        return None
    bias = None
    for one in scores.biases:
        bias = one if bias is None else bias + one
    call = sdpa.as_call(scores.q, scores.k, v, bias, False, scores.scale)
    return call if (*call.batch, scores.q.shape[-2], scores.k.shape[-2]) == tuple(weights.shape) else None


def folded(frame: ModuleFrame, size: int) -> int | None:
    """How many heads lie with the samples on one axis: the module says how many it has, what it was given how many
    samples there are."""
    given = next((one for one in (*frame.args, *frame.kwargs.values()) if isinstance(one, Tensor)), None)
    for name in ("num_heads", "num_attention_heads", "n_head", "n_heads", "heads"):
        count = getattr(frame.module, name, None)
        if isinstance(count, int) and count > 1 and given is not None and given.shape[:1].numel() * count == size:
            return count
    return None


def headed(
    call: AttentionCall | None, weights: Tensor, v: Tensor, seen: Callable[[Tensor], Tensor], heads: int
) -> tuple[AttentionCall | None, Tensor, Tensor, Callable[[Tensor], Tensor]]:
    """Samples and heads that lie on one axis, apart."""

    def apart(t: Tensor) -> Tensor:
        return t if t.shape[0] == 1 and heads > 1 else t.unflatten(0, (-1, heads))

    if call is not None:
        bias = call.bias.values if isinstance(call.bias, Added) else None
        if bias is not None and bias.ndim == 3:
            bias = apart(bias) if bias.shape[0] > 1 else bias.unsqueeze(0)
        call = sdpa.as_call(apart(call.q), apart(call.keys), apart(v), bias, False, call.score.scale_of(1))
    return call, apart(weights), apart(v), lambda t: apart(seen(t))


def moved(scores: ScoresFact | None, like: Tensor) -> ScoresFact | None:
    """Scores whose leading axes were laid out anew; None where a bias is not the same for all of them."""
    if scores is None or any(b.ndim > 2 and b.shape[:-2].numel() > 1 for b in scores.biases):
        return None
    lead = like.shape[:-2]
    whole = torch.broadcast_shapes(scores.q.shape[:-2], scores.k.shape[:-2])
    q, k = (t.expand(*whole, *t.shape[-2:]) for t in (scores.q, scores.k))
    # all that lays out anew keeps every number once, but for `expand`
    if whole.numel() == lead.numel():
        q, k = (t.reshape(*lead, *t.shape[-2:]) for t in (q, k))
    else:
        q, k = (t.expand(*lead, *t.shape[-2:]) for t in (q, k))
    return replace(scores, q=q, k=k, biases=tuple(b if b.ndim <= 2 else b.reshape(b.shape[-2:]) for b in scores.biases))


def last_two(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Does this turn the last two axes, and no others?"""
    n = args[0].ndim
    if func == FLIP:  # every look at it is a new one
        return True
    axes = [*args[1:], *kwargs.values()]
    if len(axes) == 1 and isinstance(axes[0], list | tuple):
        axes = list(axes[0])
    axes = [axis % n for axis in axes if isinstance(axis, int)]
    return (
        axes in ([n - 2, n - 1], [n - 1, n - 2]) if len(axes) == 2 and n != 2 else axes == [*range(n - 2), n - 1, n - 2]
    )


def turn(held: WeightsFact) -> WeightsFact:
    return replace(held, flipped=not held.flipped)


def swapped(scores: ScoresFact | None) -> ScoresFact | None:
    """Scores of keys by queries as those of queries by keys."""
    if scores is None:
        return None
    biases = tuple(b if b.ndim == 0 else b.mT if b.ndim > 1 else b.unsqueeze(-1) for b in scores.biases)
    return replace(scores, q=scores.k, k=scores.q, biases=biases)


def leaves_last_two(index: Any, axes: int) -> bool:
    """Does t[index] of so many axes keep the last two, whole or in part?"""
    given = index if isinstance(index, tuple) else (index,)
    if any((one is not Ellipsis and not isinstance(one, int | slice)) or isinstance(one, bool) for one in given):
        return False
    at = next((n for n, one in enumerate(given) if one is Ellipsis), len(given))
    behind = given[at + 1 :]
    front = given[:at]
    if len(behind) >= 2:
        return all(isinstance(one, slice) for one in behind[-2:])
    last = [*front, *[slice(None)] * (axes - len(front) - len(behind)), *behind][-2:]
    return all(isinstance(one, slice) for one in last)


def same(t: Tensor) -> Tensor:
    return t


def turned(t: Tensor) -> Tensor:
    return t.mT


def number(value: Any) -> float | None:
    """A number, or a tensor of one."""
    if isinstance(value, int | float):
        return float(value)
    return float(value) if isinstance(value, Tensor) and value.numel() == 1 and not value.requires_grad else None


def broadcasts(t: Tensor, to: Tensor) -> bool:
    return t.ndim <= to.ndim and all(n in (1, m) for n, m in zip(reversed(t.shape), reversed(to.shape), strict=False))


def tensors(*given: Any) -> list[Tensor]:
    """All tensors of a call, also those in lists."""
    found = []
    for one in given:
        if isinstance(one, Tensor):
            found.append(one)
        elif isinstance(one, list | tuple):
            found += [t for t in one if isinstance(t, Tensor)]
    return found


def summed(axis: int, args: tuple[Any, ...], kwargs: dict[str, Any], axes: int) -> bool:
    """Does t.sum(…), of so many axes, sum over this one of them, and not over all?"""
    over = kwargs.get("dim", args[1] if len(args) > 1 else None)
    several = over if isinstance(over, list | tuple) else args[1:] if len(args) > 1 else (over,)
    return any(isinstance(one, int) and not isinstance(one, bool) and one % axes == axis % axes for one in several)


def features(t: Tensor, axis: int) -> bool:
    """Are these numbers of their own?  Not a mask of noughts and ones, nor probabilities, as the truth is told."""
    if not t.is_floating_point():
        return False
    t = t.detach()
    sums = t.sum(axis)
    likely = bool((t >= 0).all()) and torch.allclose(sums, torch.ones_like(sums), atol=1e-3)
    return not likely and not bool(((t == 0) | (t == 1)).all())
