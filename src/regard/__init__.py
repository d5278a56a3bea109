"""Attention for PyTorch, as one equation: weights = normalize(score(q, k) + bias, mask); out = read(weights, v).

Nothing is loaded before a name is used, not even torch, so that the command line can answer at once.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard.gates.names import *
    from regard.names import *
    from regard.tape.record import record
    from regard.tape.recorded import Recorded
    from regard.tape.recording import Recording
    from regard.tape.words import Words
    from regard.view.show import show

__version__ = "0.1.0"

__all__ = [
    "__version__",
    # the equation
    "attention",
    "attend",
    "explain",
    "Need",
    "Attended",
    "AttentionMap",
    "BACKENDS",
    # layers
    "Attention",
    "MultiHead",
    "Pool",
    "KeyValue",
    "CoAttention",
    "AttentionFlow",
    "Local",
    "Diagonal",
    "LocationAttention",
    "Monotonic",
    "Chunk",
    "Stop",
    "FirstStop",
    "ExpectedStop",
    "Hop",
    "Retina",
    "MECHANISMS",
    "mechanism",
    # gates of feature maps
    "Gate",
    "SqueezeExcite",
    "ECA",
    "ChannelGate",
    "Spatial",
    "SpatialGate",
    "CBAM",
    "BAM",
    "Coordinate",
    "SimAM",
    "MaxSaliency",
    "MagnitudeSaliency",
    "NonLocal",
    "External",
    "MultiHeadExternal",
    "ExternalBlock",
    "CSRA",
    "GatedHeads",
    "GatedCell",
    "CellState",
    "GATES",
    "gate",
    # scores
    "Score",
    "Dot",
    "Bilinear",
    "Additive",
    "Concat",
    "Cosine",
    "Distance",
    "Trilinear",
    "Location",
    "LocationSensitive",
    "NormedAdditive",
    "Kernel",
    # biases
    "Bias",
    "ALiBi",
    "T5Buckets",
    "Shaw",
    "RelativeXL",
    "LocalGaussian",
    # masks
    "Mask",
    "Causal",
    "Window",
    "Lengths",
    "Documents",
    "Prefix",
    "Given",
    # normalizers
    "Normalizer",
    "Softmax",
    "Sigmoid",
    "Sparsemax",
    "Entmax",
    "TopK",
    "Sum",
    "Null",
    "Smooth",
    "Plain",
    # reads
    "Read",
    "Mix",
    "Argmax",
    "Sample",
    "Gumbel",
    "StraightThrough",
    # positions and memory
    "Sinusoidal",
    "HalfWave",
    "Learned",
    "Rotary",
    "Memory",
    "Segment",
    "Trained",
    # into networks that exist
    "insert",
    "remove",
    # what a model looked at
    "record",
    "Recording",
    "Recorded",
    "Words",
    "show",
    "losses",
    "steps",
]


# what lies above the room of names, and what many do without: where each is found
_APART = {
    "show": "regard.view.show",
    "record": "regard.tape.record",
    "Recording": "regard.tape.recording",
    "Recorded": "regard.tape.recorded",
    "Words": "regard.tape.words",
    **dict.fromkeys(__all__[__all__.index("Gate") : __all__.index("gate") + 1], "regard.gates.names"),
}


class _Package(ModuleType):
    """`regard.attention` is the function, also after the room of that name was imported."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name != "attention" or not isinstance(value, ModuleType):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'regard' has no attribute {name!r}; dir(regard) lists those it has")
    if name in _APART:
        globals()[name] = getattr(import_module(_APART[name]), name)
        return globals()[name]
    names = import_module("regard.names")
    globals().update({known: getattr(names, known) for known in __all__ if known not in ("__version__", *_APART)})
    return globals()[name]


def __dir__() -> list[str]:
    return __all__
