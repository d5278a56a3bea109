"""intervene: other attention weights inside a model, fused or not, while a block runs.

    with regard.intervene(model, weights=regard.interop.uniform, layers="encoder.*"):
        model(x)

out = P' · v, where P' replaces P = normalize(score(q, k) + bias, mask).
"""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from regard.attn import observer
from regard.attn.call import Attended, AttentionCall, Need, equation
from regard.attn.kv_cache import KVCache
from regard.attn.maps.attention_map import DenseMap
from regard.attn.terms.read import weighted_sum
from regard.common import checks
from regard.common.uncompiled import uncompiled
from regard.interop.replacements import Replacement, WithoutKeys
from regard.recording.capture.eager import START, EagerTracker
from regard.recording.capture.module_stack import ModuleStack, checked_patterns, foreign_warning
from regard.recording.capture.multihead import undispatched
from regard.recording.capture.regard_layers import layer_frame
from regard.recording.capture.sdpa import SdpaArguments, as_call
from regard.recording.capture.torch_functions import TorchCall

_SDPA = (
    F.scaled_dot_product_attention,
    torch.ops.aten.scaled_dot_product_attention,
    torch.ops.aten.scaled_dot_product_attention.default,
)


@dataclass(frozen=True)
class Intervention:
    """The number of attentions whose weights were replaced, by the name of their module."""

    calls: dict[str, int] = field(default_factory=dict)


@contextmanager
def intervene(
    model: nn.Module, weights: Replacement | Tensor, layers: str | Sequence[str] | None = None
) -> Iterator[Intervention]:
    """Replaces the attention weights of a model in the block: of torch's fused attention, and so of the models of
    torch and transformers that use it, and of the layers of this library.

    `weights` is a function of the model's own weights, "*b q k", and of the keys that each query may attend to, a
    boolean tensor or None, such as `regard.interop.uniform`, `regard.interop.Permutation()` and
    `regard.interop.WithoutKeys(keys)`; or a tensor, which broadcasts to the weights. `layers` are names or patterns of
    modules, all if left out. Gradients pass through both weights and values. Gates over feature maps keep their
    weights, and so do modules with a written-out softmax, which a warning names. Blocks may be nested: the inner one
    decides about the layers of both. A block in which nothing was replaced raises.
    """
    outer = observer.current_observer()
    if outer is not None and not isinstance(outer, _Intervener):
        raise RuntimeError(
            "a record is running in this thread, which would miss replaced weights; end that block first"
        )
    stack = ModuleStack(model)
    replacement = _Replacement(stack, _as_function(weights), checked_patterns(layers, list(stack.modules)))
    with ExitStack() as exits:
        exits.enter_context(uncompiled())
        exits.enter_context(stack.attached())
        exits.callback(observer.set_observer, observer.set_observer(_Intervener(replacement, outer)))
        exits.enter_context(_InterveningMode(replacement))
        yield replacement.intervention
    if stack.foreign_modules:
        warnings.warn(foreign_warning("intervene", stack), UserWarning, stacklevel=3)
    kept = list(dict.fromkeys([*replacement.kept, *replacement.tracker.uses.unrecognised()]))
    if kept and replacement.intervention.calls:
        names = ", ".join(repr(name or "the model") for name in kept[:4]) + (", …" if len(kept) > 4 else "")
        warnings.warn(
            f"intervene kept the weights of {names}, which attends by a written-out softmax or by flex_attention; load "
            "a model of transformers with attn_implementation='sdpa', or exclude the module with layers=",
            UserWarning,
            stacklevel=3,
        )
    if not replacement.intervention.calls:
        raise ValueError(
            "intervene replaced no weights: no selected module attended by scaled_dot_product_attention or by a layer "
            "of regard; widen layers=, or load a model of transformers with attn_implementation='sdpa'"
        )


def _as_function(weights: Replacement | Tensor) -> Replacement:
    if isinstance(weights, Tensor):
        replacement = weights

        def replace_by_tensor(formed: Tensor, allowed: Tensor | None) -> Tensor:
            try:
                return replacement.to(formed).expand_as(formed)
            except RuntimeError as error:
                raise ValueError(
                    f"weights must broadcast to those of the model, {checks.shape(formed)}, got "
                    f"{checks.shape(replacement)}; give one map per layer with layers="
                ) from error

        return replace_by_tensor
    if not callable(weights):
        raise TypeError(
            f"weights must be a function of weights, or a tensor, got {type(weights).__name__}; try "
            "weights=regard.interop.uniform"
        )
    return weights


class _Replacement:
    """The function, the modules that it is for, and the calls so far."""

    def __init__(self, stack: ModuleStack, function: Replacement, patterns: list[str] | None) -> None:
        self.stack, self.function, self.patterns = stack, function, patterns
        self.intervention = Intervention()
        self.pauses = 0
        self.tracker = EagerTracker(stack, self.is_selected)
        self.kept: dict[str, None] = {}  # modules whose attention is not replaced, though it was asked for

    def is_selected(self, name: str) -> bool:
        return self.patterns is None or any(fnmatchcase(name, pattern) for pattern in self.patterns)

    def is_foreign(self, module: nn.Module) -> bool:
        """Whether a layer of this library is not a part of the model, nor called by it."""
        return not self.stack.has_module(module) and self.stack.is_foreign_call()

    def layer_name(self, module: nn.Module) -> str:
        """The layer of this library that `module` is, or whose score it is, as a recording names it."""
        return layer_frame(self.stack, module)[0].name

    def weights(self, name: str, formed: Tensor, allowed: Tensor | None) -> Tensor:  # "*b q k"
        """The weights in place of those that the module of this name formed."""
        with self.paused():
            other = self.function(formed, allowed)
        if not isinstance(other, Tensor) or other.shape != formed.shape:
            got = checks.shape(other) if isinstance(other, Tensor) else type(other).__name__
            raise ValueError(
                f"weights must return a tensor of the shape of its argument, {checks.shape(formed)}, got {got}; return "
                "one weight per query and key"
            )
        self.intervention.calls[name] = self.intervention.calls.get(name, 0) + 1
        return other

    def attended(self, name: str, call: AttentionCall) -> Attended:
        """The result of a call of the module of this name with other weights."""
        call = self.function.masked(call) if isinstance(self.function, WithoutKeys) else call
        need = call.need
        with self.paused():
            result = equation(
                replace(call, need=replace(need, weights=need.weights or need.map)),
                replacement=partial(self.weights, name),
            )
        if not need.map:
            return result
        assert result.weights is not None
        return result._replace(map=DenseMap(result.weights), weights=result.weights if need.weights else None)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Calls inside belong to an attention that is replaced as a whole, or to none."""
        self.pauses += 1
        try:
            yield
        finally:
            self.pauses -= 1


class _InterveningMode(TorchFunctionMode):
    """Replaces torch's own attention, in which a layer of this library is not involved."""

    def __init__(self, replacement: _Replacement) -> None:
        super().__init__()
        self.replacement = replacement
        self.latest: Tensor | None = None  # the weights of the latest call, "*b h q k"

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        is_attention = func in _SDPA or func is F.multi_head_attention_forward
        if not is_attention and not self.replacement.pauses:
            out = func(*args, **kwargs)
            self._note_written(func, out, args, kwargs)
            return out
        if not is_attention or self.replacement.pauses or self.replacement.stack.is_foreign_call():
            return func(*args, **kwargs)
        if not self.replacement.is_selected(self.replacement.stack.current.name):
            return func(*args, **kwargs)
        if func in _SDPA:
            return self._attend(SdpaArguments(*args, **kwargs))
        return self._attend_heads(args, kwargs)

    def _note_written(self, func: Any, out: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Notes a module whose attention is written out, or flex_attention: it keeps its weights."""
        replacement, stack = self.replacement, self.replacement.stack
        is_flex = type(func).__name__ == "FlexAttentionHOP"
        if (is_flex or func in START) and stack.is_foreign_call(is_attention=False):
            return
        if is_flex or replacement.tracker.attends(TorchCall(func, out, args, kwargs)):
            name = stack.current.name
            if replacement.is_selected(name):
                replacement.kept[name] = None

    def _attend(self, arguments: SdpaArguments) -> Tensor:
        q, k, v, mask, dropout, is_causal, scale, _ = arguments
        call = as_call(q, k, v, mask, is_causal, scale)
        call = replace(call, dropout=dropout, need=Need(weights=True))
        attended = self.replacement.attended(self.replacement.stack.current.name, call)
        self.latest = attended.weights
        return attended.out.to(v.dtype)

    def _attend_heads(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Tensor, Tensor | None]:
        """torch's function for several heads, by its fused path; the weights that it returns are the replaced ones."""
        need_weights = kwargs.get("need_weights", True)
        average = kwargs.get("average_attn_weights", True)
        with self:
            out, _ = undispatched()(*args, **{**kwargs, "need_weights": False})
        if not need_weights or self.latest is None:
            return out, None
        latest = self.latest.mean(-3) if average else self.latest
        # a query without a batch has none in its weights
        return out, latest if args[0].ndim == 3 else latest.squeeze(0)


class _Intervener(observer.AttentionObserver):
    """Replaces the weights of the layers of this library; `outer` decides about those that are not selected."""

    def __init__(self, replacement: _Replacement, outer: "_Intervener | None") -> None:
        self.replacement, self.outer = replacement, outer

    @contextmanager
    def muted(self) -> Iterator[None]:
        with self.replacement.paused(), nullcontext() if self.outer is None else self.outer.muted():
            yield

    def replace_result(self, call: AttentionCall) -> Attended | None:
        name = self.replacement.layer_name(call.score)
        if self.replacement.is_selected(name) and not self.replacement.is_foreign(call.score):
            return self.replacement.attended(name, call)
        return None if self.outer is None else self.outer.replace_result(call)

    def on_attention(self, call: AttentionCall, out: Tensor, plain: Tensor | None) -> None:
        pass

    def mix(self, owner: nn.Module, weights: Tensor, v: Tensor) -> Tensor:
        name = self.replacement.layer_name(owner)
        if self.replacement.is_selected(name) and not self.replacement.is_foreign(owner):
            return weighted_sum(self.replacement.weights(name, weights, None), v)
        return weighted_sum(weights, v) if self.outer is None else self.outer.mix(owner, weights, v)

    def on_weighted(
        self, kind: observer.Weighted, owner: nn.Module, weights: Tensor, values: Tensor, out: Tensor
    ) -> None:
        pass

    def on_recurrence(
        self, rnn: nn.RNNBase, rows: Tensor, sizes: Sequence[int], first: Any, out: Tensor, rank: Tensor | None
    ) -> None:
        pass

    def on_recurrent_step(
        self, rnn: nn.RNNBase, layer: int, products: tuple[Tensor, Tensor], before: Any, after: Any
    ) -> None:
        pass

    def spatial_keys(self, space: tuple[int, ...]) -> AbstractContextManager[None]:
        return nullcontext()

    def alignment_steps(self, memory: KVCache | None) -> AbstractContextManager[None]:
        return nullcontext()
