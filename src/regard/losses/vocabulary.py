"""Vocabulary layers with their cross-entropy, which never holds all logits: plain ones, and an adaptive softmax."""

import itertools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from regard.attn.quantized_linear import QuantizedLinear
from regard.common import checks
from regard.kernels.cross_entropy import cross_entropy_grad
from regard.kernels.dispatch import choose_route
from regard.kernels.native_library import resolve_native
from regard.kernels.second_derivatives import no_double_backward

# logits computed at a time, in elements: 16 MB of float32 stay in the cache
_MAX_LOGITS = 1 << 22


class _LinearCrossEntropy(torch.autograd.Function):
    """Computes the gradient together with the logits, so that they are computed once and never stored."""

    @staticmethod
    def forward(
        ctx: Any,
        states: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        smoothing: float,
        need_grad: bool,
    ) -> tuple[Tensor, Tensor]:
        needed = [need_grad and needs for needs in ctx.needs_input_grad]
        vocabulary = weight.shape[0]
        rows = max(_MAX_LOGITS // vocabulary, 1)
        total = states.new_zeros((), dtype=torch.float32 if states.dtype != torch.float64 else torch.float64)
        matrix = weight.to(states.dtype)
        nll = total.new_empty(states.shape[0])
        states_grad = torch.empty_like(states) if needed[0] else None
        weight_grad = (torch.empty_like if len(states) else torch.zeros_like)(matrix) if needed[1] else None
        bias_grad = torch.zeros_like(bias) if needed[2] and bias is not None else None
        # the smoothing term is linear in the logits: it needs a mean of W, no pass over the logits
        mean = matrix.mean(0) if smoothing else None
        bias_mean = 0.0 if bias is None else bias.mean().to(total.dtype)
        wide_bias = None if bias is None else bias.to(total.dtype)
        native = (
            choose_route(states, weight, bias, targets) == "direct" and resolve_native(None, total) and targets.is_cpu
        )
        for start in range(0, states.shape[0], rows):
            block = slice(start, start + rows)
            block_states = states[block]
            logits = (block_states @ matrix.T).to(total.dtype)
            result = cross_entropy_grad(logits, wide_bias, targets[block], 1 - smoothing, any(needed), native)
            nll[block] = result.nll
            total += result.nll.sum()
            if mean is not None:
                total += smoothing * (result.target_logits - (block_states @ mean).to(total.dtype) - bias_mean).sum()
            if not any(needed):
                continue
            logits_grad = logits.to(states.dtype)
            if states_grad is not None:
                torch.mm(logits_grad, matrix, out=states_grad[block])
            if weight_grad is not None and start:
                weight_grad.addmm_(logits_grad.T, block_states)
            elif weight_grad is not None:
                torch.mm(logits_grad.T, block_states, out=weight_grad)
            if bias_grad is not None and result.row_sums is not None:
                bias_grad += result.row_sums.to(bias_grad.dtype)
        if mean is not None and states_grad is not None:
            states_grad -= smoothing * mean
        if smoothing and weight_grad is not None:
            weight_grad -= smoothing / vocabulary * states.sum(0)
        if smoothing and bias_grad is not None:
            bias_grad -= smoothing * states.shape[0] / vocabulary
        ctx.gradients = (states_grad, None if weight_grad is None else weight_grad.to(weight.dtype), bias_grad)
        ctx.mark_non_differentiable(nll)
        return total, nll

    @staticmethod
    @no_double_backward("linear_cross_entropy has", "use F.cross_entropy(F.linear(states, weight, bias), targets)")
    def backward(ctx: Any, total: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        if ctx.gradients is None:
            raise RuntimeError(
                "linear_cross_entropy has one backward pass, which uses up the gradients it computed with the logits; "
                "call linear_cross_entropy again for another, or add the losses up before backward"
            )
        scaled = [None if t is None else t.mul_(total.to(t.dtype)) for t in ctx.gradients]
        ctx.gradients = None
        return (*scaled, None, None, None)


def vocabulary_loss(
    layer: nn.Module, states: Tensor, targets: Tensor, *, smoothing: float = 0.0
) -> tuple[Tensor, Tensor]:  # "n d", "n" -> scalar, "n"
    """`linear_cross_entropy` of a vocabulary layer, which may have 8-bit weights, or be Identity: states are logits."""
    if not isinstance(layer, QuantizedLinear | nn.Identity):
        return linear_cross_entropy(states, layer.weight, targets, bias=layer.bias, smoothing=smoothing)  # type: ignore[arg-type]
    vocabulary = layer.out_features if isinstance(layer, QuantizedLinear) else states.shape[-1]
    rows = max(_MAX_LOGITS // vocabulary, 1)
    total, nll = states.new_zeros(()), states.new_empty(len(states))
    for start in range(0, len(states), rows):
        block = slice(start, start + rows)
        log_p = layer(states[block]).log_softmax(-1)
        nll[block] = -log_p.gather(1, targets[block].unsqueeze(1)).squeeze(1)
        total += (1 - smoothing) * nll[block].sum() - (smoothing * log_p.mean(-1).sum() if smoothing else 0.0)
    return total, nll.detach()


def linear_cross_entropy(
    states: Tensor, weight: Tensor, targets: Tensor, *, bias: Tensor | None = None, smoothing: float = 0.0
) -> tuple[Tensor, Tensor]:  # "n d", "v d", "n" -> scalar, "n"
    """Σ (1 − ε)(−log p(y)) + ε/v Σ_w (−log p(w)), p = softmax(W s + b)  (Szegedy et al. 2016, label smoothing).

    The sum over all rows, to be trained, and −log p(y) of each row, to be reported, which has no gradient. One
    backward only: the gradient is computed with the logits, which are never kept.
    """
    if states.shape[-1] != weight.shape[-1]:
        raise ValueError(
            f"states must be as wide as weight, got {checks.shape(states)} and {checks.shape(weight)}; "
            f"try the weight of nn.Linear({states.shape[-1]}, {weight.shape[0]})"
        )
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ValueError(
            f"bias must be one number per word of weight, got {checks.shape(bias)} for weight {checks.shape(weight)}; "
            f"try the bias of nn.Linear({states.shape[-1]}, {weight.shape[0]})"
        )
    if targets.shape != states.shape[:-1] or states.ndim != 2:
        raise ValueError(
            f"targets must be one per row of states, got {checks.shape(targets)} for states {checks.shape(states)}; "
            "select the rows without padding first: states[keep], targets[keep]"
        )
    if targets.dtype != torch.int64:
        raise TypeError(f"targets must be int64, the numbers of words, got {targets.dtype}; call targets.long()")
    # on CPU only: on a GPU this would synchronise (and CUDA checks the range itself); traced tensors have no values
    if targets.is_cpu and choose_route(states, weight, bias, targets) == "direct":
        invalid = targets[(targets < 0) | (targets >= weight.shape[0])]
        if len(invalid):
            raise ValueError(
                f"targets must be words 0 to {weight.shape[0] - 1} of weight, got {int(invalid[0])}; "
                "select the valid rows first: states[keep], targets[keep]"
            )
    if not 0.0 <= smoothing < 1.0:
        raise ValueError(f"smoothing must be 0 or more and below 1, got {smoothing}; try 0.1")
    # gradients are always disabled inside a Function, and needs_input_grad ignores torch.no_grad
    return _LinearCrossEntropy.apply(states, weight, bias, targets, smoothing, torch.is_grad_enabled())


def cluster_bounds(vocabulary: int, cutoffs: Sequence[int], owner: str) -> list[int]:
    """0, the cutoffs and the size of the vocabulary; raises unless they increase."""
    bounds = [0, *cutoffs, vocabulary]
    checks.positive_ints(owner, vocabulary=vocabulary)
    if any(low >= high for low, high in itertools.pairwise(bounds)):
        raise ValueError(
            f"cutoffs must increase from 1 to below the vocabulary of {vocabulary} words for {owner}, "
            f"got {list(cutoffs)}; try cutoffs=[{max(vocabulary // 10, 1)}]"
        )
    return bounds


def cluster_widths(dim: int, clusters: int, div: int) -> list[int]:
    """The widths of the vectors: `dim` in the shortlist, then d / div, d / div², …"""
    return [max(dim // div**n, 1) for n in range(clusters + 1)]


class AdaptiveSoftmax(nn.Module):
    """log p(w) = log softmax(W h)_w in the shortlist; in cluster n: log softmax(W h)_n + log softmax(T_n P_n h)_w.

    (Grave et al. 2017.) The vocabulary is sorted by frequency: words below cutoffs[0] are the shortlist, cluster n
    holds the words from cutoffs[n] on, with vectors of width d / div^(n+1). The loss of a frequent word costs no
    product with rare ones. `weight` and `bias` of `shortlist` and `tails` are those of plain vocabulary layers.
    """

    def __init__(self, dim: int, vocabulary: int, cutoffs: Sequence[int], *, div: int = 4) -> None:
        super().__init__()
        checks.positive_ints("AdaptiveSoftmax", dim=dim, div=div)
        self.bounds = cluster_bounds(vocabulary, cutoffs, "AdaptiveSoftmax")
        sizes = [high - low for low, high in itertools.pairwise(self.bounds[1:])]
        widths = cluster_widths(dim, len(sizes), div)[1:]
        self.shortlist = nn.Linear(dim, self.bounds[1])
        self.clusters = nn.Linear(dim, len(sizes))
        self.projections = nn.ParameterList(torch.randn(dim, width) * dim**-0.5 for width in widths)  # "d e"
        self.tails = nn.ModuleList(nn.Linear(width, size) for width, size in zip(widths, sizes, strict=True))

    def forward(self, states: Tensor) -> Tensor:  # "… d" -> "… v"
        """log p of all words: logits whose softmax is p."""
        head = torch.cat([self.shortlist(states), self.clusters(states)], dim=-1).log_softmax(-1)
        words, clusters = head.split([self.bounds[1], len(self.tails)], dim=-1)
        log_p = [words]
        for n, (projection, tail) in enumerate(zip(self.projections, self.tails, strict=True)):
            log_p.append(clusters[..., n : n + 1] + tail(states @ projection).log_softmax(-1))
        return torch.cat(log_p, dim=-1)

    def token_loss(
        self, states: Tensor, targets: Tensor, *, smoothing: float = 0.0
    ) -> tuple[Tensor, Tensor]:  # "n d", "n" -> scalar, "n"
        """Σ −log p(target), to be trained, and −log p of each target, without gradient."""
        if smoothing:
            raise ValueError(f"smoothing must be 0 for an adaptive softmax, got {smoothing}; build it without cutoffs")
        # the cluster of each target: 0 is the shortlist
        cluster = torch.bucketize(targets, targets.new_tensor(self.bounds[1:-1]), right=True)
        head_targets = torch.where(cluster == 0, targets, self.bounds[1] - 1 + cluster)
        weight = torch.cat([self.shortlist.weight, self.clusters.weight])
        bias = torch.cat([self.shortlist.bias, self.clusters.bias])
        total, nll = linear_cross_entropy(states, weight, head_targets, bias=bias)
        nll = nll.clone()
        for n, (projection, tail) in enumerate(zip(self.projections, self.tails, strict=True)):
            assert isinstance(tail, nn.Linear)
            rows = (cluster == n + 1).nonzero().squeeze(-1)
            if not len(rows):
                continue
            tail_total, tail_nll = linear_cross_entropy(
                states[rows] @ projection, tail.weight, targets[rows] - self.bounds[n + 1], bias=tail.bias
            )
            total = total + tail_total
            nll[rows] += tail_nll
        return total, nll

    def extra_repr(self) -> str:
        return f"{self.shortlist.in_features}, {self.bounds[-1]}, cutoffs={self.bounds[1:-1]}"
