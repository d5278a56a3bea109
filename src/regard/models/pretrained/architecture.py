"""Architecture: how one class of transformers is built, read and written as a model of regard."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from regard.attn.layer import Attention
from regard.attn.multihead import MultiHead
from regard.layers.gelu import TanhGELU
from regard.layers.transformer import Activation, EncoderLayer
from regard.models.pretrained.folder import CONFIG, CheckpointConfig
from regard.models.pretrained.tensor_map import TensorMap


@dataclass(frozen=True)
class Architecture:
    """One name of `architectures` in config.json."""

    task: str | None  # the task of the model; None: a part of other models
    build: Callable[[CheckpointConfig, frozenset[str]], nn.Module]  # from the config and the names of the tensors
    maps: Callable[[Any], list[TensorMap]]  # maps of a built model, with the names that transformers writes
    config: Callable[[Any], dict[str, Any]]  # entries of config.json for a model
    rename: Callable[[str], str] = lambda name: name  # from names in files to those of the maps
    aliases: Callable[[Any], Mapping[str, str]] = lambda model: {}  # second names of shared tensors
    # the entry of config.json that counts the layers, by the name before a layer's number
    layers: Mapping[str, str] = field(default_factory=dict)
    buffers: str = "(?!)"  # a pattern of tensors that are constants
    strip: str = ""  # a prefix of the names in the maps that transformers does not write
    prepare: Callable[[Any], None] = lambda model: None  # sets parameters that no tensor holds


def check_layers(architecture: Architecture, config: CheckpointConfig, names: Iterable[str]) -> None:
    """Raises unless config.json has as many layers as the tensors of these names, before a layer is built."""
    for prefix, entry in architecture.layers.items():
        pattern = re.compile(re.escape(prefix) + r"\.(\d{1,9})\.")
        numbers = {int(match[1]) for match in map(pattern.match, names) if match}
        count = config.integer(entry)
        if len(numbers) != count or max(numbers, default=-1) >= count:
            layers = f"{len(numbers)} layers" + (f", up to {prefix}.{max(numbers)}" if numbers else "")
            raise ValueError(
                f"{config.folder / CONFIG} has {entry}={count}, and the weights beside it have {layers}; restore the "
                "config.json of these weights"
            )


def are_classes_numbered(config: CheckpointConfig, count: int) -> bool:
    """Whether id2label names another number of classes than the model has, so that transformers numbers them anew."""
    labels = config.values.get("id2label")
    return isinstance(labels, dict) and 0 < len(labels) != count


def class_names(config: CheckpointConfig, count: int) -> list[str]:
    """The names of the classes by id2label; a name that several classes have is followed by the number of each.

    If id2label names another number of classes they are LABEL_0, LABEL_1, … as in transformers.
    """
    labels = config.values.get("id2label")
    if not labels or are_classes_numbered(config, count):
        labels = {str(n): f"LABEL_{n}" for n in range(count)}
    if not isinstance(labels, dict) or set(labels) != {str(n) for n in range(count)}:
        raise ValueError(
            f"id2label of {config.folder / CONFIG} must name the classes 0 to {count - 1}, each once; correct the file"
        )
    names = [str(labels[str(n)]) for n in range(count)]
    return [name if names.count(name) == 1 else f"{name} ({n})" for n, name in enumerate(names)]


ACTIVATIONS: dict[str, Callable[[], Activation]] = {
    "gelu": nn.GELU,
    "gelu_new": TanhGELU,
    "gelu_pytorch_tanh": TanhGELU,
    "relu": lambda: torch.relu_,
    "silu": lambda: nn.functional.silu,
    "swish": lambda: nn.functional.silu,
    "tanh": lambda: torch.tanh,
}


def activation_of(config: CheckpointConfig, key: str, default: str) -> Activation:
    name = config.text(key, default)
    if name not in ACTIVATIONS:
        raise ValueError(
            f"{config.folder / CONFIG} has {key}={name!r}, and regard supports {', '.join(ACTIVATIONS)}; "
            "take another checkpoint"
        )
    return ACTIVATIONS[name]()


def activation_name(activation: Activation) -> str:
    """The name of an activation in ACTIVATIONS."""
    for name, make in ACTIVATIONS.items():
        known = make()
        if activation is known:
            return name
        if (
            isinstance(activation, nn.GELU)
            and isinstance(known, nn.GELU)
            and activation.approximate == known.approximate
        ):
            return name
    raise ValueError(
        f"the activation {activation!r} has no name in transformers' layout; use one of {', '.join(ACTIVATIONS)}"
    )


def check_writable(model: nn.Module, parts: type | tuple[type, ...] = (), /, **expected: tuple[object, object]) -> None:
    """Raises if a model has parts that transformers' classes do not have: other scores, positions or norms.

    `parts` are kinds of further parts in the heads that the class has. `expected` holds, by the name of an argument,
    the value that is needed and that of the model.
    """
    name = type(model).__name__
    for argument, (needed, value) in expected.items():
        if value != needed:
            raise ValueError(
                f"a {name} with {argument}={value!r} cannot be saved in transformers' layout, which has "
                f"{argument}={needed!r} only; save its state_dict() instead"
            )
    for part in model.modules():
        if not isinstance(part, MultiHead):
            continue
        special = [extra for extra in part.extra_parts if extra is not part.rotate and not isinstance(extra, parts)]
        if repr(part.attention) != repr(Attention()) and not isinstance(part.attention, parts):
            special.append(part.attention)
        if special:
            raise ValueError(
                f"a {name} with {special[0]!r} in its heads cannot be saved in transformers' layout, which has the "
                "scaled dot product only; save its state_dict() instead"
            )


def layer_sizes(layer: EncoderLayer) -> dict[str, int]:
    """num_attention_heads and intermediate_size, as most configs name them."""
    assert isinstance(layer.feed.inner, nn.Linear)
    return {"num_attention_heads": layer.attention.heads, "intermediate_size": layer.feed.inner.out_features}
