"""MECHANISMS: every attention mechanism by its name.

A factory takes the widths of queries and keys and returns a module with the call signature of Attention:

    module(q, k, v=None, *, mask=None, positions=None)         "*b q d", "*b k e", "*b k v" -> "*b q width"
    module.attend(q, k, v=None, ..., need=Need(weights=True))  -> Attended

The output is as wide as v (as k without v), with these exceptions: multi-head attention and the memory hop return the
width of the queries, gat and gatv2 that of their heads, key-value half the width of the keys, co-attention the sum of
both widths, bidaf four times the width of the queries. The function `width` computes it. A mechanism that compares q
and k directly raises if their widths differ; one that reads k itself raises if v is given. All mechanisms can also run
step by step, `regard.attn.stepwise`, except co-attention, bidaf and selective, which need all queries together.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from regard.attn.heads.differential import Differential
from regard.attn.heads.forget_gate import ForgetGate
from regard.attn.heads.named_parts import head_arguments, latent_heads
from regard.attn.heads.output_gate import OutputGate
from regard.attn.heads.qk_norm import L2QKNorm, LayerQKNorm, QKNorm, RMSQKNorm, WholeRMSQKNorm
from regard.attn.layer import Attention
from regard.attn.mechanisms.bidaf import AttentionFlow
from regard.attn.mechanisms.coattention import CoAttention, DynamicCoAttention
from regard.attn.mechanisms.graph import GraphAttention
from regard.attn.mechanisms.hopfield import Hopfield
from regard.attn.mechanisms.key_value import KeyValue
from regard.attn.mechanisms.latent import Latent
from regard.attn.mechanisms.local import Diagonal, Local
from regard.attn.mechanisms.location_sensitive import LocationAttention
from regard.attn.mechanisms.memory_hop import MemoryHop
from regard.attn.mechanisms.mixed_keys.cross_covariance import CrossCovariance
from regard.attn.mechanisms.mixed_keys.latents import InducedAttention, SlotAttention
from regard.attn.mechanisms.mixed_keys.low_rank import Linformer, Nystrom
from regard.attn.mechanisms.monotonic import ChunkwiseSoftmax, Monotonic
from regard.attn.mechanisms.multi_dimensional import MultiDimensional
from regard.attn.mechanisms.native_sparse import NativeSparseAttention
from regard.attn.mechanisms.pairs.summaries import (
    AlternatingCoAttention,
    InteractiveCoAttention,
    MultiGrainedCoAttention,
    RotatoryAttention,
)
from regard.attn.mechanisms.pairs.word_by_word import WordByWord
from regard.attn.mechanisms.pooling import BroadcastPool, Pool
from regard.attn.mechanisms.set_distance import SetDistance
from regard.attn.multihead import MultiHead
from regard.attn.terms.bias import (
    FIRE,
    ALiBi,
    Bias,
    KerpleLog,
    KerplePower,
    LocalGaussian,
    RelativeXL,
    Shaw,
    T5Buckets,
)
from regard.attn.terms.block_masks import TopBlocks
from regard.attn.terms.distance import Distance
from regard.attn.terms.learnable import Learnable
from regard.attn.terms.mask import Mask
from regard.attn.terms.normalizer import (
    Entmax,
    Identity,
    NormalizedSigmoid,
    Normalizer,
    ReLU,
    Sigmoid,
    Softmax,
    Softpick,
    Sparsemax,
    StickBreaking,
    Sum,
    TopK,
    WithNullSlot,
)
from regard.attn.terms.read import Argmax, Gumbel, Read, Sample, StraightThrough
from regard.attn.terms.rotary import Rotary
from regard.attn.terms.score import (
    Additive,
    Bilinear,
    Concat,
    Cosine,
    Dot,
    Kernel,
    Location,
    LocationSensitive,
    NormedAdditive,
    Trilinear,
)
from regard.attn.terms.score_bias import CoPE
from regard.attn.terms.scores.general import Activated, BiasedBilinear
from regard.attn.terms.scores.graph_score import GAT, GATv2
from regard.attn.terms.scores.random_features import RandomFeatures
from regard.attn.terms.sequence_masks import Causal, Window
from regard.attn.terms.soft_cap import SoftCap
from regard.attn.terms.uniform import Uniform
from regard.common import checks

# layers of the catalogue, public in `regard.layers`
__all__ = [
    "AlternatingCoAttention",
    "Attention",
    "AttentionFlow",
    "ChunkwiseSoftmax",
    "CoAttention",
    "CrossCovariance",
    "Diagonal",
    "Differential",
    "ForgetGate",
    "GraphAttention",
    "Hopfield",
    "InducedAttention",
    "InteractiveCoAttention",
    "KeyValue",
    "L2QKNorm",
    "Latent",
    "LayerQKNorm",
    "Linformer",
    "Local",
    "LocationAttention",
    "MemoryHop",
    "Monotonic",
    "MultiDimensional",
    "MultiGrainedCoAttention",
    "MultiHead",
    "NativeSparseAttention",
    "Nystrom",
    "OutputGate",
    "Pool",
    "QKNorm",
    "RMSQKNorm",
    "RotatoryAttention",
    "SetDistance",
    "SlotAttention",
    "WholeRMSQKNorm",
    "WordByWord",
]

Factory = Callable[[int, int], nn.Module]

HEADS = 4
# radius of a window, and the number of positions of `location`
WINDOW, MAX_POSITIONS = 10, 512
# blocks of keys for texts of some dozens of tokens; papers have 512 keys per block, and many thousands of tokens
BLOCK, BLOCKS = 8, 4
# random directions of performer: the error falls with their root
FEATURES = 64
NATIVE_SPARSE = {"block": 4, "stride": 2, "size": 4, "count": 6, "window": WINDOW}


def _head_dim(dim: int) -> int:
    """The width per head, even, so that Rotary can rotate pairs."""
    return 2 * max(1, -(-dim // (2 * HEADS)))


def _heads(
    query_dim: int,
    key_dim: int,
    *,
    kv_heads: int | None = None,
    bias: Callable[[int], Bias] | None = None,
    mask: Mask | None = None,
    **parts: Callable[[int], Any],
) -> MultiHead:
    """MultiHead with a bias and other parts that are built for the width of its heads."""
    width = _head_dim(query_dim)
    return MultiHead(
        query_dim,
        HEADS,
        kv_heads=kv_heads,
        head_dim=width,
        key_dim=key_dim,
        attention=Attention(bias=None if bias is None else bias(width), mask=mask),
        **{name: part(width) for name, part in parts.items()},
    )


def _named_heads(name: str, query_dim: int, key_dim: int) -> MultiHead:
    width = _head_dim(query_dim)
    parts = head_arguments(name, query_dim, HEADS, width)
    return MultiHead(query_dim, HEADS, head_dim=width, key_dim=key_dim, **parts)


def _graph(query_dim: int, key_dim: int, score: type[GAT] | type[GATv2]) -> GraphAttention:
    width = _head_dim(query_dim)
    return GraphAttention(query_dim, HEADS, head_dim=width, key_dim=key_dim, attention=Attention(score(width, HEADS)))


def _general(query_dim: int, key_dim: int, normalize: Normalizer | None = None, read: Read | None = None) -> Attention:
    """The general score, which takes any two widths, with a normalizer or a read."""
    return Attention(Bilinear(query_dim, key_dim), normalize=normalize, read=read)


# mechanisms by the term or choice that distinguishes them: {kind: {name: factory}}
GROUPS: dict[str, dict[str, Factory]] = {
    "score": {
        "dot": lambda q, k: Attention(Dot(scale=1.0)),
        "scaled-dot": lambda q, k: Attention(Dot()),
        "general": _general,
        "biased-general": lambda q, k: Attention(BiasedBilinear(q, k)),
        "activated-general": lambda q, k: Attention(Activated(Bilinear(q, k))),
        "additive": lambda q, k: Attention(Additive(q, k, q)),
        "concat": lambda q, k: Attention(Concat(q, k, q)),
        "cosine": lambda q, k: Attention(Cosine(Learnable(10.0))),
        "distance": lambda q, k: Attention(Distance()),
        "euclid": lambda q, k: Attention(Distance(power=1)),
        "trilinear": lambda q, k: Attention(Trilinear(q)),
        "soft-cap": lambda q, k: Attention(SoftCap(50.0, Bilinear(q, k))),
        "linear": lambda q, k: Attention(Kernel(), normalize=Sum()),
        "performer": lambda q, k: Attention(Kernel(RandomFeatures(q, FEATURES)), normalize=Sum()),
        "unnormalized": lambda q, k: Attention(Dot(scale=1.0), normalize=Identity()),
        "location": lambda q, k: Attention(Location(q, MAX_POSITIONS)),
        "uniform": lambda q, k: Attention(Uniform()),
    },
    "normalizer": {
        "temperature": lambda q, k: _general(q, k, Softmax(Learnable(1.0))),
        "sparsemax": lambda q, k: _general(q, k, Sparsemax()),
        "entmax": lambda q, k: _general(q, k, Entmax(1.5)),
        "entmax-learned": lambda q, k: _general(q, k, Entmax(Learnable(1.5))),
        "sigmoid": lambda q, k: _general(q, k, Sigmoid(Learnable(0.0))),
        "relu": lambda q, k: _general(q, k, ReLU()),
        "relu-squared": lambda q, k: _general(q, k, ReLU(2.0)),
        "softpick": lambda q, k: _general(q, k, Softpick()),
        "topk": lambda q, k: _general(q, k, TopK(4)),
        "null": lambda q, k: _general(q, k, WithNullSlot(score=Learnable(0.0))),
    },
    "read": {
        "hard": lambda q, k: _general(q, k, read=Sample()),
        "hard-argmax": lambda q, k: _general(q, k, read=Argmax()),
        "gumbel": lambda q, k: _general(q, k, read=Gumbel()),
        "straight-through": lambda q, k: _general(q, k, read=StraightThrough()),
    },
    "position": {
        "local-p": lambda q, k: Local(Bilinear(q, k), LocalGaussian(q, q, WINDOW)),
        "location-sensitive": lambda q, k: LocationAttention(LocationSensitive(q, k, q)),
        "location-smooth": lambda q, k: LocationAttention(LocationSensitive(q, k, q), normalize=NormalizedSigmoid()),
        "monotonic": lambda q, k: Monotonic(NormedAdditive(q, k, q)),
        "mocha": lambda q, k: Monotonic(NormedAdditive(q, k, q), chunk=ChunkwiseSoftmax(Additive(q, k, q), width=2)),
    },
    "source of queries and values": {
        "key-value": lambda q, k: KeyValue(Attention(Additive(q, k // 2, q))),
        "pooling": lambda q, k: BroadcastPool(Pool(Attention(Additive(k, k, k)), k)),
        "set-distance": lambda q, k: SetDistance(),
        "set-outlier": lambda q, k: SetDistance(1),
        "co-attention": lambda q, k: DynamicCoAttention(CoAttention(Bilinear(q, k))),
        "bidaf": lambda q, k: AttentionFlow(q),
        "memory-hop": lambda q, k: MemoryHop(),
        "hopfield": lambda q, k: Hopfield(),
    },
    "heads": {
        "multi-head": _heads,
        "grouped": lambda q, k: _heads(q, k, kv_heads=HEADS // 2),
        "multi-query": lambda q, k: _heads(q, k, kv_heads=1),
        "qk-norm": lambda q, k: _named_heads("qk-norm", q, k),
        "output-gate": lambda q, k: _named_heads("output-gate", q, k),
        "sink": lambda q, k: _named_heads("sink", q, k),
        "talking-heads": lambda q, k: _named_heads("talking-heads", q, k),
        "differential": lambda q, k: _named_heads("differential", q, k),
        "latent": lambda q, k: latent_heads(q, HEADS, _head_dim(q), key_dim=k),
        "gat": lambda q, k: _graph(q, k, GAT),
        "gatv2": lambda q, k: _graph(q, k, GATv2),
        "moba": lambda q, k: _heads(q, k, mask=TopBlocks(BLOCK, BLOCKS)),
        "nsa": lambda q, k: NativeSparseAttention(
            q, HEADS, kv_heads=HEADS // 2, head_dim=_head_dim(q), key_dim=k, **NATIVE_SPARSE
        ),
    },
    "distance from the query": {
        "window": lambda q, k: Attention(Bilinear(q, k), mask=Window(WINDOW, WINDOW)),
        "stick-breaking": lambda q, k: Attention(Bilinear(q, k), mask=~Window(0, None), normalize=StickBreaking()),
        "local-m": lambda q, k: Local(Bilinear(q, k), Diagonal(WINDOW)),
        "alibi": lambda q, k: _heads(q, k, bias=lambda _: ALiBi(HEADS)),
        "t5": lambda q, k: _heads(q, k, bias=lambda _: T5Buckets(HEADS)),
        "kerple": lambda q, k: _heads(q, k, bias=lambda _: KerpleLog(HEADS)),
        "kerple-power": lambda q, k: _heads(q, k, bias=lambda _: KerplePower(HEADS)),
        "fire": lambda q, k: _heads(q, k, bias=lambda _: FIRE(HEADS)),
        "cope": lambda q, k: _heads(q, k, bias=CoPE),
        "selective": lambda q, k: _named_heads("selective", q, k),
        "forgetting": lambda q, k: _heads(q, k, mask=Causal(), forget=lambda _: ForgetGate(k, HEADS)),
        "shaw": lambda q, k: _heads(q, k, bias=Shaw),
        "transformer-xl": lambda q, k: _heads(q, k, bias=lambda width: RelativeXL(HEADS * width, HEADS, width)),
        "rotary": lambda q, k: _heads(q, k, rotate=Rotary),
    },
}
MECHANISMS: dict[str, Factory] = {name: factory for group in GROUPS.values() for name, factory in group.items()}

# decoders of translators, by their authors, and their attention: names that are taken for mechanisms
_OF_DECODER = {"bahdanau": "additive", "luong": "general", "luong-feeding": "general"}


def mechanism(name: str, query_dim: int, key_dim: int | None = None) -> nn.Module:
    """The mechanism of that name in `MECHANISMS`, for queries and keys of these widths (one width serves both)."""
    if (attention := _OF_DECODER.get(name)) is not None:
        raise ValueError(
            f"{name} is a --decoder of regard train translate, whose attention is {attention}; try {attention}"
        )
    checks.known("mechanism", name, MECHANISMS)
    return MECHANISMS[name](query_dim, query_dim if key_dim is None else key_dim)


@torch.no_grad()
def width(module: nn.Module, query_dim: int, key_dim: int) -> int:
    """The output width of a mechanism, measured by a call with zeros."""
    like = next(module.parameters(), torch.empty(0))
    return module(like.new_zeros(1, 1, query_dim), like.new_zeros(1, 1, key_dim)).shape[-1]
