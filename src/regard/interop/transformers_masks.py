"""transformers' masks by the rules that they are made of: causality, windows, packed documents and padding.

transformers describes a mask by a function of (sample, head, query, key) and hands its own dense tensor to every layer.
Here the tensor carries the rules beside its numbers, so that tiles that are hidden as a whole need not be computed. A
model that cuts or changes the tensor loses the rules, not the numbers.
"""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any

import torch
from torch import Tensor

from regard.attn.terms.mask import BooleanMask, Mask
from regard.attn.terms.position import Positions
from regard.attn.terms.sequence_masks import Causal, Documents, Lengths, Window

MaskFunction = Callable[..., Tensor]
_RULES = "_regard_rules"
# models that append numbers to their mask, which must be numbers as well: booleans would be read as their opposite
_APPENDING = ("deepseek_v4",)


@dataclass(frozen=True)
class MaskRules:
    """A mask, and the positions of queries and keys that it refers to; None: the queries are the last keys."""

    mask: Mask
    positions: Positions | None


def dense_mask_with_rules(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int | Tensor = 0,
    kv_offset: int = 0,
    mask_function: MaskFunction | None = None,
    attention_mask: Tensor | None = None,  # bool (b, k)
    allow_is_causal_skip: bool = True,
    device: torch.device | str = "cpu",
    **others: Any,
) -> Tensor | None:  # bool (b, 1, q, k), or numbers to add for models that append some
    """The mask that transformers makes for torch's fused attention, with its rules; None: every key is allowed.

    transformers would leave a causal mask out and rely on the layers to be causal by themselves. Those of models
    without fused attention are not.
    """
    masking_utils: Any = importlib.import_module("transformers.masking_utils")
    makes_numbers = getattr(others.get("config"), "model_type", None) in _APPENDING
    function: MaskFunction = masking_utils.causal_mask_function if mask_function is None else mask_function
    make = masking_utils.eager_mask if makes_numbers else masking_utils.sdpa_mask
    dense: Tensor | None = make(
        batch_size,
        q_length,
        kv_length,
        q_offset,
        kv_offset,
        mask_function=function,
        attention_mask=attention_mask,
        allow_is_causal_skip=allow_is_causal_skip and q_length == 1,
        device=device,
        **others,
    )
    if dense is None or makes_numbers or torch.compiler.is_compiling() or not isinstance(q_offset, int):
        return dense
    padding = masking_utils.prepare_padding_mask(attention_mask, kv_length, kv_offset)
    if padding is not None:
        # transformers pads it to the end of the keys, and may leave keys before their offset in it
        padding = padding[:, kv_offset : kv_offset + kv_length]
    queries, keys = slice(q_offset, q_offset + q_length), slice(kv_offset, kv_offset + kv_length)
    rules = _rules_of(function, queries, keys)
    if rules is None:
        return dense
    masks = rules if padding is None else [*rules, _padding_rule(padding, kv_offset)]
    if masks:
        are_last = kv_offset == 0 and q_offset + q_length == kv_length
        positions = None if are_last else (_range(queries, dense.device), _range(keys, dense.device))
        setattr(dense, _RULES, MaskRules(reduce(Mask.__and__, masks), positions))
    return dense


def rules_of(mask: Tensor) -> MaskRules | None:
    """The rules that a mask carries; None if it carries none."""
    return None if torch.compiler.is_compiling() else getattr(mask, _RULES, None)


def _range(indices: slice, device: torch.device) -> Tensor:
    return torch.arange(indices.start, indices.stop, device=device)


def _rules_of(function: MaskFunction, queries: slice, keys: slice) -> list[Mask] | None:
    """The rules of a function by the place where transformers defines it; None if one of them is another."""
    inner = {
        name: cell.cell_contents
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    }
    match function.__qualname__.removesuffix(".<locals>.inner_mask"):
        case "causal_mask_function":
            return [Causal()]
        case "bidirectional_mask_function":
            return []
        case "sliding_window_overlay" if inner["sliding_window"] > 0:
            return [Window(inner["sliding_window"] - 1, None)]
        case "sliding_window_bidirectional_overlay":
            return [Window(inner["sliding_window"], inner["sliding_window"])]
        case "packed_sequence_mask_function":
            ids = inner["packed_sequence_mask"]
            return [Documents(ids[:, keys], ids[:, queries])] if ids.shape[1] >= max(keys.stop, queries.stop) else None
        case "and_masks.<locals>.and_mask":
            parts = [_rules_of(part, queries, keys) for part in inner["mask_functions"]]
            return None if None in parts else [rule for part in parts if part is not None for rule in part]
    return None


def _padding_rule(padding: Tensor, first: int) -> Mask:  # bool (b, k)
    """Lengths, where the padding is behind or before the tokens; otherwise the booleans themselves.

    `first` is the position of the first key.
    """
    count = padding.sum(-1)
    if bool((padding[:, :-1] >= padding[:, 1:]).all()):
        return Lengths(first + count)
    if bool((padding[:, :-1] <= padding[:, 1:]).all()):
        return ~Lengths(first + padding.shape[-1] - count)
    return BooleanMask(padding[:, None, None, :])
