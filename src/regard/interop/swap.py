"""swap and restore: other terms of the equation inside a model that is already trained.

    regard.swap(model, normalize=regard.Entmax(1.5), layers="encoder.layer.1*")
    with regard.swap(model, mask=regard.Window(256)):
        model(x)
    regard.restore(model)

weights = normalize(score(q, k) + bias, mask), with some of the terms exchanged, and the projections of the model.
"""

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from types import TracebackType
from typing import Any

from torch import nn

from regard.attn.layer import Attention, check_terms
from regard.attn.terms.bias import Bias
from regard.attn.terms.mask import Mask
from regard.attn.terms.normalizer import Normalizer
from regard.attn.terms.read import Read
from regard.attn.terms.score import Score
from regard.common import checks
from regard.interop import torch_multihead, transformers_attention
from regard.interop.swapped_terms import SwappedTerms
from regard.interop.undo import Undo
from regard.recording.capture.module_stack import checked_patterns

# the attribute in which a model keeps its swaps
_SWAPS = "_regard_swaps"


class Swap:
    """Terms that were exchanged in a model; as a context, it restores what was there before at its end."""

    def __init__(self, model: nn.Module, layers: list[str]) -> None:
        self.model = model
        self.layers = layers  # names of the modules that have other terms
        self.undo = Undo()

    def restore(self) -> None:
        """Puts back what was there before."""
        swaps = self.model.__dict__.get(_SWAPS, [])
        if self not in swaps:
            return
        if swaps[-1] is not self:
            raise RuntimeError("terms were swapped again inside this block; restore those first, or all by restore()")
        swaps.pop()
        self.undo.run()

    def __enter__(self) -> "Swap":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.restore()

    def __repr__(self) -> str:
        return f"Swap({len(self.layers)} layers of {type(self.model).__name__})"


def swap(
    model: nn.Module,
    *,
    score: Score | None = None,
    bias: Bias | None = None,
    mask: Mask | None = None,
    normalize: Normalizer | None = None,
    read: Read | None = None,
    layers: str | Sequence[str] | None = None,
) -> Swap:
    """Exchanges terms of the attention inside a model, until `restore(model)`, or in a `with` block.

    `score`, `normalize` and `read` replace those of the model; `mask` is combined with the masks of its calls by `&`,
    and `bias` is added to theirs. For models of transformers that use its attention interface, for
    nn.MultiheadAttention and with it nn.Transformer, and for the layers of this library. `layers` are names or patterns
    of modules, all if left out. The keys of the state do not change: parameters of the new terms are not among those of
    the model, so hand them to the optimizer beside it.
    """
    checks.instance_of("model", model, nn.Module, "your model")
    terms = SwappedTerms(score, bias, mask, normalize, read)
    check_terms(score=score, bias=bias, normalize=normalize, read=read, mask=mask)
    if terms == SwappedTerms():
        raise ValueError("swap needs a term to exchange; try normalize=regard.Entmax(1.5) or mask=regard.Window(256)")
    modules = dict(model.named_modules())
    patterns = checked_patterns(layers, list(modules))
    chosen = {
        name: module
        for name, module in modules.items()
        if patterns is None or any(fnmatchcase(name, pattern) for pattern in patterns)
    }
    interfaced = list(_models_with_interface(model))
    callers = {kind for kind in set(map(type, modules.values())) if transformers_attention.calls_interface(kind)}
    attending = [
        name
        for name, module in modules.items()
        if isinstance(module, Attention | nn.MultiheadAttention) or (interfaced and type(module) in callers)
    ]
    swapped = Swap(model, sorted(name for name in attending if name in chosen))
    if not swapped.layers:
        raise ValueError(
            "swap found no attention to change: no selected module is a layer of regard or nn.MultiheadAttention, or "
            f"calls the attention interface of transformers; {_way_out(attending, list(chosen))}"
        )
    try:
        _exchange(swapped.undo, model, chosen, interfaced, terms)
    except BaseException:
        swapped.undo.run()
        raise
    model.__dict__.setdefault(_SWAPS, []).append(swapped)
    return swapped


def _way_out(attending: Sequence[str], chosen: Sequence[str]) -> str:
    """The name of a module that attends, inside a selected one if there is any."""
    if not attending:
        return "record the model to see its attention"
    inside = [name for name in attending if any(name.startswith(f"{outer}.") for outer in chosen)]
    return f"try layers={(inside or attending)[0]!r}"


def _exchange(
    undo: Undo, model: nn.Module, chosen: dict[str, nn.Module], interfaced: Sequence[Any], terms: SwappedTerms
) -> None:
    for name, module in chosen.items():
        if isinstance(module, Attention):
            _swap_layer(undo, name, module, terms)
        elif isinstance(module, nn.MultiheadAttention):
            torch_multihead.swap_heads(undo, model, module, terms)
        elif interfaced:
            undo.set(
                module, transformers_attention.TERMS, terms.over(module.__dict__.get(transformers_attention.TERMS))
            )
    if interfaced:
        transformers_attention.use(undo, interfaced)


def restore(model: nn.Module) -> None:
    """Puts back the terms that a model had before any swap; one without swaps stays as it is."""
    checks.instance_of("model", model, nn.Module, "your model")
    for swapped in reversed(list(model.__dict__.get(_SWAPS, []))):
        swapped.restore()


def _swap_layer(undo: Undo, name: str, layer: Attention, terms: SwappedTerms) -> None:
    """The terms of a layer of this library."""
    if terms.bias is not None and layer.bias is not None:
        raise ValueError(f"bias cannot be added to {name!r}, which has {layer.bias!r} already; leave it out of layers=")
    for term in ("score", "bias", "normalize", "read"):
        value = getattr(terms, term)
        if value is not None:
            undo.set(layer, term, value)
    if terms.mask is not None:
        undo.set(layer, "mask", terms.mask if layer.mask is None else layer.mask & terms.mask)


def _models_with_interface(model: Any) -> Iterator[Any]:
    """The outermost models of transformers that call their attention through its interface."""
    if hasattr(model, "_can_set_attn_implementation"):
        if model._can_set_attn_implementation():
            yield model
        return
    for child in model.children():
        yield from _models_with_interface(child)
