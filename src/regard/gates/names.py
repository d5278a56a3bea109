"""The public names of gates, loaded together when the first of them is used: most programs attend without one."""

from regard.gates.both import BAM, CBAM, Coordinate
from regard.gates.catalogue import GATES, gate
from regard.gates.cell import CellState, GatedCell, GatedHeads
from regard.gates.channel import ECA, ChannelGate, SqueezeExcite
from regard.gates.csra import CSRA
from regard.gates.elsewhere import NonLocal
from regard.gates.energy import MagnitudeSaliency, MaxSaliency, SimAM
from regard.gates.external import External, ExternalBlock, MultiHeadExternal
from regard.gates.gate import Gate
from regard.gates.spatial import Spatial, SpatialGate
