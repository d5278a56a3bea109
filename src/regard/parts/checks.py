"""Sentences for bad input: the argument, its value, the way out. Each check stands where the value is used."""

import difflib
from collections.abc import Iterable

import torch
from torch import Tensor


def shape(t: Tensor) -> str:
    return "(" + ", ".join(str(n) for n in t.shape) + ")"


def width(name: str, t: Tensor | None, expected: int, owner: object) -> None:
    """The last axis of `t`, if it is there, is as wide as `owner` was built for."""
    if t is not None and t.shape[-1] != expected:
        raise ValueError(
            f"{name} must be {expected} wide for {owner!r}, got {shape(t)}; "
            f"pass {name} with last axis {expected} or build {type(owner).__name__} for width {t.shape[-1]}"
        )


def heads(t: Tensor, expected: int, owner: object) -> None:
    """Axis -3 of `t` counts the heads that `owner` was built for."""
    if t.ndim < 3 or t.shape[-3] != expected:
        found = t.shape[-3] if t.ndim > 2 else "none"
        raise ValueError(
            f"{owner!r} is for {expected} heads, but axis -3 of {shape(t)} counts {found}; "
            f"build {type(owner).__name__} for that many, or give the queries {expected} heads"
        )


def same_device(name: str, t: Tensor, device: torch.device) -> None:
    if t.device != device:
        raise ValueError(f"{name} is on {t.device}, q on {device}; move it with .to({str(device)!r})")


def same_width(q: Tensor | None, k: Tensor | None, owner: str) -> None:
    if q is not None and k is not None and q.shape[-1] != k.shape[-1]:
        raise ValueError(
            f"{owner} compares q and k of one width, got q {shape(q)} and k {shape(k)}; "
            f"project one of them, or use Bilinear({q.shape[-1]}, {k.shape[-1]}), which takes two widths"
        )


def positive(name: str, value: float, owner: str) -> None:
    if not value > 0:
        raise ValueError(f"{name} must be positive for {owner}, got {value}; try {name}=1")


def term(name: str, value: object, kind: type, example: str) -> None:
    """`value` is a term of its kind, not the class of one, not its name."""
    if not isinstance(value, kind):
        got = f"the class {value.__name__}" if isinstance(value, type) else f"{value!r}"
        raise TypeError(f"{name} must be a {kind.__name__}, got {got}; write {name}={example}")


def floating(name: str, t: Tensor) -> None:
    if not isinstance(t, Tensor):
        raise TypeError(f"{name} must be a tensor, got {type(t).__name__}; wrap it in torch.as_tensor")
    if not t.is_floating_point():
        raise TypeError(
            f"{name} must be a floating tensor, got {t.dtype}; call {name}.float() or embed the integers first"
        )
    if t.ndim < 2:
        raise ValueError(
            f"{name} must have at least two axes (positions, width), got {shape(t)}; try {name}.unsqueeze(0)"
        )


def known(kind: str, name: str, names: Iterable[str]) -> None:
    """`name` is one of `names`, or the nearest ones are suggested."""
    names = list(names)
    if name in names:
        return
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise ValueError(f"unknown {kind} {name!r}; {hint}known are: {', '.join(names)}")


def widened(dtype: torch.dtype) -> torch.dtype:
    """The type in which weights are computed: float32 at least."""
    return dtype if dtype == torch.float64 else torch.float32
