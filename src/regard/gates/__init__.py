"""Attention over feature maps "b c *s": the equation read in place, out = weights(x) · x."""

from regard.gates import catalogue
from regard.gates.base import Gate
from regard.gates.catalogue import *
from regard.gates.controlled_attention import ControlledAttention, ModuleState
from regard.gates.csra import CSRA
from regard.gates.external import External
from regard.gates.gated_cell import CellState, GatedCell, GatedHeads
from regard.gates.gated_units import GatedUnits
from regard.gates.parameter_free import EnergyMinimum
from regard.gates.saliency_map import Saliency, saliency

__all__ = [
    "CSRA",
    "CellState",
    "ControlledAttention",
    "EnergyMinimum",
    "External",
    "Gate",
    "GatedCell",
    "GatedHeads",
    "GatedUnits",
    "ModuleState",
    "Saliency",
    "saliency",
]
__all__ += catalogue.__all__
