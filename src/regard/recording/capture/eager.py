"""Eager attention, written out: softmax(q kᵀ …) → dropout → · v, by matmul, bmm, baddbmm or einsum.

The scores are followed from the product through scaling, shifting and masking, so that queries and keys can be kept in
place of the weights. Where they cannot be followed, or any row differs from the model's own, the weights themselves are
kept. A softmax whose output multiplies no values is not attention, and is not recorded.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from regard.attn.maps.attention_map import DenseMap, LazyMap, SnapshotMap
from regard.kernels.dispatch import in_functorch_transform
from regard.recording.capture import einsum, sdpa
from regard.recording.capture.cache_positions import cached_keys
from regard.recording.capture.linear_tape import ValueProduct
from regard.recording.capture.module_stack import ModuleFrame, ModuleStack
from regard.recording.capture.recorder import CapturedCall
from regard.recording.capture.softmax_uses import SoftmaxUses
from regard.recording.capture.torch_functions import (
    CASTS,
    RESHAPES,
    TRANSPOSES,
    functions,
    operators,
)
from regard.recording.capture.tracked_tensors import (
    ScoresFact,
    SoftmaxFact,
    ValueRead,
    WeightsFact,
    adds_axes,
    all_tensors,
    as_number,
    attention_call,
    can_broadcast,
    folded_heads,
    keeps_last,
    keeps_last_two,
    reshape_scores,
    sums_to_one,
    transpose,
    transpose_scores,
    transpose_weights,
    transposes_last_two,
    unfold_heads,
)
from regard.recording.recorded_map import RecordedMap

if TYPE_CHECKING:
    from regard.recording.capture.function_mode import CaptureMode

Args = tuple[Any, ...]
Kwargs = dict[str, Any]


# notes what a call func(*args, **kwargs), which gave `out`, means for scores and weights
Handler = Callable[["EagerTracker", Any, Tensor, Args, Kwargs], ValueRead | None]


class EagerTracker:
    """Follows scores and weights by the tensors that hold them, for as long as these live."""

    def __init__(
        self, stack: ModuleStack, is_selected: Callable[[str], bool], frame: Callable[[], ModuleFrame] | None = None
    ) -> None:
        self._stack, self._is_selected = stack, is_selected
        # the module that a call belongs to
        self._frame = frame or (lambda: stack.current)
        self._scores: WeakIdKeyDictionary = WeakIdKeyDictionary()
        self._weights: WeakIdKeyDictionary = WeakIdKeyDictionary()
        # log(weights) as their scores and axis; exp(scores), which a division by their sum makes weights
        self._logarithms: WeakIdKeyDictionary = WeakIdKeyDictionary()
        self._exponentials: WeakIdKeyDictionary = WeakIdKeyDictionary()
        self.uses = SoftmaxUses(self._weights)
        self._parameters: set[int] | None = None  # where the parameters of the model are in memory
        # tables of the facts that are followed, by their tensors
        self.followed = (self._scores.data, self._weights.data, self.uses.traces.data, self._logarithms.data)

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to follow."""
        return not any(self.followed)

    @property
    def has_weights(self) -> bool:
        """Whether there are weights, or results computed from them."""
        return bool(self._weights.data or self.uses.traces.data)

    def drop(self, weights: Tensor) -> None:
        """Stops following weights that were recorded otherwise."""
        fact = self._weights.pop(weights, None)
        if fact is not None:
            fact.softmax.is_recorded = True

    def handler(self, func: Any) -> Handler | None:
        """Follows calls of this function; None if nothing in them matters."""
        return START.get(func) or (None if self.is_idle else FOLLOW.get(func))

    def attends(self, func: Any, out: Any, args: Args, kwargs: Kwargs) -> bool:
        """Whether a call mixes values by weights; follows the scores and weights in it."""
        handler = self.handler(func)
        try:
            read = handler(self, func, out, args, kwargs) if handler is not None and isinstance(out, Tensor) else None
            is_attention = read is not None and read.is_attention
        except Exception:
            self._forget(out)
            return False
        if is_attention and read is not None:
            read.fact.softmax.is_recorded = True
        elif self.has_weights and out not in self._weights:
            self.uses.note_use(func, out, args, kwargs)
        return is_attention

    def _forget(self, out: Tensor) -> None:
        """Gives up to follow the result of a call, which itself succeeded: the model runs on."""
        self._scores.pop(out, None)
        self._weights.pop(out, None)

    def run(self, handler: Handler, mode: "CaptureMode", func: Any, args: Args, kwargs: Kwargs) -> Any:
        """Runs a call, follows the scores and weights in it, and captures it if it attends."""
        out = func(*args, **kwargs)
        if not isinstance(out, Tensor):
            return out
        try:
            read = handler(self, func, out, args, kwargs)
            is_refused = in_functorch_transform() and read is not None and read.is_attention
            captured = None if read is None or is_refused else self._captured_call(mode, read, out)
        except Exception:
            self._forget(out)
            return out
        if is_refused:
            raise mode.transform_error()
        if captured is not None:
            self._keep(mode, func, out, args, kwargs, read, captured)
        elif self.has_weights and out not in self._weights:
            self.uses.note_use(func, out, args, kwargs)
        return out

    def _keep(
        self,
        mode: "CaptureMode",
        func: Any,
        out: Tensor,
        args: Args,
        kwargs: Kwargs,
        read: ValueRead | None,
        captured: tuple[ModuleFrame, CapturedCall],
    ) -> None:
        """Records a read, and notes it as a piece of attention that other reads may complete."""
        values = [t for t in all_tensors(*args, *kwargs.values()) if self.uses.origin(t)[0] is None]
        is_noted = read is not None and len(values) == 1 and not in_functorch_transform()
        recorded: RecordedMap | IndexError | None
        try:
            recorded = mode.recorder.keep(*captured)
        except IndexError as error:
            if not is_noted:
                raise
            recorded = error
        if recorded is None or read is None or not is_noted:
            return
        fact = read.fact
        product = ValueProduct(
            mode.tape.node_of(values[0], mode.call_number),
            read.as_values,
            out.numel(),
            read.weights.shape[-2],
            read.weights.shape[-1],
            fact.softmax,
            fact.softmax.keys,
            fact.before_dropout is not None,
            recorded,
        )
        mode.tape.note_product(func, out, args, kwargs, values[0], product, mode.call_number)

    # products: the first makes scores, the second reads values

    def _product(self, func: Any, out: Tensor, args: Args, kwargs: Kwargs) -> ValueRead | None:
        named = [kwargs[name] for name in ("input", "self", "other", "mat2", "tensor2") if name in kwargs]
        a, b = [*args, *named][:2]
        if a in self._weights:
            fact = self._weights[a]
            return None if fact.is_transposed else ValueRead(a, fact, b)
        if b in self._weights:
            fact = self._weights[b]
            # values before weights, both transposed
            return ValueRead(b.mT, transpose_weights(fact), a.mT, transpose, transpose) if fact.is_transposed else None
        if a.ndim >= 2 and b.ndim >= 2 and out.is_floating_point():
            self._scores[out] = ScoresFact(a, b.mT)
        return None

    def _added_product(self, func: Any, out: Tensor, args: Args, kwargs: Kwargs) -> ValueRead | None:
        arguments = {"beta": 1, "alpha": 1, **dict(zip(("input", "batch1", "batch2"), args, strict=False)), **kwargs}
        if arguments["batch1"] not in self._weights:
            scores = ScoresFact(arguments["batch1"], arguments["batch2"].mT, float(arguments["alpha"]))
            self._scores[out] = (
                scores if arguments["beta"] == 0 else scores.plus(arguments["input"] * arguments["beta"])
            )
        return None

    def _einsum(self, func: Any, out: Tensor, args: Args, kwargs: Kwargs) -> ValueRead | None:
        operands = args[1:] if len(args) != 2 or isinstance(args[1], Tensor) else tuple(args[1])
        if not isinstance(args[0], str) or len(operands) != 2:
            return None
        parts = einsum.parse(args[0], *operands)
        if parts is None:
            return None
        for weights, values, weight_letters, value_letters in (
            (operands[0], operands[1], parts.first, parts.second),
            (operands[1], operands[0], parts.second, parts.first),
        ):
            if weights in self._weights:
                fact = self._weights[weights]
                read = None if fact.is_transposed else einsum.read_operands(weight_letters, value_letters, parts.out)
                if read is None:
                    return None
                if read.has_one_query:
                    before = None if fact.before_dropout is None else fact.before_dropout.unsqueeze(-2)
                    weights, fact = weights.unsqueeze(-2), replace(fact, scores=None, before_dropout=before)
                return ValueRead(weights, fact, read.values(values), read.result, read.values)
        sides = einsum.score_operands(parts)
        if sides is not None and out.is_floating_point():
            self._scores[out] = ScoresFact(sides[0](operands[0]), sides[1](operands[1]))
        return None

    # scores: scaled, shifted, masked, normalised

    def _multiply(self, func: Any, out: Tensor, args: Args, kwargs: Kwargs) -> None:
        self._scale(out, args, kwargs, divides=False)

    def _divide(self, func: Any, out: Tensor, args: Args, kwargs: Kwargs) -> None:
        scores = self._exponentials.get(args[0])
        if scores is not None and len(args) == 2 and isinstance(args[1], Tensor) and sums_to_one(out):
            self._softmax(func, out, (scores, -1), {})
            return
        self._scale(out, args, kwargs, divides=True)

    def _scale(self, out: Tensor, args: Args, kwargs: Kwargs, *, divides: bool) -> None:
        if kwargs.get("rounding_mode") is not None:
            self._scores.pop(out, None)
            return
        scores = self._scores_in(args)
        if scores is None:
            self._reweigh(out, args, divides)
            return
        factor = as_number(args[1] if args[0] in self._scores else args[0])
        if not factor or (divides and args[0] not in self._scores):
            self._scores.pop(out, None)
        else:
            self._scores[out] = scores.times(1.0 / factor if divides else factor)

    def _reweigh(self, out: Tensor, args: Args, divides: bool) -> None:
        """Weights that are multiplied or divided: by a mask of heads, or by the sums of their rows."""
        if len(args) != 2:
            return
        first = isinstance(args[0], Tensor) and args[0] in self._weights
        weights, factor = args if first else args[::-1]
        fact = self._weights.get(weights) if isinstance(weights, Tensor) and (first or not divides) else None
        if fact is not None and out.shape == weights.shape:
            before = fact.before_dropout
            if before is not None:
                before = before / factor if divides else before * factor
            is_own = (
                not isinstance(factor, Tensor)
                or factor.shape != weights.shape
                or self.uses.origin(factor)[0] is fact.softmax
            )
            factor = None if is_own or divides else factor
            self._weights[out] = replace(fact, scores=None, before_dropout=before, factor=factor)

    def _add(self, func: Any, out: Tensor, args: Args, kwargs: Kwargs) -> None:
        self._shift(out, args, kwargs, self._scores_in(args), 1.0)

    def _subtract(self, func: Any, out: Tensor, args: Args, kwargs: Kwargs) -> None:
        self._shift(out, args, kwargs, self._scores_in(args[:1]), -1.0)

    def _shift(self, out: Tensor, args: Args, kwargs: Kwargs, scores: ScoresFact | None, sign: float) -> None:
        if scores is None or len(args) != 2:
            return
        bias = args[1] if args[0] in self._scores or not isinstance(args[1], Tensor) else args[0]
        factor = sign * float(kwargs.get("alpha", 1))
        if not isinstance(bias, Tensor):
            self._scores[out] = scores
        elif can_broadcast(bias, out):
            self._scores[out] = scores.plus((bias if factor == 1.0 else bias * factor).to(out.dtype))
        else:
            self._scores.pop(out, None)

    def _masked_fill(self, func: Any, out: Tensor, args: Args, kwargs: Kwargs) -> None:
        arguments = {**dict(zip(("self", "mask", "value"), args, strict=False)), **kwargs}
        value, hidden = as_number(arguments["value"]), arguments["mask"]
        fact = self._weights.get(arguments["self"])
        if fact is not None and value == 0.0:
            before = None if fact.before_dropout is None else fact.before_dropout.masked_fill(hidden, 0.0)
            self._weights[out] = replace(fact, scores=None, before_dropout=before)
            return
        scores = self._scores_in(args)
        if scores is None:
            return
        if value is None or not can_broadcast(hidden, out):
            self._scores.pop(out, None)
        else:
            zero = torch.zeros((), dtype=out.dtype, device=out.device)
            self._scores[out] = scores.plus(torch.where(hidden, zero + value, zero))

    def _softmax(self, func: Any, out: Tensor, args: Args, kwargs: Kwargs) -> None:
        scores = args[0] if args else kwargs["input"]
        axis = kwargs.get("dim", args[1] if len(args) > 1 else None)
        if not isinstance(axis, int) or scores.ndim < 2 or axis % scores.ndim < scores.ndim - 2:
            return
        fact = self._scores.get(scores)
        frame = self._frame()
        is_score = fact is not None and not self._is_linear_layer(fact)
        in_attention = frame.name in self._stack.attention_modules
        softmax = SoftmaxFact(frame.name, in_attention, fact is not None, out.shape[axis], is_score)
        # layers of this library report their attention themselves
        is_regard_layer = type(frame.module).__module__.startswith("regard.")
        if scores.ndim in (3, 4) and not is_regard_layer and self._is_selected(softmax.name):
            self.uses.softmaxes.append(softmax)
        is_transposed = axis % scores.ndim == scores.ndim - 2  # over the queries' axis: keys come first
        self._weights[out] = WeightsFact(
            transpose_scores(fact) if is_transposed else fact, None, softmax, is_transposed
        )

    def _log_softmax(self, func: Any, out: Tensor, args: Args, kwargs: Kwargs) -> None:
        axis = kwargs.get("dim", args[1] if len(args) > 1 else None)
        if isinstance(axis, int) and out.ndim > 1:
            self._logarithms[out] = (args[0] if args else kwargs["input"], axis)

    def _exponential(self, func: Any, out: Tensor, args: Args, kwargs: Kwargs) -> None:
        """exp(log_softmax(s)), exp(s − logsumexp(s)), or the numerator of exp(s) / Σ exp(s)."""
        if args[0] in self._logarithms:
            scores, axis = self._logarithms[args[0]]
            self._softmax(func, out, (scores, axis), {})
        elif args[0] in self._scores and out.ndim > 2:
            if sums_to_one(out):
                self._softmax(func, out, (args[0], -1), {})
            else:
                self._exponentials[out] = args[0]

    def _is_linear_layer(self, scores: ScoresFact) -> bool:
        """Whether one side of the product is a parameter of the model, such as the embeddings of all words."""
        if in_functorch_transform():
            return False
        if self._parameters is None:
            modules = self._stack.modules.values()
            parameters = [p for module in modules for p in module.parameters(recurse=False)]
            self._parameters = {p.untyped_storage().data_ptr() for p in parameters} - {0}
        # a tensor that is the same for all samples may be a parameter in another type
        sides = (scores.q, scores.k)
        return any(t.ndim < 3 or t.untyped_storage().data_ptr() in self._parameters for t in sides)

    # weights: dropped, cast, reshaped

    def _dropout(self, func: Any, out: Tensor, args: Args, kwargs: Kwargs) -> None:
        weights = args[0] if args else kwargs["input"]
        fact = self._weights.get(weights)
        if fact is not None and out is not weights:
            before = weights if fact.before_dropout is None else fact.before_dropout
            self._weights[out] = replace(fact, before_dropout=before)

    def _cast(self, func: Any, out: Tensor, args: Args, kwargs: Kwargs) -> None:
        if out is args[0] or not out.is_floating_point():
            return
        if args[0] in self._weights:
            self._weights[out] = self._weights[args[0]]
        elif args[0] in self._scores:
            self._scores[out] = self._scores[args[0]]

    def _reshape(self, func: Any, out: Tensor, args: Args, kwargs: Kwargs) -> None:
        if out is args[0]:
            return
        same = out.shape[-2:] == args[0].shape[-2:]
        if args[0] in self._weights:
            fact = self._weights[args[0]]
            before = None if fact.before_dropout is None else func(fact.before_dropout, *args[1:], **kwargs)
            scores = reshape_scores(fact.scores, out) if same else None
            self._weights[out] = replace(fact, before_dropout=before, scores=scores)
        elif same and args[0] in self._scores:
            scores = reshape_scores(self._scores[args[0]], out)
            if scores is not None:
                self._scores[out] = scores

    def _index(self, func: Any, out: Tensor, args: Args, kwargs: Kwargs) -> None:
        if adds_axes(args[1]):
            self._reshape(func, out, args, kwargs)
            return
        fact = self._weights.get(args[0])
        if fact is not None and keeps_last_two(args[1], args[0].ndim):
            before = None if fact.before_dropout is None else fact.before_dropout[args[1]]
            self._weights[out] = replace(fact, before_dropout=before, scores=None)

    def _cut(self, func: Any, out: Tensor, args: Args, kwargs: Kwargs) -> None:
        """Weights that are padded, or of which some rows or columns are taken."""
        fact = self._weights.get(args[0])
        if fact is not None:
            before = None if fact.before_dropout is None else func(fact.before_dropout, *args[1:], **kwargs)
            self._weights[out] = replace(fact, before_dropout=before, scores=None)

    def _transpose(self, func: Any, out: Tensor, args: Args, kwargs: Kwargs) -> None:
        fact = self._weights.get(args[0])
        if fact is not None and args[0].ndim >= 2 and transposes_last_two(func, args, kwargs):
            before = None if fact.before_dropout is None else fact.before_dropout.mT
            self._weights[out] = replace(transpose_weights(fact), before_dropout=before)
        elif fact is not None and not fact.is_transposed and keeps_last(func, args, kwargs):
            before = None if fact.before_dropout is None else func(fact.before_dropout, *args[1:], **kwargs)
            self._weights[out] = replace(fact, scores=None, before_dropout=before)

    def _scores_in(self, args: Args) -> ScoresFact | None:
        for value in args[:2]:
            if isinstance(value, Tensor) and value in self._scores:
                return self._scores[value]
        return None

    def _captured_call(
        self, mode: "CaptureMode", read: ValueRead, out: Tensor
    ) -> tuple[ModuleFrame, CapturedCall] | None:
        """The read as a recorder takes it; None where it is no attention, or its module is not selected."""
        if not read.is_attention:
            return None
        recorder = mode.recorder
        weights, fact, v, as_rows, _ = read
        after_dropout = None if fact.before_dropout is None else weights
        formed = weights if fact.before_dropout is None else fact.before_dropout
        fact.softmax.is_recorded = True
        frame = mode.frame
        call = attention_call(fact.scores, v, formed)
        heads = mode.heads if mode.heads is not None else folded_heads(frame, formed.shape[0])
        if heads is not None and formed.ndim == 3:
            if after_dropout is not None and not after_dropout.shape[0] == 1 < heads:
                after_dropout = after_dropout.unflatten(0, (-1, heads))
            call, formed, v, as_rows = unfold_heads(call, formed, v, as_rows, heads)
        kind = sdpa.attention_kind(frame, formed, v, False)
        snapshot: SnapshotMap = DenseMap(formed) if call is None else LazyMap(call, recorder.store.frozen_copy)
        step = recorder.step(frame.name, kind, formed.shape[-2], cached_keys(snapshot) if kind == "self" else 0, v)
        if not recorder.is_selected(frame.name):
            return None
        source = mode.captured_from or ("softmax" if after_dropout is None else "softmax before dropout")
        captured = CapturedCall(
            snapshot,
            v,
            out,
            source,
            kind,
            step,
            as_rows,
            expected=as_rows(out).detach(),
            formed=formed.detach(),
            after_dropout=after_dropout,
        )
        return frame, captured


SOFTMAX = [*functions("softmax"), torch.special.softmax]
# calls that make scores or weights
START: dict[Any, Handler] = {
    **dict.fromkeys([*functions("matmul", "bmm"), *operators("matmul")], EagerTracker._product),
    **dict.fromkeys(functions("baddbmm"), EagerTracker._added_product),
    torch.functional.einsum: EagerTracker._einsum,
    **dict.fromkeys(SOFTMAX, EagerTracker._softmax),
    **dict.fromkeys(functions("log_softmax"), EagerTracker._log_softmax),
}
# calls that change them
FOLLOW: dict[Any, Handler] = {
    **dict.fromkeys([*functions("mul", "multiply"), *operators("mul", "rmul", "imul")], EagerTracker._multiply),
    **dict.fromkeys(
        [*functions("div", "divide", "true_divide"), *operators("truediv", "itruediv")], EagerTracker._divide
    ),
    **dict.fromkeys([*functions("add"), *operators("add", "radd", "iadd")], EagerTracker._add),
    **dict.fromkeys([*functions("sub", "subtract"), *operators("sub", "isub")], EagerTracker._subtract),
    **dict.fromkeys(functions("exp"), EagerTracker._exponential),
    **dict.fromkeys(functions("masked_fill"), EagerTracker._masked_fill),
    **dict.fromkeys(functions("dropout", "feature_dropout"), EagerTracker._dropout),
    **dict.fromkeys(RESHAPES, EagerTracker._reshape),
    **dict.fromkeys(CASTS, EagerTracker._cast),
    **dict.fromkeys(operators("getitem"), EagerTracker._index),
    **dict.fromkeys(functions("narrow", "pad"), EagerTracker._cut),
    **dict.fromkeys(TRANSPOSES, EagerTracker._transpose),
}
