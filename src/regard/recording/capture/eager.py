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
from regard.recording.capture.torch_functions import CASTS, RESHAPES, TRANSPOSES, TorchCall, functions, operators
from regard.recording.capture.tracked_tensors import (
    ScoresFact,
    SoftmaxFact,
    ValueRead,
    WeightsFact,
    adds_axes,
    as_number,
    attention_call,
    can_broadcast,
    folded_heads,
    keeps_last,
    keeps_last_two,
    reshape_scores,
    sums_to_one,
    transpose,
    transposes_last_two,
    unfold_heads,
)
from regard.recording.recorded_map import RecordedMap

if TYPE_CHECKING:
    from regard.recording.capture.function_mode import CaptureMode

# notes the meaning of a call for scores and weights
Handler = Callable[["EagerTracker", TorchCall], ValueRead | None]


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
        return START.get(func) or (FOLLOW.get(func) if any(self.followed) else None)

    def attends(self, call: TorchCall) -> bool:
        """Whether a call mixes values by weights; follows the scores and weights in it."""
        handler = self.handler(call.func)
        try:
            read = handler(self, call) if handler is not None and isinstance(call.out, Tensor) else None
            is_attention = read is not None and read.is_attention
        except Exception:
            self._forget(call.out)
            return False
        if is_attention and read is not None:
            read.fact.softmax.is_recorded = True
        else:
            self._note_use(call)
        return is_attention

    def _forget(self, out: Tensor) -> None:
        """Gives up to follow the result of a call, which itself succeeded: the model runs on."""
        self._scores.pop(out, None)
        self._weights.pop(out, None)

    def _note_use(self, call: TorchCall) -> None:
        if self.has_weights and call.out not in self._weights:
            self.uses.note_use(call)

    def run(
        self, handler: Handler, mode: "CaptureMode", func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Runs a call, follows the scores and weights in it, and captures it if it attends."""
        call = TorchCall(func, func(*args, **kwargs), args, kwargs)
        if not isinstance(call.out, Tensor):
            return call.out
        try:
            read = handler(self, call)
            is_refused = in_functorch_transform() and read is not None and read.is_attention
            captured = None if read is None or is_refused else self._captured_call(mode, read, call.out)
        except Exception:
            self._forget(call.out)
            return call.out
        if is_refused:
            raise mode.transform_error()
        if read is not None and captured is not None:
            self._keep(mode, call, read, *captured)
        else:
            self._note_use(call)
        return call.out

    def _keep(
        self, mode: "CaptureMode", call: TorchCall, read: ValueRead, frame: ModuleFrame, captured: CapturedCall
    ) -> None:
        """Records a read, and notes it as a piece of attention that other reads may complete."""
        values = [t for t in call.tensors() if self.uses.origin(t)[0] is None]
        is_noted = len(values) == 1 and not in_functorch_transform()
        recorded: RecordedMap | IndexError | None
        try:
            recorded = mode.recorder.keep(frame, captured)
        except IndexError as error:
            if not is_noted:
                raise
            recorded = error
        if recorded is None or not is_noted:
            return
        fact = read.fact
        product = ValueProduct(
            mode.tape.node_of(values[0], mode.call_number),
            read.as_values,
            call.out.numel(),
            read.weights.shape[-2],
            read.weights.shape[-1],
            fact.softmax,
            fact.softmax.keys,
            fact.before_dropout is not None,
            recorded,
        )
        mode.tape.note_product(call, values[0], product, mode.call_number)

    # products: the first makes scores, the second reads values

    def _product(self, call: TorchCall) -> ValueRead | None:
        named = [call.kwargs[name] for name in ("input", "self", "other", "mat2", "tensor2") if name in call.kwargs]
        a, b = [*call.args, *named][:2]
        if a in self._weights:
            fact = self._weights[a]
            return None if fact.is_transposed else ValueRead(a, fact, b)
        if b in self._weights:
            fact = self._weights[b]
            # values before weights, both transposed
            return ValueRead(b.mT, fact.transposed(), a.mT, transpose, transpose) if fact.is_transposed else None
        if a.ndim >= 2 and b.ndim >= 2 and call.out.is_floating_point():
            self._scores[call.out] = ScoresFact(a, b.mT)
        return None

    def _added_product(self, call: TorchCall) -> None:
        arguments = {"beta": 1, "alpha": 1, **call.named("input", "batch1", "batch2")}
        if arguments["batch1"] not in self._weights:
            scores = ScoresFact(arguments["batch1"], arguments["batch2"].mT, float(arguments["alpha"]))
            beta = arguments["beta"]
            self._scores[call.out] = scores if beta == 0 else scores.plus(arguments["input"] * beta)

    def _einsum(self, call: TorchCall) -> ValueRead | None:
        equation, *operands = call.args
        if len(operands) == 1 and not isinstance(operands[0], Tensor):
            operands = list(operands[0])
        if not isinstance(equation, str) or len(operands) != 2:
            return None
        parts = einsum.parse(equation, *operands)
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
                    weights, fact = weights.unsqueeze(-2), fact.mapped(lambda t: t.unsqueeze(-2))
                return ValueRead(weights, fact, read.values(values), read.result, read.values)
        sides = einsum.score_operands(parts)
        if sides is not None and call.out.is_floating_point():
            self._scores[call.out] = ScoresFact(sides[0](operands[0]), sides[1](operands[1]))
        return None

    # scores: scaled, shifted, masked, normalised

    def _divide(self, call: TorchCall) -> None:
        scores = self._exponentials.get(call.args[0])
        if scores is not None and len(call.args) == 2 and isinstance(call.args[1], Tensor) and sums_to_one(call.out):
            self._softmax(call, scores, -1)
        else:
            self._scale(call, divides=True)

    def _scale(self, call: TorchCall, *, divides: bool = False) -> None:
        out, args = call.out, call.args
        if call.kwargs.get("rounding_mode") is not None:
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

    def _reweigh(self, out: Tensor, args: tuple[Any, ...], divides: bool) -> None:
        """Weights that are multiplied or divided: by a mask of heads, or by the sums of their rows."""
        if len(args) != 2:
            return
        first = isinstance(args[0], Tensor) and args[0] in self._weights
        weights, factor = args if first else args[::-1]
        fact = self._weights.get(weights) if isinstance(weights, Tensor) and (first or not divides) else None
        if fact is not None and out.shape == weights.shape:
            is_mask = (
                not isinstance(factor, Tensor)
                or factor.shape != weights.shape
                or self.uses.origin(factor)[0] is fact.softmax
            )
            reweighed = fact.mapped(lambda before: before / factor if divides else before * factor)
            self._weights[out] = replace(reweighed, factor=None if is_mask or divides else factor)

    def _shift(self, call: TorchCall, sign: float = 1.0) -> None:
        out, args = call.out, call.args
        scores = self._scores_in(args if sign > 0 else args[:1])
        if scores is None or len(args) != 2:
            return
        bias = args[1] if args[0] in self._scores or not isinstance(args[1], Tensor) else args[0]
        factor = sign * float(call.kwargs.get("alpha", 1))
        if not isinstance(bias, Tensor):
            self._scores[out] = scores
        elif can_broadcast(bias, out):
            self._scores[out] = scores.plus((bias if factor == 1.0 else bias * factor).to(out.dtype))
        else:
            self._scores.pop(out, None)

    def _masked_fill(self, call: TorchCall) -> None:
        out, arguments = call.out, call.named("self", "mask", "value")
        value, hidden = as_number(arguments["value"]), arguments["mask"]
        fact = self._weights.get(arguments["self"])
        if fact is not None and value == 0.0:
            self._weights[out] = fact.mapped(lambda before: before.masked_fill(hidden, 0.0))
            return
        scores = self._scores_in(call.args)
        if scores is None:
            return
        if value is None or not can_broadcast(hidden, out):
            self._scores.pop(out, None)
        else:
            zero = torch.zeros((), dtype=out.dtype, device=out.device)
            self._scores[out] = scores.plus(torch.where(hidden, zero + value, zero))

    def _softmax(self, call: TorchCall, scores: Tensor, axis: Any) -> None:
        out = call.out
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
        fact = fact.transposed() if is_transposed and fact is not None else fact
        self._weights[out] = WeightsFact(fact, None, softmax, is_transposed)

    def _log_softmax(self, call: TorchCall) -> None:
        if isinstance(call.dim, int) and call.out.ndim > 1:
            self._logarithms[call.out] = (call.first, call.dim)

    def _exponential(self, call: TorchCall) -> None:
        """exp(log_softmax(s)), exp(s − logsumexp(s)), or the numerator of exp(s) / Σ exp(s)."""
        scores = call.args[0]
        if scores in self._logarithms:
            self._softmax(call, *self._logarithms[scores])
        elif scores in self._scores and call.out.ndim > 2:
            if sums_to_one(call.out):
                self._softmax(call, scores, -1)
            else:
                self._exponentials[call.out] = scores

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

    def _dropout(self, call: TorchCall) -> None:
        weights = call.first
        fact = self._weights.get(weights)
        if fact is not None and call.out is not weights:
            before = weights if fact.before_dropout is None else fact.before_dropout
            self._weights[call.out] = replace(fact, before_dropout=before)

    def _cast(self, call: TorchCall) -> None:
        out, t = call.out, call.args[0]
        if out is t or not out.is_floating_point():
            return
        if t in self._weights:
            self._weights[out] = self._weights[t]
        elif t in self._scores:
            self._scores[out] = self._scores[t]

    def _reshape(self, call: TorchCall) -> None:
        out, t = call.out, call.args[0]
        if out is t:
            return
        same = out.shape[-2:] == t.shape[-2:]
        if t in self._weights:
            fact = self._weights[t]
            self._weights[out] = fact.mapped(call.repeated_on, reshape_scores(fact.scores, out) if same else None)
        elif same and t in self._scores:
            scores = reshape_scores(self._scores[t], out)
            if scores is not None:
                self._scores[out] = scores

    def _index(self, call: TorchCall) -> None:
        if adds_axes(call.args[1]):
            self._reshape(call)
        elif keeps_last_two(call.args[1], call.args[0].ndim):
            self._cut(call)

    def _cut(self, call: TorchCall) -> None:
        """Weights that are padded, or of which some rows or columns are taken."""
        fact = self._weights.get(call.args[0])
        if fact is not None:
            self._weights[call.out] = fact.mapped(call.repeated_on)

    def _transpose(self, call: TorchCall) -> None:
        fact = self._weights.get(call.args[0])
        if fact is not None and call.args[0].ndim >= 2 and transposes_last_two(call):
            self._weights[call.out] = fact.mapped(transpose, fact.scores).transposed()
        elif fact is not None and not fact.is_transposed and keeps_last(call):
            self._cut(call)

    def _scores_in(self, args: tuple[Any, ...]) -> ScoresFact | None:
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
        formed = read.formed
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
    **dict.fromkeys(SOFTMAX, lambda tracker, call: tracker._softmax(call, call.first, call.dim)),
    **dict.fromkeys(functions("log_softmax"), EagerTracker._log_softmax),
}
# calls that change them
FOLLOW: dict[Any, Handler] = {
    **dict.fromkeys([*functions("mul", "multiply"), *operators("mul", "rmul", "imul")], EagerTracker._scale),
    **dict.fromkeys(
        [*functions("div", "divide", "true_divide"), *operators("truediv", "itruediv")], EagerTracker._divide
    ),
    **dict.fromkeys([*functions("add"), *operators("add", "radd", "iadd")], EagerTracker._shift),
    **dict.fromkeys(
        [*functions("sub", "subtract"), *operators("sub", "isub")], lambda tracker, call: tracker._shift(call, -1.0)
    ),
    **dict.fromkeys(functions("exp"), EagerTracker._exponential),
    **dict.fromkeys(functions("masked_fill"), EagerTracker._masked_fill),
    **dict.fromkeys(functions("dropout", "feature_dropout"), EagerTracker._dropout),
    **dict.fromkeys(RESHAPES, EagerTracker._reshape),
    **dict.fromkeys(CASTS, EagerTracker._cast),
    **dict.fromkeys(operators("getitem"), EagerTracker._index),
    **dict.fromkeys(functions("narrow", "pad"), EagerTracker._cut),
    **dict.fromkeys(TRANSPOSES, EagerTracker._transpose),
}
