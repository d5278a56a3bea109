"""The public names and where each is defined: `__init__.py` loads them from here, type checkers read them here."""

from . import losses as losses
from .attn.backends import BACKENDS as BACKENDS
from .attn.call import (
    Attended as Attended,
)
from .attn.call import (
    Need as Need,
)
from .attn.catalogue import (
    MECHANISMS as MECHANISMS,
)
from .attn.catalogue import (
    mechanism as mechanism,
)
from .attn.functional import (
    attend as attend,
)
from .attn.functional import (
    attention as attention,
)
from .attn.functional import (
    explain as explain,
)
from .attn.kv_cache import (
    KVCache as KVCache,
)
from .attn.kv_cache import (
    Segment as Segment,
)
from .attn.layer import Attention as Attention
from .attn.maps.attention_map import AttentionMap as AttentionMap
from .attn.mechanisms.bidaf import AttentionFlow as AttentionFlow
from .attn.mechanisms.coattention import (
    CoAttention as CoAttention,
)
from .attn.mechanisms.key_value import KeyValue as KeyValue
from .attn.mechanisms.local import (
    Diagonal as Diagonal,
)
from .attn.mechanisms.local import (
    Local as Local,
)
from .attn.mechanisms.location_sensitive import (
    LocationAttention as LocationAttention,
)
from .attn.mechanisms.memory_hop import (
    MemoryHop as MemoryHop,
)
from .attn.mechanisms.monotonic import (
    ChunkwiseSoftmax as ChunkwiseSoftmax,
)
from .attn.mechanisms.monotonic import (
    ExpectedStop as ExpectedStop,
)
from .attn.mechanisms.monotonic import (
    FirstStop as FirstStop,
)
from .attn.mechanisms.monotonic import (
    Monotonic as Monotonic,
)
from .attn.mechanisms.monotonic import (
    StopRule as StopRule,
)
from .attn.mechanisms.pooling import (
    Pool as Pool,
)
from .attn.mechanisms.retina import Retina as Retina
from .attn.multihead import MultiHead as MultiHead
from .attn.terms.bias import (
    ALiBi as ALiBi,
)
from .attn.terms.bias import (
    Bias as Bias,
)
from .attn.terms.bias import (
    LocalGaussian as LocalGaussian,
)
from .attn.terms.bias import (
    RelativeXL as RelativeXL,
)
from .attn.terms.bias import (
    Shaw as Shaw,
)
from .attn.terms.bias import (
    T5Buckets as T5Buckets,
)
from .attn.terms.learnable import Learnable as Learnable
from .attn.terms.mask import (
    BooleanMask as BooleanMask,
)
from .attn.terms.mask import (
    Causal as Causal,
)
from .attn.terms.mask import (
    Documents as Documents,
)
from .attn.terms.mask import (
    Lengths as Lengths,
)
from .attn.terms.mask import (
    Mask as Mask,
)
from .attn.terms.mask import (
    Prefix as Prefix,
)
from .attn.terms.mask import (
    Window as Window,
)
from .attn.terms.normalizer import (
    Entmax as Entmax,
)
from .attn.terms.normalizer import Identity as Identity
from .attn.terms.normalizer import NormalizedSigmoid as NormalizedSigmoid
from .attn.terms.normalizer import (
    Normalizer as Normalizer,
)
from .attn.terms.normalizer import (
    Sigmoid as Sigmoid,
)
from .attn.terms.normalizer import (
    Softmax as Softmax,
)
from .attn.terms.normalizer import (
    Sparsemax as Sparsemax,
)
from .attn.terms.normalizer import (
    Sum as Sum,
)
from .attn.terms.normalizer import (
    TopK as TopK,
)
from .attn.terms.normalizer import (
    WithNullSlot as WithNullSlot,
)
from .attn.terms.position import (
    HalfWave as HalfWave,
)
from .attn.terms.position import (
    Learned as Learned,
)
from .attn.terms.position import (
    Rotary as Rotary,
)
from .attn.terms.position import (
    Sinusoidal as Sinusoidal,
)
from .attn.terms.read import (
    Argmax as Argmax,
)
from .attn.terms.read import (
    Gumbel as Gumbel,
)
from .attn.terms.read import (
    Read as Read,
)
from .attn.terms.read import (
    Sample as Sample,
)
from .attn.terms.read import (
    StraightThrough as StraightThrough,
)
from .attn.terms.read import (
    WeightedSum as WeightedSum,
)
from .attn.terms.score import (
    Additive as Additive,
)
from .attn.terms.score import (
    Bilinear as Bilinear,
)
from .attn.terms.score import (
    Concat as Concat,
)
from .attn.terms.score import (
    Cosine as Cosine,
)
from .attn.terms.score import (
    Distance as Distance,
)
from .attn.terms.score import (
    Dot as Dot,
)
from .attn.terms.score import (
    Kernel as Kernel,
)
from .attn.terms.score import (
    Location as Location,
)
from .attn.terms.score import (
    LocationSensitive as LocationSensitive,
)
from .attn.terms.score import NormedAdditive as NormedAdditive
from .attn.terms.score import (
    Score as Score,
)
from .attn.terms.score import (
    Trilinear as Trilinear,
)
from .gates.base import Gate as Gate
from .gates.catalogue import (
    GATES as GATES,
)
from .gates.catalogue import (
    gate as gate,
)
from .gates.channel import (
    ECA as ECA,
)
from .gates.channel import (
    ChannelGate as ChannelGate,
)
from .gates.channel import (
    SqueezeExcite as SqueezeExcite,
)
from .gates.channel_spatial import (
    BAM as BAM,
)
from .gates.channel_spatial import (
    CBAM as CBAM,
)
from .gates.channel_spatial import (
    Coordinate as Coordinate,
)
from .gates.csra import CSRA as CSRA
from .gates.external import (
    External as External,
)
from .gates.external import (
    ExternalBlock as ExternalBlock,
)
from .gates.external import (
    MultiHeadExternal as MultiHeadExternal,
)
from .gates.gated_cell import (
    CellState as CellState,
)
from .gates.gated_cell import (
    GatedCell as GatedCell,
)
from .gates.gated_cell import (
    GatedHeads as GatedHeads,
)
from .gates.insert import (
    insert as insert,
)
from .gates.insert import (
    remove as remove,
)
from .gates.non_local import NonLocal as NonLocal
from .gates.parameter_free import (
    MagnitudeSaliency as MagnitudeSaliency,
)
from .gates.parameter_free import (
    MaxSaliency as MaxSaliency,
)
from .gates.parameter_free import (
    SimAM as SimAM,
)
from .gates.spatial import (
    Spatial as Spatial,
)
from .gates.spatial import (
    SpatialGate as SpatialGate,
)
from .recording.analysis.words import Words as Words
from .recording.record import record as record
from .recording.recorded_map import RecordedMap as RecordedMap
from .recording.recording import Recording as Recording
from .viz.show import show as show

__version__: str
