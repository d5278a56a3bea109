"""Weights that a model of transformers forms when it runs eagerly: of its own functions, its outputs and its calls."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from benchmarks.zoo.tiny_models import TinyModel

_SOFTMAX = {torch.softmax, F.softmax, Tensor.softmax}


@dataclass
class EagerWeights:
    """Weights "*b q k" in the order of the calls."""

    reported: list[Tensor] = field(default_factory=list)  # returned by an eager function, or in the outputs
    softmaxes: list[Tensor] = field(default_factory=list)  # of every softmax and every fused call, in both
    is_comparable: bool = True  # both implementations have the same output


class _Witness(TorchFunctionMode):
    """Keeps the result of every softmax of three axes or more, and the weights of calls that form none."""

    def __init__(self, weights: list[Tensor]) -> None:
        super().__init__()
        self.weights = weights

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        named = dict(kwargs or {})
        if func is F.multi_head_attention_forward:
            out, weights = func(*args, **{**named, "need_weights": True, "average_attn_weights": False})
            self.weights.append(weights.detach())
            return out, weights.mean(1) if named.get("average_attn_weights", True) else weights
        out = func(*args, **named)
        if func is F.scaled_dot_product_attention:
            self.weights.append(sdpa_weights(*args, **named))
        elif func in _SOFTMAX and out.ndim > 2:
            self.weights.append(out.detach().clone())
        return out


def sdpa_weights(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:  # -> "*b q k"
    """The weights of torch's scaled_dot_product_attention, as its documentation writes them out."""
    if enable_gqa:
        key = key.repeat_interleave(query.shape[-3] // key.shape[-3], -3)
    scores = query @ key.mT * (query.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        scores = scores.masked_fill(~torch.ones(scores.shape[-2:], dtype=torch.bool).tril(), -torch.inf)
    if attn_mask is not None:
        scores = scores.masked_fill(~attn_mask, -torch.inf) if attn_mask.dtype == torch.bool else scores + attn_mask
    # a query that may attend to nothing gets nothing
    return torch.nan_to_num(scores.softmax(-1), nan=0.0)


def collect(tiny: TinyModel, seed: Callable[[], None]) -> EagerWeights:
    """Runs the model in its default implementation, and keeps the weights of its calls; then in its eager one."""
    weights = EagerWeights()
    with _Witness(weights.softmaxes), no_fast_path(), torch.no_grad():
        seed()
        default = tiny.model(**tiny.inputs)
    set_implementation(tiny.model, "eager")
    with eager_functions_wrapped(tiny.model, weights.reported), _Witness(weights.softmaxes), no_fast_path():
        outputs = _outputs(tiny, seed, weights.reported)
    for name, value in outputs.items() if hasattr(outputs, "items") else ():
        if "attention" in name:
            _add_new(weights.reported, value)
    return replace(weights, is_comparable=_agree(default, outputs))


@torch.no_grad()
def _outputs(tiny: TinyModel, seed: Callable[[], None], reported: list[Tensor]) -> Any:
    seed()
    try:
        return tiny.model(**tiny.inputs, output_attentions=True)
    except Exception:  # it takes no such argument, or reports no weights
        reported.clear()
        seed()
        return tiny.model(**tiny.inputs)


def _agree(default: Any, eager: Any) -> bool:
    """Whether both implementations give the same first output."""
    first, other = (next(tensors(outputs), None) for outputs in (default, eager))
    if first is None or other is None or first.shape != other.shape or not first.is_floating_point():
        return True
    return torch.allclose(first, other, rtol=1e-2, atol=1e-2 * float(first.abs().max()))


def tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping | tuple | list):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from tensors(item)


@contextmanager
def no_fast_path() -> Iterator[None]:
    """nn.MultiheadAttention and nn.TransformerEncoderLayer call Python functions."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def set_implementation(model: Any, name: str) -> None:
    """Sets the attention implementation of a model that has several."""
    # others have one
    with suppress(ValueError, AttributeError, NotImplementedError):
        model.set_attn_implementation(name)


def _add_new(weights: list[Tensor], value: Any) -> None:
    """Adds tensors of nested tuples that are not there yet."""
    if isinstance(value, Tensor):
        if value.ndim >= 3 and is_distribution(value) and not any(_same(value, known) for known in weights):
            weights.append(value.detach())
    elif isinstance(value, tuple | list):
        for item in value:
            _add_new(weights, item)


def is_distribution(value: Tensor) -> bool:
    """Whether rows are weights: some models report scores or features under the name of attention."""
    if not value.is_floating_point():
        return False
    sums = value[value.isfinite().all(-1)].sum(-1)
    return bool((value.nan_to_num(0.0) >= 0).all()) and bool((((sums - 1).abs() < 1e-3) | (sums == 0)).all())


def _same(a: Tensor, b: Tensor) -> bool:
    return a.numel() == b.numel() and torch.allclose(
        a.float().flatten(), b.float().flatten(), atol=1e-6, equal_nan=True
    )


@contextmanager
def eager_functions_wrapped(model: nn.Module, weights: list[Tensor]) -> Iterator[None]:
    """Keeps the second result of every function eager_attention_forward in the files of the model."""
    modules = {type(module).__module__ for module in model.modules()}
    originals: list[tuple[Any, str, Callable[..., Any]]] = []
    for module in (sys.modules[name] for name in modules if name.startswith("transformers.")):
        for name, function in list(vars(module).items()):
            if name.endswith("eager_attention_forward"):
                originals.append((module, name, function))
                setattr(module, name, _keeping_weights(function, weights))
    try:
        yield
    finally:
        for module, name, function in originals:
            setattr(module, name, function)


def _keeping_weights(function: Callable[..., Any], weights: list[Tensor]) -> Callable[..., Any]:
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        out = function(*args, **kwargs)
        if isinstance(out, tuple) and len(out) > 1 and isinstance(out[1], Tensor):
            weights.append(out[1].detach().clone())
        return out

    return wrapped
