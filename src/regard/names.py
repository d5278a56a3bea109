"""The public names: what `regard.` offers, loaded together when the first of them is used."""

import regard.losses as losses
from regard.attention import steps
from regard.attention.co import AttentionFlow, CoAttention
from regard.attention.functional import attend, attention, explain
from regard.attention.glimpse import Retina
from regard.attention.hop import Hop, Plain
from regard.attention.insert import insert, remove
from regard.attention.layer import Attention
from regard.attention.local import Diagonal, Local
from regard.attention.location import LocationAttention, Smooth
from regard.attention.monotonic import Chunk, ExpectedStop, FirstStop, Monotonic, NormedAdditive, Stop
from regard.attention.multihead import MultiHead
from regard.attention.pooling import KeyValue, Pool
from regard.backends import BACKENDS
from regard.catalogue import MECHANISMS, mechanism
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
