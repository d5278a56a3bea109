"""GATES: every gate by its name. A factory takes the channels, and gives a module "b c *s" -> "b c *s".

All are called alike: `gate(x)`, and `gate.attend(x, need=Need(weights=True))` for the weights, which broadcast to x or,
of those that look elsewhere (non-local, external), are a matrix. `dims` counts the axes of places: 2, for images.
"""

from typing import Protocol

from torch import nn

from regard.attn import checks
from regard.gates.channel import ECA, ChannelGate, SqueezeExcite
from regard.gates.channel_spatial import BAM, CBAM, Coordinate
from regard.gates.external import ExternalBlock, MultiHeadExternal
from regard.gates.non_local import NonLocal
from regard.gates.parameter_free import MagnitudeSaliency, MaxSaliency, SimAM
from regard.gates.spatial import Spatial, SpatialGate


class Factory(Protocol):
    def __call__(self, channels: int, dims: int = 2) -> nn.Module: ...


def _heads(channels: int) -> int:
    """As many heads as the paper has, or as can share the channels evenly."""
    return next(heads for heads in (8, 4, 2, 1) if channels % heads == 0)


GATES: dict[str, Factory] = {
    # which channels?
    "se": lambda channels, dims=2: SqueezeExcite(channels),
    "eca": lambda channels, dims=2: ECA(channels),
    "channel": lambda channels, dims=2: ChannelGate(channels),
    # which places?
    "spatial": lambda channels, dims=2: Spatial(channels),
    "spatial-conv": lambda channels, dims=2: SpatialGate(dims=dims),
    # both
    "cbam": lambda channels, dims=2: CBAM(channels, dims=dims),
    "bam": lambda channels, dims=2: BAM(channels, dims=dims),
    "coordinate": lambda channels, dims=2: Coordinate(channels, dims=dims),
    # nothing learned
    "simam": lambda channels, dims=2: SimAM(),
    "max": lambda channels, dims=2: MaxSaliency(2),
    "magnitude": lambda channels, dims=2: MagnitudeSaliency(),
    # elsewhere: other places, a memory
    "non-local": lambda channels, dims=2: NonLocal(channels),
    "external": lambda channels, dims=2: ExternalBlock(channels),
    "external-heads": lambda channels, dims=2: ExternalBlock(channels, MultiHeadExternal(channels, _heads(channels))),
}


def gate(name: str, channels: int, dims: int = 2) -> nn.Module:
    """The gate of that name in `GATES`, for maps of so many channels and axes of places."""
    checks.known("gate", name, GATES)
    return GATES[name](channels, dims)
