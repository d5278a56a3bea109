"""Eager attention, written out: softmax(q kᵀ …) → dropout → · v, by matmul, bmm, baddbmm or einsum.

The scores are followed from the product through what scales, shifts and masks them, so that queries and keys can be
kept in place of the weights. Where they cannot be followed, or the map does not certify, the weights themselves are
kept. A softmax that mixes nothing is no attention, and is not recorded.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from regard.parts.map import Computed, Copyable, Kept
from regard.tape import letters, sdpa
from regard.tape.followed import (
    FLIP,
    Scores,
    Weights,
    as_call,
    broadcasts,
    folded,
    headed,
    last_two,
    moved,
    number,
    same,
    turn,
    turned,
)
from regard.tape.recorder import Heard

if TYPE_CHECKING:
    from regard.tape.listen import Ear

Hear = Callable[["Ear", Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]


def _functions(*names: str) -> list[Any]:
    """All that torch offers under these names: functions and methods, also those that write in place."""
    found = []
    for name in names:
        for owner, spelt in ((torch, name), (torch.Tensor, name), (torch.Tensor, f"{name}_"), (F, name)):
            one = getattr(owner, spelt, None)
            if callable(one):
                found.append(one)
    return found


def _operators(*names: str) -> list[Any]:
    return [getattr(torch.Tensor, f"__{name}__") for name in names]


class Eager:
    """Follows scores and weights by the tensors that hold them, for as long as these live."""

    def __init__(self, ear: "Ear") -> None:
        self._scores: WeakIdKeyDictionary = WeakIdKeyDictionary()
        self._weights: WeakIdKeyDictionary = WeakIdKeyDictionary()
        self._ear = ear
        shapes = ("view", "reshape", "unsqueeze", "squeeze", "flatten", "unflatten", "expand", "contiguous", "clone")
        types = ("to", "float", "half", "bfloat16", "double", "type_as", "type")
        # where scores and weights begin
        self.begin: dict[Any, Hear] = {
            **dict.fromkeys([*_functions("matmul", "bmm"), *_operators("matmul")], self._product),
            **dict.fromkeys(_functions("baddbmm"), self._added_product),
            torch.functional.einsum: self._einsum,
            **dict.fromkeys([*_functions("softmax"), torch.special.softmax], self._softmax),
        }
        # what they go through
        self.follow: dict[Any, Hear] = {
            **dict.fromkeys([*_functions("mul", "multiply"), *_operators("mul", "rmul", "imul")], self._scaled(False)),
            **dict.fromkeys(
                [*_functions("div", "divide", "true_divide"), *_operators("truediv", "itruediv")], self._scaled(True)
            ),
            **dict.fromkeys([*_functions("add"), *_operators("add", "radd", "iadd")], self._shifted(1.0)),
            **dict.fromkeys([*_functions("sub", "subtract"), *_operators("sub", "isub")], self._shifted(-1.0)),
            **dict.fromkeys(_functions("masked_fill"), self._filled),
            **dict.fromkeys(_functions("dropout", "feature_dropout"), self._dropped),
            **dict.fromkeys(_functions(*shapes), self._reshaped),
            **dict.fromkeys(_functions(*types), self._retyped),
            **dict.fromkeys([*_functions("transpose", "swapaxes", "permute"), FLIP], self._turned),
        }

    @property
    def idle(self) -> bool:
        """Is there nothing to follow?"""
        return not self._scores.data and not self._weights.data

    def forget(self, weights: Tensor) -> None:
        """These are known already."""
        self._weights.pop(weights, None)

    # products: the first makes scores, the second reads values

    def _product(self, ear: "Ear", func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        out = func(*args, **kwargs)
        if len(args) < 2 or not isinstance(out, Tensor):
            return out
        a, b = args[:2]
        if a in self._weights:
            held = self._weights[a]
            if not held.flipped:
                self._read(a, held, b, out, same)
        elif b in self._weights:
            held = self._weights[b]
            if held.flipped:  # values before weights, both turned
                self._read(b.mT, turn(held), a.mT, out, turned)
        elif a.ndim >= 2 and b.ndim >= 2 and out.is_floating_point():
            self._scores[out] = Scores(a, b.mT)
        return out

    def _added_product(self, ear: "Ear", func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        out = func(*args, **kwargs)
        given = {"beta": 1, "alpha": 1, **dict(zip(("input", "batch1", "batch2"), args, strict=False)), **kwargs}
        if given["batch1"] not in self._weights:
            scores = Scores(given["batch1"], given["batch2"].mT, float(given["alpha"]))
            self._scores[out] = scores if given["beta"] == 0 else scores.plus(given["input"] * given["beta"])
        return out

    def _einsum(self, ear: "Ear", func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        out = func(*args, **kwargs)
        operands = args[1:] if len(args) != 2 or isinstance(args[1], Tensor) else tuple(args[1])
        if not isinstance(args[0], str) or len(operands) != 2:
            return out
        parts = letters.parsed(args[0], *operands)
        if parts is None:
            return out
        for weights, values, mine, theirs in (
            (operands[0], operands[1], parts.first, parts.second),
            (operands[1], operands[0], parts.second, parts.first),
        ):
            if weights in self._weights:
                held = self._weights[weights]
                read = None if held.flipped else letters.reading(mine, theirs, parts.out)
                if read is not None:
                    self._read(weights, held, read.values(values), out, read.result)
                return out
        made = letters.scoring(parts)
        if made is not None and out.is_floating_point():
            self._scores[out] = Scores(made[0](operands[0]), made[1](operands[1]))
        return out

    # what scores go through

    def _scaled(self, divides: bool) -> Hear:
        def hear(ear: "Ear", func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            held = self._held(args)
            out = func(*args, **kwargs)
            if held is not None and kwargs.get("rounding_mode") is None:
                factor = number(args[1] if args[0] in self._scores else args[0])
                if not factor or (divides and args[0] not in self._scores):
                    self._scores_of(out, None)
                else:
                    self._scores_of(out, held.times(1.0 / factor if divides else factor))
            return out

        return hear

    def _shifted(self, sign: float) -> Hear:
        def hear(ear: "Ear", func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            held = self._held(args, either=sign > 0)
            out = func(*args, **kwargs)
            if held is not None and len(args) == 2:
                other = args[1] if args[0] in self._scores or not isinstance(args[1], Tensor) else args[0]
                times = sign * float(kwargs.get("alpha", 1))
                if isinstance(other, Tensor):
                    bias = (other if times == 1.0 else other * times).to(out.dtype)
                    self._scores_of(out, held.plus(bias) if broadcasts(other, out) else None)
                else:
                    self._scores_of(out, held)
            return out

        return hear

    def _filled(self, ear: "Ear", func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        held = self._held(args)
        out = func(*args, **kwargs)
        if held is not None:
            given = {**dict(zip(("self", "mask", "value"), args, strict=False)), **kwargs}
            value = number(given["value"])
            hidden = given["mask"]
            if value is None or not broadcasts(hidden, out):
                self._scores_of(out, None)
            else:
                nothing = torch.zeros((), dtype=out.dtype, device=out.device)
                self._scores_of(out, held.plus(torch.where(hidden, nothing + value, nothing)))
        return out

    def _softmax(self, ear: "Ear", func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        out = func(*args, **kwargs)
        scores = args[0] if args else kwargs["input"]
        axis = kwargs.get("dim", args[1] if len(args) > 1 else None)
        if isinstance(scores, Tensor) and scores.ndim >= 2 and axis in (-1, scores.ndim - 1):
            self._weights[out] = Weights(self._scores.get(scores), None)
        return out

    # what weights go through

    def _dropped(self, ear: "Ear", func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        out = func(*args, **kwargs)
        held = self._weights.get(args[0]) if args else None
        if held is not None and out is not args[0]:
            before = args[0] if held.before is None else held.before
            self._weights[out] = replace(held, before=before)
        return out

    def _retyped(self, ear: "Ear", func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        out = func(*args, **kwargs)
        if not isinstance(out, Tensor) or out is args[0] or not out.is_floating_point():
            return out
        if args[0] in self._weights:
            self._weights[out] = self._weights[args[0]]
        elif args[0] in self._scores:
            self._scores[out] = self._scores[args[0]]
        return out

    def _reshaped(self, ear: "Ear", func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        out = func(*args, **kwargs)
        if not isinstance(out, Tensor) or out is args[0]:
            return out
        if args[0] in self._weights:
            held = self._weights[args[0]]
            before = None if held.before is None else func(held.before, *args[1:], **kwargs)
            same = out.shape[-2:] == args[0].shape[-2:]
            self._weights[out] = replace(held, before=before, scores=moved(held.scores, out) if same else None)
        elif args[0] in self._scores:
            same = out.shape[-2:] == args[0].shape[-2:]
            self._scores_of(out, moved(self._scores[args[0]], out) if same else None)
        return out

    def _turned(self, ear: "Ear", func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        out = func(*args, **kwargs)
        held = self._weights.get(args[0]) if isinstance(args[0], Tensor) else None
        if held is not None and isinstance(out, Tensor) and args[0].ndim >= 2 and last_two(func, args, kwargs):
            self._weights[out] = turn(held) if held.before is None else replace(turn(held), before=held.before.mT)
        return out

    # helpers

    def _held(self, args: tuple[Any, ...], either: bool = True) -> Scores | None:
        for one in args[:2] if either else args[:1]:
            if isinstance(one, Tensor) and one in self._scores:
                return self._scores[one]
        return None

    def _scores_of(self, out: Any, scores: Scores | None) -> None:
        if scores is not None:
            self._scores[out] = scores
        elif out in self._scores:
            del self._scores[out]

    def _read(self, weights: Tensor, held: Weights, v: Tensor, out: Tensor, seen: Callable[[Tensor], Tensor]) -> None:
        """Values were mixed: this is attention."""
        ear, recorder = self._ear, self._ear.recorder
        exact = weights if held.before is None else held.before
        if v.ndim < 2 or exact.ndim < 2:
            return
        frame = ear.frame
        call = as_call(held.scores, v, exact)
        heads = ear.heads if ear.heads is not None else folded(frame, exact.shape[0])
        if heads is not None and exact.ndim == 3:
            call, exact, v, seen = headed(call, exact, v, seen, heads)
        kind = sdpa.kind_of(frame, exact, v, False)
        queries, keys = exact.shape[-2:]
        step = recorder.step(kind, queries, max(keys - queries, 0))
        if not recorder.wants(frame.name):
            return
        with torch.no_grad():
            plain = seen(out) if held.before is None else exact.to(v.dtype) @ v
        kept: Copyable = Kept(exact) if call is None else Computed(call, recorder.shelf.freeze)
        how = ear.how or "softmax"
        recorder.keep(frame, Heard(kept, v, out, how, kind, step, seen, plain, exact=exact.detach()))
