"""Attention for PyTorch, as one equation: weights = normalize(score(q, k) + bias, mask); out = read(weights, v)."""

from regard import losses
from regard.attention.functional import attend, attention, explain
from regard.attention.layer import Attention
from regard.attention.multihead import MultiHead
from regard.backends import BACKENDS
from regard.parts.bias import ALiBi, Bias, LocalGaussian, RelativeXL, Shaw, T5Buckets
from regard.parts.call import Attended, Need
from regard.parts.map import AttentionMap
from regard.parts.mask import Causal, Documents, Given, Lengths, Mask, Prefix, Window
from regard.parts.memory import Memory, Segment
from regard.parts.normalize import Entmax, Normalizer, Null, Sigmoid, Softmax, Sparsemax, Sum, TopK
from regard.parts.number import Trained
from regard.parts.position import HalfWave, Learned, Rotary, Sinusoidal
from regard.parts.read import Argmax, Gumbel, Mix, Read, Sample, StraightThrough
from regard.parts.score import (
    Additive,
    Bilinear,
    Concat,
    Cosine,
    Distance,
    Dot,
    Kernel,
    Location,
    LocationSensitive,
    Score,
    Trilinear,
)

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
    "losses",
]
