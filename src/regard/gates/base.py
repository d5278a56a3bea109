"""Gate: the equation read in place. Checks of feature maps and parts that gates share."""

from abc import ABC, abstractmethod
from contextlib import nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from regard.attn import observer
from regard.attn.call import NOTHING, Attended, Need
from regard.common import checks
from regard.kernels import feature_maps
from regard.kernels.dispatch import is_autocasting

AXES = {
    1: "(batch, channels, length)",
    2: "(batch, channels, height, width)",
    3: "(batch, channels, depth, height, width)",
}


class Gate(nn.Module, ABC):
    """out = w · x, w = normalize(score(x)): a feature map "b c *s" weighted in place.

    `*s` are one, two or three spatial axes: a signal, an image, a volume. A gate without a convolution over positions
    takes all of them; one with such a convolution is built for `dims` of them.
    """

    def __init__(self, channels: int | None = None, dims: int | None = None) -> None:
        super().__init__()
        if channels is not None:
            checks.positive_ints(type(self).__name__, channels=channels)
        if dims is not None and dims not in AXES:
            raise ValueError(
                f"dims must be 1, 2 or 3 for {type(self).__name__}, got {dims!r}; images have 2, signals 1, volumes 3"
            )
        self.channels, self.dims = channels, dims

    @abstractmethod
    def apply_gate(self, x: Tensor, need_weights: bool) -> tuple[Tensor, Tensor | None]:
        """w · x, and w, which broadcasts to x, if `need_weights`."""

    def forward(self, x: Tensor) -> Tensor:  # "b c *s" -> "b c *s"
        return self.attend(x).out

    def attend(self, x: Tensor, *, need: Need = NOTHING) -> Attended:
        """`forward` with the weights, which broadcast to x, if `need` asks for them."""
        check_map(x, self.channels, self.dims, self)
        check_only_weights(need, self)
        attention_observer = observer.current_observer()
        with nullcontext() if attention_observer is None else attention_observer.muted():
            out, weights = self.apply_gate(x, need.weights or attention_observer is not None)
        if attention_observer is not None and weights is not None:
            attention_observer.on_weighted("gate", self, weights, x, out)
        return Attended(out, weights if need.weights else None)

    def weights(self, x: Tensor) -> Tensor:
        """w alone; it broadcasts to x."""
        weights = self.attend(x, need=Need(weights=True)).weights
        assert weights is not None
        return weights


def check_map(x: Tensor, channels: int | None, dims: int | None, owner: nn.Module) -> None:
    """Raises if `x` is not a map that `owner` was built for."""
    name = type(owner).__name__
    if not isinstance(x, Tensor):
        raise TypeError(f"x must be a tensor, got {type(x).__name__}; wrap it in torch.as_tensor")
    if not x.is_floating_point():
        raise TypeError(f"x must be a floating tensor, got {x.dtype}; call x.float()")
    if x.ndim - 2 not in ((dims,) if dims is not None else AXES):
        expected = AXES[dims] if dims is not None else f"{AXES[1]} and up to three spatial axes"
        alternative = f", or build {name} with dims={x.ndim - 2}" if dims is not None and x.ndim - 2 in AXES else ""
        raise ValueError(
            f"x must be a map {expected} for {name}, got {checks.shape(x)}; "
            f"{'x.unsqueeze(0) adds a batch' if x.ndim < 4 else 'join axes by x.flatten'}{alternative}"
        )
    if channels is not None and x.shape[1] != channels:
        raise ValueError(
            f"x must have {channels} channels for {name}, got {checks.shape(x)}; axis 1 counts them: "
            f"build {name} for {x.shape[1]}, or move the channels there with x.movedim(-1, 1)"
        )
    if 0 in x.shape[1:]:
        raise ValueError(
            f"x must have at least one channel and one position for {name}, got {checks.shape(x)}; leave it out"
        )
    if not is_autocasting(x):
        parameter = checks.first_parameter(owner)
        if parameter is not None and parameter.device != x.device:
            raise ValueError(
                f"{name} is on {parameter.device}, x on {x.device}; move one, as in gate.to({str(x.device)!r})"
            )
        if parameter is not None and parameter.dtype != x.dtype:
            raise TypeError(
                f"{name} has parameters of {parameter.dtype}, x is {x.dtype}; cast one, as in gate.to({x.dtype})"
            )


def check_axes(x: Tensor, width: int, axes: str, owner: nn.Module, way_out: str) -> None:
    """Raises if `x` has other axes than these, "(batch, steps, width)", or another width."""
    checks.floating("x", x)
    checks.width("x", x, width, owner)
    if x.ndim != axes.count(",") + 1:
        raise ValueError(f"x must be {axes} for {type(owner).__name__}, got {checks.shape(x)}; {way_out}")


def check_mask(mask: Tensor | None, shape: tuple[int, ...]) -> None:
    """Raises if `mask` is no boolean per position, with axes of this shape."""
    if mask is None or (isinstance(mask, Tensor) and mask.dtype == torch.bool and tuple(mask.shape) == shape):
        return
    description = f"{mask.dtype} {checks.shape(mask)}" if isinstance(mask, Tensor) else type(mask).__name__
    raise ValueError(
        f"mask must be a boolean tensor {shape}, True where a position is real, got {description}; try mask > 0"
    )


def check_only_weights(need: Need, owner: nn.Module) -> None:
    """Raises if `need` asks for anything but the weights."""
    for name in ("log_prob", "lse", "map", "entropy", "key_index", "scores"):
        if getattr(need, name):
            raise ValueError(
                f"need.{name} does not exist for {type(owner).__name__}; ask for Need(weights=True), "
                "or let regard.record keep a map"
            )


def scale_map(x: Tensor, w: Tensor | None, m: Tensor | None, need_weights: bool) -> tuple[Tensor, Tensor | None]:
    """w m x in one pass, w "b c", m "b 1 *s"; and the weights as one tensor if `need_weights`."""
    out = feature_maps.scale(x, w, m)
    if not need_weights:
        return out, None
    factors = [t for t in (None if w is None else w.view(*w.shape, *[1] * (x.ndim - 2)), m) if t is not None]
    weights = factors[0] if len(factors) == 1 else factors[0] * factors[1]
    return out, weights.to(x.dtype)


def wide_sigmoid(t: Tensor, like: Tensor) -> Tensor:
    """σ(t) in float32 at least, in the width that a map like `like` is computed in."""
    return torch.sigmoid(t.to(checks.accumulate_dtype(like.dtype)))


def hidden_width(channels: int, reduction: int) -> int:
    """channels / reduction, at least one: a map may have fewer channels than the reduction."""
    checks.positive_ints("a gate", reduction=reduction)
    return max(1, channels // reduction)


def head_width(owner: str, channels: int, heads: int) -> int:
    """Channels of each head; raises if they do not split evenly."""
    checks.positive_ints(owner, channels=channels, heads=heads)
    if channels % heads:
        raise ValueError(
            f"channels must split evenly over heads for {owner}: {channels} over {heads} leaves {channels % heads}; "
            f"try heads={next(n for n in range(heads, 0, -1) if channels % n == 0)}"
        )
    return channels // heads


def check_odd(kernel: int, owner: str) -> int:
    """The kernel size; raises if it is even."""
    checks.positive_ints(owner, kernel=kernel)
    if kernel % 2 == 0:
        raise ValueError(
            f"kernel must be odd for {owner}, got {kernel}: an even one would change the size of the map; "
            f"try kernel={kernel + 1}"
        )
    return kernel


_CONVOLUTIONS: dict[int, type[nn.Conv1d] | type[nn.Conv2d] | type[nn.Conv3d]] = {
    1: nn.Conv1d,
    2: nn.Conv2d,
    3: nn.Conv3d,
}


def convolution(
    dims: int,
    in_channels: int,
    out_channels: int,
    kernel: int,
    *,
    dilation: int = 1,
    groups: int = 1,
    bias: bool = True,
) -> nn.Module:
    """A convolution over positions that keeps their number."""
    padding = dilation * (kernel - 1) // 2
    return _CONVOLUTIONS[dims](
        in_channels, out_channels, kernel, padding=padding, dilation=dilation, groups=groups, bias=bias
    )


def flat(x: Tensor) -> Tensor:  # "b c *s" -> "b n c"
    """The positions of a map as a sequence."""
    return x.flatten(2).transpose(1, 2)


def linear(layer: nn.Linear, x: Tensor) -> Tensor:  # "b c *s" -> "b d *s"
    """A linear layer at every position: a convolution of width one for any number of axes. Keeps the memory layout."""
    return layer(x.movedim(1, -1)).movedim(-1, 1)


class BatchNorm(_BatchNorm):
    """Batch normalisation for maps of any rank. A batch of one value per channel uses the running statistics."""

    def _check_input_dim(self, input: Tensor) -> None:
        pass

    def forward(self, x: Tensor) -> Tensor:  # "b c *s"
        if self.training and x.shape[0] * x.shape[2:].numel() == 1:
            return F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, False, 0.0, self.eps)
        return super().forward(x)
