"""The layers of this library, which say themselves what they do: every score, normalizer, mask and read of theirs."""

import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from torch import Tensor, nn

from regard.attn.call import AttentionCall
from regard.attn.kv_cache import KVCache
from regard.attn.maps.attention_map import DenseMap, LazyMap
from regard.attn.mechanisms.memory_hop import MemoryHop
from regard.attn.mechanisms.pooling import KeyValue, Pool
from regard.attn.multihead import MultiHead
from regard.attn.observer import AttentionObserver
from regard.attn.terms.mask import Causal
from regard.attn.terms.read import Argmax
from regard.attn.terms.score import Score
from regard.recording.capture.module_stack import ModuleFrame, looks_elsewhere
from regard.recording.capture.recorder import CapturedCall, Recorder
from regard.recording.recorded_map import HARD, Kind

# what is around an attention and gives it its name
_AROUND = (MultiHead, Pool, MemoryHop, KeyValue)


class RegardCapture(AttentionObserver):
    """Hears the equation where it runs."""

    def __init__(self, recorder: Recorder, forget: Callable[[Tensor], None]) -> None:
        self.recorder, self._forget = recorder, forget
        self._aligning = 0
        self._source: weakref.ref[Tensor] | None = None
        self._next: dict[str, int] = {}

    def quiet(self) -> AbstractContextManager[None]:
        return self.recorder.quiet()

    def heard(self, call: AttentionCall, out: Tensor, plain: Tensor | None) -> None:
        with self.recorder.quiet():
            self._heard(call, out, plain)

    def _heard(self, call: AttentionCall, out: Tensor, plain: Tensor | None) -> None:
        frame, head = self._frame(call.score)
        kind = self._kind(frame, call.q, call.keys, call.mask)
        queries, keys = call.queries.shape[-2], call.keys.shape[-2]
        if call.given is not None:
            step = int(call.given[0].reshape(-1)[0]) if queries else 0
            self.recorder.step(frame.name, kind, queries, step)
        else:
            step = self.recorder.step(frame.name, kind, queries, max(keys - queries, 0), call.v)
        if not self.recorder.wants(frame.name):
            return
        weights = LazyMap(call, self.recorder.shelf.freeze)
        # of a draw, nothing tells where it went
        how = HARD if isinstance(call.read, Argmax) else "regard"
        self.recorder.keep(
            frame, CapturedCall(weights, call.v, out, how, kind, step, plain=plain, hard=call.read.hard, heads=head)
        )

    def mixed(self, owner: nn.Module, weights: Tensor, v: Tensor) -> Tensor:
        with self.recorder.quiet():
            return self._mixed(owner, weights, v)

    def _mixed(self, owner: nn.Module, weights: Tensor, v: Tensor) -> Tensor:
        out = weights @ v
        # heard here: who reads by the same weights again does not attend again
        self._forget(weights)
        frame, _ = self._frame(owner)
        kind = self._kind(frame, weights, v, None)
        step = 0
        if self._aligning and self._source is not None and self._source() is not None:
            step = self._next.get(frame.name, 0)
            self._next[frame.name] = step + weights.shape[-2]
        if self.recorder.wants(frame.name):
            self.recorder.keep(frame, CapturedCall(DenseMap(weights), v, out, "regard", kind, step, plain=out))
        return out

    def gated(self, owner: nn.Module, weights: Tensor, x: Tensor, out: Tensor) -> None:
        frame, _ = self._frame(owner)
        if self.recorder.silent or not self.recorder.wants(frame.name):
            return

        def rows(t: Tensor) -> Tensor:  # "b c *s" -> "b 1 c n": channels look at places
            return t.reshape(*t.shape[:2], -1).unsqueeze(1)

        space = tuple(x.shape[2:])
        # weights that do not know places have one column; those that know some of the axes have all
        shape = (*weights.shape[:2], *space) if any(n > 1 for n in weights.shape[2:]) else weights.shape
        plain = rows(out)
        heard = CapturedCall(
            DenseMap(rows(weights.expand(shape))),
            rows(x),
            out,
            "regard",
            "gate",
            seen=rows,
            plain=plain,
            in_place=True,
            grid=(space[0], space[1]) if len(space) == 2 and len(shape) == 4 and shape[2:] == space else None,
        )
        self.recorder.keep(frame, heard)

    def glimpsed(self, owner: nn.Module, weights: Tensor, x: Tensor, out: Tensor) -> None:
        frame, _ = self._frame(owner)
        if self.recorder.silent or not self.recorder.wants(frame.name):
            return
        looked = weights[:, None, None].flatten(3)  # "b 1 1 h·w": a glimpse is one query
        seen, values = out[:, None, None], x.flatten(2).mT.unsqueeze(1)
        with self.lying((x.shape[2], x.shape[3])):
            self.recorder.keep(frame, CapturedCall(DenseMap(looked), values, seen, "regard", "glimpse", plain=seen))

    @contextmanager
    def lying(self, space: tuple[int, ...]) -> Iterator[None]:
        if len(space) != 2:
            yield
            return
        with self.recorder.places.lying((space[0], space[1])):
            yield

    @contextmanager
    def aligned(self, memory: KVCache | None) -> Iterator[None]:
        if memory is not None and (self._source is None or self._source() is not memory.values):
            self._source, self._next = weakref.ref(memory.values), {}
        self._aligning += 1
        try:
            with self.recorder.together():
                yield
        finally:
            self._aligning -= 1

    def _frame(self, part: nn.Module) -> tuple[ModuleFrame, tuple[int, int] | None]:
        """The layer that `part` is, or whose score; and which of its heads, where they are heard one by one."""
        places = self.recorder.places
        here = places.here
        if not places.known(part):
            return here, None
        name, head = places.name_of(part), None
        if isinstance(part, Score):
            name = name.rpartition(".")[0]
        above = name.rpartition(".")[0]
        if isinstance(places.modules.get(above), nn.ModuleList):
            outer = places.modules.get(above.rpartition(".")[0])
            if isinstance(outer, MultiHead):
                head = (int(name.rpartition(".")[2]), outer.heads)
                name, above = above, above.rpartition(".")[0]
        if name.rpartition(".")[2] == "attention" and isinstance(places.modules.get(above), _AROUND):
            name = above
        module = places.modules[name]
        return (here if here.module is module else ModuleFrame(name, module)), head

    def _kind(self, frame: ModuleFrame, q: Tensor, k: Tensor, mask: object) -> Kind:
        if self._aligning:
            return "alignment"
        if isinstance(frame.module, MemoryHop):
            return "hop"
        if isinstance(frame.module, Pool):
            return "cross"
        if len(frame.args) > 1 and isinstance(frame.args[1], Tensor) and frame.module is not None:
            return "self" if frame.args[1] is frame.args[0] else "cross"
        causal = type(mask) is Causal
        return "cross" if looks_elsewhere(frame, q.shape[-2], k.shape[-2]) and not causal else "self"
