"""Every sentence for bad input names the argument, shows its value and says the way out."""

import math
import pathlib
import re
from collections.abc import Callable

import pytest
import torch
from tests.bad_masks import BAD as BAD_MASKS
from tests.bad_rotary import BAD as BAD_ROTARY
from tests.for_each import for_each

import regard
from regard import Attention, KVCache, Learnable, MultiHead, Need
from regard.attn.backends import _flex_blocks
from regard.attn.maps.attention_map import DenseMap, LazyMap
from regard.losses import Baseline, doubly_stochastic, frobenius_penalty, linear_cross_entropy, reinforce
from regard.losses.functional import info_nce
from regard.losses.vocabulary import AdaptiveSoftmax
from regard.training.runtime.distributed import join


def t(*shape: int, **kind: object) -> torch.Tensor:
    return torch.zeros(*shape, **kind)


Q, K, V = t(2, 3, 4), t(2, 5, 4), t(2, 5, 6)
FAR = t(2, 5, 4, device="meta")


def latent() -> regard.layers.Latent:
    return regard.layers.Latent(4, 2, latent_dim=3, head_dim=2, rotated_dim=2)


def nested(width: int) -> torch.Tensor:
    return torch.nested.nested_tensor([t(3, width), t(2, width)], layout=torch.jagged)


def call(*tensors: object, **terms: object) -> Callable[[], object]:
    return lambda: regard.attend(*(tensors or (Q, K, V)), **terms)


def a_map() -> regard.attn.AttentionMap:
    return regard.attend(Q, K, need=Need(map=True)).map


def with_projections(heads: MultiHead, width: int, names: tuple[str, ...] = ("query", "key", "value")) -> MultiHead:
    """The layer with narrower projections, as tensor parallelism leaves a process with some of the heads."""
    for name in names:
        setattr(heads, name, torch.nn.Linear(heads.query.in_features, width))
    return heads


class Elsewhere(regard.Normalizer):
    """What a reader may write."""

    def weights(self, scores: torch.Tensor, allowed: torch.Tensor | None) -> torch.Tensor:
        return scores


def map_of_heads() -> LazyMap:
    made = regard.attend(t(2, 3, 5, 4), t(2, 3, 7, 4), normalize=Elsewhere(), need=Need(map=True)).map
    return made


def twice() -> None:
    total, _ = linear_cross_entropy(t(3, 4).requires_grad_(), t(7, 4), torch.arange(3))
    total.backward(retain_graph=True)
    total.backward()


# what is raised, and the sentence, with … for what stands between its parts -> a call that raises it
BAD: dict[type[Exception], dict[str, Callable[[], object]]] = {
    TypeError: {
        "Selective(heads=2) reads the scores, which positions alone do not give; call of_scores": lambda: (
            regard.biases.Selective(2)(Q, torch.arange(3), torch.arange(3), 3)
        ),
        "changes of … are not counted": lambda: _flex_blocks._signature(object(), []),
        "x must be a tensor, got list; wrap it in torch.as_tensor": lambda: regard.positions.HalfWave(6)([[1.0] * 6]),
        "x must be a floating tensor, got torch.int64": lambda: regard.Sinusoidal(4)(Q.long()),
        "q must be a tensor … list … torch.as_tensor": call([1.0], K),
        "k must be a tensor … int": call(Q, 3),
        "v must be a tensor … str": call(Q, K, "v"),
        "q must be a floating tensor … torch.int64 … q.float()": call(Q.long(), K),
        "k must be a floating tensor … torch.int32 … k.float()": call(Q, K.int()),
        "v must be a floating tensor … torch.bool": call(Q, K, V.bool()),
        "one dtype … float32 … float64 … .to(torch.float32)": call(Q, K.double()),
        "got a nested one; pad it with torch.nested.to_padded_tensor(q, 0.0) … Lengths": call(nested(4), K),
        "q must be a padded tensor, got a nested one": lambda: MultiHead(8, 4)(nested(8)),
        "q must be a tensor, got list": lambda: MultiHead(8, 4)([[1.0]]),
        "v must be a tensor, got a KVCache; pass a cache by name, project_kv(k, past=cache)": lambda: MultiHead(
            8, 4
        ).project_kv(t(2, 3, 8), regard.KVCache(K, V)),
        "the cache holds values of torch.float32, more than the torch.bfloat16 of q … .to(torch.float32)": (
            lambda: regard.attention(Q.bfloat16(), regard.KVCache(K, V))
        ),
        "a map is indexed by integers, slices and lists, one per axis, got ...; write : for a whole axis": lambda: (
            regard.attend(Q, K, need=regard.Need(map=True)).map[...]
        ),
        "bias must be a floating … torch.bool … mask=": call(bias=t(3, 5).bool()),
        "mask must be a Mask … str … Causal()": call(mask="causal"),
        "mask must be boolean … int64 … bias= … mask > 0": call(mask=t(3, 5).long()),
        "lengths must be integers … float32 … BooleanMask": lambda: regard.Lengths(t(2)),
        "lengths … torch.bool … BooleanMask(mask)": lambda: regard.Lengths(t(2, 5).bool()),
        "lengths must be integers, one per sample, got list; write Lengths([5, 3])": lambda: regard.Lengths([3.0, 4.0]),
        "attention has no argument is_causal; pass mask=regard.Causal()": lambda: regard.attention(
            Q, K, is_causal=True
        ),
        "MultiHead has no argument key_padding_mask; pass mask=regard.Lengths(lengths), or": lambda: MultiHead(8, 2)(
            t(2, 5, 8), key_padding_mask=t(2, 5) > 0
        ),
        "attend has no argument attn_mask; pass booleans as mask=, where True may attend": call(attn_mask=t(5, 5)),
        "explain has no argument beam; help(explain) lists those it has": lambda: regard.explain(
            t(5, 8), t(5, 8), beam=3
        ),
        "MultiHead has no argument normalize; pass attention=regard.Attention(normalize=...)": lambda: MultiHead(
            8, 2, normalize=regard.Sparsemax()
        ),
        "MultiHead has no argument sinks; pass … WithNullSlot(score=": lambda: MultiHead(8, 2, sinks=True),
        "MultiHead has no argument softcap; pass … SoftCap(50.0)": lambda: MultiHead(8, 2, softcap=50.0),
        "no argument use_qk_norm; pass qk_norm=regard.layers.RMSQKNorm": lambda: MultiHead(8, 2, use_qk_norm=True),
        "no argument embed_dim; it is called": lambda: MultiHead(embed_dim=8, num_heads=2),
        "MultiHead has no argument causal; pass attention=regard.Attention(mask=regard.Causal())": lambda: MultiHead(
            8, 2, causal=True
        ),
        "Attention has no argument causal; pass mask=": lambda: Attention(causal=True),
        "attend has no argument causal; pass mask=regard.Causal()": call(causal=True),
        "Window has no argument causal; leave it out: Window(left) is causal": lambda: regard.Window(64, causal=True),
        "got 'sparse'; try alpha=1.5": lambda: regard.Entmax("sparse"),
        "got 'additive'; write score=Additive(...)": call(score="additive"),
        "ids must be an integer … ids.long()": lambda: regard.Documents(t(2, 5)),
        "ids must be an integer tensor … list": lambda: regard.Documents([0, 1]),
        "queries must be an integer … queries.long()": lambda: regard.Documents(t(2, 5).long(), t(2, 3)),
        "targets must be int64 … torch.int32 … targets.long()": lambda: linear_cross_entropy(
            t(3, 4), t(7, 4), torch.arange(3).int()
        ),
        "score must be a Score … 'dot' … score=Dot()": call(score="dot"),
        "normalize must be a Normalizer … the class Softmax … normalize=Softmax(": call(normalize=regard.Softmax),
        "read must be a Read … 'mix' … read=WeightedSum()": call(read="mix"),
        "bias must be a Bias … 1.0 … or a tensor": call(bias=1.0),
        "length must be an integer … float … Prefix(8)": lambda: regard.Prefix(2.5),
        "hidden must be a whole number … '8'": lambda: regard.Additive(8, 8, "8"),
        "scale must be a number for Dot … 'x'": lambda: regard.Dot("x"),
        "alpha must be a number for Entmax, got '1.5'; try alpha=1.5": lambda: regard.Entmax("1.5"),
        "left must be a whole number … 1.5": lambda: regard.Window(1.5),
        "backend must be a name … 3 … eager": call(backend=3),
        "mask must be a Mask … the class Causal": call(mask=regard.Causal),
        "MultiHead has parameters of torch.float32 … torch.float64 … layer.to(torch.float64)": lambda: MultiHead(4, 2)(
            Q.double()
        ),
        "Additive(4, 4, 3) has parameters of torch.float32 … torch.float64": call(
            Q.double(), K.double(), V.double(), score=regard.Additive(4, 4, 3)
        ),
        "bias says whether … ALiBi( … attention=Attention(bias=...)": lambda: MultiHead(4, 2, bias=regard.ALiBi(2)),
        "attention must be an Attention … Sparsemax() … attention=Attention(...)": lambda: MultiHead(
            4, 2, attention=regard.Sparsemax()
        ),
        "rotate must be a Rotary … True": lambda: MultiHead(4, 2, rotate=True),
        "need must be a Need … Need(weights=True)": call(need={"weights": True}),
        "keys of torch.float64 … torch.float32 … .to(cache.keys)": lambda: KVCache(K, V).extend(K.double(), V.double()),
        "weights must be floating … (3) … weights.unsqueeze(-2)": lambda: DenseMap(t(3)),
        "positions … float32": call(positions=(t(3), t(5))),
        "positions must be a pair (i, j) … got (5); write positions=(": call(positions=torch.arange(5)),
        "positions must be a pair … got 'ab'": lambda: MultiHead(4, 2)(Q, positions="ab"),
        "positions must be a pair … got 3": lambda: MultiHead(4, 2).step(Q[:, :1], positions=(torch.arange(1), 3)),
        "positions must be a pair … got (tensor([0, 1, 2]),); write": lambda: latent().step(
            Q[:, :1], positions=(torch.arange(3),)
        ),
        "past must be a KVCache, got tuple; write past=layer.project_kv(x)": lambda: latent().step(Q, (Q, Q)),
        "past must be a KVCache, got list": lambda: MultiHead(4, 2).step(Q, [Q]),
        "past must be a KVCache, got 'x'": lambda: regard.layers.NativeSparseAttention(4, 2).step(Q, "x"),
        "score must be a Score, got 'dot'; write score=Dot()": lambda: regard.scores.SoftCap(1.0, "dot"),
        "normalize must be a Normalizer, got 'softmax'": lambda: regard.normalizers.WithNullSlot("softmax"),
        "normalize must be … the class Softmax": lambda: regard.normalizers.TalkingWeights(2, regard.Softmax),
        "score must be a number for WithNullSlot, got 'a'; try score=0.0": lambda: regard.normalizers.WithNullSlot(
            score="a"
        ),
        "low must be a number for Llama3Scaling, got 'a'": lambda: regard.positions.Llama3Scaling(8.0, "a", 4.0, 9),
        "sections must have a number for each axis of MRoPESections, got 4; try": lambda: (
            regard.positions.MRoPESections(4)
        ),
        "grid must have a number for each axis of AxialSections, got 3": lambda: regard.positions.AxialSections(
            (2, 2), grid=3
        ),
    },
    ValueError: {
        "power must be 1 or more for ReLU, got 0.5; try ReLU() or ReLU(2.0)": lambda: regard.normalizers.ReLU(0.5),
        "past=KVCache( … has no scores of earlier queries, which Selective(heads=2) reads; take that of step": lambda: (
            heads := MultiHead(4, 2, attention=Attention(bias=regard.biases.Selective(2), mask=regard.Causal()))
        ).step(K, heads.project_kv(K)),
        "q must have at least two axes … (4) … q.unsqueeze(0)": call(t(4), K),
        "one device … cpu, meta … .to('cpu')": call(Q, FAR),
        "(2, 5, 4) … (2, 4, 6); axis -2": call(Q, K, t(2, 4, 6)),
        "(2, 3, 4) … (3, 5, 4) … multiple of the heads": call(Q, t(3, 5, 4)),
        "(6, 3, 4) … (2, 5, 4) … behind an axis of samples": call(t(6, 3, 4), t(2, 5, 4)),
        "(2, 3, 5) has some of the leading axes … (2, 2, 3, 5) … write mask[:, None] if": call(
            t(2, 2, 3, 4), t(2, 2, 5, 4), mask=t(2, 3, 5).bool()
        ),
        "(2, 7, 3, 4) … multiple": call(t(2, 7, 3, 4), t(2, 3, 5, 4)),
        "dropout must be between 0 and 1 … 1.5 … dropout=0.1": call(dropout=1.5),
        "between 0 and 1 for Attention, got 2.0": lambda: Attention(dropout=2.0),
        "width 6 is no multiple of the head width 4 … use as many processes as divide kv_heads=2": lambda: (
            with_projections(MultiHead(8, 2), 6).project_kv(t(2, 3, 8))
        ),
        "this process has 1 of 2 query heads, but 2 of 2 key heads; split query, key and value alike": lambda: (
            with_projections(MultiHead(8, 2, attention=Attention(backend="eager")), 4, ("query",))(t(2, 3, 8))
        ),
        "a list of 2 layers, one per head, but there are 1 heads … takes one attention for all heads": lambda: (
            with_projections(MultiHead(8, 2, attention=[Attention(), Attention()]), 4)(t(2, 3, 8))
        ),
        "positions … 3 queries and 5 keys … (3) and (4); pass (i, j)": call(
            positions=(torch.arange(3), torch.arange(4))
        ),
        "bias of shape (3, 4) … (2, 3, 5)": call(bias=t(3, 4)),
        "bias of shape (1, 1, 3, 5)": call(bias=t(1, 1, 3, 5)),
        "buckets … 7; try 32": lambda: regard.T5Buckets(2, buckets=7),
        "max_distance … buckets (8), got 8; try 32": lambda: regard.T5Buckets(2, buckets=8, max_distance=8),
        "dim must be even … 5; try 6": lambda: regard.RelativeXL(5, 2, 4),
        "heads must be positive … ALiBi … 0": lambda: regard.ALiBi(0),
        "clip must be positive … Shaw … 0": lambda: regard.Shaw(4, 0),
        "window must be positive … -1.0": lambda: regard.biases.LocalGaussian(4, 4, -1.0),
        "q must be 7 wide … (2, 3, 4) … build Shaw": call(bias=regard.Shaw(7)),
        "clamp must be … got 0": lambda: regard.RelativeXL(6, 2, 4, clamp=0),
        "mask holds torch.float32 … where a bias of shape (3, 5) already adds its own … leave the bias out": call(
            mask=t(3, 5), bias=t(3, 5)
        ),
        "mask holds torch.float32, numbers to be added … where ALiBi(heads=2) already adds its own": lambda: MultiHead(
            4, 2, attention=Attention(bias=regard.ALiBi(2))
        )(t(2, 3, 4), mask=t(3, 3)),
        "mask must end … (5) … unsqueeze(-2)": call(mask=t(5).bool()),
        "mask of shape (3, 4) … (2, 3, 5) … 1 fits all": call(mask=t(3, 4).bool()),
        "mask of shape (2, 1, 3, 5)": call(mask=t(2, 1, 3, 5).bool()),
        "mask is on meta … .to('cpu')": call(mask=t(3, 5, device="meta").bool()),
        "index must number the nodes below … 5000000000; number": lambda: regard.masks.Edges(
            torch.tensor([[0], [5_000_000_000]])
        ),
        "left … -2 … left=2": lambda: regard.Window(-2),
        "left must be below 2^62 … got 1000 … try None for an open side": lambda: regard.Window(10**30),
        "angles and amplitudes must be finite for Rotary … factor=1e-300 … base=10000.0": lambda: regard.Rotary(
            4, scaling=regard.positions.LinearScaling(1e-300)
        ),
        "angles … finite … base=1e-308": lambda: regard.Rotary(64, base=1e-308),
        "angles … finite … fast=1e+308": lambda: regard.Rotary(
            4, scaling=regard.positions.YaRNScaling(2.0, 8, fast=1e308)
        ),
        "right … -3 … right=3": lambda: regard.Window(2, -3),
        "lengths has 9, and there are 5 keys … positions=": call(mask=regard.Lengths([9, 4]) & regard.Causal()),
        "lengths, of shape (3) … here (2); reshape it": call(mask=regard.Lengths(torch.tensor([3, 4, 5]))),
        "lengths is on meta": call(mask=regard.Lengths(t(2, device="meta").long())),
        "length of Prefix, of shape (3) … here (2)": call(mask=regard.Prefix(torch.tensor([3, 4, 5]))),
        "ids … 7 queries attend to 5 keys … Documents(ids, queries=": call(
            t(2, 7, 4), K, V, mask=regard.Documents(t(2, 5).long())
        ),
        "ids of Documents, of shape (2, 4) … here (2, 5)": call(mask=regard.Documents(t(2, 4).long())),
        "Dot … (2, 3, 4) … (2, 5, 7) … Bilinear(4, 7)": call(Q, t(2, 5, 7)),
        "Cosine … Bilinear(4, 7)": call(Q, t(2, 5, 7), score=regard.Cosine()),
        "Kernel … (2, 5, 7)": call(Q, t(2, 5, 7), score=regard.scores.Kernel()),
        "q must be 7 wide … Bilinear(7, 4) … (2, 3, 4)": call(score=regard.Bilinear(7, 4)),
        "k must be 7 wide … (2, 5, 4) … width 4": call(score=regard.Bilinear(4, 7)),
        "q must be 7 wide … Additive(7, 4, 3)": call(score=regard.Additive(7, 4, 3)),
        "k must be 7 wide … Additive(4, 7, 3)": call(score=regard.Additive(4, 7, 3)),
        "q must be 7 wide … Trilinear": call(score=regard.scores.Trilinear(7)),
        "k must be 7 wide": call(score=regard.scores.LocationSensitive(4, 7, 3)),
        "q must be 7 wide … Location(7, 9)": call(score=regard.scores.Location(7, 9)),
        "at most 3 positions … (2, 5, 4) … Location(4, 5)": call(score=regard.scores.Location(4, 3)),
        "width must be odd … got 4; try 5": lambda: regard.scores.LocationSensitive(4, 4, 3, width=4),
        "power must be 1 … got 3 … power=2": lambda: regard.Distance(power=3),
        "scale must be positive … Distance … 0.0": lambda: regard.Distance(scale=0.0),
        "cap must be positive … SoftCap … 0.0": lambda: regard.scores.SoftCap(0.0),
        "scale must be positive": lambda: regard.Cosine(Learnable(0.0)),
        "'elo'; did you mean 'elu'? … taylor": lambda: regard.scores.Kernel("elo"),
        "temperature must be positive … 0.0": lambda: regard.Softmax(0.0),
        "temperature … -1.0": lambda: regard.Softmax(Learnable(-1.0)),
        "alpha must be above 1 … 1.0 … Softmax()": lambda: regard.Entmax(1.0),
        "alpha … inf": lambda: regard.Entmax(float("inf")),
        "alpha … 2.0 … Learnable(1.5)": lambda: regard.Entmax(Learnable(2.0)),
        "k must be a whole number, 1 or more … TopK … 0": lambda: regard.TopK(0),
        "temperature must be positive … Gumbel … 0.0": lambda: regard.Gumbel(0.0),
        "dim must be even for Sinusoidal … 5; try 6": lambda: regard.Sinusoidal(5),
        "x must be 6 wide … (2, 3, 4)": lambda: regard.Sinusoidal(6)(Q),
        "x must be 6 wide … Rotary(6": lambda: regard.Rotary(6)(Q),
        "x must be 6 wide … LearnedPositions(9, 6)": lambda: regard.positions.LearnedPositions(9, 6)(Q),
        "cap must be finite for SoftCap, got inf; leave SoftCap out": lambda: regard.scores.SoftCap(math.inf),
        "bias must be a number for ForgetGate, got nan": lambda: regard.layers.ForgetGate(4, 2, bias=math.nan),
        "dim must split evenly over heads for NativeSparseAttention: 4 over 3 leaves 1; try dim=3": lambda: (
            regard.layers.NativeSparseAttention(4, 3)
        ),
        "k must be 4 wide for NativeSparseAttention, got (2, 3, 5)": lambda: regard.layers.NativeSparseAttention(
            4, 2
        ).step(t(2, 3, 5)),
        "start must be 0 or more, got -1": lambda: regard.positions.HalfWave(4)(Q, start=-1),
        "positions must have one entry per row of x, 3, got (2)": lambda: regard.Rotary(4)(Q, torch.arange(2)),
        "length is missing: HalfWave(6) has no greatest position; pass encoding(positions, length=…)": lambda: (
            regard.positions.HalfWave(6).encoding(torch.arange(3))
        ),
        "x ends at position 7 … 5 positions … LearnedPositions(7, 4)": lambda: regard.positions.LearnedPositions(5, 4)(
            Q, start=4
        ),
        "(2, 5, 4) … (2, 4, 6); axis -2 counts the positions": lambda: KVCache(K, t(2, 4, 6)),
        "v must be None … (2, 5, 6); leave v out": call(Q, KVCache(K, V), V),
        "positions must be given: 7 queries … 5 cached": call(t(2, 7, 4), KVCache(K, V, torch.arange(5))),
        "keys (2, 1, 3) … (2, 5, 4) … must agree": lambda: KVCache(K, V).extend(t(2, 1, 3), t(2, 1, 6)),
        "values (1, 1, 6) … (2, 5, 6)": lambda: KVCache(K, V).extend(t(2, 1, 4), t(1, 1, 6)),
        "positions must be given to every extend … pass the positions of the new keys": lambda: KVCache(
            K, V, torch.arange(5)
        ).extend(t(2, 1, 4), t(2, 1, 6)),
        "keep … -3; try 3": lambda: regard.attn.Segment(-3),
        "log_prob … WeightedSum() … Sample()": call(need=Need(log_prob=True)),
        "key_index … WeightedSum() … Argmax()": call(need=Need(key_index=True)),
        "lse … Sparsemax() … Softmax()": call(normalize=regard.Sparsemax(), need=Need(lse=True)),
        "n must be between 1 … 5, got 6": lambda: a_map().topk(6),
        "n must be between 1 … got 0; try 5": lambda: a_map().topk(0),
        "height must be 1 or more … 0 … pooled(256, 256)": lambda: a_map().pooled(0, 4),
        "'fuse'; did you mean 'fused'? … eager": call(backend="fuse"),
        "'additive' cannot run this: Dot … leave backend out": call(backend="additive"),
        "dim … 10 over 3 leaves 1 … dim=9": lambda: MultiHead(10, 3),
        "multiple of kv_heads for MultiHead: 6 over 4 leaves 2 … kv_heads=3": lambda: MultiHead(12, 6, kv_heads=4),
        "dim must be a whole number … MultiHead … 0": lambda: MultiHead(0, 1),
        "multiple of kv_heads … 4 over 1000000000000 … kv_heads=4": lambda: MultiHead(8, 4, kv_heads=10**12),
        "kv_heads must be a whole number … 0": lambda: MultiHead(8, 2, kv_heads=0),
        "attention … 4 heads, got 3": lambda: MultiHead(8, 4, attention=[Attention()] * 3),
        "dropout=0.1 … Attention(..., dropout=0.1)": lambda: MultiHead(8, 4, attention=Attention(), dropout=0.1),
        "v must be None when k is a KVCache … (2, 5, 6); leave v out": lambda: (m := MultiHead(4, 2))(
            Q, m.project_kv(K), V
        ),
        "q must be 8 wide … (2, 3, 4) … build MultiHead": lambda: MultiHead(8, 2)(Q),
        "k must be 7 wide for MultiHead … (2, 5, 4)": lambda: MultiHead(4, 2, key_dim=7)(Q, K),
        "v must be 4 wide … (2, 5, 6)": lambda: MultiHead(4, 2)(Q, K, V),
        "rate … 0.0; try 0.1": lambda: Baseline(rate=0.0),
        "weights … (…, steps, keys) … (3)": lambda: doubly_stochastic(t(3)),
        "a (3, 2) and b (4, 2) must be the vectors of as many texts … give one of each per pair": lambda: info_nce(
            t(3, 2), t(4, 2)
        ),
        "temperature must be positive and finite, got 0.0; try temperature=0.05": lambda: info_nce(
            t(3, 2), t(3, 2), 0.0
        ),
        "same must be a boolean tensor of shape (3, 3) … compare every pair with every pair": lambda: info_nce(
            t(3, 2), t(3, 2), same=t(3, 2) > 0
        ),
        "weights … (…, hops, tokens) … (3)": lambda: frobenius_penalty(t(3)),
        "keep must be one per step … (2, 3, 5) … (2, 5) … targets != PAD": lambda: doubly_stochastic(
            t(2, 3, 5), t(2, 5).bool()
        ),
        "reward (3) … log_prob (2, 3) … give a reward to each": lambda: reinforce(t(2, 3), t(3)),
        "entropy must be given … entropy_weight=0.5 … Need(entropy=True)": lambda: reinforce(
            t(2), t(2), entropy_weight=0.5
        ),
        "states must be as wide as weight … (3, 4) … (7, 5) … nn.Linear(4, 7)": lambda: linear_cross_entropy(
            t(3, 4), t(7, 5), torch.arange(3)
        ),
        "bias must be one number per word … (5) … (7, 4) … nn.Linear(4, 7)": lambda: linear_cross_entropy(
            t(3, 4), t(7, 4), torch.arange(3), bias=t(5)
        ),
        "targets must be one per row … (2) … (3, 4) … states[keep]": lambda: linear_cross_entropy(
            t(3, 4), t(7, 4), torch.arange(2)
        ),
        "targets must be words 0 to 6 … -100 … targets[keep]": lambda: linear_cross_entropy(
            t(3, 4), t(7, 4), torch.tensor([1, -100, 2])
        ),
        "smoothing … 1.0; try 0.1": lambda: linear_cross_entropy(t(3, 4), t(7, 4), torch.arange(3), smoothing=1.0),
        "ALiBi … 4 … 3": call(t(2, 3, 3, 4), t(2, 3, 5, 4), bias=regard.ALiBi(4)),
        "ALiBi … 4": call(t(3, 4), t(5, 4), bias=regard.ALiBi(4)),
        "4 heads … 3": call(t(2, 3, 3, 4), t(2, 3, 5, 4), normalize=regard.Softmax(Learnable(1.0, heads=4))),
        "(2, 5, 7) … (2, 3, 4)": call(Q, KVCache(t(2, 5, 7), V)),
        "bias is on meta … .to('cpu')": call(bias=t(3, 5, device="meta")),
        "on meta": call(mask=regard.Documents(t(2, 5, device="meta").long())),
        "positions … 3 queries and 3 keys … (2) and (3)": lambda: MultiHead(4, 2)(
            Q, positions=(torch.arange(2), torch.arange(3))
        ),
        "baseline (3, 1) … reward (3); squeeze it": lambda: reinforce(t(3), t(3), t(3, 1)),
        "query_dim must be a whole number … got 0": lambda: regard.Bilinear(0, 8),
        "MultiHead is on meta … layer.to('cpu')": lambda: MultiHead(4, 2).to("meta")(Q),
        "k must be 4 wide for Additive(4, 4, 3) … (2, 2, 3, 2)": lambda: MultiHead(
            4, 2, attention=Attention(regard.Additive(4, 4, 3))
        )(Q),
        "k must be 7 wide for Bilinear … (2, 5, 4)": lambda: Attention(regard.Bilinear(4, 7)).project_kv(K),
        "k must be 4 wide … (2, 5, 6)": lambda: MultiHead(4, 2).project_kv(V),
        "heads=[1] cannot be taken … Elsewhere() … leave heads out": lambda: map_of_heads().select_heads([1]),
        "real (3) and fake (2) … as many images; generate one per real": lambda: regard.losses.hinge(t(3), t(2)),
        "cutoffs must increase … 20 words … got [5, 5]; try cutoffs=[2]": lambda: AdaptiveSoftmax(8, 20, [5, 5]),
        "smoothing must be 0 … got 0.1; build it without cutoffs": lambda: AdaptiveSoftmax(8, 20, [5]).token_loss(
            t(3, 8), torch.arange(3), smoothing=0.1
        ),
    },
    AttributeError: {
        "did you mean regard.gates.SqueezeExcite?": lambda: regard.SENet,
        "regard has no MultiHed; did you mean regard.MultiHead?": lambda: regard.MultiHed,
        "regard has no SimAM; did you mean regard.gates.SimAM?": lambda: regard.SimAM,
        "regard has no xyzzy; dir(regard) lists all": lambda: regard.xyzzy,
    },
    IndexError: {
        "row 3 … 3 rows … 0 to 2": lambda: a_map()[3],
        "rows [99] … 3 rows … 0 to 2": lambda: a_map().topk(1, rows=[99]),
        "[rows, columns] … 3 indices; pick(sample": lambda: a_map()[0, 0, 0],
        "2 is not on axis 0 … has 2; use 0 to 1": lambda: a_map().pick(2),
        "at most the 1 leading … got 2": lambda: a_map().pick(0, 0),
    },
    RuntimeError: {
        "one backward pass … call linear_cross_entropy again": twice,
    },
}


CASES = [
    (kind, sentence, act)
    for bad in (BAD, BAD_MASKS, BAD_ROTARY)
    for kind, cases in bad.items()
    for sentence, act in cases.items()
]


@for_each(("kind", "sentence", "act"), CASES, ids=[sentence for _, sentence, _ in CASES])
def test_the_sentence_says_what_where_and_the_way_out(
    kind: type[Exception], sentence: str, act: Callable[[], object]
) -> None:
    with pytest.raises(kind, match=".*".join(map(re.escape, sentence.split(" … ")))):
        act()


# files and folders of the package
SOURCES = (
    "attn/backends",
    "attn/call.py",
    "attn/call_slicing.py",
    "common/checks.py",
    "attn/functional.py",
    "attn/kv_cache.py",
    "attn/layer.py",
    "attn/maps",
    "attn/multihead.py",
    "attn/nonfinite.py",
    "attn/call_builder.py",
    "attn/terms",
    "common/suggestions.py",
    "losses",
)


def test_every_sentence_is_read_here() -> None:
    """Each `raise` in these sources says something that one of the cases above has read."""
    said = []
    for kind, _, act in CASES:
        with pytest.raises(kind) as caught:
            act()
        said.append(str(caught.value))
    root = pathlib.Path(regard.__file__).parent
    files = [f for name in SOURCES for f in ((root / name).rglob("*.py") if (root / name).is_dir() else [root / name])]
    for file in files:
        source = file.read_text()
        for start in re.finditer(r"\n\s+raise (\w+)\(", source):
            if start[1] == "AssertionError":
                continue
            sentence = re.search(r"f?\"((?:[^\"\\]|\\.)*)\"", source[start.end() :])
            fixed = max(re.split(r"\{[^{}]*\}", sentence[1]), key=len)
            assert any(fixed in text for text in said), f"{file.name}: nobody reads {sentence[1]!r}"


def test_models_folders_and_devices_are_checked() -> None:
    with pytest.raises(TypeError, match="model must be a Module, got .*; write model=your model"):
        regard.insert(3, "se", after="0")
    with pytest.raises(TypeError, match="model must be a Module, got .*; write model=your model"):
        regard.remove(5)
    with pytest.raises(TypeError, match=r"folder must be the path of a run, got 3; try regard.load\('runs/en-de'\)"):
        regard.load(3)
    with pytest.raises(ValueError, match="unknown device 'gpu'; known are: auto, cuda, mps, cpu"):
        join("gpu")
