"""Eager attention, written out: softmax(q kᵀ …) → dropout → · v, by matmul, bmm, baddbmm or einsum.

The scores are followed from the product through what scales, shifts and masks them, so that queries and keys can be
kept in place of the weights. Where they cannot be followed, or any row does not come out as the model's own, the
weights themselves are kept. A softmax that mixes nothing is no attention, and is not recorded.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from regard.attn.maps.attention_map import DenseMap, LazyMap, SnapshotMap
from regard.attn.nonfinite import transformed
from regard.recording.capture import einsum, sdpa
from regard.recording.capture.module_stack import ModuleFrame
from regard.recording.capture.recorder import CapturedCall
from regard.recording.capture.torch_functions import ADDS, BEGIN, FOLLOW, PRODUCTS, SUMS
from regard.recording.capture.tracked_tensors import (
    ScoresFact,
    SoftmaxFact,
    WeightsFact,
    as_call,
    broadcasts,
    features,
    folded,
    headed,
    last_two,
    leaves_last_two,
    moved,
    number,
    same,
    summed,
    swapped,
    tensors,
    turn,
    turned,
)

if TYPE_CHECKING:
    from regard.recording.capture.function_mode import CaptureMode

# so many calls behind a softmax nothing is told of it any more
_FAR = 6

Hear = Callable[["CaptureMode", Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]


class ValueRead(NamedTuple):
    """Values were mixed: this is attention."""

    weights: Tensor
    held: WeightsFact
    v: Tensor
    seen: Callable[[Tensor], Tensor] = same


# what a call that gave `out` means for scores and weights: (func, out, args, kwargs)
Follow = Callable[[Callable[..., Any], Tensor, tuple[Any, ...], dict[str, Any]], ValueRead | None]


class EagerTracker:
    """Follows scores and weights by the tensors that hold them, for as long as these live."""

    def __init__(self, ear: "CaptureMode") -> None:
        self._scores: WeakIdKeyDictionary = WeakIdKeyDictionary()
        self._weights: WeakIdKeyDictionary = WeakIdKeyDictionary()
        # what was made of weights in a way that is not followed: of which softmax, and by how many calls
        self._traces: WeakIdKeyDictionary = WeakIdKeyDictionary()
        self._softmaxes: list[SoftmaxFact] = []
        self._tables: set[int] | None = None  # where the parameters of the model lie in memory
        self._ear = ear
        meant: dict[str, Follow] = {
            "product": self._product,
            "added product": self._added_product,
            "einsum": self._einsum,
            "softmax": self._softmax,
            "times": self._scaled(False),
            "by": self._scaled(True),
            "plus": self._shifted(1.0),
            "minus": self._shifted(-1.0),
            "fill": self._filled,
            "drop": self._dropped,
            "shape": self._reshaped,
            "type": self._retyped,
            "cut": self._cut,
            "turn": self._turned,
        }
        hear = {name: self._heard(follow) for name, follow in meant.items()}
        self.begin: dict[Any, Hear] = {one: hear[name] for one, name in BEGIN.items()}
        self.follow: dict[Any, Hear] = {one: hear[name] for one, name in FOLLOW.items()}

    @property
    def idle(self) -> bool:
        """Is there nothing to follow?"""
        return not self._scores.data and not self._weights.data and not self._traces.data

    @property
    def holds(self) -> bool:
        """Are there weights, or what was made of them?"""
        return bool(self._weights.data or self._traces.data)

    def forget(self, weights: Tensor) -> None:
        """These are known already."""
        held = self._weights.pop(weights, None)
        if held is not None:
            held.softmax.heard = True

    def unheard(self) -> list[str]:
        """Modules with a softmax of queries by keys, or by which something was mixed, and nothing that was heard."""
        missed = [one for one in self._softmaxes if (one.attends or one.mixed) and not one.heard]
        return list(dict.fromkeys(one.name for one in missed))

    def touched(self, func: Any, out: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A call that means nothing to scores and weights: does it mix by weights, or make something of them?"""
        outs = [t for t in tensors(out if isinstance(out, tuple | list) else [out]) if t.ndim and t.is_floating_point()]
        if not outs:
            return
        given = tensors(*args, *kwargs.values())
        origins = [self._origin(one) for one in given]
        for one, (softmax, far) in zip(given, origins, strict=True):
            if softmax is None or softmax.heard or softmax.mixed or outs[0] is one:
                continue
            # what is spread out over something else is a product that is summed later
            alone = all(of is softmax or not t.is_floating_point() for t, (of, _) in zip(given, origins, strict=True))
            itself = any(t is one for t in (*args, *kwargs.values()))
            spread = itself and not alone and outs[0].numel() > one.numel() and func not in ADDS
            if func in PRODUCTS or spread or (func in SUMS and self._pools(one, args, kwargs)):
                softmax.mixed = True
            elif far < _FAR:
                for made in outs:
                    if made.shape[-1] > 1 or made.numel() == one.numel():
                        self._traces[made] = (softmax, far + 1)

    def _pools(self, one: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Is this the sum of features, each weighed by a weight of its own?"""
        held = self._weights.get(one)
        if held is None or held.by is None:
            return False
        axis = -2 if held.flipped else -1
        return summed(axis, args, kwargs, one.ndim) and not transformed() and features(held.by, axis)

    def _origin(self, one: Any) -> tuple[SoftmaxFact | None, int]:
        if not isinstance(one, Tensor):
            return None, 0
        held = self._weights.get(one)
        return (held.softmax, 0) if held is not None else self._traces.get(one, (None, 0))

    def _heard(self, follow: Follow) -> Hear:
        def hear(ear: "CaptureMode", func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            out = func(*args, **kwargs)
            if not isinstance(out, Tensor):
                return out
            try:
                read = follow(func, out, args, kwargs)
                found = None if read is None else self._understood(read, out)
            except Exception:
                # the call itself went well: what it means is given up, and the model runs on
                self._scores.pop(out, None)
                self._weights.pop(out, None)
                return out
            if found is not None:
                ear.recorder.keep(*found)
            elif self.holds and out not in self._weights:
                self.touched(func, out, args, kwargs)
            return out

        return hear

    # products: the first makes scores, the second reads values

    def _product(self, func: Any, out: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> ValueRead | None:
        named = [kwargs[name] for name in ("input", "self", "other", "mat2", "tensor2") if name in kwargs]
        a, b = [*args, *named][:2]
        if a in self._weights:
            held = self._weights[a]
            return None if held.flipped else ValueRead(a, held, b)
        if b in self._weights:
            held = self._weights[b]
            # values before weights, both turned
            return ValueRead(b.mT, turn(held), a.mT, turned) if held.flipped else None
        if a.ndim >= 2 and b.ndim >= 2 and out.is_floating_point():
            self._scores[out] = ScoresFact(a, b.mT)
        return None

    def _added_product(self, func: Any, out: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> ValueRead | None:
        given = {"beta": 1, "alpha": 1, **dict(zip(("input", "batch1", "batch2"), args, strict=False)), **kwargs}
        if given["batch1"] not in self._weights:
            scores = ScoresFact(given["batch1"], given["batch2"].mT, float(given["alpha"]))
            self._scores[out] = scores if given["beta"] == 0 else scores.plus(given["input"] * given["beta"])
        return None

    def _einsum(self, func: Any, out: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> ValueRead | None:
        operands = args[1:] if len(args) != 2 or isinstance(args[1], Tensor) else tuple(args[1])
        if not isinstance(args[0], str) or len(operands) != 2:
            return None
        parts = einsum.parsed(args[0], *operands)
        if parts is None:
            return None
        for weights, values, mine, theirs in (
            (operands[0], operands[1], parts.first, parts.second),
            (operands[1], operands[0], parts.second, parts.first),
        ):
            if weights in self._weights:
                held = self._weights[weights]
                read = None if held.flipped else einsum.reading(mine, theirs, parts.out)
                return None if read is None else ValueRead(weights, held, read.values(values), read.result)
        made = einsum.scoring(parts)
        if made is not None and out.is_floating_point():
            self._scores[out] = ScoresFact(made[0](operands[0]), made[1](operands[1]))
        return None

    # what scores go through

    def _scaled(self, divides: bool) -> Follow:
        def follow(func: Any, out: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            if kwargs.get("rounding_mode") is not None:
                self._scores.pop(out, None)
                return
            held = self._held(args)
            if held is not None:
                factor = number(args[1] if args[0] in self._scores else args[0])
                if not factor or (divides and args[0] not in self._scores):
                    self._scores.pop(out, None)
                else:
                    self._scores[out] = held.times(1.0 / factor if divides else factor)
                return
            self._weighed(out, args, divides)

        return follow

    def _weighed(self, out: Tensor, args: tuple[Any, ...], divides: bool) -> None:
        """Weights that are weighed once more: a mask of heads, rows that are made to sum to one."""
        if len(args) != 2:
            return
        first = isinstance(args[0], Tensor) and args[0] in self._weights
        mine, other = args if first else args[::-1]
        held = self._weights.get(mine) if isinstance(mine, Tensor) and (first or not divides) else None
        if held is not None and out.shape == mine.shape:
            before = held.before
            if before is not None:
                before = before / other if divides else before * other
            own = not isinstance(other, Tensor) or other.shape != mine.shape or self._origin(other)[0] is held.softmax
            self._weights[out] = replace(held, scores=None, before=before, by=None if own or divides else other)

    def _shifted(self, sign: float) -> Follow:
        def follow(func: Any, out: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            held = self._held(args, either=sign > 0)
            if held is not None and len(args) == 2:
                other = args[1] if args[0] in self._scores or not isinstance(args[1], Tensor) else args[0]
                times = sign * float(kwargs.get("alpha", 1))
                if not isinstance(other, Tensor):
                    self._scores[out] = held
                elif broadcasts(other, out):
                    self._scores[out] = held.plus((other if times == 1.0 else other * times).to(out.dtype))
                else:
                    self._scores.pop(out, None)

        return follow

    def _filled(self, func: Any, out: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        held = self._held(args)
        if held is not None:
            given = {**dict(zip(("self", "mask", "value"), args, strict=False)), **kwargs}
            value = number(given["value"])
            hidden = given["mask"]
            if value is None or not broadcasts(hidden, out):
                self._scores.pop(out, None)
            else:
                nothing = torch.zeros((), dtype=out.dtype, device=out.device)
                self._scores[out] = held.plus(torch.where(hidden, nothing + value, nothing))

    def _softmax(self, func: Any, out: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        scores = args[0] if args else kwargs["input"]
        axis = kwargs.get("dim", args[1] if len(args) > 1 else None)
        if not isinstance(axis, int) or scores.ndim < 2 or axis % scores.ndim < scores.ndim - 2:
            return
        made = self._scores.get(scores)
        frame = self._ear.frame
        softmax = SoftmaxFact(frame.name, made is not None, made is not None and not self._learned(made))
        # layers of this library say themselves what they attend to
        own = type(frame.module).__module__.startswith("regard.")
        if scores.ndim in (3, 4) and not own and self._ear.recorder.wants(softmax.name):
            self._softmaxes.append(softmax)
        flipped = axis % scores.ndim == scores.ndim - 2  # over the queries' axis: keys come first
        self._weights[out] = WeightsFact(swapped(made) if flipped else made, None, softmax, flipped)

    def _learned(self, scores: ScoresFact) -> bool:
        """Is one side of the product a table of the model, such as that of all words?  Then it is a layer."""
        if transformed():
            return False
        if self._tables is None:
            own = [p for one in self._ear.recorder.places.modules.values() for p in one.parameters(recurse=False)]
            self._tables = {p.untyped_storage().data_ptr() for p in own} - {0}
        # what is the same for all samples may be one in another type
        sides = (scores.q, scores.k)
        return any(t.ndim < 3 or t.untyped_storage().data_ptr() in self._tables for t in sides)

    # what weights go through

    def _dropped(self, func: Any, out: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        mine = args[0] if args else kwargs["input"]
        held = self._weights.get(mine)
        if held is not None and out is not mine:
            self._weights[out] = replace(held, before=mine if held.before is None else held.before)

    def _retyped(self, func: Any, out: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if out is args[0] or not out.is_floating_point():
            return
        if args[0] in self._weights:
            self._weights[out] = self._weights[args[0]]
        elif args[0] in self._scores:
            self._scores[out] = self._scores[args[0]]

    def _reshaped(self, func: Any, out: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if out is args[0]:
            return
        same = out.shape[-2:] == args[0].shape[-2:]
        if args[0] in self._weights:
            held = self._weights[args[0]]
            before = None if held.before is None else func(held.before, *args[1:], **kwargs)
            self._weights[out] = replace(held, before=before, scores=moved(held.scores, out) if same else None)
        elif same and args[0] in self._scores:
            scores = moved(self._scores[args[0]], out)
            if scores is not None:
                self._scores[out] = scores

    def _cut(self, func: Any, out: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        held = self._weights.get(args[0])
        if held is not None and leaves_last_two(args[1], args[0].ndim):
            before = None if held.before is None else held.before[args[1]]
            self._weights[out] = replace(held, before=before, scores=None)

    def _turned(self, func: Any, out: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        held = self._weights.get(args[0])
        if held is not None and args[0].ndim >= 2 and last_two(func, args, kwargs):
            self._weights[out] = turn(held) if held.before is None else replace(turn(held), before=held.before.mT)

    # helpers

    def _held(self, args: tuple[Any, ...], either: bool = True) -> ScoresFact | None:
        for one in args[:2] if either else args[:1]:
            if isinstance(one, Tensor) and one in self._scores:
                return self._scores[one]
        return None

    def _understood(self, read: ValueRead, out: Tensor) -> tuple[ModuleFrame, CapturedCall] | None:
        """What was read, as a recorder hears it; None where it is no attention, or nobody wants it."""
        ear, recorder = self._ear, self._ear.recorder
        weights, held, v, seen = read
        used = None if held.before is None else weights
        exact = weights if held.before is None else held.before
        # a table that is mixed by rows of two axes, as a router does, is attention only if keys were looked for
        if v.ndim < 2 or exact.ndim < 2 or (exact.ndim == 2 and not held.softmax.product):
            return None
        held.softmax.heard = True
        frame = ear.frame
        call = as_call(held.scores, v, exact)
        heads = ear.heads if ear.heads is not None else folded(frame, exact.shape[0])
        if heads is not None and exact.ndim == 3:
            used = used if used is None or used.shape[0] == 1 < heads else used.unflatten(0, (-1, heads))
            call, exact, v, seen = headed(call, exact, v, seen, heads)
        kind = sdpa.kind_of(frame, exact, v, False)
        queries, keys = exact.shape[-2:]
        step = recorder.step(frame.name, kind, queries, max(keys - queries, 0), v)
        if not recorder.wants(frame.name):
            return None
        kept: SnapshotMap = DenseMap(exact) if call is None else LazyMap(call, recorder.shelf.freeze)
        how = ear.captured_from or ("softmax" if used is None else "softmax before dropout")
        plain = seen(out).detach()
        heard = CapturedCall(kept, v, out, how, kind, step, seen, plain, exact=exact.detach(), used=used)
        return frame, heard
