"""The public names and where each is defined: `__init__.py` loads them from here, type checkers read them here."""

from . import attacks as attacks, attribution as attribution, interop as interop, losses as losses
from .attacks.attack import AttackResult as AttackResult, attack as attack
from .attn.backends import BACKENDS as BACKENDS
from .attn.call import Attended as Attended, Need as Need
from .attn.catalogue import MECHANISMS as MECHANISMS, mechanism as mechanism
from .attn.functional import attend as attend, attention as attention, explain as explain
from .attn.kv_cache import KVCache as KVCache, Segment as Segment
from .attn.layer import Attention as Attention
from .attn.maps.attention_map import AttentionMap as AttentionMap
from .attn.mechanisms.bidaf import AttentionFlow as AttentionFlow
from .attn.mechanisms.coattention import CoAttention as CoAttention
from .attn.mechanisms.key_value import KeyValue as KeyValue
from .attn.mechanisms.local import Diagonal as Diagonal, Local as Local
from .attn.mechanisms.location_sensitive import LocationAttention as LocationAttention
from .attn.mechanisms.memory_hop import MemoryHop as MemoryHop
from .attn.mechanisms.monotonic import (
    ChunkwiseSoftmax as ChunkwiseSoftmax,
    ExpectedStop as ExpectedStop,
    FirstStop as FirstStop,
    Monotonic as Monotonic,
    StopRule as StopRule,
)
from .attn.mechanisms.pooling import Pool as Pool
from .attn.mechanisms.retina import Retina as Retina
from .attn.mechanisms.set_distance import SetDistance as SetDistance
from .attn.multihead import MultiHead as MultiHead
from .attn.terms.bias import (
    ALiBi as ALiBi,
    Bias as Bias,
    LocalGaussian as LocalGaussian,
    RelativeXL as RelativeXL,
    Shaw as Shaw,
    T5Buckets as T5Buckets,
)
from .attn.terms.distance import Distance as Distance
from .attn.terms.learnable import Learnable as Learnable
from .attn.terms.mask import (
    BooleanMask as BooleanMask,
    Causal as Causal,
    Documents as Documents,
    Lengths as Lengths,
    Mask as Mask,
    Prefix as Prefix,
    Window as Window,
)
from .attn.terms.normalizer import (
    Entmax as Entmax,
    Identity as Identity,
    NormalizedSigmoid as NormalizedSigmoid,
    Normalizer as Normalizer,
    Sigmoid as Sigmoid,
    Softmax as Softmax,
    Sparsemax as Sparsemax,
    Sum as Sum,
    TopK as TopK,
    WithNullSlot as WithNullSlot,
)
from .attn.terms.position import (
    HalfWave as HalfWave,
    LearnedPositions as LearnedPositions,
    Rotary as Rotary,
    RotaryScaling as RotaryScaling,
    Sinusoidal as Sinusoidal,
)
from .attn.terms.read import (
    Argmax as Argmax,
    Gumbel as Gumbel,
    Read as Read,
    Sample as Sample,
    StraightThrough as StraightThrough,
    WeightedSum as WeightedSum,
)
from .attn.terms.score import (
    Additive as Additive,
    Bilinear as Bilinear,
    Concat as Concat,
    Cosine as Cosine,
    Dot as Dot,
    Kernel as Kernel,
    Location as Location,
    LocationSensitive as LocationSensitive,
    NormedAdditive as NormedAdditive,
    Score as Score,
    Trilinear as Trilinear,
)
from .attn.terms.soft_cap import SoftCap as SoftCap
from .attn.terms.uniform import Uniform as Uniform
from .attribution.attribute import attribute as attribute
from .attribution.faithfulness import faithfulness as faithfulness
from .common.tag_schemes import TaggedSpan as TaggedSpan, TagScheme as TagScheme
from .gates.base import Gate as Gate
from .gates.catalogue import GATES as GATES, gate as gate
from .gates.channel import (
    ECA as ECA,
    ChannelGate as ChannelGate,
    GlobalAverage as GlobalAverage,
    SqueezeExcite as SqueezeExcite,
)
from .gates.channel_spatial import BAM as BAM, CBAM as CBAM, Coordinate as Coordinate
from .gates.controlled_attention import ControlledAttention as ControlledAttention, ModuleState as ModuleState
from .gates.csra import CSRA as CSRA
from .gates.external import External as External, ExternalBlock as ExternalBlock, MultiHeadExternal as MultiHeadExternal
from .gates.gated_cell import CellState as CellState, GatedCell as GatedCell, GatedHeads as GatedHeads
from .gates.gated_units import GatedUnits as GatedUnits
from .gates.insert import insert as insert, remove as remove
from .gates.non_local import NonLocal as NonLocal
from .gates.parameter_free import (
    EnergyMinimum as EnergyMinimum,
    MagnitudeSaliency as MagnitudeSaliency,
    MaxSaliency as MaxSaliency,
    SimAM as SimAM,
)
from .gates.reading_gates import (
    CellGate as CellGate,
    HeadsGate as HeadsGate,
    ModuleGate as ModuleGate,
    UnitsGate as UnitsGate,
)
from .gates.saliency_map import Saliency as Saliency, saliency as saliency
from .gates.spatial import Spatial as Spatial, SpatialGate as SpatialGate
from .interop.intervene import intervene as intervene
from .interop.quantize import quantize as quantize
from .interop.swap import restore as restore, swap as swap
from .interop.transformers_attention import register_with_transformers as register_with_transformers
from .layers.crf import CRF as CRF, Constraints as Constraints, TagPath as TagPath
from .models.bert import BERT as BERT, BERTClassifier as BERTClassifier, BERTMaskedLM as BERTMaskedLM
from .models.gpt2 import GPT2 as GPT2
from .models.llama import Llama as Llama
from .models.pretrained.loading import load_pretrained as load_pretrained, save_pretrained as save_pretrained
from .models.recurrent_language_model import RecurrentLanguageModel as RecurrentLanguageModel
from .models.transformer_xl import TransformerXL as TransformerXL
from .models.vit import ViT as ViT, ViTClassifier as ViTClassifier
from .recording.analysis.diversity import HeadDiversity as HeadDiversity
from .recording.analysis.words import Words as Words
from .recording.record import record as record
from .recording.recorded_map import RecordedMap as RecordedMap
from .recording.recording import Recording as Recording
from .tasks.loading import load as load
from .tasks.registry import TASKS as TASKS
from .viz.show import show as show

__version__: str
