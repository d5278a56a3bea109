"""The recorder: what was heard is cut, certified, copied within the budget, and put on the tape."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode, _get_current_function_mode, _pop_mode_temporarily

from regard.attn.maps.attention_map import DenseMap, SnapshotMap
from regard.recording.analysis.derived_maps import HeadStack, Stitched
from regard.recording.analysis.weight_gradients import InPlace, OutputGradient, WeightGradient
from regard.recording.capture import certificate
from regard.recording.capture.cache_positions import Caches
from regard.recording.capture.mask_rules import MaskCompressor
from regard.recording.capture.module_stack import ModuleFrame, ModuleStack
from regard.recording.capture.tensor_store import TensorStore, said
from regard.recording.recorded_map import Kind, RecordedMap


def _same(t: Tensor) -> Tensor:
    return t


@dataclass(frozen=True, eq=False)
class CapturedCall:
    """One attention as a model ran it, still in the model's own tensors."""

    weights: SnapshotMap
    v: Tensor  # "*b k v", with as many heads as there are, or fewer that several queries' heads share
    out: Tensor  # what came out, in whatever shape
    captured_from: str
    kind: Kind
    step: int = 0
    seen: Callable[[Tensor], Tensor] = _same  # `out`, or its gradient, as "*b q v"
    plain: Tensor | None = None  # what P·V is to be: seen(out), or that without dropout; None: it cannot be told
    hard: bool = False
    exact: Tensor | None = None  # the weights themselves, where they were formed
    used: Tensor | None = None  # and what dropout left of them, which is what `plain` came from
    heads: tuple[int, int] | None = None  # one of several heads that are heard one by one: (which, of how many)
    in_place: bool = False  # a gate: P∘V instead of P·V, where an axis of one in P serves all of V
    grid: tuple[int, int] | None = None  # how the keys lie, where whoever was heard told it


@dataclass(frozen=True)
class CaptureOptions:
    """What of all that is heard is recorded, and how."""

    layers: Sequence[str] | None
    heads: Sequence[int] | None
    rows: Sequence[int] | slice | None
    weights: bool  # keep the weights, not queries and keys
    gradients: bool
    tolerance: float | None


class Recorder:
    """Keeps what it hears on `tape`."""

    def __init__(
        self, places: ModuleStack, shelf: TensorStore, choice: CaptureOptions, tape: list[RecordedMap]
    ) -> None:
        self.places, self.shelf, self.choice, self.tape = places, shelf, choice, tape
        self.silent = 0
        self.mode: TorchFunctionMode | None = None  # that listens for it
        self._calls: dict[str, int] = {}
        self._beside: dict[str, dict[int, RecordedMap]] = {}
        self._group: list[RecordedMap] | None = None
        self._last_self = (0, 0)  # queries and step of the last self attention
        self._rules = MaskCompressor()
        self._caches = Caches()
        places.failed = self._failed

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """What runs inside is not listened to: it is part of what is heard otherwise, or it is our own work."""
        self.silent += 1
        try:
            # an ear that is off costs nothing; one that only looks away is called for every shape that is read
            if self.mode is not None and _get_current_function_mode() is self.mode:
                with _pop_mode_temporarily():
                    yield
            else:
                yield
        finally:
            self.silent -= 1

    @contextmanager
    def together(self) -> Iterator[None]:
        """What is kept inside, of each module, becomes one map: steps one after the other."""
        if self._group is not None:
            yield
            return
        group: list[RecordedMap] = []
        self._group = group
        try:
            yield
        finally:
            self._group = None
        # not after an error: steps that are missing would be no alignment
        for name in dict.fromkeys(one.name for one in group):
            self._put(self._steps([one for one in group if one.name == name]))

    def _steps(self, parts: list[RecordedMap]) -> RecordedMap:
        """Steps of one query each as one map, of the rows that were chosen among all of them."""
        rows = self._rows(len(parts), parts[0].name) if all(one.shape[-2] == 1 for one in parts) else None
        if rows is None:
            return _joined(parts, Stitched)
        if not rows:
            raise IndexError(
                f"rows={self.choice.rows} take none of the {len(parts)} steps of {parts[0].name!r}; choose some of them"
            )
        return replace(_joined([parts[n] for n in rows], Stitched), rows=tuple(rows))

    def wants(self, name: str) -> bool:
        patterns = self.choice.layers
        return patterns is None or any(fnmatchcase(name, pattern) for pattern in patterns)

    def step(self, name: str, kind: Kind, queries: int, own: int, values: Tensor | None = None) -> int:
        """The position of the first query: its own in self attention; elsewhere that of the self attention before.

        `own` is by the number of keys, which a cache may have let go of, if `values` are given to tell it by.
        """
        if kind == "self":
            own = own if values is None else self._caches.position(name, queries, own, values)
            self._last_self = (queries, own)
            return own
        return self._last_self[1] if self._last_self[0] == queries else 0

    def keep(self, frame: ModuleFrame, heard: CapturedCall) -> None:
        """Certify, cut and copy one map. Normal tensors, also where the model runs in inference mode."""
        graph = torch.is_grad_enabled()
        with torch.no_grad(), torch.inference_mode(False):
            if heard.heads is None:
                self._put(self._kept(frame, heard, graph))
            else:
                self._keep_head(frame, heard, graph, *heard.heads)

    def _keep_head(self, frame: ModuleFrame, heard: CapturedCall, graph: bool, which: int, count: int) -> None:
        """One of several heads that are heard one by one; the last joins them."""
        heads = self._heads(count, frame.name)
        if which == 0:
            self._beside[frame.name] = {}
        beside = self._beside[frame.name]
        if heads is None or which in heads:
            beside[which] = self._kept(frame, heard, graph)
        if which == count - 1:
            del self._beside[frame.name]
            joined = _joined([beside[h] for h in (range(count) if heads is None else heads)], HeadStack)
            self._put(replace(joined, heads=None if heads is None else tuple(heads)))

    def _failed(self) -> None:
        """A module ended by an error: what was half heard is not joined with what comes next."""
        self._beside.clear()
        self._last_self = (0, 0)

    def _put(self, one: RecordedMap) -> None:
        if self._group is not None:
            self._group.append(one)
            return
        self.tape.append(replace(one, call=self._count(one.name)))

    def _count(self, name: str) -> int:
        self._calls[name] = self._calls.get(name, -1) + 1
        return self._calls[name]

    def _kept(self, frame: ModuleFrame, heard: CapturedCall, graph: bool) -> RecordedMap:
        weights, v, plain, name = heard.weights, heard.v.detach(), heard.plain, frame.name
        exact, used, cuts = heard.exact, heard.used, []
        count = weights.shape[-3] if len(weights.shape) > 3 else 0
        heads = self._heads(count, name) if heard.heads is None else None
        if heads is not None:
            which = torch.tensor(heads, device=v.device)
            group = weights.shape[-3] // v.shape[-3] if v.ndim >= 3 and v.shape[-3] > 1 else 1
            weights = weights.of_heads(heads)
            v = v if v.ndim < 3 or v.shape[-3] == 1 else v.index_select(-3, which // group)
            cuts.append(lambda t: t.index_select(-3, which))
            exact, used = (None if t is None else t.index_select(-3, which) for t in (exact, used))
        # a step of a decoder is one row of what it will be joined to
        whole = self._group is None or weights.shape[-2] > 1
        rows = self._rows(weights.shape[-2], name) if whole else None
        if rows is not None:
            index = torch.tensor(rows, device=v.device)
            weights = weights.of_rows(rows)
            if not heard.in_place or heard.weights.shape[-2] == v.shape[-2]:
                cuts.append(lambda t: t.index_select(-2, index))
                v = v.index_select(-2, index) if heard.in_place else v
            exact, used = (None if t is None else t.index_select(-2, index) for t in (exact, used))
        for cut in cuts:
            plain = None if plain is None else cut(plain)
        weights = self._rules.of(weights)
        if exact is not None and not isinstance(weights, DenseMap) and not certificate.alike(weights, exact, v.dtype):
            # what was computed from is not all that was done to the scores: the weights themselves are
            weights = DenseMap(exact, weights.rule)
        if exact is not None and used is not None and not certificate.left_of(exact, used):
            plain = None
        sure, allowed = self._certified(weights if used is None else DenseMap(used), v, plain, heard)
        if exact is not None and not isinstance(weights, DenseMap) and not (sure is not None and sure <= allowed):
            weights = DenseMap(exact, weights.rule)
            sure, allowed = self._certified(weights if used is None else DenseMap(used), v, plain, heard)
        kept = self._stored(weights, frame)

        def seen(t: Tensor) -> Tensor:
            t = heard.seen(t)
            for cut in cuts:
                t = cut(t)
            return t

        return RecordedMap(
            name,
            heard.kind,
            kept,
            step=heard.step,
            certificate=sure,
            tolerance=allowed,
            captured_from=heard.captured_from,
            grid=heard.grid if heard.in_place else self.places.grid(kept.shape[-1]),
            gradient=self._gradient(heard, seen, v, kept.shape, name, graph) if self.choice.gradients else None,
            rows=None if rows is None else tuple(rows),
            heads=None if heads is None else tuple(heads),
        )

    def _certified(
        self, weights: SnapshotMap, v: Tensor, plain: Tensor | None, heard: CapturedCall
    ) -> tuple[float | None, float]:
        given = self.choice.tolerance
        if plain is None:
            return None, given or 0.0
        if heard.in_place:
            return certificate.in_place(weights, v, plain, given)
        return certificate.certificate(weights, v, plain, heard.hard, given)

    def _stored(self, weights: SnapshotMap, frame: ModuleFrame) -> SnapshotMap:
        def copied(what: str, t: Tensor) -> Tensor:
            return self.shelf.copied(what, t, frame.name)

        size = 4 * math.prod(weights.shape)
        if frame.name not in self._calls:
            self._foreseen(size if self.choice.weights else _size(weights), frame)
        if not self.choice.weights:
            return weights.own(copied)
        self.shelf.spend(size, frame.name)
        dense = weights.dense()
        rule = weights.rule
        # weights that were there are the model's own, which may write to them
        return DenseMap(
            dense.clone() if isinstance(weights, DenseMap) else dense,
            rule.own(copied) if isinstance(rule, SnapshotMap) else rule,
        )

    def _foreseen(self, size: int, frame: ModuleFrame) -> None:
        """The first map of a module: would as much for each of its like that is to come go beyond the budget?"""
        kind = type(frame.module)
        like = {name for name, one in self.places.modules.items() if type(one) is kind and self.wants(name)}
        to_come = len(like - self._calls.keys()) or 1
        left = self.shelf.budget - self.shelf.used
        if size * to_come > left:
            raise MemoryError(
                f"the budget of {said(self.shelf.budget)} will not do: {frame.name!r} takes {said(size)}, "
                f"{to_come} such are to come with it, {said(left)} are left; record fewer layers=, heads= or rows=, "
                f"{'keep queries and keys instead of weights, ' if self.choice.weights else ''}or raise budget="
            )

    def _gradient(
        self,
        heard: CapturedCall,
        seen: Callable[[Tensor], Tensor],
        v: Tensor,
        shape: tuple[int, ...],
        name: str,
        graph: bool,
    ) -> WeightGradient | None:
        out = heard.out
        if not out.requires_grad and graph:
            return None  # a frozen layer before all that learns: whoever asks for its gradient gets an error
        if not out.requires_grad:
            raise ValueError(
                f"gradients=True needs an output with a gradient, and that of {name!r} has none; "
                "call the model without torch.no_grad(), with parameters or inputs that require one"
            )
        output_gradient = OutputGradient(name)
        out.register_hook(output_gradient.receive)
        self.shelf.spend(v.nbytes + out.nbytes, name)
        return (InPlace if heard.in_place else WeightGradient)(output_gradient, seen, v.clone(), shape)

    def _heads(self, count: int, name: str) -> list[int] | None:
        if self.choice.heads is None:
            return None
        wrong = [h for h in self.choice.heads if not -count <= h < count]
        if wrong:
            there = f"has heads 0 to {count - 1}" if count else "has no heads"
            raise IndexError(f"heads={wrong} are not there: {name!r} {there}; choose others, or layers= that have them")
        return [h % count for h in self.choice.heads]

    def _rows(self, count: int, name: str) -> list[int] | None:
        rows = self.choice.rows
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


def _size(weights: SnapshotMap) -> int:
    """Bytes of what the map is made of, as it will be copied; what layers share left out."""
    found = []

    def count(what: str, t: Tensor) -> Tensor:
        if what not in ("mask", "bias", "positions"):
            found.append(t.nbytes)
        return t

    weights.own(count)
    return sum(found)


def _joined(parts: list[RecordedMap], how: type[HeadStack] | type[Stitched]) -> RecordedMap:
    """As sure as the least sure part: one that is not verified leaves the whole so."""
    gradients = [one.gradient for one in parts if one.gradient is not None]
    worst = max(parts, key=_doubt)
    return replace(
        parts[0],
        weights=parts[0].weights if len(parts) == 1 else how(*[one.weights for one in parts]),
        certificate=worst.certificate,
        tolerance=worst.tolerance,
        gradient=None if len(gradients) < len(parts) else gradients[0] if len(gradients) == 1 else how(*gradients),
    )


def _doubt(one: RecordedMap) -> float:
    """How much of what rounding may leave is there; no bound where it cannot be told."""
    if one.certificate is None or not one.verified:
        return math.inf
    return one.certificate / one.tolerance if one.tolerance else 0.0
