"""GATES: every gate by its name. A factory takes the number of channels and returns a module "b c *s" -> "b c *s".

All are called alike: `gate(x)`, and `gate.attend(x, need=Need(weights=True))` for the weights. Weights broadcast to x;
those of non-local and external attention are a matrix. `dims` is the number of spatial axes: 2 for images.
"""

from typing import Protocol

from torch import nn

from regard.attn import checks
from regard.gates.channel import ECA, ChannelGate, SqueezeExcite
from regard.gates.channel_spatial import BAM, CBAM, Coordinate
from regard.gates.external import ExternalBlock, MultiHeadExternal
from regard.gates.non_local import NonLocal
from regard.gates.parameter_free import MagnitudeSaliency, MaxSaliency, SimAM
from regard.gates.reading_gates import CellGate, HeadsGate, ModuleGate, UnitsGate
from regard.gates.spatial import Spatial, SpatialGate


class GateFactory(Protocol):
    """Builds a gate for maps of `channels` channels and `dims` spatial axes."""

    def __call__(self, channels: int, dims: int = 2) -> nn.Module: ...


def _heads(channels: int) -> int:
    """Eight heads, or fewer if the channels do not split evenly over eight."""
    return next(heads for heads in (8, 4, 2, 1) if channels % heads == 0)


GATES: dict[str, GateFactory] = {
    # weights of channels
    "se": lambda channels, dims=2: SqueezeExcite(channels),
    "eca": lambda channels, dims=2: ECA(channels),
    "channel": lambda channels, dims=2: ChannelGate(channels),
    # weights of positions
    "spatial": lambda channels, dims=2: Spatial(channels),
    "spatial-conv": lambda channels, dims=2: SpatialGate(dims=dims),
    # weights of channels and positions
    "cbam": lambda channels, dims=2: CBAM(channels, dims=dims),
    "bam": lambda channels, dims=2: BAM(channels, dims=dims),
    "coordinate": lambda channels, dims=2: Coordinate(channels, dims=dims),
    # weights that gated heads, their cell and the attention module read of the map
    "gated-heads": lambda channels, dims=2: HeadsGate(channels, _heads(channels)),
    "gated-units": lambda channels, dims=2: UnitsGate(channels),
    "gated-cell": lambda channels, dims=2: CellGate(channels, _heads(channels)),
    "attention-module": lambda channels, dims=2: ModuleGate(channels),
    # without parameters
    "simam": lambda channels, dims=2: SimAM(),
    "max": lambda channels, dims=2: MaxSaliency(2),
    "magnitude": lambda channels, dims=2: MagnitudeSaliency(),
    # attention to other positions, or to a learned memory
    "non-local": lambda channels, dims=2: NonLocal(channels),
    "external": lambda channels, dims=2: ExternalBlock(channels),
    "external-heads": lambda channels, dims=2: ExternalBlock(channels, MultiHeadExternal(channels, _heads(channels))),
}


def gate(name: str, channels: int, dims: int = 2) -> nn.Module:
    """The gate of that name in `GATES`, for maps of `channels` channels and `dims` spatial axes."""
    checks.known("gate", name, GATES)
    return GATES[name](channels, dims)
