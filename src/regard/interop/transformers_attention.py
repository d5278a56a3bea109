"""register_with_transformers: every model of transformers that uses its attention interface runs on the equation.

    regard.register_with_transformers()
    model = AutoModel.from_pretrained(folder, attn_implementation="regard")

out = softmax(cap · tanh(scale · q kᵀ / cap) + bias, mask) v, with transformers' names of its parts: `scaling`,
`softcap`, `position_bias`, `attention_mask`, and `s_aux` for the scores of a null slot (a sink).
"""

import inspect
import warnings
from collections.abc import Callable, Sequence
from functools import lru_cache, wraps
from typing import Any

import torch
from torch import Tensor, nn

from regard.attn.call import DOT, MIX, NOTHING, SOFTMAX, AttentionInputs, Need, Terms
from regard.attn.functional import attend_inputs
from regard.attn.terms.mask import BooleanMask, Mask
from regard.attn.terms.normalizer import WithNullSlot
from regard.attn.terms.position import Positions
from regard.attn.terms.score import Dot, Score
from regard.attn.terms.sequence_masks import Causal
from regard.attn.terms.soft_cap import SoftCap
from regard.interop.swapped_terms import SwappedTerms
from regard.interop.transformers_masks import dense_mask_with_rules, rules_of
from regard.interop.undo import Undo

NAME = "regard"
# the attribute in which a module keeps the terms that were swapped
TERMS = "_regard_terms"
# arguments of models that change the result of attention and have no term here, by their names
_UNSUPPORTED = {
    "block_indices": "the blocks of keys that an indexer selected",
    "cache": "a paged cache",
}


def register_with_transformers() -> None:
    """Makes "regard" a value of transformers' `attn_implementation`: in from_pretrained, _from_config and
    set_attn_implementation. A second call changes nothing.

    A model with attention outside of transformers' interface, such as DeBERTa, ignores the value: a warning names it.
    """
    try:
        from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
    except ImportError as error:
        raise ImportError(
            "register_with_transformers needs transformers; install it with: pip install 'regard[record]'"
        ) from error
    AttentionInterface.register(NAME, attention_of_transformers)
    AttentionMaskInterface.register(NAME, dense_mask_with_rules)
    check = PreTrainedModel.get_correct_attn_implementation
    if not hasattr(check, "__wrapped__"):
        setattr(PreTrainedModel, check.__name__, _with_warning(check))


def _with_warning(check: Callable[..., str]) -> Callable[..., str]:
    """transformers' check of a model's attention, which asks no registered one whether the model uses it."""

    @wraps(check)
    def checked(model: Any, *args: Any, **kwargs: Any) -> str:
        implementation = check(model, *args, **kwargs)
        if implementation == NAME and not model._can_set_attn_implementation():
            warnings.warn(
                f"{type(model).__name__} has attention outside of transformers' attention interface, which "
                f"attn_implementation={NAME!r} does not change; use regard.record, which needs "
                "no interface",
                UserWarning,
                stacklevel=2,
            )
        return implementation

    return checked


def attention_of_transformers(
    module: nn.Module,
    query: Tensor,  # "b h q d"
    key: Tensor,  # "b g k d", h a multiple of g
    value: Tensor,  # "b g k v"
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    position_bias: Tensor | None = None,
    indices: Tensor | None = None,  # "b q n": the keys that an indexer selected
    output_attentions: bool = False,
    **others: Any,
) -> tuple[Tensor, Tensor | None]:  # "b q h v", "b h q k"
    """An attention in the form in which transformers calls it; weights where the caller wants them."""
    _refuse_unsupported(module, others)
    if is_causal is None:
        is_causal = getattr(module, "is_causal", False)
    mask, positions, bias = _mask_and_bias(attention_mask, bool(is_causal), query, key)
    if indices is not None:
        selected = _selected_keys(indices, key.shape[-2])
        mask = selected if mask is None else mask & selected
    if position_bias is not None:
        bias = position_bias if bias is None else bias + position_bias
    normalize = SOFTMAX if s_aux is None else WithNullSlot(SOFTMAX, s_aux.reshape(-1, 1, 1))
    terms = Terms(_score(scaling, softcap, query.shape[-1]), bias, normalize, MIX, dropout)
    need = Need(weights=True) if output_attentions or _weights_are_collected() else NOTHING
    inputs = AttentionInputs(query, key, value, mask, positions, need)
    swapped: SwappedTerms | None = module.__dict__.get(TERMS)
    if swapped is not None:
        inputs, terms = swapped.apply(inputs, terms, module.training)
    attended = attend_inputs(inputs, terms, None)
    return attended.out.transpose(1, 2).contiguous(), attended.weights


def _refuse_unsupported(module: nn.Module, others: dict[str, Any]) -> None:
    kind = type(module).__name__
    for name, what in _UNSUPPORTED.items():
        if others.get(name) is not None:
            raise NotImplementedError(
                f"{kind} attends by {what} ({name}=), for which regard has no term; load the model with "
                "attn_implementation='eager'"
            )


def _selected_keys(indices: Tensor, keys: int) -> Mask:  # "b q n"
    """The keys that an indexer selected for each query  (sparse attention of DeepSeek-V3.2)."""
    allowed = torch.zeros(*indices.shape[:-1], keys, dtype=torch.bool, device=indices.device)
    return BooleanMask(allowed.scatter(-1, indices.long(), True).unsqueeze(-3))


def _mask_and_bias(
    attention_mask: Tensor | None, is_causal: bool, query: Tensor, key: Tensor
) -> tuple[Mask | None, Positions | None, Tensor | None]:
    """The mask with its positions, and the bias. Without a mask, one query attends to all keys, and several are the
    first of the keys if they are causal: the rest of a cache of a fixed size is empty."""
    queries, keys = query.shape[-2], key.shape[-2]
    if attention_mask is None:
        if not is_causal or queries == 1:
            return None, None, None
        first = (torch.arange(queries, device=query.device), torch.arange(keys, device=query.device))
        return Causal(), None if queries == keys else first, None
    if attention_mask.dtype != torch.bool:
        return None, None, attention_mask
    rules = rules_of(attention_mask)
    if rules is not None:
        return rules.mask, rules.positions, None
    axes = [1] * (query.ndim - attention_mask.ndim)  # transformers aligns the axes of a mask at the end
    return BooleanMask(attention_mask.reshape(*axes, *attention_mask.shape)), None, None


def _weights_are_collected() -> bool:
    """Whether transformers keeps the weights of this call: not every model hands `output_attentions` on."""
    from transformers.utils import output_capturing

    if torch.compiler.is_compiling():
        return False
    collector = output_capturing._active_collector.get()
    return bool(collector) and any(name.endswith("attentions") for name in collector)


def _score(scaling: float | None, softcap: float | None, width: int) -> Score:
    if softcap is None and (scaling is None or scaling == width**-0.5):
        return DOT
    # a compiler cannot look into the cache
    return _new_score(scaling, softcap) if torch.compiler.is_compiling() else _known_score(scaling, softcap)


def _new_score(scaling: float | None, softcap: float | None) -> Score:
    dot = Dot(scaling)
    return dot if softcap is None else SoftCap(softcap, dot)


_known_score = lru_cache(maxsize=64)(_new_score)


def calls_interface(kind: type[nn.Module]) -> bool:
    """Whether modules of a class call the attention interface: a method of theirs names transformers' table of it."""
    methods = [inspect.unwrap(member) for base in kind.__mro__ for member in vars(base).values() if callable(member)]
    codes = [method.__code__ for method in methods if hasattr(method, "__code__")]
    return any("ALL_ATTENTION_FUNCTIONS" in code.co_names for code in codes)


def use(undo: Undo, models: Sequence[Any]) -> None:
    """Lets models of transformers attend by regard, until the swap is restored."""
    register_with_transformers()
    configs = {
        id(module.config): module.config
        for model in models
        for module in model.modules()
        if hasattr(module, "_can_set_attn_implementation")
    }
    for config in list(configs.values()):
        configs |= {id(part): part for name in config.sub_configs if (part := getattr(config, name)) is not None}
    for config in configs.values():
        undo.set(config, "_attn_implementation_internal", config._attn_implementation)
    for model in models:
        model.set_attn_implementation(NAME)
