"""Recorder: makes a RecordedMap of every captured attention call: selected heads and rows, certificate, copies."""

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import reduce
from types import FrameType
from typing import Any, cast

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode, _get_current_function_mode, _pop_mode_temporarily
from torch.utils.checkpoint import CheckpointFunction

from regard.attn.maps.attention_map import DenseMap, LazyMap, SnapshotMap
from regard.recording.analysis.derived_maps import HeadStack, StitchedMap
from regard.recording.analysis.weight_gradients import GateGradient, OutputGradient, WeightGradient
from regard.recording.capture import certificate, pieces
from regard.recording.capture.cache_positions import CachePositions
from regard.recording.capture.linear_tape import Combined, ValueProduct
from regard.recording.capture.mask_rules import MaskCompressor
from regard.recording.capture.module_stack import ModuleFrame, ModuleStack, is_cross_attention
from regard.recording.capture.pending_certificates import PendingCertificate, PendingCertificates
from regard.recording.capture.tensor_store import TensorStore, readable_size
from regard.recording.recorded_map import Kind, RecordedMap

_NO_CONTEXT = nullcontext()


def identity(t: Tensor) -> Tensor:
    return t


@dataclass(frozen=True, eq=False)
class CapturedCall:
    """One attention as a model ran it, still in the model's own tensors."""

    weights: SnapshotMap
    v: Tensor  # "*b k v", with as many heads as the weights, or fewer that several query heads share
    out: Tensor  # the output, in any shape
    captured_from: str
    kind: Kind
    step: int = 0
    as_rows: Callable[[Tensor], Tensor] = identity  # `out`, or its gradient, as "*b q v"
    expected: Tensor | None = None  # what P·V must be: as_rows(out), or its value without dropout; None: unknown
    hard: bool = False
    formed: Tensor | None = None  # the weights themselves, where the model formed them
    after_dropout: Tensor | None = None  # and those after dropout, which `expected` was computed from
    head: tuple[int, int] | None = None  # (number, count) of a head that is captured alone
    in_place: bool = False  # a gate: P∘V instead of P·V, where an axis of one in P serves all of V
    grid: tuple[int, int] | None = None  # (height, width) of the keys, where the module reported it


@dataclass(frozen=True)
class CaptureOptions:
    """The captured calls that are recorded, and the form of their maps."""

    layers: Sequence[str] | None
    heads: Sequence[int] | None
    rows: Sequence[int] | slice | None
    weights: bool  # keep the weights, not queries and keys
    gradients: bool
    tolerance: float | None


class Recorder:
    """Appends captured calls to `maps`."""

    def __init__(
        self, module_stack: ModuleStack, store: TensorStore, options: CaptureOptions, maps: list[RecordedMap]
    ) -> None:
        self.module_stack, self.store, self.options, self.maps = module_stack, store, options, maps
        self.pauses = 0  # nested `muted` blocks
        self.mode: TorchFunctionMode | None = None  # the mode that captures for this recorder
        self._calls: dict[str, int] = {}
        self._partial_heads: dict[str, dict[int, RecordedMap]] = {}
        self._steps: list[RecordedMap] | None = None
        self._last_self = (0, 0)  # queries and step of the last self attention
        self._masks = MaskCompressor()
        self._positions = CachePositions()
        self._pending = PendingCertificates(options.tolerance)
        self._names: dict[type, list[str]] = {}  # names of the selected modules, by their type
        self.unjoined: dict[str, None] = {}  # modules that attend in pieces, of which no map could be made
        module_stack.on_error = self._discard_partial

    @contextmanager
    def muted(self) -> Iterator[None]:
        """Captures nothing inside: it is part of a call that is captured as a whole, or the recorder's own work."""
        self.pauses += 1
        try:
            # a mode that is off costs nothing; one that only ignores calls is entered for every shape that is read
            if self.mode is not None and _get_current_function_mode() is self.mode:
                with _pop_mode_temporarily():
                    yield
            else:
                yield
        finally:
            self.pauses -= 1

    @contextmanager
    def grouped_steps(self) -> Iterator[None]:
        """Joins the maps that are recorded inside, steps of one query each, to one map per module."""
        if self._steps is not None:
            yield
            return
        steps: list[RecordedMap] = []
        self._steps = steps
        try:
            yield
        finally:
            self._steps = None
        # an alignment needs all its steps, so there is none after an error
        for name in dict.fromkeys(step.name for step in steps):
            self._append(self._join_steps([step for step in steps if step.name == name]))

    def _join_steps(self, steps: list[RecordedMap]) -> RecordedMap:
        """Steps of one query each as one map, of the selected rows among all of them."""
        name = steps[0].name
        rows = self._selected_rows(len(steps), name) if all(step.shape[-2] == 1 for step in steps) else None
        if rows is None:
            return _join(steps, StitchedMap)
        if not rows:
            raise IndexError(
                f"rows={self.options.rows} take none of the {len(steps)} steps of {name!r}; choose some of them"
            )
        return replace(_join([steps[n] for n in rows], StitchedMap), rows=tuple(rows))

    def is_selected(self, name: str) -> bool:
        """Whether the calls of module `name` are recorded."""
        patterns = self.options.layers
        return patterns is None or any(fnmatchcase(name, pattern) for pattern in patterns)

    def step(self, name: str, kind: Kind, queries: int, cached: int, values: Tensor | None = None) -> int:
        """The position of the first query; outside self attention, that of the self attention before.

        `cached` is the number of keys before the queries; a sliding window, which `values` show, may have dropped more.
        """
        if kind == "self":
            step = cached if values is None else self._positions.position(name, queries, cached, values)
            self._last_self = (queries, step)
            return step
        return self._last_self[1] if self._last_self[0] == queries else 0

    def keep(self, frame: ModuleFrame, captured: CapturedCall) -> RecordedMap | None:
        """Certifies, cuts and copies one map; its tensors are normal ones even if the model runs in inference mode.

        The map, or None if it will be joined with others.
        """
        has_graph = torch.is_grad_enabled()
        with _without_graph():
            if captured.head is not None:
                self._keep_head(frame, captured, has_graph, *captured.head)
                return None
            recorded_map = self._append(self._recorded_map(frame, captured, has_graph))
        if self._pending.is_full:
            self._pending.settle()
        return recorded_map

    def _keep_head(self, frame: ModuleFrame, captured: CapturedCall, has_graph: bool, head: int, count: int) -> None:
        """One of several heads that are captured one by one; the last joins them."""
        selected = self._selected_heads(count, frame.name)
        if head == 0:
            self._partial_heads[frame.name] = {}
        heads = self._partial_heads[frame.name]
        if selected is None or head in selected:
            heads[head] = self._recorded_map(frame, captured, has_graph)
        if head == count - 1:
            del self._partial_heads[frame.name]
            joined = _join([heads[h] for h in (range(count) if selected is None else selected)], HeadStack)
            self._append(replace(joined, heads=None if selected is None else tuple(selected)))

    def _discard_partial(self) -> None:
        """After an error in a module, its heads so far are not joined with those of the next call."""
        self._partial_heads.clear()
        self._last_self = (0, 0)

    def join_pieces(self, frame: ModuleFrame, groups: Sequence[Combined]) -> None:
        """Replaces attention that a module computed in pieces by one map each; names the module if that fails."""
        parts = [pieces.pieces_of(combined, groups) for combined in groups]
        joined_any, names = False, set[str]()
        for combined, part in zip(groups, parts, strict=True):
            joined = None
            if not pieces.is_split(combined, groups):
                # a module may go on with the result, as by a gate or a residual connection
                results = [each for each in (combined, *combined.earlier) if part or pieces.may_be_in_pieces(each)]
                joined = next((m for each in results if (m := self._joined_map(frame, each)) is not None), None)
            if joined is not None:
                names |= self._remove(combined.node.products)
                self._keep_joined(frame, joined)
                joined_any = True
                continue
            padded, is_missing = pieces.rearranged(combined)
            names |= self._remove([*part, *padded])
            if part or is_missing:
                self.unjoined[frame.name] = None
            for product in combined.node.products:
                if isinstance(product.recorded_map, IndexError) and product not in part:
                    raise product.recorded_map
        if joined_any or any(parts):
            # a complete map beside pieces has no cached keys before it
            beside = {id(product.recorded_map) for combined in groups for product in combined.node.products}
            self.maps[:] = [replace(m, step=0) if id(m) in beside else m for m in self.maps]
        if names:
            self._number_calls(names)

    def _remove(self, products: Sequence[ValueProduct]) -> set[str]:
        """Removes the maps of these reads; the names of their modules."""
        removed = {id(product.recorded_map) for product in products}
        names = {m.name for m in self.maps if id(m) in removed}
        self.maps[:] = [m for m in self.maps if id(m) not in removed]
        return names

    def _number_calls(self, names: set[str]) -> None:
        """Numbers the maps of these modules again, in their order: a removed one leaves a gap."""
        self._calls |= dict.fromkeys(names, -1)
        for n, recorded_map in enumerate(self.maps):
            if recorded_map.name in names and recorded_map.call != (call := self._next_call(recorded_map.name)):
                self.maps[n] = recorded_map.with_call(call)

    def _keep_joined(self, frame: ModuleFrame, joined: pieces.JoinedMap) -> None:
        q, k = joined.weights.shape[-2:]
        kind: Kind = "cross" if is_cross_attention(frame, q, k) else "self"
        step, weights = self.step(frame.name, kind, q, 0), DenseMap(joined.weights)
        call = CapturedCall(
            weights, joined.values, joined.out, "pieces", kind, step, joined.as_rows, expected=joined.expected
        )
        self.keep(frame, call)

    def _joined_map(self, frame: ModuleFrame, combined: Combined) -> pieces.JoinedMap | None:
        try:
            joined = pieces.join(combined, lambda size: self.store.check(size, frame.name))
        except (RuntimeError, ValueError, TypeError, IndexError):
            return None  # the calls could not be repeated on other values
        return joined

    def _append(self, recorded_map: RecordedMap) -> RecordedMap | None:
        if self._steps is not None:
            self._steps.append(recorded_map)
            return None
        return self.add(recorded_map)

    def add(self, recorded_map: RecordedMap) -> RecordedMap:
        """Appends a map with the number of its call."""
        call = self._next_call(recorded_map.name)
        self.maps.append(recorded_map if call == recorded_map.call else recorded_map.with_call(call))
        return self.maps[-1]

    def _next_call(self, name: str) -> int:
        self._calls[name] = self._calls.get(name, -1) + 1
        return self._calls[name]

    def _recorded_map(self, frame: ModuleFrame, captured: CapturedCall, has_graph: bool) -> RecordedMap:
        weights, v, name = captured.weights, captured.v.detach(), frame.name
        cuts: list[Callable[[Tensor], Tensor]] = []
        shape = weights.shape
        count = shape[-3] if len(shape) > 3 else 0
        heads = self._selected_heads(count, name) if captured.head is None else None
        if heads is not None:
            head_index = torch.tensor(heads, device=v.device)
            group = count // v.shape[-3] if v.ndim >= 3 and v.shape[-3] > 1 else 1
            weights = weights.select_heads(heads)
            v = v if v.ndim < 3 or v.shape[-3] == 1 else v.index_select(-3, head_index // group)
            cuts.append(lambda t: t.index_select(-3, head_index))
        # a step of a decoder is one row: rows are selected when its steps are joined
        is_whole = self._steps is None or shape[-2] > 1
        rows = self._selected_rows(shape[-2], name) if is_whole else None
        if rows is not None:
            row_index = torch.tensor(rows, device=v.device)
            weights = weights.select_rows(rows)
            if not captured.in_place or shape[-2] == v.shape[-2]:
                cuts.append(lambda t: t.index_select(-2, row_index))
                v = v.index_select(-2, row_index) if captured.in_place else v

        def cut(t: Tensor) -> Tensor:
            return reduce(lambda part, select: select(part), cuts, t)

        formed, after_dropout, expected = (
            None if t is None else cut(t) for t in (captured.formed, captured.after_dropout, captured.expected)
        )
        weights = self._masks.compress(weights)
        if (
            formed is not None
            and not isinstance(weights, DenseMap)
            and not certificate.matches(weights, formed, v.dtype)
        ):
            # the scores went through more than was followed: keep the weights themselves
            weights = DenseMap(formed, weights.mask_only)
        if formed is not None and after_dropout is not None and not certificate.is_dropout_of(after_dropout, formed):
            expected = None
        used = weights if after_dropout is None else DenseMap(after_dropout)
        stored = self._store(weights, frame) if formed is None else None
        pending = None if stored is None else self._pending_certificate(stored, v, expected, captured)
        certified, tolerance = (None, 0.0) if pending is not None else self._certify(used, v, expected, captured)
        is_verified = certified is not None and certified <= tolerance
        if formed is not None and not isinstance(weights, DenseMap) and not is_verified:
            weights = DenseMap(formed, weights.mask_only)
            used = weights if after_dropout is None else DenseMap(after_dropout)
            certified, tolerance = self._certify(used, v, expected, captured)
        stored = self._store(weights, frame) if stored is None else stored

        def as_rows(t: Tensor) -> Tensor:
            return cut(captured.as_rows(t))

        # a write also erases, by the same weights: the gradient of the added part is not all of it
        has_gradient = self.options.gradients and captured.kind != "write"
        return RecordedMap(
            name,
            captured.kind,
            stored,
            step=captured.step,
            # read later, they are functions until then
            certificate=certified if pending is None else pending.certificate,  # type: ignore[arg-type]
            tolerance=tolerance if pending is None else pending.tolerance,  # type: ignore[arg-type]
            captured_from=captured.captured_from,
            grid=captured.grid if captured.grid or captured.in_place else self._grid(captured.kind, shape[-1]),
            gradient=self._gradient(captured, as_rows, v, stored.shape, name, has_graph) if has_gradient else None,
            rows=None if rows is None else tuple(rows),
            heads=None if heads is None else tuple(heads),
        )

    def _grid(self, kind: Kind, keys: int) -> tuple[int, int] | None:
        source = self.module_stack.source_grid(keys) if kind == "cross" else None
        return self.module_stack.grid(keys) if source is None else source

    def _pending_certificate(
        self, stored: SnapshotMap, v: Tensor, expected: Tensor | None, captured: CapturedCall
    ) -> PendingCertificate | None:
        """The certificate of a map that gets it later; parts of one map, which are joined by theirs, get it at once."""
        is_whole = captured.head is None and self._steps is None and not captured.hard and not captured.in_place
        return self._pending.add(stored, v, expected) if is_whole and expected is not None else None

    def _certify(
        self, weights: SnapshotMap, v: Tensor, expected: Tensor | None, captured: CapturedCall
    ) -> tuple[float | None, float]:
        tolerance = self.options.tolerance
        if expected is None:
            return None, tolerance or 0.0
        if captured.in_place:
            return certificate.certify_gate(weights, v, expected, tolerance)
        return certificate.certify(weights, v, expected, captured.hard, tolerance)

    def _store(self, weights: SnapshotMap, frame: ModuleFrame) -> SnapshotMap:
        def copied(role: str, t: Tensor) -> Tensor:
            return self.store.copy(role, t, frame.name)

        keeps_weights = self.options.weights
        size = 4 * math.prod(weights.shape) if keeps_weights else 0
        if frame.name not in self._calls:
            self._check_budget(size if keeps_weights else _size(weights), frame)
        if not keeps_weights:
            return weights.snapshot(copied)
        self.store.reserve(size, frame.name)
        dense = weights.dense()
        rule = weights.mask_only
        # a dense map holds the model's own tensor, which the model may write to
        return DenseMap(
            dense.clone() if isinstance(weights, DenseMap) else dense,
            rule.snapshot(copied) if isinstance(rule, SnapshotMap) else rule,
        )

    def _check_budget(self, size: int, frame: ModuleFrame) -> None:
        """At the first map of a module: raises if the maps of all modules of its type would exceed the budget."""
        names, available = self._names_of_type(type(frame.module)), self.store.budget - self.store.used
        if size * max(len(names), 1) <= available:
            return
        remaining = sum(name not in self._calls for name in names) or 1
        if size * remaining > available:
            raise MemoryError(
                f"the budget of {readable_size(self.store.budget)} is too small: {frame.name!r} takes "
                f"{readable_size(size)}, {remaining} maps of its size are to come, {readable_size(available)} are "
                "left; record fewer layers=, heads= or rows=, "
                f"{'keep queries and keys instead of weights, ' if self.options.weights else ''}or raise budget="
            )

    def _names_of_type(self, kind: type) -> list[str]:
        """The selected modules of one type."""
        if kind not in self._names:
            modules = self.module_stack.modules.items()
            self._names[kind] = [name for name, module in modules if type(module) is kind and self.is_selected(name)]
        return self._names[kind]

    def _gradient(
        self,
        captured: CapturedCall,
        as_rows: Callable[[Tensor], Tensor],
        v: Tensor,
        shape: tuple[int, ...],
        name: str,
        has_graph: bool,
    ) -> WeightGradient | None:
        out = captured.out
        if not out.requires_grad and has_graph:
            return None  # a frozen layer before all trained ones
        if not out.requires_grad:
            way_out = (
                "checkpoint the model with use_reentrant=False, which keeps the graph"
                if _is_in_reentrant_checkpoint()
                else "call the model without torch.no_grad(), with parameters or inputs that require one"
            )
            raise ValueError(
                f"gradients=True needs an output with a gradient, and that of {name or 'the model'!r} has none; "
                f"{way_out}"
            )
        output_gradient = OutputGradient(name)
        out.register_hook(output_gradient.receive)
        self.store.reserve(v.nbytes + out.nbytes, name)
        return (GateGradient if captured.in_place else WeightGradient)(output_gradient, as_rows, v.clone(), shape)

    def _selected_heads(self, count: int, name: str) -> list[int] | None:
        if self.options.heads is None:
            return None
        wrong = [h for h in self.options.heads if not -count <= h < count]
        if wrong:
            heads = f"has heads 0 to {count - 1}" if count else "has no heads"
            raise IndexError(f"heads={wrong} are not there: {name!r} {heads}; choose others, or layers= that have them")
        return [h % count for h in self.options.heads]

    def _selected_rows(self, count: int, name: str) -> list[int] | None:
        rows = self.options.rows
        if rows is None:
            return None
        if isinstance(rows, slice):
            return list(range(count)[rows])
        wrong = [i for i in rows if not -count <= i < count]
        if wrong:
            raise IndexError(
                f"rows={wrong} are not there: {name!r} has queries 0 to {count - 1}; a slice takes those there are"
            )
        return [i % count for i in rows]


def _without_graph() -> AbstractContextManager[Any]:
    """A context in which results have no graph and are normal tensors, also if the model runs in inference mode."""
    if torch.is_inference_mode_enabled():
        return _outside_inference_mode()
    return torch.no_grad() if torch.is_grad_enabled() else _NO_CONTEXT


@contextmanager
def _outside_inference_mode() -> Iterator[None]:
    with torch.inference_mode(False), torch.no_grad():
        yield


def _size(weights: SnapshotMap) -> int:
    """Bytes that a copy of the map takes, without the tensors that layers share."""
    if isinstance(weights, LazyMap) and weights.call.q is weights.call.queries:
        return weights.call.queries.nbytes + weights.call.keys.nbytes
    sizes = []

    def count(role: str, t: Tensor) -> Tensor:
        if role not in ("mask", "bias", "positions"):
            sizes.append(t.nbytes)
        return t

    weights.snapshot(count)
    return sum(sizes)


def _join(parts: list[RecordedMap], combined: type[HeadStack] | type[StitchedMap]) -> RecordedMap:
    """Heads or steps as one map, with the worst certificate of its parts; an unverified part leaves it unverified."""
    gradients = [part.gradient for part in parts if part.gradient is not None]
    worst = max(parts, key=_relative_error)
    return replace(
        parts[0],
        weights=parts[0].weights if len(parts) == 1 else combined(*[part.weights for part in parts]),
        certificate=worst.certificate,
        tolerance=worst.tolerance,
        gradient=None if len(gradients) < len(parts) else gradients[0] if len(gradients) == 1 else combined(*gradients),
    )


def _relative_error(recorded_map: RecordedMap) -> float:
    """The certificate relative to its tolerance; infinite for an unverified map."""
    if recorded_map.certificate is None or not recorded_map.verified:
        return math.inf
    return recorded_map.certificate / recorded_map.tolerance if recorded_map.tolerance else 0.0


def _is_in_reentrant_checkpoint() -> bool:
    """Whether torch.utils.checkpoint runs this call without a graph, to repeat it in the backward pass."""
    code, frame = CheckpointFunction.forward.__code__, cast(FrameType | None, sys._getframe())
    while frame is not None and frame.f_code is not code:
        frame = frame.f_back
    return frame is not None
