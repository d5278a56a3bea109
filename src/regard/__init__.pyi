"""The public names and where each is defined: `__init__.py` loads them from here, type checkers read them here."""

from . import (
    attacks as attacks,
    attn as attn,
    attribution as attribution,
    biases as biases,
    gates as gates,
    interop as interop,
    layers as layers,
    losses as losses,
    masks as masks,
    models as models,
    normalizers as normalizers,
    positions as positions,
    reads as reads,
    recording as recording,
    scores as scores,
)
from .attacks.attack import attack as attack
from .attn.backends import BACKENDS as BACKENDS
from .attn.call import Attended as Attended, Need as Need
from .attn.catalogue import MECHANISMS as MECHANISMS, mechanism as mechanism
from .attn.functional import attend as attend, attention as attention, explain as explain
from .attn.kv_cache import KVCache as KVCache
from .attn.layer import Attention as Attention
from .attn.multihead import MultiHead as MultiHead
from .attn.terms.bias import (
    ALiBi as ALiBi,
    Bias as Bias,
    RelativeXL as RelativeXL,
    Shaw as Shaw,
    T5Buckets as T5Buckets,
)
from .attn.terms.distance import Distance as Distance
from .attn.terms.learnable import Learnable as Learnable
from .attn.terms.mask import (
    BooleanMask as BooleanMask,
    Mask as Mask,
)
from .attn.terms.normalizer import (
    Entmax as Entmax,
    Normalizer as Normalizer,
    Sigmoid as Sigmoid,
    Softmax as Softmax,
    Sparsemax as Sparsemax,
    TopK as TopK,
)
from .attn.terms.position import (
    Sinusoidal as Sinusoidal,
)
from .attn.terms.read import (
    Argmax as Argmax,
    Gumbel as Gumbel,
    Read as Read,
    Sample as Sample,
)
from .attn.terms.rotary import (
    Rotary as Rotary,
)
from .attn.terms.score import (
    Additive as Additive,
    Bilinear as Bilinear,
    Cosine as Cosine,
    Dot as Dot,
    Score as Score,
)
from .attn.terms.sequence_masks import (
    Causal as Causal,
    Documents as Documents,
    Lengths as Lengths,
    Prefix as Prefix,
    Window as Window,
)
from .attribution.attribute import attribute as attribute
from .attribution.faithfulness import faithfulness as faithfulness
from .gates.catalogue import GATES as GATES, gate as gate
from .gates.insert import insert as insert, remove as remove
from .interop.intervene import intervene as intervene
from .interop.quantize import quantize as quantize
from .interop.swap import restore as restore, swap as swap
from .interop.transformers_attention import register_with_transformers as register_with_transformers
from .layers.crf import CRF as CRF
from .models.pretrained.loading import load_pretrained as load_pretrained, save_pretrained as save_pretrained
from .recording.record import record as record
from .tasks.loading import load as load
from .tasks.registry import TASKS as TASKS
from .viz.show import show as show

__version__: str
