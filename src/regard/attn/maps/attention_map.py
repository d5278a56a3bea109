"""AttentionMap: weights that are computed when they are looked at, so that no (q, k) matrix is ever kept."""

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.attn import call_slicing, checks
from regard.attn.call import SOFTMAX, AttentionCall, allowed_for, scores
from regard.attn.call_slicing import Copied
from regard.attn.maps import indexing as index_of
from regard.attn.terms.bias import Added
from regard.attn.terms.read import entropy as entropy_of
from regard.attn.terms.score import Dot
from regard.kernels.dispatch import autocast_disabled

# what is added to a score that nobody may have: −inf, or the least number of a type, or ten thousand, as some do
HIDDEN = -1e4
# how many weights are formed at a time: 16 MB of float32
_AT_ONCE = 1 << 22


class Top(NamedTuple):
    """The greatest weights of some rows and where they lie."""

    weights: Tensor  # "*b rows n"
    columns: Tensor  # "*b rows n"


class AttentionMap(ABC):
    """weights[i, j], whole rows on demand: `map[rows, columns]` as on a tensor's last two axes, `map.rows(index)`,
    `map.topk(n)`, `map.entropy()`, `map.coarse(height, width)`, `map.dense()`; before them `map.pick(sample, head)`.
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
    def _at(self, index: tuple[int | slice, ...]) -> "AttentionMap":
        """The map of some of the leading axes."""

    def pick(self, *index: int | slice) -> "AttentionMap":
        """The map of one sample, of one head: `map.pick(0, 3)` takes axes away from the front, as an index does."""
        if len(index) > len(self.shape) - 2:
            raise IndexError(
                f"pick takes at most the {len(self.shape) - 2} leading axes of {self}, got {len(index)}; see shape"
            )
        return self._at(index)

    def __repr__(self) -> str:
        return f"AttentionMap{self.shape}"

    def __getitem__(self, index: object) -> Tensor:
        """map[rows, columns] on the last two axes; map[rows] has all columns. An integer takes its axis away."""
        rows, columns = (
            (*index, slice(None))[:2] if isinstance(index, tuple) and len(index) <= 2 else (index, slice(None))
        )
        if isinstance(rows, tuple):
            raise IndexError(
                f"a map is indexed by [rows, columns], got {len(rows)} indices; pick(sample, head) comes before"
            )
        one_row, one_column = index_of.whole(rows), index_of.whole(columns)
        chosen = self.rows(index_of.several(rows, self.shape[-2], self.device))
        if one_column is None and not isinstance(columns, slice):
            columns = torch.as_tensor(columns, device=chosen.device)
        chosen = chosen[..., columns if one_column is None else one_column]
        return chosen if one_row is None else chosen.select(-2 if one_column is None else -1, 0)

    def allowed(self, rows: Tensor | slice = slice(None)) -> Tensor | None:  # -> bool "*b rows k"
        """The keys that these queries may look at; None where no mask is known."""
        return None

    def spans(self) -> tuple[Tensor, Tensor] | None:  # -> "q", "q"
        """Of the map of one head, "q k": the first key that each query may look at, and the one behind its last, where
        a rule tells it without looking at pairs; nothing is from 0 to 0."""
        return None

    def _pieces(self, rows: Tensor) -> Iterator[Tensor]:
        """Weights of `rows`, some at a time."""
        step = max(1, _AT_ONCE // max(self._each(), 1))
        for start in range(0, len(rows), step):
            yield self.rows(rows[start : start + step])

    def _each(self) -> int:
        """How many weights a row costs."""
        return math.prod(self.shape[:-2]) * self.shape[-1]

    def _all(self) -> Tensor:
        return torch.arange(self.shape[-2], device=self.device)

    def topk(self, n: int, rows: Tensor | slice | list[int] | None = None) -> Top:
        """The n greatest weights of every row, or of some."""
        if not 0 < n <= self.shape[-1]:
            raise ValueError(
                f"n must be between 1 and the number of keys, {self.shape[-1]}, got {n}; try {min(5, self.shape[-1])}"
            )
        index = self._all() if rows is None else self._all()[index_of.several(rows, self.shape[-2], self.device)]
        best = [torch.topk(piece, n, dim=-1) for piece in self._pieces(index)]
        if not best:
            empty = torch.zeros(*self.shape[:-2], 0, n, device=self.device)
            return Top(empty, empty.long())
        return Top(torch.cat([b.values for b in best], dim=-2), torch.cat([b.indices for b in best], dim=-2))

    def entropy(self) -> Tensor:  # -> "*b q"
        """−Σ_j w_j log w_j of every row, in nats."""
        found = [entropy_of(piece) for piece in self._pieces(self._all())]
        return torch.cat(found, dim=-1) if found else torch.zeros(self.shape[:-1], device=self.device)

    def coarse(self, height: int, width: int) -> Tensor:  # -> "*b height width"
        """The map in few cells: each is the weight that an average query of its rows gives to all its columns together.

        So a row of cells sums to what a row of weights sums to.
        """
        for name, n in (("height", height), ("width", width)):
            if n < 1:
                raise ValueError(f"{name} must be 1 or more, got {n}; try coarse(256, 256)")
        *batch, q, k = self.shape
        height, width = min(height, max(q, 1)), min(width, max(k, 1))
        rows = torch.arange(q, device=self.device)
        cell_of_row, cell_of_column = (
            rows * height // max(q, 1),
            torch.arange(k, device=rows.device) * width // max(k, 1),
        )
        cells = torch.zeros(*batch, height, width, device=rows.device)
        start = 0
        for piece in self._pieces(rows):
            cells = cells.to(piece.dtype)
            narrow = piece.new_zeros(*piece.shape[:-1], width).index_add_(-1, cell_of_column, piece)
            cells.index_add_(-2, cell_of_row[start : start + piece.shape[-2]], narrow)
            start += piece.shape[-2]
        return cells / torch.bincount(cell_of_row, minlength=height).clamp_min(1).unsqueeze(-1)

    def dense(self) -> Tensor:  # -> "*b q k"
        """All weights. This forms the matrix: quadratic memory."""
        return self.rows(slice(None))


class SnapshotMap(AttentionMap):
    """A map that still looks at somebody's tensors, and can be cut and copied before they change."""

    @property
    @abstractmethod
    def rule(self) -> AttentionMap | None:
        """What is known of its mask, without the rest: a map that is only asked what is allowed."""

    @abstractmethod
    def of_rows(self, rows: Sequence[int]) -> "SnapshotMap":
        """The map of some of its queries."""

    @abstractmethod
    def of_heads(self, heads: Sequence[int]) -> "SnapshotMap":
        """The map of some of its heads, which are the last of the leading axes."""

    @abstractmethod
    def own(self, copied: Copied) -> "SnapshotMap":
        """The same map of tensors that are its own: what a model does to its own later does not reach it."""


class LazyMap(SnapshotMap):
    """weights = normalize(score(q, k) + bias, mask), kept as projected queries and keys: linear memory.

    `pick` cuts the call, so that one head of a long map costs what one head costs.
    """

    def __init__(self, call: AttentionCall, freeze: Callable[[Any], Any] | None = None) -> None:
        """`freeze` gives terms that no training step will change: copies, unless somebody keeps such copies already."""
        self.call = _still(call, frozen if freeze is None else freeze)
        self.picked: tuple[int | slice, ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        whole = torch.empty(self.call.batch, device="meta")[self.picked] if self.picked else None
        batch = self.call.batch if whole is None else tuple(whole.shape)
        return (*batch, self.call.queries.shape[-2], self.call.keys.shape[-2])

    @property
    def device(self) -> torch.device:
        return self.call.q.device

    @torch.no_grad()
    def rows(self, rows: Tensor | slice) -> Tensor:
        with autocast_disabled(self.device):
            part = widened(self._part(rows))
            s = scores(part)
            weights = part.normalize.weights(s, allowed_for(part, s))
        return weights.expand(*self.call.batch, *weights.shape[-2:])[self.picked]

    @torch.no_grad()
    def allowed(self, rows: Tensor | slice = slice(None)) -> Tensor | None:
        """By the mask, and by what is added: so much below the greatest of its row is one too.

        A row that is hidden as a whole by a finite number is one that looks at all its keys."""
        if self.call.mask is None and not isinstance(self.call.bias, Added):
            return None
        part = self.call.part(rows, slice(None))
        found = part.allowed()
        if isinstance(part.bias, Added):
            values = part.bias.values
            if found is not None:
                values = values.masked_fill(~found, -torch.inf)
            # of a row of −inf alone no number is above any
            found = values - values.amax(-1, keepdim=True) > HIDDEN
        assert found is not None
        return found.expand(*self.call.batch, part.queries.shape[-2], part.keys.shape[-2])[self.picked]

    def spans(self) -> tuple[Tensor, Tensor] | None:
        call = self.call
        if call.mask is None or isinstance(call.bias, Added) or len(self.shape) != 2:
            return None
        i, j = (t.reshape(-1) if t.numel() == t.shape[-1] else None for t in call.positions())
        count = call.keys.shape[-2]
        if i is None or j is None or not count or not bool((j.diff() == 1).all()):
            return None
        found = call.mask.span(i)
        if found is None:
            return None
        first = torch.zeros_like(i) if found.first is None else (found.first - j[0]).clamp(0, count)
        end = torch.full_like(i, count) if found.end is None else (found.end - j[0]).clamp(0, count)
        seen = first < end
        return first * seen, end * seen

    @property
    def rule(self) -> "LazyMap | None":
        call = self.call
        bias = call.bias if isinstance(call.bias, Added) else None
        if call.mask is None and bias is None:
            return None
        mine, queries = copy.copy(self), call.queries[..., :0].expand(*call.batch, -1, 0)
        keys = call.keys[..., :0]
        mine.call = replace(call, q=queries, queries=queries, keys=keys, score=Dot(1.0), bias=bias, normalize=SOFTMAX)
        return mine

    def _part(self, rows: Tensor | slice) -> AttentionCall:
        call = self.call
        if call.mask is not None or call.bias is not None:
            return call.part(rows, slice(None))
        return replace(call, queries=call.queries[..., rows, :])  # nobody asks where they stand

    def _at(self, index: tuple[int | slice, ...]) -> AttentionMap:
        picked = copy.copy(self)
        picked.call, picked.picked = call_slicing.picked(self.call, index_of.after(self.picked, index, self.call.batch))
        return picked

    def _each(self) -> int:
        return math.prod(self.call.batch) * self.shape[-1]  # what could not be cut is computed all the same

    def of_rows(self, rows: Sequence[int]) -> "LazyMap":
        few = copy.copy(self)
        few.call = self.call.part(torch.tensor(rows, device=self.device), slice(None))
        return few

    def of_heads(self, heads: Sequence[int]) -> "LazyMap":
        assert not self.picked, "heads come before what is picked"
        if call_slicing.knows_heads(self.call):
            raise ValueError(
                f"heads={list(heads)} cannot be taken from {self}: {self.call.score!r} or {self.call.normalize!r} "
                "was written elsewhere and may tell heads apart; leave heads out"
            )
        few = copy.copy(self)
        few.call = call_slicing.some(self.call, len(self.call.batch) - 1, heads)
        return few

    def own(self, copied: Copied) -> "LazyMap":
        mine, call = copy.copy(self), self.call
        bias = Added(copied("bias", call.bias.values)) if isinstance(call.bias, Added) else call.bias
        queries = copied("queries", call.queries)
        apart = call.q is not call.queries and bias is not None and not isinstance(bias, Added)
        mine.call = replace(
            call,
            q=copied("queries", call.q) if apart else queries,
            queries=queries,
            keys=copied("keys", call.keys),
            bias=bias,
            mask=None if call.mask is None else call_slicing.own(call.mask, copied),
            given=None if call.given is None else tuple(copied("positions", t) for t in call.given),  # type: ignore[arg-type]
        )
        return mine


def widened(call: AttentionCall) -> AttentionCall:
    """Queries and keys of a half type in float32, where the score compares them as they are."""
    half = call.queries.dtype in (torch.float16, torch.bfloat16)
    if not half or call.score.comparison != "dot" or not call.keys.is_floating_point():
        return call
    return replace(call, queries=call.queries.float(), keys=call.keys.float())


class DenseMap(SnapshotMap):
    """Weights that are there: of an attention that is not the equation, or that forms its matrix anyway.

    A `rule`, which is a map as large, is asked what is allowed.
    """

    def __init__(self, weights: Tensor, rule: AttentionMap | None = None) -> None:  # "*b q k"
        if weights.ndim < 2 or not weights.is_floating_point():
            raise TypeError(
                f"weights must be floating, (…, queries, keys), got {weights.dtype} {checks.shape(weights)}; "
                "give a vector an axis of one query, weights.unsqueeze(-2)"
            )
        self.weights, self._rule = weights.detach(), rule

    @property
    def rule(self) -> AttentionMap | None:
        return self._rule

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.weights.shape)

    @property
    def device(self) -> torch.device:
        return self.weights.device

    def rows(self, rows: Tensor | slice) -> Tensor:
        chosen = self.weights[..., rows, :]
        return chosen.to(checks.widened(chosen.dtype))

    def allowed(self, rows: Tensor | slice = slice(None)) -> Tensor | None:
        return None if self.rule is None else self.rule.allowed(rows)

    def spans(self) -> tuple[Tensor, Tensor] | None:
        return None if self.rule is None else self.rule.spans()

    def _at(self, index: tuple[int | slice, ...]) -> AttentionMap:
        return DenseMap(self.weights[index], None if self.rule is None else self.rule.pick(*index))

    def of_rows(self, rows: Sequence[int]) -> "DenseMap":
        return DenseMap(self.weights[..., list(rows), :], self._ruled(lambda rule: rule.of_rows(rows)))

    def of_heads(self, heads: Sequence[int]) -> "DenseMap":
        return DenseMap(self.weights[..., list(heads), :, :], self._ruled(lambda rule: rule.of_heads(heads)))

    def own(self, copied: Copied) -> "DenseMap":
        return DenseMap(copied("weights", self.weights), self._ruled(lambda rule: rule.own(copied)))

    def _ruled(self, cut: Callable[[SnapshotMap], SnapshotMap]) -> AttentionMap | None:
        return cut(self.rule) if isinstance(self.rule, SnapshotMap) else self.rule


def _still(call: AttentionCall, freeze: Callable[[Any], Any]) -> AttentionCall:
    """The call as it is now: no graph, no values, and parameters that no training step will change."""
    q = call.q.detach()
    return replace(
        call,
        q=q,
        queries=q if call.queries is call.q else call.queries.detach(),
        keys=call.keys.detach(),
        v=call.v.detach()[..., :0],
        score=freeze(call.score),
        bias=Added(call.bias.values.detach()) if isinstance(call.bias, Added) else freeze(call.bias),
        normalize=freeze(call.normalize),
        total=call.total.detach() if isinstance(call.total, Tensor) else call.total,
    )


def frozen(term: Any) -> Any:
    """A term with copies of its parameters; itself if it has none."""
    learned = [] if term is None else list(term.parameters())
    if not learned:
        return term
    still: dict[int, Any] = {id(p): torch.nn.Parameter(p.detach().clone(), requires_grad=False) for p in learned}
    for module in term.modules():  # who listens to the model does not listen to its copy
        still |= {id(hooks): type(hooks)() for name, hooks in vars(module).items() if name.endswith("_hooks")}
    return copy.deepcopy(term, still)
