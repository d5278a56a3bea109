"""One tensor in many layouts: crops, steps, transposes, expands. A layer must not notice the difference."""

from collections.abc import Callable

from torch import Tensor

# sentinels around the numbers: a kernel that ignores strides reads them
_OUTSIDE = 1e3


def _stepped(t: Tensor, axis: int) -> Tensor:
    shape = list(t.shape)
    shape[axis] *= 2
    wide = t.new_full(shape, _OUTSIDE)
    view = wide[(slice(None),) * (axis % t.ndim) + (slice(None, None, 2),)]
    return view.copy_(t)


def _cropped(t: Tensor) -> Tensor:
    wide = t.new_full([n + 3 for n in t.shape], _OUTSIDE)
    return wide[tuple(slice(1, n + 1) for n in t.shape)].copy_(t)


def _transposed(t: Tensor, a: int, b: int) -> Tensor:
    return t.transpose(a, b).contiguous().transpose(a, b)


def _channels_last(t: Tensor) -> Tensor:
    return t.movedim(1, -1).contiguous().movedim(-1, 1)


LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "cropped": _cropped,
    "every second sample": lambda t: _stepped(t, 0),
    "every second row": lambda t: _stepped(t, 1),
    "every second column": lambda t: _stepped(t, -1),
    "transposed ends": lambda t: _transposed(t, 0, -1),
    "transposed rows": lambda t: _transposed(t, -2, -1),
    "channels last": _channels_last,
}


def laid_out(layout: str, t: Tensor) -> Tensor:
    """The same numbers in another layout, as a leaf that wants a gradient."""
    return LAYOUTS[layout](t.detach()).requires_grad_()
