"""RegardCapture: captures the layers of this library, which report every score, normalizer, mask and read."""

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from torch import Tensor, nn

from regard.attn.call import Attended, AttentionCall
from regard.attn.kv_cache import KVCache
from regard.attn.layer import Attention
from regard.attn.maps.attention_map import DenseMap, LazyMap
from regard.attn.mechanisms.key_value import KeyValue
from regard.attn.mechanisms.latent import Latent
from regard.attn.mechanisms.memory_hop import MemoryHop
from regard.attn.mechanisms.pooling import Pool
from regard.attn.multihead import MultiHead
from regard.attn.observer import AttentionObserver, Weighted
from regard.attn.terms.read import Argmax
from regard.attn.terms.score import Score
from regard.attn.terms.sequence_masks import Causal
from regard.layers.query_pooling import QueryPooling
from regard.recording.capture.cache_positions import cached_keys
from regard.recording.capture.module_stack import ModuleFrame, ModuleStack, is_cross_attention
from regard.recording.capture.recorder import CapturedCall, Recorder
from regard.recording.recorded_map import HARD, Kind
from regard.recording.recurrent_gates import GateCapture

# layers that contain an attention and give it their name
_CONTAINERS = (MultiHead, Latent, Pool, MemoryHop, KeyValue)


class RegardCapture(AttentionObserver):
    """Captures the equation where it runs."""

    def __init__(
        self, recorder: Recorder, drop_weights: Callable[[Tensor], None], gates: GateCapture | None = None
    ) -> None:
        self.recorder, self._drop_weights, self._gates = recorder, drop_weights, gates
        self._alignments = 0
        self._source: weakref.ref[Tensor] | None = None
        self._next: dict[str, int] = {}

    def muted(self) -> AbstractContextManager[None]:
        return self.recorder.muted()

    def replace_result(self, call: AttentionCall) -> Attended | None:
        return None

    def on_attention(self, call: AttentionCall, out: Tensor, plain: Tensor | None) -> None:
        if self._is_foreign(call.score):
            return
        with self.recorder.muted():
            self._capture(call, out, plain)

    def _capture(self, call: AttentionCall, out: Tensor, plain: Tensor | None) -> None:
        frame, head = self._frame(call.score)
        kind = self._kind(frame, call.q, call.keys, call.mask)
        queries = call.queries.shape[-2]
        weights = LazyMap(call, self.recorder.store.frozen_copy)
        if call.explicit_positions is not None:
            step = int(call.explicit_positions[0].reshape(-1)[0]) if queries else 0
            self.recorder.step(frame.name, kind, queries, step)
        else:
            cached = cached_keys(weights) if kind == "self" else 0
            step = self.recorder.step(frame.name, kind, queries, cached, call.v)
        if not self.recorder.is_selected(frame.name):
            return
        # a sample may be any key; argmax reads the greatest weight
        source = HARD if isinstance(call.read, Argmax) else "regard"
        self.recorder.keep(
            frame,
            CapturedCall(weights, call.v, out, source, kind, step, expected=plain, hard=call.read.hard, head=head),
        )

    def mix(self, owner: nn.Module, weights: Tensor, v: Tensor) -> Tensor:
        if self._is_foreign(owner):
            return weights @ v
        with self.recorder.muted():
            return self._capture_mix(owner, weights, v)

    def _capture_mix(self, owner: nn.Module, weights: Tensor, v: Tensor) -> Tensor:
        out = weights @ v
        # captured here: a second read by the same weights is no attention of its own
        self._drop_weights(weights)
        frame, _ = self._frame(owner)
        kind = self._kind(frame, weights, v, None)
        step = 0
        if self._alignments and self._source is not None and self._source() is not None:
            step = self._next.get(frame.name, 0)
            self._next[frame.name] = step + weights.shape[-2]
        if self.recorder.is_selected(frame.name):
            self.recorder.keep(frame, CapturedCall(DenseMap(weights), v, out, "regard", kind, step, expected=out))
        return out

    def on_weighted(self, kind: Weighted, owner: nn.Module, weights: Tensor, values: Tensor, out: Tensor) -> None:
        frame, _ = self._frame(owner)
        is_muted = self.recorder.pauses and kind != "pool"  # a pool is reported beside its gate
        if is_muted or self._is_foreign(owner) or not self.recorder.is_selected(frame.name):
            return
        with self.recorder.muted():
            self.recorder.keep(frame, _WEIGHTED[kind](weights, values, out))

    def on_recurrence(
        self, rnn: nn.RNNBase, rows: Tensor, sizes: Sequence[int], first: Any, out: Tensor, rank: Tensor | None
    ) -> None:
        if self._gates is not None:
            self._gates.on_sequence(rnn, rows, sizes, first, out, rank)

    def on_recurrent_step(
        self, rnn: nn.RNNBase, layer: int, products: tuple[Tensor, Tensor], before: Any, after: Any
    ) -> None:
        if self._gates is not None:
            self._gates.on_step(rnn, layer, products, before, after)

    @contextmanager
    def spatial_keys(self, space: tuple[int, ...]) -> Iterator[None]:
        if len(space) != 2:
            yield
            return
        with self.recorder.module_stack.spatial_keys((space[0], space[1])):
            yield

    @contextmanager
    def alignment_steps(self, memory: KVCache | None) -> Iterator[None]:
        if memory is not None and (self._source is None or self._source() is not memory.values):
            self._source, self._next = weakref.ref(memory.values), {}
        self._alignments += 1
        try:
            with self.recorder.grouped_steps():
                yield
        finally:
            self._alignments -= 1

    def _is_foreign(self, module: nn.Module) -> bool:
        """Whether a layer is not a part of the model, nor called by it."""
        stack = self.recorder.module_stack
        return not stack.stack and not stack.has_module(module) and stack.is_foreign_call()

    def _frame(self, module: nn.Module) -> tuple[ModuleFrame, tuple[int, int] | None]:
        return layer_frame(self.recorder.module_stack, module)

    def _caller(self, frame: ModuleFrame) -> ModuleFrame | None:
        """The module that called the layer; None outside of modules."""
        frames = self.recorder.module_stack.stack
        inside = len(frames) > 1 and frames[-1].module is frame.module
        return frames[-2] if inside else None

    def _kind(self, frame: ModuleFrame, q: Tensor, k: Tensor, mask: object) -> Kind:
        if self._alignments:
            return "alignment"
        if isinstance(frame.module, MemoryHop):
            return "hop"
        parent = self.recorder.module_stack.modules.get(frame.name.rpartition(".")[0])
        # learned queries, even where there are as many as keys
        if isinstance(frame.module, Pool) or isinstance(parent, QueryPooling):
            return "cross"
        causal = type(mask) is Causal
        if len(frame.args) > 1 and isinstance(frame.args[1], Tensor) and frame.module is not None:
            if frame.args[1] is frame.args[0]:
                return "self"
            caller = self._caller(frame) if isinstance(frame.module, Attention) else None
            if caller is None:
                return "cross"
            # queries and keys were projected by the caller: of one sequence, if it has one alone
            is_cross = is_cross_attention(caller, q.shape[-2], k.shape[-2])
            return "self" if causal or (not is_cross and _sequences(caller) == 1) else "cross"
        return "cross" if is_cross_attention(frame, q.shape[-2], k.shape[-2]) and not causal else "self"


def _sequences(frame: ModuleFrame) -> int:
    """The number of sequences among the arguments of a module: tensors of numbers with three axes or more."""
    values = (*frame.args, *frame.kwargs.values())
    return sum(isinstance(value, Tensor) and value.is_floating_point() and value.ndim > 2 for value in values)


def layer_frame(stack: ModuleStack, module: nn.Module) -> tuple[ModuleFrame, tuple[int, int] | None]:
    """The layer that `module` is, or whose score it is; and its head, where heads are captured one by one."""
    current = stack.current
    if not stack.has_module(module):
        return current, None
    name, head = stack.name_of(module), None
    if isinstance(module, Score):
        name = name.rpartition(".")[0]
    parent = name.rpartition(".")[0]
    if isinstance(stack.modules.get(parent), nn.ModuleList):
        outer = stack.modules.get(parent.rpartition(".")[0])
        if isinstance(outer, MultiHead):
            head = (int(name.rpartition(".")[2]), outer.heads)
            name, parent = parent, parent.rpartition(".")[0]
    if name.rpartition(".")[2] == "attention" and isinstance(stack.modules.get(parent), _CONTAINERS):
        name = parent
    layer = stack.modules[name]
    return (current if current.module is layer else ModuleFrame(name, layer)), head


def _gate_call(weights: Tensor, x: Tensor, out: Tensor) -> CapturedCall:  # "b c *s" each
    def rows(t: Tensor) -> Tensor:  # -> "b 1 c n": channels are queries, cells are keys
        return t.reshape(*t.shape[:2], -1).unsqueeze(1)

    space = tuple(x.shape[2:])
    # weights per channel have one column; weights along some of the axes are expanded to all
    shape = (*weights.shape[:2], *space) if any(n > 1 for n in weights.shape[2:]) else weights.shape
    grid = (space[0], space[1]) if len(space) == 2 and len(shape) == 4 and shape[2:] == space else None
    return CapturedCall(
        DenseMap(rows(weights.expand(shape))), rows(x), out, "regard", "gate", as_rows=rows, expected=rows(out),
        in_place=True, grid=grid,
    )  # fmt: skip


def _pool_call(weights: Tensor, values: Tensor, out: Tensor) -> CapturedCall:  # "b h t n" each
    return CapturedCall(DenseMap(weights), values, out, "regard", "pool", expected=out, in_place=True)


def _glimpse_call(weights: Tensor, x: Tensor, out: Tensor) -> CapturedCall:  # "b h w", "b c h w", "b c"
    p, read = weights[:, None, None].flatten(3), out[:, None, None]  # "b 1 1 h·w": a glimpse is one query
    values = x.flatten(2).mT.unsqueeze(1)
    return CapturedCall(DenseMap(p), values, read, "regard", "glimpse", expected=read, grid=(x.shape[2], x.shape[3]))


def _read_call(weights: Tensor, matrix: Tensor, out: Tensor) -> CapturedCall:  # "b h n", "b n w", "b h w"
    def rows(t: Tensor) -> Tensor:
        return t.unsqueeze(-2)

    p, values = DenseMap(rows(weights)), matrix.unsqueeze(1)
    return CapturedCall(p, values, out, "regard", "read", as_rows=rows, expected=rows(out))


def _write_call(weights: Tensor, add: Tensor, added: Tensor) -> CapturedCall:  # "b h n", "b h w", "b h n w"
    # a location receives its share of the numbers that a head adds: in place, like a gate
    p, values = DenseMap(weights.unsqueeze(-2)), add.unsqueeze(-1).expand_as(added.mT)
    return CapturedCall(p, values, added, "regard", "write", as_rows=lambda t: t.mT, expected=added.mT, in_place=True)


_WEIGHTED: dict[Weighted, Callable[[Tensor, Tensor, Tensor], CapturedCall]] = {
    "gate": _gate_call,
    "pool": _pool_call,
    "glimpse": _glimpse_call,
    "read": _read_call,
    "write": _write_call,
}
