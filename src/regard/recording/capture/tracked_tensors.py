"""Facts about tensors on the way from scores to weights, in a model that writes its attention out."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.attn.call import AttentionCall
from regard.attn.terms.bias import TensorBias
from regard.kernels.dispatch import in_functorch_transform
from regard.recording.capture import sdpa
from regard.recording.capture.module_stack import ModuleFrame
from regard.recording.capture.recorder import identity
from regard.recording.capture.torch_functions import MT, TorchCall


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

    def transposed(self) -> "ScoresFact":
        """Scores of keys by queries as those of queries by keys."""
        biases = tuple(b if b.ndim == 0 else b.mT if b.ndim > 1 else b.unsqueeze(-1) for b in self.biases)
        return replace(self, q=self.k, k=self.q, biases=biases)


@dataclass(eq=False)
class SoftmaxFact:
    """One softmax that ran, and how its output was used so far."""

    name: str  # name of the module
    in_attention: bool  # the module is attention by its name
    from_product: bool  # its scores came from a matrix product
    keys: int  # length of its rows
    of_queries: bool = False  # neither side of that product is a parameter of the model
    is_used: bool = False  # some call took its output
    is_recorded: bool = False
    is_mixed: bool = False  # something was multiplied by its output and summed


@dataclass(frozen=True, eq=False)
class WeightsFact:
    """A tensor that holds weights: the output of a softmax, possibly after dropout and reshaping."""

    scores: ScoresFact | None
    before_dropout: Tensor | None  # None: there was no dropout
    softmax: SoftmaxFact
    is_transposed: bool = False  # keys before queries
    factor: Tensor | None = None  # they were multiplied by this tensor of their shape: a mask, or values to be summed

    def mapped(self, change: Callable[[Tensor], Tensor], scores: ScoresFact | None = None) -> "WeightsFact":
        """The weights after a change, with their scores if these could be followed through it."""
        before = None if self.before_dropout is None else change(self.before_dropout)
        return replace(self, before_dropout=before, scores=scores)

    def transposed(self) -> "WeightsFact":
        return replace(self, is_transposed=not self.is_transposed)


class ValueRead(NamedTuple):
    """A product of weights and values."""

    weights: Tensor
    fact: WeightsFact
    v: Tensor
    as_rows: Callable[[Tensor], Tensor] = identity
    as_values: Callable[[Tensor], Tensor] = identity  # the argument of the call as `v`

    @property
    def formed(self) -> Tensor:
        """The weights before dropout."""
        return self.weights if self.fact.before_dropout is None else self.fact.before_dropout

    @property
    def is_attention(self) -> bool:
        """Whether weights read a sequence: those of two axes, as a router has, only if a product made their scores."""
        axes = self.formed.ndim
        return self.v.ndim > 1 and axes > 1 and (axes > 2 or self.fact.softmax.from_product)


def attention_call(scores: ScoresFact | None, v: Tensor, weights: Tensor) -> AttentionCall | None:
    """The call of scores that were followed all the way from queries and keys."""
    if scores is None or weights.ndim < 3 or scores.q.shape[-2] != weights.shape[-2]:
        return None
    bias = None
    for b in scores.biases:
        bias = b if bias is None else bias + b
    call = sdpa.as_call(scores.q, scores.k, v, bias, False, scores.scale)
    return call if (*call.batch, scores.q.shape[-2], scores.k.shape[-2]) == tuple(weights.shape) else None


def folded_heads(frame: ModuleFrame, size: int) -> int | None:
    """The number of heads that share one axis of `size` with the samples: by the attributes of the module and the
    number of samples in its input."""
    first_tensor = next((value for value in (*frame.args, *frame.kwargs.values()) if isinstance(value, Tensor)), None)
    for name in ("num_heads", "num_attention_heads", "n_head", "n_heads", "heads"):
        count = getattr(frame.module, name, None)
        if (
            isinstance(count, int)
            and count > 1
            and first_tensor is not None
            and first_tensor.shape[:1].numel() * count == size
        ):
            return count
    return None


def unfold_heads(
    call: AttentionCall | None, weights: Tensor, v: Tensor, as_rows: Callable[[Tensor], Tensor], heads: int
) -> tuple[AttentionCall | None, Tensor, Tensor, Callable[[Tensor], Tensor]]:
    """Splits the axis that samples and heads share."""

    def split(t: Tensor) -> Tensor:
        return t if t.shape[0] == 1 and heads > 1 else t.unflatten(0, (-1, heads))

    if call is not None:
        bias = call.bias.values if isinstance(call.bias, TensorBias) else None
        if bias is not None and bias.ndim == 3:
            bias = split(bias) if bias.shape[0] > 1 else bias.unsqueeze(0)
        call = sdpa.as_call(split(call.q), split(call.keys), split(v), bias, False, call.score.scale_of(1))
    return call, split(weights), split(v), lambda t: split(as_rows(t))


def reshape_scores(scores: ScoresFact | None, like: Tensor) -> ScoresFact | None:
    """Scores with the leading axes of `like`; None where a bias differs along them."""
    if scores is None or any(b.ndim > 2 and b.shape[:-2].numel() > 1 for b in scores.biases):
        return None
    lead = like.shape[:-2]
    batch = torch.broadcast_shapes(scores.q.shape[:-2], scores.k.shape[:-2])
    q, k = (t.expand(*batch, *t.shape[-2:]) for t in (scores.q, scores.k))
    # every reshape but `expand` keeps every number once
    if batch.numel() == lead.numel():
        q, k = (t.reshape(*lead, *t.shape[-2:]) for t in (q, k))
    else:
        q, k = (t.expand(*lead, *t.shape[-2:]) for t in (q, k))
    return replace(scores, q=q, k=k, biases=tuple(b if b.ndim <= 2 else b.reshape(b.shape[-2:]) for b in scores.biases))


def transposes_last_two(call: TorchCall) -> bool:
    """Whether the call transposes the last two axes, and no others."""
    n = call.args[0].ndim
    if call.func == MT:
        return True
    axes = [*call.args[1:], *call.kwargs.values()]
    if len(axes) == 1 and isinstance(axes[0], list | tuple):
        axes = list(axes[0])
    axes = [axis % n for axis in axes if isinstance(axis, int)]
    return (
        axes in ([n - 2, n - 1], [n - 1, n - 2]) if len(axes) == 2 and n != 2 else axes == [*range(n - 2), n - 1, n - 2]
    )


def keeps_last(call: TorchCall) -> bool:
    """Whether the call transposes a tensor and leaves the last axis in its place."""
    sizes = torch.empty(*range(2, call.args[0].ndim + 2), device="meta")
    return bool(call.repeated_on(sizes).shape[-1] == sizes.shape[-1])


def adds_axes(index: Any) -> bool:
    """Whether t[index] keeps every number and only adds axes of one, as t[:, None] does."""
    items = index if isinstance(index, tuple) else (index,)
    return any(item is None for item in items) and all(
        item is None or item is Ellipsis or (isinstance(item, slice) and item == slice(None)) for item in items
    )


def keeps_last_two(index: Any, axes: int) -> bool:
    """Whether t[index], of a tensor with this many axes, keeps the last two, whole or sliced."""
    items = index if isinstance(index, tuple) else (index,)
    if any((item is not Ellipsis and not isinstance(item, int | slice)) or isinstance(item, bool) for item in items):
        return False
    dots = next((n for n, item in enumerate(items) if item is Ellipsis), len(items))
    front, back = items[:dots], items[dots + 1 :]
    if len(back) >= 2:
        return all(isinstance(item, slice) for item in back[-2:])
    last = [*front, *[slice(None)] * (axes - len(front) - len(back)), *back][-2:]
    return all(isinstance(item, slice) for item in last)


def transpose(t: Tensor) -> Tensor:
    return t.mT


def as_number(value: Any) -> float | None:
    """A number, or a tensor of one number that has no gradient."""
    if isinstance(value, int | float):
        return float(value)
    return float(value) if isinstance(value, Tensor) and value.numel() == 1 and not value.requires_grad else None


def can_broadcast(t: Tensor, to: Tensor) -> bool:
    return t.ndim <= to.ndim and all(n in (1, m) for n, m in zip(reversed(t.shape), reversed(to.shape), strict=False))


def sums_over(axis: int, call: TorchCall, axes: int) -> bool:
    """Whether the call, a sum of a tensor with this many axes, sums over `axis` and not over all of them."""
    dim = call.dim
    dims = dim if isinstance(dim, list | tuple) else call.args[1:] if len(call.args) > 1 else (dim,)
    return any(isinstance(d, int) and not isinstance(d, bool) and d % axes == axis % axes for d in dims)


def is_features(t: Tensor, axis: int) -> bool:
    """Whether the tensor holds features: neither a mask of zeros and ones, nor probabilities, as targets are."""
    if not t.is_floating_point():
        return False
    t = t.detach()
    sums = t.sum(axis)
    is_distribution = bool((t >= 0).all()) and torch.allclose(sums, torch.ones_like(sums), atol=1e-3)
    return not is_distribution and not bool(((t == 0) | (t == 1)).all())


def sums_to_one(t: Tensor) -> bool:
    """Whether the last axis sums to one, in all rows that are not empty."""
    if in_functorch_transform():
        return False
    sums = t.detach().sum(-1)
    return bool((((sums - 1).abs() < 1e-2) | (sums == 0) | sums.isnan()).all())
