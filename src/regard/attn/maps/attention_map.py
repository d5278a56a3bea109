"""AttentionMap: attention weights computed on demand, so that no (q, k) matrix is stored."""

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.attn import call_slicing
from regard.attn.call import SOFTMAX, AttentionCall, allowed_for, scores
from regard.attn.call_slicing import CopyTensor
from regard.attn.maps import indexing as index_of
from regard.attn.terms.bias import TensorBias
from regard.attn.terms.read import entropy as entropy_of
from regard.attn.terms.score import Dot
from regard.common import checks
from regard.kernels.dispatch import autocast_disabled
from regard.kernels.precision import widen

# a bias this far below the greatest of its row counts as a mask: libraries add −inf, the least number of a dtype, or
# −10,000
HIDDEN = -1e4
# weights computed at a time: 16 MB of float32
_AT_ONCE = 1 << 22


class Top(NamedTuple):
    """The greatest weights of some rows and their columns."""

    weights: Tensor  # "*b rows n"
    columns: Tensor  # "*b rows n"


class AttentionMap(ABC):
    """weights[i, j], whole rows on demand: `map[rows, columns]` as on a tensor's last two axes, `map.rows(index)`,
    `map.topk(n)`, `map.entropy()`, `map.pooled(height, width)`, `map.dense()`; before them `map.pick(sample, head)`.
    """

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """(*b, q, k)"""

    @property
    @abstractmethod
    def device(self) -> torch.device: ...

    @abstractmethod
    def rows(self, rows: Tensor | slice) -> Tensor:  # -> "*b rows k"
        """The whole weights of some queries, in float32 at least."""

    @abstractmethod
    def _select(self, index: tuple[int | slice, ...]) -> "AttentionMap":
        """The map restricted to some entries of the leading axes."""

    def pick(self, *index: int | slice) -> "AttentionMap":
        """The map of one sample, of one head: `map.pick(0, 3)` removes axes from the front, as an index does."""
        if len(index) > len(self.shape) - 2:
            raise IndexError(
                f"pick takes at most the {len(self.shape) - 2} leading axes of {self}, got {len(index)}; see shape"
            )
        return self._select(index)

    def __repr__(self) -> str:
        return f"AttentionMap{self.shape}"

    def __getitem__(self, index: object) -> Tensor:
        """map[rows, columns] on the last two axes; map[rows] has all columns. An integer removes its axis."""
        rows, columns = (
            (*index, slice(None))[:2] if isinstance(index, tuple) and len(index) <= 2 else (index, slice(None))
        )
        if isinstance(rows, tuple):
            raise IndexError(
                f"a map is indexed by [rows, columns], got {len(rows)} indices; pick(sample, head) comes before"
            )
        row, column = index_of.as_int(rows), index_of.as_int(columns)
        chosen = self.rows(index_of.row_index(rows, self.shape[-2], self.device))
        if column is None and not isinstance(columns, slice):
            columns = torch.as_tensor(columns, device=chosen.device)
        chosen = chosen[..., columns if column is None else column]
        return chosen if row is None else chosen.select(-2 if column is None else -1, 0)

    def allowed(self, rows: Tensor | slice = slice(None)) -> Tensor | None:  # -> bool "*b rows k"
        """The keys that these queries may attend to; None if no mask is known."""
        return None

    def spans(self) -> tuple[Tensor, Tensor] | None:  # -> "q", "q"
        """For the map of one head, "q k": the first allowed key of each query and the end of its allowed keys, if the
        mask is one interval per query and known without testing pairs; a query without an allowed key has 0 and 0. None
        otherwise.
        """
        return None

    def _chunks(self, rows: Tensor) -> Iterator[Tensor]:
        """The weights of `rows`, some rows at a time."""
        step = max(1, _AT_ONCE // max(self._weights_per_row(), 1))
        for start in range(0, len(rows), step):
            yield self.rows(rows[start : start + step])

    def _weights_per_row(self) -> int:
        """The number of weights computed per row."""
        return math.prod(self.shape[:-2]) * self.shape[-1]

    def _all_rows(self) -> Tensor:
        return torch.arange(self.shape[-2], device=self.device)

    def topk(self, n: int, rows: Tensor | slice | list[int] | None = None) -> Top:
        """The n greatest weights of every row, or of `rows`."""
        if not 0 < n <= self.shape[-1]:
            raise ValueError(
                f"n must be between 1 and the number of keys, {self.shape[-1]}, got {n}; try {min(5, self.shape[-1])}"
            )
        index = (
            self._all_rows()
            if rows is None
            else self._all_rows()[index_of.row_index(rows, self.shape[-2], self.device)]
        )
        tops = [torch.topk(piece, n, dim=-1) for piece in self._chunks(index)]
        if not tops:
            empty = torch.zeros(*self.shape[:-2], 0, n, device=self.device)
            return Top(empty, empty.long())
        return Top(torch.cat([b.values for b in tops], dim=-2), torch.cat([b.indices for b in tops], dim=-2))

    def entropy(self) -> Tensor:  # -> "*b q"
        """−Σ_j w_j log w_j of every row, in nats."""
        entropies = [entropy_of(piece) for piece in self._chunks(self._all_rows())]
        return torch.cat(entropies, dim=-1) if entropies else torch.zeros(self.shape[:-1], device=self.device)

    def pooled(self, height: int, width: int) -> Tensor:  # -> "*b height width"
        """The map reduced to few cells: a cell is the weight that its rows, on average, give to all its columns
        together.

        So a row of cells has the same sum as a row of weights.
        """
        for name, n in (("height", height), ("width", width)):
            if n < 1:
                raise ValueError(f"{name} must be 1 or more, got {n}; try pooled(256, 256)")
        *batch, q, k = self.shape
        height, width = min(height, max(q, 1)), min(width, max(k, 1))
        rows = torch.arange(q, device=self.device)
        cell_of_row, cell_of_column = (
            rows * height // max(q, 1),
            torch.arange(k, device=rows.device) * width // max(k, 1),
        )
        cells = torch.zeros(*batch, height, width, device=rows.device)
        start = 0
        for weights in self._chunks(rows):
            cells = cells.to(weights.dtype)
            pooled_columns = weights.new_zeros(*weights.shape[:-1], width).index_add_(-1, cell_of_column, weights)
            cells.index_add_(-2, cell_of_row[start : start + weights.shape[-2]], pooled_columns)
            start += weights.shape[-2]
        return cells / torch.bincount(cell_of_row, minlength=height).clamp_min(1).unsqueeze(-1)

    def dense(self) -> Tensor:  # -> "*b q k"
        """All weights. This forms the matrix: quadratic memory."""
        return self.rows(slice(None))


class SnapshotMap(AttentionMap):
    """A map over tensors that the model owns, which can be restricted and copied before they change."""

    @property
    @abstractmethod
    def mask_only(self) -> AttentionMap | None:
        """A map that only answers `allowed` and `spans`; None if no mask is known."""

    @abstractmethod
    def select_rows(self, rows: Sequence[int]) -> "SnapshotMap":
        """The map of some queries."""

    @abstractmethod
    def select_heads(self, heads: Sequence[int]) -> "SnapshotMap":
        """The map of some heads, the last of the leading axes."""

    @abstractmethod
    def snapshot(self, copied: CopyTensor) -> "SnapshotMap":
        """The same map over copies of its tensors, which later changes by the model do not reach."""


class LazyMap(SnapshotMap):
    """weights = normalize(score(q, k) + bias, mask), stored as projected queries and keys: linear memory.

    `pick` restricts the call, so that one head of a long map costs no more than one head.
    """

    def __init__(self, call: AttentionCall, freeze: Callable[[Any], Any] | None = None) -> None:
        """`freeze` returns a term that no training step will change: a copy, unless the caller already has one."""
        self.call = _detached(call, freeze_term if freeze is None else freeze)
        self.picked_index: tuple[int | slice, ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        call, batch = self.call, self.call.batch
        if self.picked_index:
            batch = tuple(torch.empty(batch, device="meta")[self.picked_index].shape)
        return (*batch, call.queries.size(-2), call.keys.size(-2))

    @property
    def device(self) -> torch.device:
        return self.call.q.device

    @torch.no_grad()
    def rows(self, rows: Tensor | slice) -> Tensor:
        with autocast_disabled(self.device):
            restricted = self._call_of_rows(rows)
            s = scores(restricted)
            weights = restricted.normalize.weights(s, allowed_for(restricted, s))
        return weights.expand(*self.call.batch, *weights.shape[-2:])[self.picked_index]

    @torch.no_grad()
    def allowed(self, rows: Tensor | slice = slice(None)) -> Tensor | None:
        """Allowed by the mask and by a tensor bias, which masks the numbers far below the greatest of their row.

        A row whose keys are all hidden by one finite number attends to all of them.
        """
        if self.call.mask is None and not isinstance(self.call.bias, TensorBias):
            return None
        restricted = self.call.slice(rows, slice(None))
        allowed = restricted.allowed()
        if isinstance(restricted.bias, TensorBias):
            values = restricted.bias.values
            if allowed is not None:
                values = values.masked_fill(~allowed, -torch.inf)
            # a row of −inf alone has no allowed entry
            allowed = values - values.amax(-1, keepdim=True) > HIDDEN
        assert allowed is not None
        return allowed.expand(*self.call.batch, restricted.queries.shape[-2], restricted.keys.shape[-2])[
            self.picked_index
        ]

    def spans(self) -> tuple[Tensor, Tensor] | None:
        call = self.call
        if call.mask is None or isinstance(call.bias, TensorBias) or len(self.shape) != 2:
            return None
        i, j = (t.reshape(-1) if t.numel() == t.shape[-1] else None for t in call.positions())
        count = call.keys.shape[-2]
        if i is None or j is None or not count or not bool((j.diff() == 1).all()):
            return None
        span = call.mask.span(i)
        if span is None:
            return None
        first = torch.zeros_like(i) if span.first is None else (span.first - j[0]).clamp(0, count)
        end = torch.full_like(i, count) if span.end is None else (span.end - j[0]).clamp(0, count)
        has_keys = first < end
        return first * has_keys, end * has_keys

    @property
    def mask_only(self) -> "LazyMap | None":
        call = self.call
        bias = call.bias if isinstance(call.bias, TensorBias) else None
        if call.mask is None and bias is None:
            return None
        mask_map, queries = copy.copy(self), call.queries[..., :0].expand(*call.batch, -1, 0)
        keys = call.keys[..., :0]
        mask_map.call = replace(
            call, q=queries, queries=queries, keys=keys, score=Dot(1.0), bias=bias, normalize=SOFTMAX
        )
        return mask_map

    def _call_of_rows(self, rows: Tensor | slice) -> AttentionCall:
        call = self.call
        if call.mask is not None or call.bias is not None:
            return call.slice(rows, slice(None))
        return replace(call, queries=call.queries[..., rows, :])  # no term depends on the positions

    def _select(self, index: tuple[int | slice, ...]) -> AttentionMap:
        restricted = copy.copy(self)
        restricted.call, restricted.picked_index = call_slicing.pick(
            self.call, index_of.compose(self.picked_index, index, self.call.batch)
        )
        return restricted

    def _weights_per_row(self) -> int:
        return math.prod(self.call.batch) * self.shape[-1]  # heads that could not be sliced are computed, too

    def select_rows(self, rows: Sequence[int]) -> "LazyMap":
        restricted = copy.copy(self)
        restricted.call = self.call.slice(torch.tensor(rows, device=self.device), slice(None))
        return restricted

    def select_heads(self, heads: Sequence[int]) -> "LazyMap":
        assert not self.picked_index, "heads come before what is picked"
        if call_slicing.knows_heads(self.call):
            raise ValueError(
                f"heads={list(heads)} cannot be taken from {self}: {self.call.score!r} or {self.call.normalize!r} "
                "mixes heads, or was written elsewhere and may tell them apart; leave heads out"
            )
        restricted = copy.copy(self)
        restricted.call = call_slicing.select(self.call, len(self.call.batch) - 1, heads)
        return restricted

    def snapshot(self, copy_tensor: CopyTensor) -> "LazyMap":
        call = self.call
        bias = TensorBias(copy_tensor("bias", call.bias.values)) if isinstance(call.bias, TensorBias) else call.bias
        queries = copy_tensor("queries", call.queries)
        has_own_q = call.q is not call.queries and bias is not None and not isinstance(bias, TensorBias)
        positions = call.explicit_positions
        if positions is not None:
            positions = copy_tensor("positions", positions[0]), copy_tensor("positions", positions[1])
        # one map per layer of every recorded pass: the constructor takes a quarter of the time of `replace`
        copied_map = LazyMap.__new__(LazyMap)
        copied_map.picked_index = self.picked_index
        q = copy_tensor("queries", call.q) if has_own_q else queries
        mask = None if call.mask is None else call_slicing.snapshot_mask(call.mask, copy_tensor)
        keys = copy_tensor("keys", call.keys)
        terms = call.score, bias, mask, call.normalize, call.read, call.dropout
        shapes = call.batch, call.group, call.total
        copied_map.call = AttentionCall(
            q, queries, keys, call.v, *terms, call.need, *shapes, positions, votes=call.votes
        )
        return copied_map


class DenseMap(SnapshotMap):
    """A stored weight matrix, of an attention that is not the equation or that forms its matrix anyway.

    `mask_only`, a map of the same shape, answers which keys are allowed.
    """

    def __init__(self, weights: Tensor, mask_only: AttentionMap | None = None) -> None:  # "*b q k"
        if weights.ndim < 2 or not weights.is_floating_point():
            raise TypeError(
                f"weights must be floating, (…, queries, keys), got {weights.dtype} {checks.shape(weights)}; "
                "give a vector an axis of one query, weights.unsqueeze(-2)"
            )
        self.weights, self._mask_only = weights.detach(), mask_only

    @property
    def mask_only(self) -> AttentionMap | None:
        return self._mask_only

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.weights.shape)

    @property
    def device(self) -> torch.device:
        return self.weights.device

    def rows(self, rows: Tensor | slice) -> Tensor:
        weights = self.weights[..., rows, :]
        return widen(weights)

    def allowed(self, rows: Tensor | slice = slice(None)) -> Tensor | None:
        return None if self.mask_only is None else self.mask_only.allowed(rows)

    def spans(self) -> tuple[Tensor, Tensor] | None:
        return None if self.mask_only is None else self.mask_only.spans()

    def _select(self, index: tuple[int | slice, ...]) -> AttentionMap:
        return DenseMap(self.weights[index], None if self.mask_only is None else self.mask_only.pick(*index))

    def select_rows(self, rows: Sequence[int]) -> "DenseMap":
        return DenseMap(
            self.weights[..., list(rows), :], self._cut_mask_only(lambda mask_only: mask_only.select_rows(rows))
        )

    def select_heads(self, heads: Sequence[int]) -> "DenseMap":
        return DenseMap(
            self.weights[..., list(heads), :, :], self._cut_mask_only(lambda mask_only: mask_only.select_heads(heads))
        )

    def snapshot(self, copy_tensor: CopyTensor) -> "DenseMap":
        return DenseMap(
            copy_tensor("weights", self.weights), self._cut_mask_only(lambda mask_only: mask_only.snapshot(copy_tensor))
        )

    def _cut_mask_only(self, cut: Callable[[SnapshotMap], SnapshotMap]) -> AttentionMap | None:
        return cut(self.mask_only) if isinstance(self.mask_only, SnapshotMap) else self.mask_only


def _detached(call: AttentionCall, freeze: Callable[[Any], Any]) -> AttentionCall:
    """The call without its graph and its values, and with parameters that no training step will change."""
    q, bias = call.q.detach(), call.bias
    queries = q if call.queries is call.q else call.queries.detach()
    bias = TensorBias(bias.values.detach()) if isinstance(bias, TensorBias) else freeze(bias)
    total = call.total.detach() if isinstance(call.total, Tensor) else call.total
    keys, v = call.keys.detach(), call.v.detach()[..., :0]
    terms = freeze(call.score), bias, call.mask, freeze(call.normalize), call.read, call.dropout
    shapes = call.batch, call.group, total
    return AttentionCall(q, queries, keys, v, *terms, call.need, *shapes, call.explicit_positions, votes=call.votes)


def freeze_term(term: Any) -> Any:
    """A copy of the term with its own parameters; the term itself if it has none."""
    parameters = [] if term is None else list(term.parameters())
    if not parameters:
        return term
    replacements: dict[int, Any] = {
        id(p): torch.nn.Parameter(p.detach().clone(), requires_grad=False) for p in parameters
    }
    for module in term.modules():  # forward hooks of the original must not fire on the copy
        replacements |= {id(hooks): type(hooks)() for name, hooks in vars(module).items() if name.endswith("_hooks")}
    return copy.deepcopy(term, replacements)
