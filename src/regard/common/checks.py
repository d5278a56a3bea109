"""Argument checks. Every error names the argument, its value and a way to fix it."""

import re

import torch
from torch import Tensor, nn

from regard.common.suggestions import known as known, nearest


def shape(t: Tensor) -> str:
    return "(" + ", ".join(str(n) for n in t.shape) + ")"


def width(name: str, t: Tensor | None, expected: int, owner: object) -> None:
    """Raises if the last axis of `t` does not have the width that `owner` was built for; None passes."""
    if t is not None and t.shape[-1] != expected:
        raise ValueError(
            f"{name} must be {expected} wide for {describe(owner)}, got {shape(t)}; "
            f"pass {name} with last axis {expected} or build {type(owner).__name__} for width {t.shape[-1]}"
        )


def describe(owner: object) -> str:
    """The repr of `owner`, or the name of its class if the repr has several lines."""
    return type(owner).__name__ if "\n" in repr(owner) else repr(owner)


def first_parameter(module: nn.Module) -> nn.Parameter | None:
    """The first parameter of the module; None if it has none."""
    for parameter in module.parameters():  # Dynamo of torch 2.6 does not trace `next` with a default
        return parameter
    return None


def same_dtype_and_device(owner: nn.Module, t: Tensor, parameter: Tensor | None = None) -> None:
    """Raises if the parameters of `owner`, or the one given, do not have the dtype and the device of `t`."""
    if parameter is None:
        if not owner._parameters and not owner._modules:
            return
        parameter = first_parameter(owner)
    if parameter is None or (parameter.dtype == t.dtype and parameter.device == t.device):
        return
    if parameter.device != t.device:
        raise ValueError(
            f"{describe(owner)} is on {parameter.device}, q on {t.device}; "
            f"move one of them, as in layer.to({str(t.device)!r})"
        )
    raise TypeError(
        f"{describe(owner)} has parameters of {parameter.dtype}, q is {t.dtype}; cast one, as in layer.to({t.dtype})"
    )


def heads(t: Tensor, expected: int, owner: object) -> None:
    """Raises if axis -3 of `t` does not count the heads that `owner` was built for."""
    if t.ndim < 3 or t.shape[-3] != expected:
        count = t.shape[-3] if t.ndim > 2 else "none"
        raise ValueError(
            f"{owner!r} is for {expected} heads, but axis -3 of {shape(t)} counts {count}; "
            f"build {type(owner).__name__} for that many, or give the queries {expected} heads; "
            "a layer that has it cannot be split by parallelize_module"
        )


def same_device(name: str, t: Tensor, device: torch.device, of: str = "q") -> None:
    """Raises if `t` is not on the device of argument `of`."""
    if t.device != device:
        raise ValueError(f"{name} is on {t.device}, {of} on {device}; move it with .to({str(device)!r})")


def same_width(q: Tensor | None, k: Tensor | None, owner: str) -> None:
    if q is not None and k is not None and q.shape[-1] != k.shape[-1]:
        raise ValueError(
            f"{owner} compares q and k of one width, got q {shape(q)} and k {shape(k)}; "
            f"project one of them, or use Bilinear({q.shape[-1]}, {k.shape[-1]}), which takes two widths"
        )


def number(name: str, value: object, owner: str, example: str = "1.0") -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        is_text = isinstance(value, str) and re.fullmatch(r"-?\d+(\.\d+)?", value)
        raise TypeError(
            f"{name} must be a number for {owner}, got {value!r}; try {name}={value if is_text else example}"
        )
    if value != value:
        raise ValueError(f"{name} must be a number for {owner}, got {value}; try {name}={example}")


def positive_ints(owner: str, **values: int) -> None:
    """Raises unless all widths, heads and counts are integers of 1 or more."""
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise (ValueError if isinstance(value, int) else TypeError)(
                f"{name} must be a whole number, 1 or more, for {owner}, got {value!r}; try {name}=8"
            )


def head_width(owner: str, dim: int, heads: int, head_dim: int | None) -> int:
    """`head_dim`, or an even part of dim if it is None; raises if dim does not split evenly."""
    positive_ints(owner, dim=dim, heads=heads)
    if head_dim is not None:
        positive_ints(owner, head_dim=head_dim)
        return head_dim
    if dim % heads:
        raise ValueError(
            f"dim must split evenly over heads for {owner}: {dim} over {heads} leaves {dim % heads}; "
            f"try dim={dim - dim % heads or heads} or give head_dim"
        )
    return dim // heads


def key_heads(owner: str, heads: int, kv_heads: int | None) -> int:
    """`kv_heads`, or as many as `heads` if it is None; raises if groups of heads would not share them evenly."""
    if kv_heads is None:
        return heads
    positive_ints(owner, kv_heads=kv_heads)
    if heads % kv_heads:
        raise ValueError(
            f"heads must be a multiple of kv_heads for {owner}: {heads} over {kv_heads} leaves {heads % kv_heads}; "
            f"try kv_heads={max(n for n in range(1, min(kv_heads, heads) + 1) if heads % n == 0)}"
        )
    return kv_heads


def positive(name: str, value: float, owner: str) -> None:
    number(name, value, owner)
    if not value > 0:
        raise ValueError(f"{name} must be positive for {owner}, got {value}; try {name}=1")


def instance_of(name: str, value: object, kind: type, example: str) -> None:
    """Raises unless `value` is an instance of `kind`; a class or a name is not one."""
    if not isinstance(value, kind):
        description = f"the class {value.__name__}" if isinstance(value, type) else describe(value)
        if isinstance(value, type) and issubclass(value, kind):
            example = f"{value.__name__}(...)"
        near = nearest(value.capitalize(), _subclass_names(kind)) if isinstance(value, str) else None
        if near is not None and not example.startswith(f"{near}("):
            example = f"{near}(...)"
        article = "an" if kind.__name__[0] in "AEIOU" else "a"
        raise TypeError(f"{name} must be {article} {kind.__name__}, got {description}; write {name}={example}")


def _subclass_names(kind: type) -> list[str]:
    """The names of the public classes below `kind`."""
    subclasses: list[type] = kind.__subclasses__()
    names = [name for each in subclasses for name in (each.__name__, *_subclass_names(each))]
    return [name for name in names if not name.startswith("_")]


def floating(name: str, t: Tensor) -> None:
    if not isinstance(t, Tensor):
        raise TypeError(f"{name} must be a tensor, got {type(t).__name__}; wrap it in torch.as_tensor")
    if t.is_nested:
        raise TypeError(
            f"{name} must be a padded tensor, got a nested one; pad it with torch.nested.to_padded_tensor({name}, 0.0) "
            "and pass the lengths as mask=Lengths(lengths)"
        )
    if not t.is_floating_point():
        raise TypeError(
            f"{name} must be a floating tensor, got {t.dtype}; call {name}.float() or embed the integers first"
        )
    if t.ndim < 2:
        raise ValueError(
            f"{name} must have at least two axes (positions, width), got {shape(t)}; try {name}.unsqueeze(0)"
        )


def dropout(p: float, owner: str) -> None:
    """Raises unless p is a probability; 1 drops everything, as in torch."""
    if isinstance(p, bool) or not isinstance(p, int | float) or not 0.0 <= p <= 1.0:
        raise ValueError(f"dropout must be between 0 and 1 for {owner}, got {p!r}; try dropout=0.1")


def accumulate_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which weights are computed: float32 at least."""
    return dtype if dtype == torch.float64 else torch.float32
